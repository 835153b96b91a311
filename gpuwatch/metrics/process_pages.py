"""The pages of a process that works on its node beside the agent: metrics, liveness, readiness and a landing page."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from gpuwatch import __version__
from gpuwatch.http.landing import landing_page
from gpuwatch.http.message import CONTENT_TYPES, negotiate_format
from gpuwatch.http.server import Handler, HttpStats, Request, Response, text
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.metric import Metric
from gpuwatch.metrics.process import SelfMetrics
from gpuwatch.metrics.selection import chosen

LINKS = (("/metrics", "metrics for Prometheus"), ("/-/ready", "readiness"), ("/-/healthy", "liveness"))

T = TypeVar("T")


class ProcessPages(NamedTuple, Generic[T]):
    """What the pages show of a process' state. `unready`: why it is not ready, None: it is; `rows`: label, value."""

    name: str
    metrics: Sequence[Metric[T]]
    unready: Callable[[T], str | None]
    rows: Callable[[T], Sequence[tuple[str, str]]]

    def routes(self, state: Callable[[], T], http: Callable[[], HttpStats]) -> Mapping[str, Handler]:
        """The table that the HTTP server serves."""
        own, encoder = SelfMetrics(http), Encoder()

        def metrics(request: Request) -> Response:
            now = state()
            form = negotiate_format(request.headers.get("accept"))
            try:
                families = chosen([*own.families(0), *(row.family(now) for row in self.metrics)], request.query)
            except ValueError as error:
                return text(400, str(error))
            body = encoder.encode(families, openmetrics=form == "openmetrics")
            return Response(content_type=CONTENT_TYPES[form], body=body)

        def ready(_: Request) -> Response:
            why = self.unready(state())
            return text(200, "ready") if why is None else text(503, f"not ready: {why}")

        return {
            "/metrics": metrics,
            **dict.fromkeys(("/-/healthy", "/healthz"), lambda _: text(200, "ok")),
            **dict.fromkeys(("/-/ready", "/readyz"), ready),
            "/": lambda _: landing_page(self.name, __version__, LINKS, self.rows(state())),
        }
