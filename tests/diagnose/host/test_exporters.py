"""Exporters are asked over real sockets; whatever answers, an answer is bounded in time and size."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.host.exporters import MOST_BYTES, PORTS, Exporter, exporters, parse_answer

HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n"
DCGM = b"""# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",Hostname="n1",container="main",namespace="ml",pod="train-0"} 97
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-1",container="main",namespace="ml",pod="train-0"} 0.970000
"""
NO_PODS = b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",container="",namespace="",pod=""} 0\n'
GPUWATCH = b'gpuwatch_build_info{version="1"} 1\nDCGM_FI_DEV_GPU_UTIL{gpu="0"} 1\n'


@contextmanager
def serving(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on a port of its own that says what `talk` sends to whoever asks."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                try:
                    peer.recv(4096)
                    talk(peer)
                except OSError:
                    return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.close()
    thread.join(5)


def ask(port: int, timeout: float = 60.0) -> tuple[Exporter, ...]:
    return exporters(None, timeout, (port,))


def test_the_page_of_dcgm_exporter():
    with serving(lambda peer: peer.sendall(HEAD + DCGM)) as port:
        assert ask(port) == (
            Exporter(
                port=port,
                kind="dcgm-exporter",
                status=200,
                families=2,
                has_gpu_utilization=True,
                profiling=True,
                pods=True,
            ),
        )


def test_a_page_in_many_pieces_is_one_page():
    def talk(peer: socket.socket) -> None:
        for byte in HEAD + NO_PODS:
            peer.send(bytes((byte,)))

    with serving(talk) as port:
        found = ask(port)[0]
    assert (found.kind, found.families, found.pods, found.error) == ("dcgm-exporter", 1, False, None)


def test_gpuwatch_is_known_though_it_uses_dcgms_names():
    assert parse_answer(9400, HEAD + GPUWATCH).kind == "gpuwatch"


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", 503, "HTTP status 503"),
        (b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", 400, "HTTP status 400"),
        (b"SSH-2.0-OpenSSH_9.6p1\r\n", None, "no HTTP answer"),
        (b"", None, "no HTTP answer"),
        (b"HTTP/1.0 200 OK\r\nContent-Type", None, "no HTTP answer"),
    ],
)
def test_what_is_no_page_reports_it(answer, status, error):
    with serving(lambda peer: peer.sendall(answer)) as port:
        assert ask(port) == (Exporter(port=port, status=status, error=error),)


def test_nobody_there_is_no_entry():
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    assert ask(port) == ()


def test_only_known_ports_that_listen_are_asked():
    assert exporters((22, 10250), 1.0) == ()
    with serving(lambda peer: peer.sendall(HEAD + DCGM)) as port:
        assert exporters((22,), 1.0, (port,)) == ()
        assert len(exporters((22, port), 5.0, (port,))) == 1
    assert 9400 in PORTS


@pytest.mark.parametrize("first", [b"", HEAD, b"HTTP/1.0 200 OK\r\nX: "])
def test_one_that_never_ends_costs_no_more_than_the_time_given(first):
    stop = threading.Event()

    def talk(peer: socket.socket) -> None:
        peer.sendall(first)
        while not stop.wait(0.01):
            peer.send(b"x")

    def took() -> float:
        stop.clear()
        with serving(talk) as port:
            began = time.monotonic()
            found = ask(port, 0.3)
            ended = time.monotonic()
            stop.set()
        assert found == (Exporter(port=port, error="no whole page in time"),)
        return ended - began

    assert any(took() < 3 for _ in range(3)), "a busy machine is late now and then"


def test_a_page_without_end_is_cut():
    def talk(peer: socket.socket) -> None:
        peer.sendall(HEAD)
        while True:
            peer.sendall(b"a 1\n" * 16384)

    with serving(talk) as port:
        found = ask(port, 30.0)
    assert found == (Exporter(port=port, error=f"the page is larger than {MOST_BYTES >> 20} MiB"),)


@given(st.binary(max_size=400))
def test_any_bytes_are_an_answer_of_some_kind(answer):
    for text in (answer, HEAD + answer):
        found = parse_answer(1, text)
        assert found.error is not None or found.status == 200


@given(
    st.lists(st.sampled_from([b"DCGM_FI_DEV_GPU_UTIL", b"DCGM_FI_PROF_SM_ACTIVE", b"up", b"gpuwatch_gpus"]), max_size=5)
)
def test_families_are_the_names_of_samples(names):
    page = b"".join(name + b'{pod="a"} 1\n' for name in names)
    found = parse_answer(1, HEAD + page)
    assert found.families == len(set(names))
    assert found.pods == bool(names)
    assert found.profiling == (b"DCGM_FI_PROF_SM_ACTIVE" in names)
