"""The board: one rendering for each View, ready before the scrape, and nothing stale on it."""

import gzip
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from gpuwatch.config import MetricsConfig
from gpuwatch.http.server import HttpStats
from gpuwatch.metrics.page_cache import EXPIRY_SECONDS, MIN_STALE_SECONDS, PageCache
from gpuwatch.metrics.process import SelfMetrics
from gpuwatch.model.view import STALE_INTERVALS, View
from tests.model.view_factory import full_view
from tests.waiting import BOUND_SECONDS

NATIVE = ("native",)


class FakeClock:
    """Stands still until told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Server:
    """Counts how often its counts are asked for: once a rendering."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def stats(self) -> HttpStats:
        self.asked += 1
        if not self.gate.is_set():
            self.waiting.set()
            assert self.gate.wait(10)
        return HttpStats(
            requests={200: self.asked}, rejected={"busy": 0}, handler_errors=0, open_connections=1, reload_failures=0
        )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def board(clock: FakeClock, server: Server) -> PageCache:
    return PageCache(MetricsConfig(), node="n", clock=clock, http=server.stats)


@pytest.fixture
def view() -> View:
    return full_view(2, links=1)


def test_before_the_first_view_there_is_gpuwatch_alone(board: PageCache) -> None:
    page = board.page(NATIVE).decode()
    assert "gpuwatch_build_info{" in page
    assert "process_resident_memory_bytes " in page
    assert 'gpuwatch_http_requests_total{code="200"}' in page
    assert "gpuwatch_gpu" not in page
    assert "gpuwatch_snapshot" not in page
    assert (board.age(), board.view_json()) == (None, None)


def test_the_families_of_every_process_are_those_of_prometheus_client() -> None:
    theirs = [
        each for one in (ProcessCollector(registry=None), PlatformCollector(registry=None)) for each in one.collect()
    ]
    samples = {sample.name: sample for family in theirs for sample in family.samples}
    ours = {each.name: each for each in SelfMetrics().families(0) if not each.name.startswith("gpuwatch_")}
    assert list(ours) == list(samples)
    assert [(each.type, each.help) for each in ours.values()] == [(each.type, each.documentation) for each in theirs]
    for name, family in ours.items():
        (((labels, _), value),) = family.samples
        assert value == pytest.approx(samples[name].value, rel=0.3, abs=1), name
        assert dict(re.findall('(\\w+)="([^"]*)"', labels)) == samples[name].labels


def test_self_metrics_follow_the_time_before_the_first_view(board: PageCache) -> None:
    assert 'requests_total{code="200"} 1\n' in board.page(NATIVE).decode()
    assert 'requests_total{code="200"} 2\n' in board.page(NATIVE).decode()


def test_many_scrapes_of_one_view_cost_one_rendering(board: PageCache, server: Server, view: View) -> None:
    board.publish(view)
    assert server.asked == 0, "nobody asked yet"
    pages = {board.page(NATIVE) for _ in range(10)}
    assert (len(pages), server.asked) == (1, 1)


def test_a_page_asked_for_lately_is_ready_at_publication(board: PageCache, server: Server, view: View) -> None:
    board.publish(view)
    board.page(NATIVE)
    board.publish(full_view(2, links=1, seed=2))
    assert server.asked == 2
    page = board.page(NATIVE)
    assert server.asked == 2
    assert b"gpuwatch_snapshot_timestamp_seconds 1790000002.25" in page


def test_a_page_without_scrapes_is_not_rendered(board: PageCache, server: Server, clock: FakeClock, view: View) -> None:
    board.publish(view)
    board.page(NATIVE)
    clock.now += max(EXPIRY_SECONDS) + 1
    board.publish(view)
    assert server.asked == 1
    assert b"gpuwatch_gpu_power_watts" in board.page(NATIVE)


def test_only_the_view_that_a_regular_scraper_will_see_is_rendered_ahead(
    board: PageCache, server: Server, clock: FakeClock, view: View
) -> None:
    """Scraped every 15 seconds with a View every 2: what nobody will see costs nothing, what one will see is ready."""
    for second in range(1, 92):
        clock.now += 1
        if second % 2 == 0:
            board.publish(view)
        if second % 15 == 0:
            before = server.asked
            board.page(NATIVE)
            assert (server.asked == before) or second == 15, f"second {second}: the scraper had to wait"
    unknown, rounds = 1 + 8, 4  # until it has come twice it may come at any time
    assert server.asked <= unknown + 2 * rounds  # of 45 Views


