"""The tuner's pages: its metrics, whether it works, and what it is about, for people."""

from collections.abc import Callable, Mapping

from gpuwatch import __version__
from gpuwatch.model.tuner_state import Reason, TunerState
from gpuwatch.sinks.exposition import Encoder
from gpuwatch.sinks.http import Handler, HttpStats, Request, Response, text
from gpuwatch.sinks.http_accept import CONTENT_TYPES, negotiate_format
from gpuwatch.sinks.landing import landing_page
from gpuwatch.sinks.metrics_tuner import TUNER_METRICS
from gpuwatch.sinks.selfmetrics import SelfMetrics

LINKS = (
    ("/metrics", "metrics for Prometheus"),
    ("/-/ready", "readiness"),
    ("/-/healthy", "liveness"),
)


def routes(state: Callable[[], TunerState], http: Callable[[], HttpStats]) -> Mapping[str, Handler]:
    """The table that the HTTP server serves."""
    own, encoder = SelfMetrics(http), Encoder()

    def metrics(request: Request) -> Response:
        now = state()
        form = negotiate_format(request.headers.get("accept"))
        families = [*own.families(0), *(row.family(now) for row in TUNER_METRICS)]
        body = encoder.encode(families, openmetrics=form == "openmetrics")
        return Response(content_type=CONTENT_TYPES[form], body=body)

    def ready(_: Request) -> Response:
        why = _unready(state())
        return text(200, "ready") if why is None else text(503, f"not ready: {why}")

    return {
        "/metrics": metrics,
        **dict.fromkeys(("/-/healthy", "/healthz"), lambda _: text(200, "ok")),
        **dict.fromkeys(("/-/ready", "/readyz"), ready),
        "/": lambda _: landing_page("gpuwatch tuner", __version__, LINKS, tuple(_rows(state()))),
    }


def _unready(now: TunerState) -> str | None:
    if now.mode == "off":
        return None
    stale = any(gpu.reason is Reason.STALE_VIEW for gpu in now.gpus)
    return now.trouble or "the view is too old" if stale or now.view_at is None else None


def _rows(now: TunerState) -> list[tuple[str, str]]:
    rows = [("Mode", now.mode)]
    rows += [(f"GPU {gpu.index}", f"{gpu.state}{': ' * bool(gpu.words)}{gpu.words}") for gpu in now.gpus]
    rows += [("Trouble", why) for why in (now.trouble, now.config_error) if why]
    return rows
