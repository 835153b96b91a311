"""The page at `/`: whole without its script, true by itself with it, and nothing in it that others could run."""

import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from gpuwatch.agent.page import FILES, live, page
from gpuwatch.agent.pages import LINKS, routes
from gpuwatch.http.server import HttpServer, Request, Response
from gpuwatch.model.recent import Recent
from gpuwatch.model.view import View
from tests.agent.test_pages import Stage
from tests.cli.browser import browser
from tests.cli.look.test_why import hot
from tests.metrics.test_landing import Reader
from tests.model import views
from tests.model.hostile import HOSTILE, hostile, unsafe
from tests.waiting import until


class Shown(Stage):
    """An agent whose View is put there by hand."""

    def put(self, view: View) -> None:
        self.board.publish(view)
        self._view = view
        self.published.notify()


def text(view: View, recent: Recent = Recent()) -> str:  # noqa: B008 - it is frozen
    return page(view, recent, LINKS).body.decode()


def test_it_has_every_gpu_with_its_health_readings_and_pods():
    view = views.failing()
    shown = Reader(text(view, hot(view)))
    for word in ("gpu-node-07", "failed", "GPU is lost", "Findings", "Memory", "For", "Latest"):
        assert any(word in each for each in shown.texts), word
    rows = live(view, hot(view)).split("<tr>")[2:]
    assert len(rows) == len(view.snapshot.statuses)
    assert {row.count("<td") for row in rows} == {9}, "a column for each heading, also of a GPU that does not answer"
    assert "0 of 80 GiB" in rows[1] or "of 80 GiB" in rows[0]
    assert 'aria-label="98% busy on average over 2 minutes"' in rows[0]


def test_what_follows_from_a_finding_is_below_it():
    view = views.failing()
    root = view.judgement.findings[0]
    effect = replace(root, check="nvlink_down", message="links are down", caused_by=root.key)
    judged = replace(view.judgement, findings=(root, effect))
    shown = live(replace(view, judgement=judged), Recent())
    assert shown.count("<li><span") == 1
    assert '<details id="effects0"><summary>1 more follow' in shown
    assert "links are down" in shown


def test_a_finding_without_a_remedy_has_no_arrow():
    view = views.failing()
    judged = replace(view.judgement, findings=tuple(replace(each, action="") for each in view.judgement.findings))
    assert "→" not in live(replace(view, judgement=judged), Recent())


def test_a_value_that_is_unknown_is_a_dash_and_no_zero():
    view = views.healthy()
    bare = tuple(type(gpu)(identity=gpu.identity, at=gpu.at) for gpu in view.snapshot.gpus)
    row = live(replace(view, snapshot=replace(view.snapshot, gpus=bare)), Recent()).split("<tr>")[2]
    assert row.count(">–</td>") == 7


def test_nothing_of_others_becomes_markup_and_no_control_character_is_left():
    shown = text(hostile(views.failing()))
    Reader(shown)
    assert HOSTILE not in shown
    assert unsafe(shown) == set()


def test_the_browser_runs_what_the_agent_serves_and_nothing_else():
    headers = dict(page(views.healthy(), Recent(), LINKS).headers)
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert (policy["script-src"], policy["style-src"], policy["connect-src"]) == ("'self'",) * 3
    served = routes(Shown())
    assert [served[path](Request(path=path)).content_type.partition(";")[0] for path in FILES] == [
        "text/css",
        "text/javascript",
    ]


def test_one_view_is_rendered_once_however_many_pages_are_open():
    agent = Shown()
    agent.put(views.healthy())
    handler = routes(agent)["/live"]
    first, second = handler(Request(path="/live")), handler(Request(path="/live"))
    assert isinstance(first, Response)
    assert isinstance(second, Response)
    assert first.body is second.body
    agent.put(views.failing())
    third = handler(Request(path="/live"))
    assert isinstance(third, Response)
    assert b"GPU is lost" in third.body


def test_before_the_first_view_it_reports_it():
    assert "has read no GPU yet" in page(None, Recent(), LINKS).body.decode()


@pytest.fixture
def served() -> Iterator[tuple[Shown, str]]:
    agent = Shown()
    agent.put(replace(views.healthy(), snapshot=replace(views.healthy().snapshot, at=time.time())))
    server = HttpServer(routes(agent), listen="127.0.0.1:0")
    server.start()
    yield agent, f"http://127.0.0.1:{server.port}/"
    server.stop()


@pytest.mark.slow  # a browser; the tests above hold what is in the page and what its answers are
def test_an_open_page_follows_the_node_and_fits_a_phone(served):
    agent, url = served
    with browser() as tab:
        tab.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
        tab.call("Page.navigate", url=url)
        until(lambda: "llama" in (tab.value("document.body?.innerText") or ""), 30)
        until(lambda: tab.value("document.documentElement.scrollWidth <= 390"), 30)  # once the style is there
        agent.put(replace(views.failing(), snapshot=replace(views.failing().snapshot, at=time.time())))
        until(lambda: "GPU is lost" in tab.value("document.getElementById('live').innerText"), 30)
        assert "failed" in tab.value("document.getElementById('news').textContent")
        assert {each.split("?")[0].removeprefix(url) for each in tab.requests} == {"", "page.css", "page.js", "live"}
        assert tab.troubles == []
