"""The agent's pages: path to handler. Every body is ready before the request, or rendered from one View.

Exceptions: a request that waits for a newer View; events, which another thread reads from the disk while they are sent.
Only four of those may be sent at once, so they are pages for users only.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol, get_args

import msgspec

import gpuwatch
from gpuwatch.agent import page
from gpuwatch.config import Profile
from gpuwatch.http.message import CONTENT_TYPES, accepts_gzip, negotiate_format
from gpuwatch.http.server import Handler, Request, Response, text
from gpuwatch.metrics.dcgm_profile import DCGM_FAMILIES
from gpuwatch.metrics.metric import Metric
from gpuwatch.metrics.native import METRICS
from gpuwatch.metrics.page_cache import PageCache
from gpuwatch.metrics.process import SelfMetrics
from gpuwatch.metrics.selection import requested
from gpuwatch.model.event import EventQuery, event_query, number
from gpuwatch.model.recent import Recent
from gpuwatch.model.view import View
from gpuwatch.rightsizing.model.recommendation import Recommendations
from gpuwatch.rightsizing.service.metrics import RIGHTSIZING_METRICS

JSON = "application/json"

MAX_WAIT = 60.0
"""Most seconds that a request may wait for a View."""


class ViewSignal:
    """Any thread may call `notify`; every coroutine in `wait_for` then checks its condition again.

    `_lock` guards the set of waiting coroutines.
    """

    def __init__(self) -> None:
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()

    def notify(self) -> None:
        """Wake all coroutines that wait; does not block."""
        with self._lock:
            waiting = tuple(self._waiting)
        for loop, event in waiting:
            with contextlib.suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(event.set)

    async def wait_for(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until `holds`, checked now and at each `notify`; whether it did within `seconds`."""
        own = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:  # before the first check: a `notify` in between is not lost
            self._waiting.add(own)
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    await own[1].wait()
                    own[1].clear()
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.discard(own)
        return True


class PageContext(Protocol):
    """The members of the agent that the pages need."""

    board: PageCache
    published: ViewSignal
    """Notified for each new View."""
    profiles: tuple[str, ...]

    def ready(self) -> str | None:
        """None when a fresh snapshot exists, else why not."""
        ...

    def wedged(self) -> str | None:
        """Why only a new process helps, else None."""
        ...

    def view(self) -> View | None:
        """The newest View."""
        ...

    def recent(self) -> Recent:
        """The last minutes of each GPU."""
        ...

    def events_json(self, query: EventQuery) -> Generator[bytes]:
        """The events, as JSON of `Events` in pieces; each piece may have to wait for a disk."""
        ...

    def recommendations(self) -> Recommendations | str:
        """Workloads that hold more GPU than they use, or in words why there is no answer."""
        ...


@cache
def page_families() -> frozenset[str]:
    """Names of all families that the agent's page may have, whatever the configuration."""
    rows: tuple[Metric[Any], ...] = (*METRICS, *RIGHTSIZING_METRICS)
    return frozenset(
        (*(row.full_name for row in rows), *DCGM_FAMILIES, *(family.name for family in SelfMetrics().families(0)))
    )


def routes(agent: PageContext) -> Mapping[str, Handler]:
    """The table that the HTTP server serves."""

    def healthy(_: Request) -> Response:
        why = agent.wedged()
        return text(200, "ok") if why is None else text(503, f"wedged: {why}")

    def ready(_: Request) -> Response:
        why = agent.ready()
        return text(200, "ready") if why is None else text(503, f"not ready: {why}")

    def newest() -> Response:
        body = agent.board.view_json()
        if body is None:
            return text(503, "no snapshot yet; ask again in a moment")
        return Response(content_type=JSON, body=body)

    def recent(_: Request) -> Response:
        return Response(content_type=JSON, body=msgspec.json.encode(agent.recent()))

    def events(request: Request) -> Response:
        try:
            return Response(content_type=JSON, body=agent.events_json(event_query(request.query)))
        except ValueError as error:
            return text(400, str(error))

    return {
        "/metrics": _metrics(agent),
        **dict.fromkeys(("/-/healthy", "/healthz"), healthy),
        **dict.fromkeys(("/-/ready", "/readyz", "/health"), ready),
        "/api/v1/view": _of_newest_view(agent, newest),
        "/api/v1/events": events,
        "/api/v1/recent": recent,
        "/api/v1/recommendations": _recommendations(agent),
        **dict(_runbooks()),
        "/": lambda _: page.page(agent.view(), agent.recent(), LINKS),
        "/live": _of_newest_view(agent, _live(agent)),
        **{path: lambda request: page.file(request.path) for path in page.FILES},
    }