def test_gzip_is_the_same_page(board: PageCache, server: Server, view: View) -> None:
    board.publish(view)
    packed = board.page(NATIVE, gzip=True)
    assert gzip.decompress(packed) == board.page(NATIVE)
    assert server.asked == 1
    assert packed[4:8] == b"\0\0\0\0", "a time stamp would make equal pages differ"


def test_openmetrics_with_every_profile_parses(board: PageCache, view: View) -> None:
    board.publish(view)
    names = {family.name for family in parse_openmetrics(board.page(("dcgm-4.9", "native"), openmetrics=True).decode())}
    assert {
        "gpuwatch_build",
        "gpuwatch_gpu_power_watts",
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
        "process_cpu_seconds",
    } <= names
    assert "DCGM_FI_DEV_GPU_TEMP" not in names


def test_the_order_of_profiles_makes_no_other_page(board: PageCache, server: Server, view: View) -> None:
    board.publish(view)
    first = board.page(iter(("native", "dcgm-4.8")))
    assert board.page(("dcgm-4.8", "native", "native")) is first
    assert server.asked == 1


def test_a_stale_view_leaves_what_gpuwatch_counts(board: PageCache, clock: FakeClock, view: View) -> None:
    board.publish(view)
    fresh = board.page(NATIVE).decode()
    clock.now += max(STALE_INTERVALS * view.snapshot.interval, MIN_STALE_SECONDS) + 0.1
    stale = board.page(NATIVE).decode()
    for page, shown in ((fresh, True), (stale, False)):
        assert ("gpuwatch_gpu_power_watts" in page) == shown
        assert ("gpuwatch_gpu_health" in page) == shown
        assert "gpuwatch_gpu_xid_errors_total" in page
        assert "gpuwatch_snapshot_timestamp_seconds" in page
    board.publish(view)
    assert "gpuwatch_gpu_power_watts" in board.page(NATIVE).decode()


def test_series_above_the_cap_are_dropped_and_counted(clock: FakeClock, view: View) -> None:
    board = PageCache(MetricsConfig(max_series=100), node="n", clock=clock)
    board.publish(view)
    page = board.page(NATIVE).decode()
    [line] = [line for line in page.splitlines() if line.startswith("gpuwatch_series_dropped ")]
    assert int(line.split()[1]) > 0
    samples = [line for line in page.splitlines() if line.startswith("gpuwatch_") and not line.startswith("#")]
    assert len(samples) <= 110
    assert "gpuwatch_node_health" in page
    assert "gpuwatch_gpu_nvlink" not in page


def test_nothing_is_dropped_below_the_cap(board: PageCache, view: View) -> None:
    board.publish(view)
    assert b"gpuwatch_series_dropped 0\n" in board.page(NATIVE)


def test_the_view_as_json_is_the_view(board: PageCache, clock: FakeClock, view: View) -> None:
    board.publish(view)
    body = board.view_json()
    assert body is not None
    assert msgspec.json.decode(body, type=View) == view
    assert board.view_json() is body
    clock.now += 7
    assert board.age() == 7


def test_no_ready_page_waits_for_a_publication(board: PageCache, server: Server, view: View) -> None:
    board.publish(view)
    old = board.page(NATIVE)
    server.gate.clear()
    publishing = threading.Thread(target=board.publish, args=(full_view(2, links=1, seed=2),))
    publishing.start()
    try:
        assert server.waiting.wait(10), "the publication renders"
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(board.page, NATIVE).result(timeout=BOUND_SECONDS) is old
    finally:
        server.gate.set()
        publishing.join(10)
    assert board.page(NATIVE) != old


def test_scrapes_and_publications_from_many_threads_agree(board: PageCache) -> None:
    views = [full_view(2, links=1, seed=seed) for seed in (1, 2)]
    board.publish(views[0])
    variants = [
        (p, form, packed) for p in (NATIVE, ("dcgm-4.8",)) for form in (False, True) for packed in (False, True)
    ]

    def whole(number: int) -> bool:
        profiles, form, packed = variants[number % len(variants)]
        page = board.page(profiles, form, packed)
        text = gzip.decompress(page) if packed else page
        return text.count(b"# TYPE gpuwatch_build") == 1 and text.endswith(b"# EOF\n") == form

    with ThreadPoolExecutor(4) as pool:
        scrapes = [pool.submit(whole, number) for number in range(200)]
        for number in range(20):
            board.publish(views[number % 2])
        assert all(scrape.result(timeout=30) for scrape in scrapes)


def test_pages_without_a_web_server_say_nothing_of_one(view: View) -> None:
    board = PageCache(MetricsConfig(), node="n")
    board.publish(view)
    assert b"gpuwatch_http_" not in board.page(NATIVE)
