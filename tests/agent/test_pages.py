"""The agent's pages over a real server: waiting for the next View, and what bad parameters get."""

import http.client
import statistics
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

import gpuwatch
from gpuwatch.agent.client import AgentClient
from gpuwatch.agent.pages import API_REFUSALS, ViewSignal, routes
from gpuwatch.config import MetricsConfig
from gpuwatch.http.server import HttpServer, Request, Response
from gpuwatch.metrics.page_cache import PageCache
from gpuwatch.model.event import EventQuery
from gpuwatch.model.recent import Recent
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.model.view import AgentStatus, Events, View
from gpuwatch.model.xid import XidEvent
from gpuwatch.rightsizing.model.recommendation import Recommendations
from tests.model.hostile import HOSTILE, unsafe
from tests.rightsizing.model.advice_factory import advice, recommendation

SECONDS = 60.0
"""The longest wait that the agent allows."""
PUBLICATIONS = 20
LATENCY = 0.05
"""Typically 2 ms; the rest is for a busy machine, which delays some answers but not three of four."""


class Stage:
    """What the pages show, published by hand."""

    def __init__(self) -> None:
        self.board = PageCache(MetricsConfig(), node="n")
        self.profiles = ("native",)
        self.published = ViewSignal()
        self.asked: list[EventQuery] = []
        self._view: View | None = None
        self.still: str | None = None
        self.advice: Recommendations | str = "nothing yet"

    def publish(self, at: float) -> None:
        view = View(snapshot=Snapshot(at=at, interval=2.0), agent=AgentStatus(version="0", started=0.0))
        self.board.publish(view)
        self._view = view
        self.published.notify()

    def ready(self) -> str | None:
        return None

    def view(self) -> View | None:
        return self._view

    def wedged(self) -> str | None:
        return self.still

    def events_json(self, query: EventQuery) -> Generator[bytes]:
        self.asked.append(query)
        body = msgspec.json.encode(Events(xids=(XidEvent(at=1.0, xid=79, source="kernel"),)))
        return (body[start : start + 10] for start in range(0, len(body), 10))

    def recent(self) -> Recent:
        return Recent()

    def recommendations(self) -> Recommendations | str:
        return self.advice


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def server(stage: Stage) -> Iterator[HttpServer]:
    server = HttpServer(routes(stage), listen="127.0.0.1:0")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(server: HttpServer) -> AgentClient:
    return AgentClient(f"http://127.0.0.1:{server.port}")


