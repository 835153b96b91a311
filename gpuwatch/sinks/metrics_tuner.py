"""Rows about the tuner itself, on its own page at :9402. Event counters are there at 0 before the first event."""

from functools import partial

from gpuwatch.model.event import Result
from gpuwatch.model.setting import KNOBS, Trigger
from gpuwatch.model.tuner_state import GpuTuning, TunerState
from gpuwatch.sinks.metric import Metric, Parts, Sample, node
from gpuwatch.sinks.scene import label_text

Row = Metric[TunerState]
_row = partial(Row, scope="node")

COUNTED = (Result.DONE, Result.FAILED)


def _subject(gpu: GpuTuning) -> str:
    return label_text(gpu=gpu.index, uuid=gpu.uuid)


def _states(state: TunerState) -> list[Sample]:
    return [((_subject(gpu), (gpu.state, gpu.reason)), 1) for gpu in state.gpus]


def _conflicts(state: TunerState) -> list[Sample]:
    return [((_subject(gpu), (knob,)), found) for gpu in state.gpus for knob, found in gpu.foreign.items()]


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
        "Whether a GPU may be tuned: idle, eligible, or refused with the first reason.",
        _states,
        ("state", "reason"),
    ),
    Row(
        "tuner_conflict",
        "Whether a setting is neither the board's default nor one of gpuwatch's.",
        _conflicts,
        ("knob",),
    ),
    _row(
        "tuner_settings", "Settings of GPUs that gpuwatch has changed and not given back.", node(_settings), ("knob",)
    ),
    _row("tuner_actions_total", "Settings changed, by how it went.", node(_actions), ("knob", "result")),
    _row(
        "tuner_restores_total",
        "Settings given back, by who did it; kept over restarts.",
        node(_restores),
        ("trigger",),
    ),
    _row("tuner_view_timestamp_seconds", "Time of the agent's newest View.", node(lambda s: [((), s.view_at)])),
    _row(
        "tuner_config_last_reload_successful",
        "Whether the configuration in the file is the one in use.",
        node(lambda s: [((), s.config_error is None)]),
    ),
)
