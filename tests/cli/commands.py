"""Command lines in this process, and an agent for them to ask: a real HTTP server on a unix socket with one View."""

import contextlib
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from click.testing import CliRunner, Result

from gpuwatch.cli.main import cli
from gpuwatch.http.server import HttpServer, Request, Response
from gpuwatch.model.recent import Recent
from gpuwatch.model.view import Events, View
from gpuwatch.rightsizing.model.recommendation import Recommendations
from tests.cli.processes import OURS

JSON = "application/json"


@contextlib.contextmanager
def serving(
    view: View | None,
    events: Events | None = None,
    metrics: bytes = b"# EOF\n",
    advice: Recommendations | None = None,
    refusal: str = "",
    followed: list[Request] | None = None,
    recent: Recent | None = None,
):
    """Path of the socket of an agent that knows `view`; None: it has none yet. `refusal`: why it has no advice;
    `followed` gets every request for events.
    """
    body = msgspec.json.encode(view) if view else b""
    happened = Response(content_type=JSON, body=msgspec.json.encode(events or Events()))
    followed = [] if followed is None else followed

    def answer(request: Request) -> Response:
        followed.append(request)
        return happened

    routes = {
        "/api/v1/view": lambda _: (
            Response(content_type=JSON, body=body) if view else Response(status=503, body=b"no view")
        ),
        "/api/v1/events": answer,
        "/api/v1/recent": lambda _: Response(content_type=JSON, body=msgspec.json.encode(recent or Recent())),
        "/api/v1/recommendations": lambda _: (
            Response(content_type=JSON, body=msgspec.json.encode(advice))
            if advice
            else Response(status=503, body=refusal.encode())
        ),
        "/metrics": lambda request: Response(body=metrics + repr(sorted(request.query.items())).encode()),
    }
    with TemporaryDirectory() as directory:
        path = Path(directory) / "agent.sock"
        server = HttpServer(routes, socket_path=path)
        server.start()
        try:
            yield path
        finally:
            server.stop()


def runner(**how: str) -> CliRunner:
    """Click's runner with stderr by itself, which is so without asking since click 8.2."""
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**how, **apart)


def run(*args: str, env: Mapping[str, str | None] | None = None, stdin: str | None = None) -> Result:
    """One command line in this process; no variable of the caller's leaks in, nor this machine's state."""
    clean = {name: None for name in os.environ if name.startswith(OURS)}
    with TemporaryDirectory() as state:
        fixed = {"COLUMNS": "100"} if "--config" in args else {"COLUMNS": "100", "GPUWATCH_STATE_DIR": state}
        return runner().invoke(cli, list(args), env={**clean, **fixed, **(env or {})}, input=stdin)


def ask(
    view: View,
    *args: str,
    events: Events | None = None,
    env: dict[str, str] | None = None,
    advice: Recommendations | None = None,
    recent: Recent | None = None,
) -> Result:
    """One command line that asks an agent with this View."""
    with serving(view, events, advice=advice, recent=recent) as path:
        return run("--source", f"agent:{path}", *args, env=env)


def advised(advice: Recommendations, *args: str, env: dict[str, str] | None = None) -> Result:
    """One command line that asks an agent which recommends this."""
    with serving(None, advice=advice) as path:
        return run("--source", f"agent:{path}", *args, env=env)
