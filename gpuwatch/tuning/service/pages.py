"""The tuner's pages: its metrics, whether it works, and what it is about, for people."""

from collections.abc import Iterator

from gpuwatch.metrics.process_pages import ProcessPages
from gpuwatch.tuning.model.status import BudgetState, GpuTuning, ObstacleReason, TunerState
from gpuwatch.tuning.service.metrics import TUNER_METRICS


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


PAGES = ProcessPages[TunerState]("gpuwatch tuner", TUNER_METRICS, _unready, lambda now: tuple(_rows(now)))
