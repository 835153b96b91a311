"""The tuner's pages: its metrics, whether it works, and its state for operators.

Event counters are exported as 0 before the first event.
"""

from collections.abc import Callable, Iterator
from functools import partial

from gpuwatch.metrics.metric import Metric, Parts, Sample, label_text, node
from gpuwatch.metrics.process_pages import ProcessPages
from gpuwatch.model.event import Result
from gpuwatch.tuning.model.setting import KNOBS, Trigger
from gpuwatch.tuning.model.status import BudgetState, GpuTuning, ObstacleReason, TunerState

Row = Metric[TunerState]
_row = partial(Row, scope="node")

COUNTED = (Result.DONE, Result.FAILED)


def _subject(gpu: GpuTuning) -> str:
    return label_text(gpu=gpu.index, uuid=gpu.uuid)


def _of_gpus(value: Callable[[GpuTuning], float | None]) -> Callable[[TunerState], list[Sample]]:
    """One value of each GPU; none for those of which it is not known."""
    return lambda state: [((_subject(gpu), ()), found) for gpu in state.gpus if (found := value(gpu)) is not None]


def _slowdowns(state: TunerState) -> list[Sample]:
    return [
        ((_subject(gpu), (bound,)), share)
        for gpu in state.gpus
        for bound, share in (("estimate", gpu.slowdown), ("upper", gpu.slowdown_upper))
        if share is not None
    ]


def _of_budget(value: Callable[[BudgetState], float | None]) -> Callable[[TunerState], Parts]:
    return lambda state: [] if state.budget is None else [((), value(state.budget))]


def _actions(state: TunerState) -> Parts:
    return (((knob, result), state.actions.get((knob, result), 0)) for knob in KNOBS for result in COUNTED)


def _restores(state: TunerState) -> Parts:
    found = state.actuation
    return (((trigger,), None if found is None else found.restores.get(trigger, 0)) for trigger in Trigger)


def _settings(state: TunerState) -> Parts:
    found = state.actuation
    return (
        ((knob,), None if found is None else sum(setting.knob == knob for setting in found.settings)) for knob in KNOBS
    )


TUNER_METRICS: tuple[Row, ...] = (
    _row("tuner_mode", "Mode in force: off, observe or enforce.", node(lambda s: [((s.mode,), 1)]), ("mode",)),
    Row(
        "tuner_state",
        "What the tuner does with a GPU; of a refused one the first reason.",
        lambda s: [((_subject(gpu), (gpu.state, gpu.reason)), 1) for gpu in s.gpus],
        ("state", "reason"),
    ),
    Row(
        "tuner_conflict",
        "Whether a setting is neither the board's default nor one of gpuwatch's.",
        lambda s: [((_subject(gpu), (knob,)), found) for gpu in s.gpus for knob, found in gpu.foreign.items()],
        ("knob",),
    ),
    Row(
        "tuner_clock_cap_hertz",
        "Cap on the SM clock that gpuwatch has in force; missing: none.",
        _of_gpus(lambda gpu: gpu.clock_cap),
    ),
    Row(
        "tuner_power_limit_watts",
        "Power limit that gpuwatch has in force; missing: none.",
        _of_gpus(lambda gpu: gpu.power_limit),
    ),
    Row(
        "tuner_estimated_slowdown_ratio",
        "Share of its speed that work loses to the cap, as measured, and the upper end of its 95 % interval.",
        _slowdowns,
        ("bound",),
    ),
    Row(
        "tuner_promised_slowdown_ratio",
        "Share of its speed that work may lose at most.",
        _of_gpus(lambda gpu: gpu.bound),
    ),
    Row(
        "tuner_energy_saved_joules_total",
        "Energy saved while caps were held, by the share that was measured when they were tried.",
        _of_gpus(lambda gpu: gpu.joules_saved),
    ),
    _row("tuner_settings", "Settings of GPUs that gpuwatch has changed and not restored.", node(_settings), ("knob",)),
    _row("tuner_actions_total", "Settings changed, by result.", node(_actions), ("knob", "result")),
    _row("tuner_restores_total", "Settings restored, by trigger; kept over restarts.", node(_restores), ("trigger",)),
    _row("tuner_budget_watts", "Power budget of the node's GPUs together.", node(_of_budget(lambda b: b.budget))),
    _row(
        "tuner_budget_limits_watts",
        "Sum of the power limits in force, to compare with the budget.",
        node(_of_budget(lambda b: b.limits)),
    ),
    _row(
        "tuner_budget_draw_watts", "Draw of all GPUs, to compare with the budget.", node(_of_budget(lambda b: b.draw))
    ),
    _row("tuner_guard_up", "Whether a heartbeat of the guard arrived lately.", node(lambda s: [((), s.guard)])),
    _row("tuner_stopped", "Whether tuning is stopped on this node.", node(lambda s: [((), bool(s.stopped))])),
    _row(
        "tuner_consents_timestamp_seconds",
        "Time of the newest consents: the annotations of pods, namespaces and the Node about tuning.",
        node(lambda s: [((), s.consents_at)]),
    ),
    _row("tuner_view_timestamp_seconds", "Time of the agent's newest View.", node(lambda s: [((), s.view_at)])),
    _row(
        "tuner_config_last_reload_successful",
        "Whether the configuration in the file is the one in use.",
        node(lambda s: [((), s.config_error is None)]),
    ),
)


def _unready(now: TunerState) -> str | None:
    if now.mode == "off":
        return None
    stale = any(gpu.reason is ObstacleReason.STALE_VIEW for gpu in now.gpus)
    return now.trouble or "the view is too old" if stale or now.view_at is None else None


def _page_rows(now: TunerState) -> Iterator[tuple[str, str]]:
    yield "Mode", now.mode
    if now.stopped:
        yield "Stopped", f"{now.stopped}; to continue: gpuwatch tune resume"
    if now.guard is not None:
        yield "Guard", "running" if now.guard else "no heartbeat; nothing is set without one"
    if (budget := now.budget) is not None:
        sums = (f"{name} {watts:.0f} W" for name, watts in (("limits", budget.limits), ("draw", budget.draw)) if watts)
        parts = f"{budget.budget:.0f} W", *sums, *filter(None, (budget.how, budget.message))
        yield "Power budget", "; ".join(parts)
    for gpu in now.gpus:
        yield f"GPU {gpu.index}", _gpu_text(gpu)
    yield from (("Trouble", why) for why in (now.trouble, now.config_error) if why)


def _gpu_text(gpu: GpuTuning) -> str:
    """What is done with a GPU, its owners, what that costs and saves, and its obstacles."""
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
        joules = gpu.joules_saved
        parts.append(f"about {f'{joules:.0f} J' if joules < 3600 else f'{joules / 3600:.1f} Wh'} saved")
    return "; ".join((*parts, *filter(None, (gpu.note, gpu.message))))


PAGES = ProcessPages[TunerState]("gpuwatch tuner", TUNER_METRICS, _unready, lambda now: tuple(_page_rows(now)))
