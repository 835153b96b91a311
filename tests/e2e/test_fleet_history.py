"""The history of a small fleet, out of a real Prometheus: the windows that come of it, limits and logins."""

import contextlib
import http.server
import json
import subprocess
import threading
import urllib.parse
import urllib.request
from collections import defaultdict

import bcrypt
import msgspec
import pytest
import trustme

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.errors import GpuwatchError, PermissionMissing
from gpuwatch.rightsizing.model.mig_profiles import instance
from gpuwatch.rightsizing.prometheus.api import PrometheusApi
from gpuwatch.rightsizing.prometheus.chunk import ChunkReader
from gpuwatch.rightsizing.prometheus.config import load_http_config
from gpuwatch.rightsizing.prometheus.history import FleetHistory
from gpuwatch.rightsizing.prometheus.http import PrometheusHttp
from gpuwatch.rightsizing.prometheus.read_plan import HistoryOptions, read_plan
from gpuwatch.rightsizing.usage.prometheus_windows import windows
from tests.e2e.backfilled import backfill, lines, serving
from tests.e2e.fleet_past import BEGIN, END, GIB, H100, HANDOVER, SCRAPE, STEP, TIMES, past, uuid

OPTIONS = HistoryOptions(window=END - BEGIN, end=END, metrics="gpuwatch")
SMALL = msgspec.structs.replace(OPTIONS, points=40)
STEPS = (END - BEGIN) // STEP


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return backfill(tmp_path_factory.mktemp("past"), past())


@pytest.fixture(scope="module")
def url(place):
    with serving(place) as server:
        yield server.url


def api(url, **more):
    return PrometheusApi(PrometheusHttp(url, rate=1000, **more))


@contextlib.contextmanager
def asking(url, **more):
    """An API whose connection is closed in the end."""
    asked = api(url, **more)
    try:
        yield asked
    finally:
        asked.http.close()


def by_pod(url, **changes):
    """Windows by pod."""
    options, found = msgspec.structs.replace(OPTIONS, **changes), defaultdict(list)
    with asking(url) as asked:
        plan = read_plan(asked, options, END)
        reader = ChunkReader(asked, plan.dialect, options.namespaces, plan.way)
        for window in windows(reader.read(plan.begin, plan.step, plan.total)):
            found[window.pod].append(window)
    return found


TOO_LARGE = "query processing would load too many samples into memory in query execution"