def _of_newest_view(agent: PageContext, answer: Callable[[], Response]) -> Handler:
    """A page of the newest View, or with `after` and `wait` of the first one that is another."""

    def handler(request: Request) -> Response | Coroutine[Any, Any, Response]:
        try:
            after = number(request.query, "after", 0, float("inf"))
            wait = number(request.query, "wait", 0, MAX_WAIT)
        except ValueError as error:
            return text(400, str(error))
        return answer() if after is None or not wait else newer(after, wait)

    async def newer(after: float, wait: float) -> Response:
        """Wait for another View than that of `after`, also if the clock was set back or the agent restarted."""
        await agent.published.wait_for(lambda: (now := agent.view()) is not None and now.snapshot.at != after, wait)
        return answer()

    return handler


def _live(agent: PageContext) -> Callable[[], Response]:
    """The middle of the page at `/`, rendered once for each View, however many pages are open."""
    latest: tuple[View | None, bytes] = (None, page.live(None, Recent()).encode())

    def answer() -> Response:
        nonlocal latest
        view = agent.view()
        if latest[0] is not view:
            latest = view, page.live(view, agent.recent()).encode()
        return Response(content_type=page.HTML, body=latest[1], headers=page.HEADERS)

    return answer


def _runbooks() -> Iterator[tuple[str, Handler]]:
    """A route for each runbook of the package: no path that a client sends is opened."""

    def handler(page: Response) -> Handler:
        return lambda _: page

    package = Path(gpuwatch.__file__).parent
    installed, checkout = package / "runbooks", package.parent / "docs/runbooks"
    for file in (installed if installed.is_dir() else checkout).glob("*.md"):
        page = Response(body=file.read_bytes())
        for name in ("",) if file.stem == "README" else (file.stem, file.name):
            yield f"/runbooks/{name}", handler(page)


def _metrics(agent: PageContext) -> Handler:
    """The exposition with the format, the profiles and the families that a scrape asks for."""

    def page(request: Request) -> Response:
        profiles = tuple(dict.fromkeys(request.query.get("profile", agent.profiles)))
        unknown = [name for name in profiles if name not in get_args(Profile)]
        if unknown:
            return text(400, f"unknown profile {unknown[0]}; use one of {', '.join(get_args(Profile))}")
        try:
            only = requested(request.query, page_families())
        except ValueError as error:
            return text(400, str(error))
        form = negotiate_format(request.headers.get("accept"))
        gzip = accepts_gzip(request.headers.get("accept-encoding"))
        body = agent.board.page(profiles, form == "openmetrics", gzip, only)
        headers = (("Vary", "Accept, Accept-Encoding"), *((("Content-Encoding", "gzip"),) if gzip else ()))
        return Response(content_type=CONTENT_TYPES[form], body=body, headers=headers)

    return page


def _recommendations(agent: PageContext) -> Handler:
    """A page that encodes the same advice once, however many clients ask for it."""
    encoded: tuple[object, bytes] = (None, b"")

    def page(_: Request) -> Response:
        nonlocal encoded
        advice = agent.recommendations()
        if isinstance(advice, str):
            return text(503, advice)
        if encoded[0] is not advice:
            encoded = advice, msgspec.json.encode(advice)
        return Response(content_type=JSON, body=encoded[1])

    return page


API = (
    ("/api/v1/view", "everything as JSON"),
    ("/api/v1/events", "XIDs, findings and actions as JSON"),
    ("/api/v1/recent", "the last ten minutes of each GPU as JSON"),
    ("/api/v1/recommendations", "workloads that hold more GPU than they use, as JSON"),
)
API_REFUSALS = dict.fromkeys(
    (path for path, _ in API),
    text(
        403,
        "pods, users, processes and serial numbers need authentication over TCP; use the agent's unix socket, "
        "add basic_auth_users to its web configuration (--web-config), or set `agent.api: open`",
    ),
)
"""Path -> refusal of a request over TCP, unless the web configuration identifies every client."""

LINKS = (
    ("/metrics", "metrics for Prometheus"),
    *((path, f"{what}; on the unix socket; here with a user name and password") for path, what in API),
    ("/runbooks/", "what an alert means and what to do"),
    ("/-/ready", "readiness"),
    ("/-/healthy", "liveness"),
)
