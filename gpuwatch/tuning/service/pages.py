"""The tuner's pages: its metrics, whether it works, and what it is about, for people."""

from collections.abc import Callable, Iterator, Mapping

from gpuwatch import __version__
from gpuwatch.http.landing import landing_page
from gpuwatch.http.message import CONTENT_TYPES, negotiate_format
from gpuwatch.http.server import Handler, HttpStats, Request, Response, text
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.process import SelfMetrics
from gpuwatch.metrics.selection import chosen
from gpuwatch.tuning.model.status import BudgetState, GpuTuning, ObstacleReason, TunerState
from gpuwatch.tuning.service.metrics import TUNER_METRICS

LINKS = (("/metrics", "metrics for Prometheus"), ("/-/ready", "readiness"), ("/-/healthy", "liveness"))


def routes(state: Callable[[], TunerState], http: Callable[[], HttpStats]) -> Mapping[str, Handler]:
    """The table that the HTTP server serves."""
    own, encoder = SelfMetrics(http), Encoder()

    def metrics(request: Request) -> Response:
        now = state()
        form = negotiate_format(request.headers.get("accept"))
        try:
            families = chosen([*own.families(0), *(row.family(now) for row in TUNER_METRICS)], request.query)
        except ValueError as error:
            return text(400, str(error))
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
    stale = any(gpu.reason is ObstacleReason.STALE_VIEW for gpu in now.gpus)
    return now.trouble or "the view is too old" if stale or now.view_at is None else None


def _rows(now: TunerState) -> Iterator[tuple[str, str]]:
    yield "Mode", now.mode
    if now.stopped:
        yield "Stopped", f"{now.stopped}; to go on: gpuwatch tune resume"
    if now.guard is not None:
        yield "Guard", "answers" if now.guard else "is not heard; nothing is set without one"
    if now.budget is not None:
        yield "Power budget", _budget(now.budget)
    for gpu in now.gpus:
        yield f"GPU {gpu.index}", _gpu(gpu)
    yield from (("Trouble", why) for why in (now.trouble, now.config_error) if why)


def _energy(joules: float) -> str:
    return f"{joules:.0f} J" if joules < 3600 else f"{joules / 3600:.1f} Wh"


def _budget(budget: BudgetState) -> str:
    sums = (f"{name} {watts:.0f} W" for name, watts in (("limits", budget.limits), ("draw", budget.draw)) if watts)
    return "; ".join((f"{budget.budget:.0f} W", *sums, *filter(None, (budget.how, budget.message))))


def _gpu(gpu: GpuTuning) -> str:
    """What is done with a GPU, for whom, what it costs and saves, and what stands against it."""
    parts = [str(gpu.state)]
    if gpu.owners:
        parts.append(f"used by {', '.join(gpu.owners)}")
    if gpu.clock_cap is not None:
        parts.append(f"clock at most {gpu.clock_cap / 1e6:.0f} MHz")
    if gpu.power_limit is not None:
        parts.append(f"power limit {gpu.power_limit:.0f} W")
    if gpu.slowdown is not None and gpu.slowdown_upper is not None:
        parts.append(f"loses {gpu.slowdown:.1%} of its speed, at most {gpu.slowdown_upper:.1%}")
    if gpu.bound is not None:
        parts.append(f"allowed {gpu.bound:.1%}")
    if gpu.joules_saved:
        parts.append(f"about {_energy(gpu.joules_saved)} saved")
    return "; ".join((*parts, *filter(None, (gpu.note, gpu.message))))
