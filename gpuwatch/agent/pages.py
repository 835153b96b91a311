"""The agent's pages: path to handler. Every body is ready before it is asked for, or rendered from one View.

Two may wait: a View that is asked for before it is there, and events, which are read from the disk by another thread.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, get_args

import msgspec

from gpuwatch.config import Profile
from gpuwatch.http.landing import landing_page
from gpuwatch.http.message import CONTENT_TYPES, accepts_gzip, negotiate_format
from gpuwatch.http.server import Handler, Request, Response, text
from gpuwatch.metrics.page_cache import PageCache
from gpuwatch.model.event import EventQuery, event_query, number
from gpuwatch.model.finding import Finding
from gpuwatch.model.recommendation import Recommendations
from gpuwatch.model.view import Events, View

JSON = "application/json"

MAX_WAIT = 60.0
"""Seconds a View may be waited for."""


class ViewSignal:
    """Any thread may call `notify`; every coroutine in `wait_for` then checks its condition again.

    `_lock` guards the set of waiting coroutines.
    """

    def __init__(self) -> None:
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()

    def notify(self) -> None:
        """Wake all that wait; does not block."""
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
    """What the pages need to know of the agent."""

    board: PageCache
    published: ViewSignal
    """Rung for each new View."""
    profiles: tuple[str, ...]

    def ready(self) -> str | None:
        """None when a fresh snapshot exists, else why not."""
        ...

    def view(self) -> View | None:
        """The newest View."""
        ...

    def events(self, query: EventQuery) -> Events:
        """What happened lately; may have to wait for a disk."""
        ...

    def recommendations(self) -> Recommendations | str:
        """Who holds more GPU than they use, or in words why nothing is said."""
        ...


def routes(agent: PageContext) -> Mapping[str, Handler]:
    """The table that the HTTP server serves."""

    def metrics(request: Request) -> Response:
        profiles = tuple(dict.fromkeys(request.query.get("profile", agent.profiles)))
        unknown = [name for name in profiles if name not in get_args(Profile)]
        if unknown:
            return text(400, f"unknown profile {unknown[0]}; use one of {', '.join(get_args(Profile))}")
        form = negotiate_format(request.headers.get("accept"))
        gzip = accepts_gzip(request.headers.get("accept-encoding"))
        body = agent.board.page(profiles, form == "openmetrics", gzip)
        headers = (("Content-Encoding", "gzip"), ("Vary", "Accept, Accept-Encoding")) if gzip else ()
        return Response(content_type=CONTENT_TYPES[form], body=body, headers=headers)

    def healthy(_: Request) -> Response:
        return text(200, "ok")

    def ready(_: Request) -> Response:
        why = agent.ready()
        return text(200, "ready") if why is None else text(503, f"not ready: {why}")

    def view(request: Request) -> Response | Coroutine[Any, Any, Response]:
        try:
            after = number(request.query, "after", 0, float("inf"))
            wait = number(request.query, "wait", 0, MAX_WAIT)
        except ValueError as error:
            return text(400, str(error))
        return _newest(agent) if after is None or not wait else newer(after, wait)

    async def newer(after: float, wait: float) -> Response:
        """Another View than that of `after`, be the clock set back meanwhile or the agent a new one."""
        await agent.published.wait_for(lambda: (now := agent.view()) is not None and now.snapshot.at != after, wait)
        return _newest(agent)

    async def events(request: Request) -> Response:
        try:
            query = event_query(request.query)
        except ValueError as error:
            return text(400, str(error))
        return Response(content_type=JSON, body=msgspec.json.encode(await asyncio.to_thread(agent.events, query)))

    return {
        "/metrics": metrics,
        **dict.fromkeys(("/-/healthy", "/healthz"), healthy),
        **dict.fromkeys(("/-/ready", "/readyz", "/health"), ready),
        "/api/v1/view": view,
        "/api/v1/events": events,
        "/api/v1/recommendations": lambda _: _recommendations(agent),
        "/": lambda _: _landing(agent),
    }


def _newest(agent: PageContext) -> Response:
    body = agent.board.view_json()
    if body is None:
        return text(503, "no snapshot yet; ask again in a moment")
    return Response(content_type=JSON, body=body)


def _recommendations(agent: PageContext) -> Response:
    body = agent.recommendations()
    return text(503, body) if isinstance(body, str) else Response(content_type=JSON, body=msgspec.json.encode(body))


LINKS = (
    ("/metrics", "metrics for Prometheus"),
    ("/api/v1/view", "everything as JSON"),
    ("/api/v1/events", "XIDs, findings and actions as JSON"),
    ("/api/v1/recommendations", "who holds more GPU than they use, as JSON"),
    ("/-/ready", "readiness"),
    ("/-/healthy", "liveness"),
)


def _where(view: View, finding: Finding) -> str:
    index = next((s.identity.index for s in view.snapshot.statuses if s.identity.uuid == finding.gpu), None)
    return finding.check if index is None else f"{finding.check} on GPU {index}"


def _landing(agent: PageContext) -> Response:
    view = agent.view()
    rows: list[tuple[str, str]] = []
    version = ""
    if view is not None:
        version = view.agent.version
        driver = view.snapshot.driver
        rows = [
            ("Node", f"{view.snapshot.node or ''} is {view.judgement.node}".strip()),
            ("Driver", driver.version if driver and driver.version else "not answering"),
            *(
                (
                    f"GPU {status.identity.index}",
                    f"{status.identity.name or 'GPU'}, {view.judgement.gpus.get(status.identity.uuid, 'unknown')}",
                )
                for status in view.snapshot.statuses
            ),
            *((_where(view, finding), f"{finding.message}; {finding.action}") for finding in view.judgement.findings),
        ]
    return landing_page(name="gpuwatch agent", version=version, links=LINKS, rows=rows)