@contextlib.contextmanager
def refusing(url, words, until=END):
    """Its address, with a server before it for which queries with these words are too large that begin before then."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            form = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked_from = urllib.parse.parse_qs(form.decode()).get("start", ["0"])[0]
            if words.encode() in form and float(asked_from) < until:
                status = 422
                body = json.dumps({"status": "error", "errorType": "execution", "error": TOO_LARGE}).encode()
            else:
                asked = urllib.request.Request(url + self.path, form or None)
                with urllib.request.urlopen(asked) as answer:
                    status, body = answer.status, answer.read()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def seen(url):
    return by_pod(url)


def history(url, options=OPTIONS, **more):
    return FleetHistory(api(url), RightsizingConfig(), options, **more)


def test_a_step_of_a_pod_counts_once_however_often_it_was_scraped(seen):
    found = seen["train-abcde"]
    assert [(w.at, w.span, w.covered) for w in found] == [(BEGIN + n * STEP, STEP, STEP) for n in range(STEPS)]


def test_figures_of_who_is_alone_are_the_gpus(seen):
    window = seen["train-abcde"][1]
    assert (window.busy, window.busy_low, window.busy_high) == pytest.approx((0.9, 0.9, 0.9))
    assert (window.sm, window.dram, window.pipe) == pytest.approx((0.45, 0.3, 0.225))
    assert (window.memory, window.memory_low, window.memory_total) == (40 * GIB, 40 * GIB, 80 * GIB)
    assert (window.watts, window.power_limit, window.processes) == (550, 700, 2)
    assert (window.gpu, window.index, window.node, window.holders) == (uuid("a"), 0, "node-1", 1)


def test_counters_are_rates_also_where_they_start_over(seen):
    rates = [window.pcie for window in seen["train-abcde"]]
    assert min(rates) > 1.4e6
    assert max(rates) < 2.1e6


def test_the_model_is_what_it_is_called_now(seen):
    assert {window.model for window in seen["train-abcde"]} == {H100}


def test_kubernetes_shows_owner_image_class_start_and_throttling(seen):
    window = seen["train-abcde"][5]
    assert (window.key.kind, window.key.name, window.key.image) == ("CronJob", "train", "registry/train:7")
    assert (window.declared_class, window.autotune) == ("batch", "off")
    assert (window.held_since, window.cpu_throttled) == (BEGIN - 1000, pytest.approx(0.3))


def test_a_throttling_query_that_is_too_large_costs_the_throttling_alone(url, seen):
    with refusing(url, "throttled_periods") as proxy:
        found = by_pod(proxy)
    assert {pod: len(rows) for pod, rows in found.items()} == {pod: len(rows) for pod, rows in seen.items()}
    assert seen["train-abcde"][5].cpu_throttled is not None
    assert found["train-abcde"][5] == msgspec.structs.replace(seen["train-abcde"][5], cpu_throttled=None)


def test_throttling_is_asked_for_again_after_a_stretch_without_it(url):
    with refusing(url, "throttled_periods", until=BEGIN + 5 * STEP) as proxy, asking(proxy) as asked:
        plan = read_plan(asked, OPTIONS, END)
        reader = ChunkReader(asked, plan.dialect, (), plan.way)
        found = [windows(reader.read(BEGIN + first * STEP, STEP, 5)) for first in (0, 5)]
        before, after = ([w.cpu_throttled for w in some if w.pod == "train-abcde"] for some in found)
    assert before == [None] * 5
    assert after == pytest.approx([0.3] * 5)


def test_who_shares_a_gpu_has_only_what_is_his_own(seen):
    for pod, busy, memory in (("web-1", 0.3, 4 * GIB), ("web-2", 0.2, 6 * GIB)):
        window = seen[pod][3]
        assert (window.holders, window.busy, window.memory) == (2, pytest.approx(busy), memory)
        assert (window.sm, window.dram, window.pipe, window.pcie, window.processes) == (None,) * 5


def test_an_instance_is_reported_in_shares_of_the_whole_gpu(seen):
    window = seen["jupyter-ann"][3]
    share = instance(H100, None, "1g.10gb").sm_share
    assert (window.profile, window.busy, window.sm) == ("1g.10gb", 0.4, pytest.approx(0.5 * share))
    assert (window.memory, window.watts, window.pcie) == (5 * GIB, 200, None)


def test_labels_that_a_scrape_job_has_renamed_are_found(seen):
    assert {window.key.namespace for window in seen["infer-0"]} == {"ml"}
    assert "gpuwatch-xyz" not in seen


def test_a_handover_within_a_step_gives_each_his_part_and_nobody_the_others_figures(seen):
    one, two = seen["one-0"], seen["two-0"]
    assert one[-1].at + one[-1].span == pytest.approx(HANDOVER, abs=SCRAPE)
    assert two[0].at == pytest.approx(HANDOVER, abs=2 * SCRAPE)
    assert sum(w.covered for w in one + two) == pytest.approx(END - BEGIN, abs=2 * SCRAPE)
    for window in (one[-1], two[0]):
        assert (window.holders, window.busy, window.memory) == (1, None, None)
    assert (one[-2].busy, two[1].busy) == (0.7, 0.7)


def test_a_namespace_alone(url, seen):
    found = by_pod(url, namespaces=("shop", "ml"))
    assert set(found) == {"web-1", "web-2", "infer-0"}
    assert found["web-1"] == seen["web-1"]


def test_dcgm_exporter_will_do(url):
    found = by_pod(url, metrics="dcgm")
    assert set(found) == {"train-abcde"}
    window = found["train-abcde"][3]
    assert (window.busy, window.memory, window.memory_total) == (0.9, 40 * GIB, 79 * GIB)
    assert (window.model, window.node, window.watts, window.key.namespace) == (H100, "node-a", 550, "nlp")


def test_the_fleet_has_its_gpus_and_quotas(url):
    ledger, fleet = history(url).read()
    gpus = {each.uuid: each for each in fleet.gpus}
    assert set(gpus) == {uuid(letter) for letter in "abcdef9"}
    assert [gpus[uuid(letter)].held for letter in "ae9"] == [True, False, True]
    assert (gpus[uuid("c")].mig_enabled, gpus[uuid("c")].layout) == (True, ("1g.10gb",))
    quotas = {each.namespace: (each.quota, each.hard, each.used) for each in fleet.namespaces if each.quota}
    assert quotas == {"nlp": ("gpu", 8, 2), "ghost": ("gpu", 4, 0), "night": ("gpu", 6, 0)}
    assert len(list(ledger.summaries(END))) == 6
    assert fleet.whole


def test_a_server_that_takes_only_small_questions_gives_the_same(place, url, tmp_path):
    whole = history(url).read()[0].state()
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(place), str(copy)], check=True)
    (copy / "lock").unlink(missing_ok=True)
    with serving(copy, "--query.max-samples=700") as small:
        asked = api(small.url)
        parted = FleetHistory(asked, RightsizingConfig(), OPTIONS).read()[0].state()
    assert asked.http.traffic.requests > 60
    assert parted == whole


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """(URL, folder with CA and configurations) of a Prometheus behind TLS and a password."""
    place = tmp_path_factory.mktemp("closed")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(place / "ca.pem")
    server = authority.issue_cert("prometheus.example")
    server.private_key_pem.write_to_path(place / "key.pem")
    server.cert_chain_pems[0].write_to_path(place / "cert.pem")
    secret = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(4)).decode()
    tls = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}"
    (place / "web.yaml").write_text(f"{tls}\nbasic_auth_users: {{ann: {secret}}}\n")
    (place / "password").write_text("open sesame\n")
    data = backfill(place / "data", past())
    with serving(data, f"--web.config.file={place / 'web.yaml'}") as server:
        yield server.url.replace("http://", "https://"), place


def test_tls_and_a_password_as_prometheus_knows_them(closed):
    url, place = closed
    file = place / "http.yaml"
    file.write_text(
        "basic_auth: {username: ann, password_file: password}\n"
        "tls_config: {ca_file: ca.pem, server_name: prometheus.example}\n"
    )
    with asking(url, config=load_http_config(file)) as asked:
        plan = read_plan(asked, OPTIONS, END)
    assert plan.gpus == 7


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ("tls_config: {ca_file: ca.pem, server_name: prometheus.example}", PermissionMissing, "--http-config"),
        ("tls_config: {server_name: prometheus.example}", GpuwatchError, "certificate"),
        ("tls_config: {ca_file: ca.pem}", GpuwatchError, "certificate"),
    ],
)
def test_a_refused_user_gets_the_reason(closed, tmp_path, config, error, words):
    url, place = closed
    file = place / "wrong.yaml"
    file.write_text(config)
    with asking(url, config=load_http_config(file)) as asked, pytest.raises(error, match=words):
        read_plan(asked, OPTIONS, END)


def test_a_prometheus_without_gpus_is_distinguished_from_one_with_idle_ones(tmp_path):
    other = backfill(tmp_path / "other", lines("up", {"job": "x"}, TIMES))
    with serving(other) as server, pytest.raises(GpuwatchError, match="knows no GPU"):
        history(server.url).read()


def test_what_nobody_was_seen_to_use_may_have_been_promised_by_day(url):
    _, fleet = history(url, msgspec.structs.replace(OPTIONS, window=86400.0)).read()
    active = {each.namespace: each.active for each in fleet.namespaces if each.namespace in ("ghost", "night")}
    assert active == {"ghost": (0.0,), "night": (5.0,)}


MIXED_TIMES = range(END - 7200, END, 60)


def _mixed():
    """gpuwatch is tried out on one node of two; the memory of a GPU changes within each step; another is cut."""
    text = lines("gpuwatch_gpu_info", {"gpu": "0", "uuid": uuid("a"), "node": "n1", "model": H100}, MIXED_TIMES)
    text += lines("gpuwatch_gpu_memory_used_bytes", {"gpu": "0", "uuid": uuid("a")}, MIXED_TIMES, GIB)
    cut = {"GPU_I_ID": "2", "GPU_I_PROFILE": "1g.10gb"}
    for letter, more in (("a", {"namespace": "nlp", "pod": "train-0", "container": "main"}), ("b", {}), ("c", cut)):
        at = {"gpu": "0", "UUID": uuid(letter), "modelName": H100, "Hostname": f"n-{letter}", **more}
        high, low = (70, 10) if letter == "a" else (0, 0)
        for field, when, else_ in (("USED", high, low), ("FREE", 79 - high, 79 - low)):
            size = lambda t, when=when, else_=else_: 1024 * (when if t // 60 % 2 else else_)  # noqa: E731
            text += lines(f"DCGM_FI_DEV_FB_{field}", at, MIXED_TIMES, size)
        text += lines("DCGM_FI_DEV_GPU_UTIL", at, MIXED_TIMES, 90 if letter == "a" else 0)
    return text


def test_the_exporter_that_knows_more_gpus_is_asked_and_none_is_larger_than_it_is(tmp_path):
    with serving(backfill(tmp_path / "data", _mixed())) as server:
        options = HistoryOptions(window=7200.0, end=END)
        (window, *_) = by_pod(server.url, window=7200.0, metrics="auto")["train-0"]
        _, fleet = history(server.url, options).read()
    assert (window.memory, window.memory_total) == (70 * GIB, 79 * GIB)
    gpus = {each.uuid: (each.held, each.mig_enabled, each.layout) for each in fleet.gpus}
    assert gpus == {
        uuid("a"): (True, None, ()),
        uuid("b"): (False, None, ()),
        uuid("c"): (False, True, ("1g.10gb",)),
    }
