"""Counters of work from pods' own pages: what is taken from a page, and within which bounds."""

import http.server
import itertools
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.consents import progress
from gpuwatch.consents.file import ConsentsFile, progress_file
from gpuwatch.consents.progress import (
    KEPT_SAMPLES,
    MOST_BUCKETS,
    MOST_PODS,
    ProgressFollower,
    counted,
    fetch,
    presets,
    progress_page,
)
from gpuwatch.model.consent import OLD_SECONDS, PROGRESS, Consents, Histogram, PodConsent, Progress, ProgressCounter
from gpuwatch.model.errors import GpuwatchError
from tests.remediation.model.remediating import FakeClock

PAGE = b"""# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="a } \\" b"} 4.2421665e+07
vllm:generation_tokens_total{engine="1",model_name="c"} 10.0 1790000000000
vllm:generation_tokens_total_created{engine="0"} 1.79e+09
vllm:prompt_tokens_total 7
"""


class Server(http.server.ThreadingHTTPServer):
    """A pod's page. `answer` writes the whole response to a connection."""

    body = PAGE
    status = 200
    headers: tuple[tuple[str, str], ...] = ()
    asked = 0


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(self.server.status)
        for name, value in self.server.headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def test_the_fullest_file_can_be_written(tmp_path: Path) -> None:
    counts = tuple(1.0234567890123456e15 + each for each in range(MOST_BUCKETS + 1))
    bounds = tuple(each + 0.12345678901234567 for each in range(MOST_BUCKETS))
    waits = Histogram(bounds=bounds, samples=((1.79e9 + 0.123456, counts),) * KEPT_SAMPLES)
    full = ProgressCounter(
        samples=((1.79e9 + 0.123456, counts[0]),) * KEPT_SAMPLES, histograms=dict.fromkeys("abc", waits)
    )
    written = Progress(at=1.79e9, owners={f"{'u' * 34}{number:02}": full for number in range(MOST_PODS)})
    file = progress_file(tmp_path)
    file.write(written)
    assert file.read() == written


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def get(port: int, metric: str = "vllm:generation_tokens_total") -> float:
    page = progress.ProgressPage(port, "/metrics", (metric,))
    value = counted(fetch("127.0.0.1", page, loopback=True), page.metrics)
    assert value is not None
    return value


def test_all_samples_of_the_metric_are_added_up_and_nothing_else():
    assert counted(PAGE, ("vllm:generation_tokens_total",)) == 42421675.0
    assert counted(PAGE, ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")) == 42421682.0
    assert counted(b"x_total 5", ("x_total",)) == 5.0
    assert counted(b"x_total 5\r\n", ("x_total",)) == 5.0


@pytest.mark.parametrize(
    "body",
    [b"", b"x_totals 5", b"x_total", b"x_total NaN", b"x_total +Inf", b"x_total -1", b"x_total five", b" x_total 5"],
)
def test_what_is_no_count_is_none(body):
    assert counted(body, ("x_total",)) is None


def test_a_page_is_named_by_a_preset_or_by_port_path_and_metric():
    assert progress_page("vllm") == (8000, "/metrics", ("vllm:generation_tokens_total",))
    assert progress_page("vllm:8001").port == 8001
    assert progress_page("http://:9000/a/b#tokens_total") == (9000, "/a/b", ("tokens_total",))
    assert {"vllm", "sglang", "tgi", "triton", "tensorrt-llm", "ray-serve"} <= presets().keys()
    assert all(preset.source.startswith("https://") for preset in presets().values())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unknown",
        "vllm:0",
        "vllm:70000",
        "http://10.0.0.1:80/metrics#x",  # another's address
        "http://evil@:80/metrics#x",
        "https://:80/metrics#x",
        "http://:80/metrics",
        "http://:80/me trics#x",
        "http://:80/metrics\r\nHost: x#x",
        "http://:80/metrics?a=b#x",
        "http://:80/metrics#x{a=1}",
    ],
)
def test_whatever_else_the_annotation_says_is_refused(text):
    with pytest.raises(GpuwatchError, match="neither one of"):
        progress_page(text)


def test_a_page_is_read(server):
    assert get(server.server_address[1]) == 42421675.0


def test_no_redirect_is_followed(server):
    server.status, server.headers = 302, (("Location", f"http://127.0.0.1:{server.server_address[1]}/metrics"),)
    with pytest.raises(GpuwatchError, match="answers 302"):
        get(server.server_address[1])
    assert server.asked == 1


def test_a_page_that_is_too_large_or_cut_off_is_refused(server, monkeypatch):
    server.headers = (("Content-Length", str(len(PAGE) + 1)),)
    with pytest.raises(GpuwatchError, match="IncompleteRead"):
        get(server.server_address[1])
    monkeypatch.setattr(progress, "MOST_BYTES", len(PAGE) - 1)
    server.headers = ()
    with pytest.raises(GpuwatchError, match="more than"):
        get(server.server_address[1])


@pytest.mark.parametrize("size", [b"-5", b"-1", b"x"])
def test_a_chunk_of_a_size_that_is_none_is_an_answer_that_cannot_be_read(size: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\nabc\r\n0\r\n\r\n"
                )

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(GpuwatchError, match="IncompleteRead"):
            fetch("127.0.0.1", progress_page(f"http://:{listener.getsockname()[1]}/metrics#x_total"), loopback=True)
        thread.join()