def get(server: HttpServer, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port or 0, timeout=SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_without_parameters_the_newest_view_comes_at_once(stage: Stage, client: AgentClient) -> None:
    stage.publish(7.0)
    assert client.view().snapshot.at == 7.0
    assert client.view(wait=60.0).snapshot.at == 7.0
    assert client.view(after=7.0).snapshot.at == 7.0


def test_another_view_than_the_one_seen_comes_at_once(stage: Stage, client: AgentClient) -> None:
    stage.publish(7.0)
    start = time.monotonic()
    assert client.view(after=6.5, wait=60.0).snapshot.at == 7.0
    assert client.view(after=9.0, wait=60.0).snapshot.at == 7.0  # the clock was set back
    assert time.monotonic() - start < SECONDS


def test_after_the_wait_the_present_one_comes(stage: Stage, client: AgentClient) -> None:
    stage.publish(7.0)
    start = time.monotonic()
    assert client.view(after=7.0, wait=0.1).snapshot.at == 7.0
    assert 0.1 <= time.monotonic() - start < SECONDS


def test_the_first_view_can_be_waited_for(stage: Stage, client: AgentClient, server: HttpServer) -> None:
    assert get(server, "/api/v1/view?after=0&wait=0.05")[0] == 503
    timer = threading.Timer(0.05, stage.publish, (1.0,))
    timer.start()
    assert client.view(after=0.0, wait=SECONDS).snapshot.at == 1.0
    timer.join()


def test_who_waits_is_reported_in_milliseconds(stage: Stage, client: AgentClient) -> None:
    stage.publish(0.0)
    answered: list[float] = []
    waiting = threading.Event()

    def follow() -> None:
        at = 0.0
        for _ in range(PUBLICATIONS):
            waiting.set()
            view = client.view(after=at, wait=SECONDS)
            answered.append(time.perf_counter())
            at = view.snapshot.at

    follower = threading.Thread(target=follow)
    follower.start()
    published = []
    for number in range(PUBLICATIONS):
        assert waiting.wait(SECONDS)
        waiting.clear()
        time.sleep(0.02)  # its request is on the way
        published.append(time.perf_counter())
        stage.publish(number + 1.0)
    follower.join(SECONDS)
    took = [there - here for here, there in zip(published, answered, strict=True)]
    print(f"from publication to the client: median {statistics.median(took) * 1e3:.1f} ms, worst {max(took) * 1e3:.1f}")
    assert sorted(took)[PUBLICATIONS // 4] < LATENCY


@pytest.mark.parametrize("query", ["after=x&wait=1", "after=-1&wait=1", "after=1&wait=61", "after=1&wait=nan"])
def test_bad_waits_are_refused_in_words(stage: Stage, server: HttpServer, query: str) -> None:
    stage.publish(7.0)
    status, line = get(server, f"/api/v1/view?{query}")
    assert (status, "use a number from" in line) == (400, True)


@pytest.mark.parametrize("value", [HOSTILE, "-1\n"])
@pytest.mark.parametrize(
    "page",
    ["metrics?profile", "metrics?name[]", "live?after", "live?wait", "api/v1/events?kind", "api/v1/events?limit"],
)
def test_a_refusal_is_one_line_whatever_the_query_holds(server: HttpServer, page: str, value: str) -> None:
    status, line = get(server, f"/{page}={quote(value)}")
    assert (status, line.count("\n"), unsafe(line)) == (400, 1, set())


@pytest.mark.parametrize("coding", ["gzip", "identity"])
def test_a_cache_keeps_each_form_of_the_metrics_apart(stage: Stage, coding: str) -> None:
    found = routes(stage)["/metrics"](Request(path="/metrics", headers={"accept-encoding": coding}))
    assert isinstance(found, Response)
    assert dict(found.headers) == {
        "Vary": "Accept, Accept-Encoding",
        **({"Content-Encoding": "gzip"} if coding == "gzip" else {}),
    }


def test_events_are_asked_for_as_the_client_says(stage: Stage, client: AgentClient, server: HttpServer) -> None:
    query = EventQuery(since=12.5, limit=3, kinds=("xid", "action"))
    assert client.events(query).xids[0].xid == 79
    client.events()
    assert stage.asked == [query, EventQuery()]
    status, line = get(server, "/api/v1/events?kind=panic")
    assert (status, line.startswith("unknown kind panic")) == (400, True)


def test_recommendations_are_reported_or_why_there_are_none(
    stage: Stage, server: HttpServer, client: AgentClient
) -> None:
    assert get(server, "/api/v1/recommendations") == (503, "nothing yet\n")
    stage.advice = advice(recommendation("chat", 24.0))
    assert client.recommendations() == stage.advice
    assert "/api/v1/recommendations" in get(server, "/")[1]


def test_a_wedged_agent_is_not_healthy(stage: Stage, server: HttpServer) -> None:
    assert get(server, "/-/healthy") == (200, "ok\n")
    stage.still = "the publisher has stood still for 20 s"
    assert get(server, "/-/healthy") == (503, "wedged: the publisher has stood still for 20 s\n")
    assert get(server, "/healthz")[0] == 503


def test_advice_is_encoded_once_however_many_ask(stage: Stage) -> None:
    stage.advice = advice(recommendation("chat", 24.0))
    page = routes(stage)["/api/v1/recommendations"]
    first, second = (page(Request(path="/api/v1/recommendations")) for _ in range(2))
    assert isinstance(first, Response)
    assert isinstance(second, Response)
    assert first.body is second.body
    stage.advice = advice(recommendation("chat", 25.0))
    third = page(Request(path="/api/v1/recommendations"))
    assert isinstance(third, Response)
    assert third.body != first.body


def test_each_runbook_of_the_package_is_served_by_its_name_and_as_a_file(server: HttpServer) -> None:
    folder = Path(gpuwatch.__file__).parents[1] / "docs/runbooks"
    for name in ("GpuFellOffBus", "GpuwatchDown"):
        contents = (folder / f"{name}.md").read_text()
        assert get(server, f"/runbooks/{name}") == get(server, f"/runbooks/{name}.md") == (200, contents)
    assert get(server, "/runbooks/") == (200, (folder / "README.md").read_text())


def test_no_page_without_a_login_is_made_while_it_is_sent(stage: Stage) -> None:
    """Few clients that read nothing would keep all others from such pages, for a minute each."""
    stage.publish(7.0)
    pages = {path: handler(Request(path=path)) for path, handler in routes(stage).items()}
    streamed = {path for path, page in pages.items() if isinstance(page, Response) and isinstance(page.body, Generator)}
    assert len(pages) > 50
    assert streamed == {"/api/v1/events"}
    assert streamed <= API_REFUSALS.keys()


@pytest.mark.parametrize("path", ["../__init__.py", "..%2f__init__.py", "/etc/passwd", "%2e%2e/agent/pages.py", "x.md"])
def test_below_runbooks_there_is_nothing_else(server: HttpServer, path: str) -> None:
    assert get(server, f"/runbooks/{path}") == (404, "no such page; / lists what is here\n")
