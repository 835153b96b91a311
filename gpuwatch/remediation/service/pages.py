"""The remediator's pages: its metrics, whether it works, and what it is about, for people."""

from collections.abc import Callable, Mapping

from gpuwatch import __version__
from gpuwatch.http.accept import CONTENT_TYPES, negotiate_format
from gpuwatch.http.landing import landing_page
from gpuwatch.http.server import Handler, HttpStats, Request, Response, text
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.process import SelfMetrics
from gpuwatch.remediation.model.status import RemediatorState
from gpuwatch.remediation.service.metrics import REMEDIATOR_METRICS

LINKS = (
    ("/metrics", "metrics for Prometheus"),
    ("/-/ready", "readiness"),
    ("/-/healthy", "liveness"),
)


def routes(state: Callable[[], RemediatorState], http: Callable[[], HttpStats]) -> Mapping[str, Handler]:
    """The table that the HTTP server serves."""
    own, encoder = SelfMetrics(http), Encoder()

    def metrics(request: Request) -> Response:
        now = state()
        form = negotiate_format(request.headers.get("accept"))
        families = [*own.families(0), *(row.family(now) for row in REMEDIATOR_METRICS)]
        body = encoder.encode(families, openmetrics=form == "openmetrics")
        return Response(content_type=CONTENT_TYPES[form], body=body)

    def ready(_: Request) -> Response:
        now = state()
        why = now.trouble or (None if now.plan or now.mode == "off" else "no plan yet")
        return text(200, "ready") if why is None else text(503, f"not ready: {why}")

    def healthy(_: Request) -> Response:
        return text(200, "ok")

    return {
        "/metrics": metrics,
        **dict.fromkeys(("/-/healthy", "/healthz"), healthy),
        **dict.fromkeys(("/-/ready", "/readyz"), ready),
        "/": lambda _: landing_page("gpuwatch remediator", __version__, LINKS, tuple(_rows(state()))),
    }


def _rows(now: RemediatorState) -> list[tuple[str, str]]:
    rows = [("Node", now.node), ("Mode", now.mode)]
    if now.plan is not None:
        rows += [("Stage", now.plan.stage), ("Plan", now.plan.words)]
        rows += [("In the way", obstacle.words) for obstacle in now.plan.blocked]
    if now.slots is not None:
        rows.append(("Budget", f"{now.slots_used} of {now.slots} nodes"))
    rows += [("Trouble", why) for why in (now.trouble, now.config_error) if why]
    return rows