GROWTH = """
import resource, sys
from gpuwatch.consents.progress import MOST_BYTES, counted
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
page = (b"x_total{" + sys.argv[1].encode() * MOST_BYTES)[:MOST_BYTES]
counted(page, ("x_total",))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("part", ['"a', "a", 'a="\\\\'])
def test_no_page_costs_more_than_a_few_times_its_size(part: str) -> None:
    """The limit of the process is 128 MiB."""
    ended = subprocess.run([sys.executable, "-c", GROWTH, part], capture_output=True, text=True, check=True)
    assert int(ended.stdout) < 24 << 10


def test_a_page_that_drips_is_given_up_in_time(monkeypatch):
    monkeypatch.setattr(progress, "ANSWER_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                while not ended.wait(0.01):
                    try:
                        connection.sendall(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(GpuwatchError, match="timed out"):
                get(listener.getsockname()[1])
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "fe80::1"]
)
def test_only_an_address_that_can_be_a_pods_own_is_asked(address):
    with pytest.raises(GpuwatchError, match="no pod's own address"):
        fetch(address, progress_page("vllm"))


def test_what_is_no_address_is_an_error_that_names_it():
    with pytest.raises(GpuwatchError, match=r"no counter at port 8000.*'not-an-ip'"):
        fetch("not-an-ip", progress_page("vllm"))


class Node:
    """Pods that name a counter, the files, and the process between them."""

    def __init__(self, folder, port: int, text: str = "", ip: str | None = "127.0.0.1") -> None:
        self.clock, self.consents, self.file = FakeClock(), ConsentsFile(folder), progress_file(folder)
        self.text, self.ip = text or f"vllm:{port}", ip
        self.follower = ProgressFollower(self.consents, self.file, self.clock, loopback=True)
        self.say()

    def say(self, **annotations: str) -> None:
        said = annotations or {PROGRESS: self.text}
        pod = PodConsent(namespace="ml", name="chat-0", uid="u", annotations=said, ip=self.ip)
        self.consents.write(Consents(at=self.clock.time(), pods=(pod,)))

    def step(self):
        self.follower.step()
        self.clock.go(1.0)
        return self.file.read()


def test_the_newest_samples_are_beside_the_consents(server, tmp_path):
    node = Node(tmp_path, server.server_address[1])
    for _ in range(KEPT_SAMPLES + 2):
        found = node.step()
    samples = found.owners["u"].samples
    assert (len(samples), found.owners["u"].trouble) == (KEPT_SAMPLES, "")
    assert [b[0] - a[0] for a, b in itertools.pairwise(samples)] == [1.0] * (KEPT_SAMPLES - 1)
    assert {value for _, value in samples} == {42421675.0}


def test_a_page_that_fails_says_why_and_keeps_what_was_known(server, tmp_path):
    node = Node(tmp_path, server.server_address[1])
    node.step()
    server.body = b"\x1b[31mnothing\n"
    found = node.step().owners["u"]
    assert len(found.samples) == 1
    assert "no vllm:generation_tokens_total that counts" in found.trouble
    assert "\x1b" not in found.trouble


def test_a_namespace_may_name_the_counter_of_its_pods(server, tmp_path):
    node = Node(tmp_path, server.server_address[1])
    pod = PodConsent(namespace="ml", name="chat-0", uid="u", ip="127.0.0.1")
    node.consents.write(Consents(at=node.clock.time(), namespaces={"ml": {PROGRESS: node.text}}, pods=(pod,)))
    assert node.step().owners["u"].samples


@pytest.mark.parametrize(
    ("text", "ip", "why"),
    [
        ("nonsense", "127.0.0.1", "neither one of"),
        ("vllm", None, "no address of its own"),
        ("vllm:1", "127.0.0.1", "refused"),
    ],
)
def test_what_cannot_be_asked_is_reported(tmp_path, text, ip, why):
    assert why in Node(tmp_path, 1, text, ip).step().owners["u"].trouble


def test_a_pod_that_says_no_more_and_consents_that_are_old_are_forgotten(server, tmp_path):
    node = Node(tmp_path, server.server_address[1])
    assert node.step().owners
    node.say(**{"gpuwatch.io/autotune": "enforce"})
    assert not node.step().owners
    node.say()
    assert node.step().owners
    asked = server.asked
    node.clock.go(OLD_SECONDS + 1)
    assert not node.step().owners
    assert server.asked == asked


def test_one_that_does_not_answer_delays_no_other(server, tmp_path):
    node = Node(tmp_path, server.server_address[1])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pods = tuple(
            PodConsent(namespace="ml", name=name, uid=name, annotations={PROGRESS: f"vllm:{port}"}, ip="127.0.0.1")
            for name, port in [
                *((f"silent-{number}", silent.getsockname()[1]) for number in range(4)),
                ("chat", server.server_address[1]),
            ]
        )
        node.consents.write(Consents(at=node.clock.time(), pods=pods))
        began = time.monotonic()
        found = node.step()
    assert found.owners["chat"].samples
    assert all("timed out" in found.owners[f"silent-{number}"].trouble for number in range(4))
    assert time.monotonic() - began < 3 * (progress.CONNECT_SECONDS + progress.ANSWER_SECONDS)  # of four
