"""When the alerts about tuning have to fire and when not, as `cases` has it for all others."""

from tests.alerts.timeline import FAULT, Case, Values

GPU = {"gpu": "3", "uuid": "GPU-3"}
OF_GPU = 'job="gpuwatch-tuner",gpu="3",uuid="GPU-3"'
OF_TUNER = 'job="gpuwatch-tuner"'
HOUR = 60

ENFORCES: dict[str, Values] = {f'gpuwatch_tuner_mode{{{OF_TUNER},mode="enforce"}}': (1, 1)}
OBSERVES: dict[str, Values] = {f'gpuwatch_tuner_mode{{{OF_TUNER},mode="observe"}}': (1, 1)}
FOREIGN = f'gpuwatch_tuner_conflict{{{OF_GPU},knob="power_limit"}}'
GUARD = f"gpuwatch_tuner_guard_up{{{OF_TUNER}}}"
SETTINGS = f'gpuwatch_tuner_settings{{{OF_TUNER},knob="locked_clocks"}}'
STOPPED = f"gpuwatch_tuner_stopped{{{OF_TUNER}}}"
CAP = f"gpuwatch_tuner_clock_cap_hertz{{{OF_GPU}}}"
BY_GUARD = f'gpuwatch_tuner_restores_total{{{OF_TUNER},trigger="guard"}}'
BY_TUNER = f'gpuwatch_tuner_restores_total{{{OF_TUNER},trigger="tuner"}}'
UP = f"up{{{OF_TUNER}}}"
PROMISED = f"gpuwatch_tuner_promised_slowdown_ratio{{{OF_GPU}}}"
HOLDING = f'gpuwatch_tuner_state{{{OF_GPU},state="holding"}}'


def limit(which: str) -> str:
    """The agent's series of a power limit."""
    return f'gpuwatch_gpu_power_limit_watts{{job="gpuwatch",gpu="3",uuid="GPU-3",limit="{which}"}}'


def refused(reason: str) -> str:
    """The tuner refuses the GPU."""
    return f'gpuwatch_tuner_state{{{OF_GPU},state="refused",reason="{reason}"}}'


def upper(share: float) -> dict[str, Values]:
    """The upper end of the estimated slowdown of a held cap."""
    return {f'gpuwatch_tuner_estimated_slowdown_ratio{{{OF_GPU},bound="upper"}}': (0.04, share)}


def budget(of: str) -> str:
    """A sum of the node's power budget, or the budget."""
    return f"gpuwatch_tuner_budget{of}_watts{{{OF_TUNER}}}"


LOWERED: dict[str, Values] = {limit("configured"): (700, 500), limit("default"): (700, 700)}

DRIFT = [
    Case("GpuPowerLimitDrift", LOWERED, GPU, why="no tuner"),
    Case("GpuPowerLimitDrift", {**LOWERED, FOREIGN: (0, 1), **OBSERVES}, GPU, why="a tuner says the same"),
    Case("GpuPowerLimitDrift", {**LOWERED, FOREIGN: (0, 0)}, lasts=2 * HOUR, fires=False, why="it is the tuner's"),
    Case(
        "GpuPowerLimitDrift",
        {**LOWERED, FOREIGN: (0, 1), **ENFORCES},
        lasts=2 * HOUR,
        fires=False,
        why="another alert has it",
    ),
    Case(
        "GpuPowerLimitDrift",
        {limit("configured"): (700, 699.5), limit("default"): (700, 700)},
        lasts=2 * HOUR,
        fires=False,
        why="a rounding",
    ),
    Case(
        "GpuPowerLimitDrift", {limit("configured"): (700, 500)}, lasts=2 * HOUR, fires=False, why="no default is known"
    ),
]

CONFLICT = [
    Case("GpuwatchTunerConflict", {refused("conflict"): (None, 1), **ENFORCES}, GPU, why="a gate is closed"),
    Case("GpuwatchTunerConflict", {FOREIGN: (0, 1), **ENFORCES}, GPU, why="a knob is another's"),
    Case(
        "GpuwatchTunerConflict",
        {refused("conflict"): (None, 1), FOREIGN: (0, 1), **OBSERVES},
        lasts=HOUR,
        fires=False,
        why="nothing was to be set",
    ),
    Case("GpuwatchTunerConflict", {refused("xid"): (None, 1), FOREIGN: (0, 0), **ENFORCES}, lasts=HOUR, fires=False),
]

REVERTED = [
    Case(
        "GpuwatchTunerReverted",
        {BY_GUARD: lambda m: 4 + (m >= FAULT)},
        lasts=HOUR,
        why="the guard gave one back",
    ),
    Case("GpuwatchTunerReverted", {refused("cap_not_obeyed"): (None, 1)}, why="a cap is not obeyed"),
    Case("GpuwatchTunerReverted", {refused("not_set"): (None, 1)}, why="the driver refuses"),
    Case("GpuwatchTunerReverted", {BY_TUNER: lambda m: float(m)}, lasts=HOUR, fires=False, why="the tuner's own"),
    Case(
        "GpuwatchTunerReverted",
        {BY_GUARD: (None, 7), refused("no_gain"): (None, 1)},
        lasts=HOUR,
        fires=False,
        why="a counter born at 7, as it is kept over restarts",
    ),
]

NO_GUARD = [
    Case("GpuwatchTunerNoGuard", {GUARD: (1, 0), **ENFORCES}),
    Case("GpuwatchTunerNoGuard", {GUARD: (1, 0), **OBSERVES}, lasts=HOUR, fires=False, why="nothing is set"),
    Case("GpuwatchTunerNoGuard", {GUARD: (1, 1), **ENFORCES}, lasts=HOUR, fires=False, why="it is there"),
    Case("GpuwatchTunerNoGuard", {**ENFORCES}, lasts=HOUR, fires=False, why="nobody listens for it"),
]

KEPT = [
    Case("GpuwatchTunerSettingKept", {SETTINGS: (0, 2), **OBSERVES}, why="the mode is observe"),
    Case("GpuwatchTunerSettingKept", {SETTINGS: (0, 2), STOPPED: (1, 1), **ENFORCES}, why="it was stopped"),
    Case("GpuwatchTunerSettingKept", {CAP: (None, 1.4e9), refused("xid"): (None, 1), **ENFORCES}, why="refused"),
    Case("GpuwatchTunerSettingKept", {SETTINGS: (2, None), UP: (1, 0), **ENFORCES}, why="the tuner is gone"),
    Case("GpuwatchTunerSettingKept", {SETTINGS: (0, 2), STOPPED: (0, 0), **ENFORCES}, lasts=HOUR, fires=False),
    Case("GpuwatchTunerSettingKept", {SETTINGS: (0, 0), STOPPED: (1, 1), **OBSERVES}, lasts=HOUR, fires=False),
    Case("GpuwatchTunerSettingKept", {SETTINGS: (0, None), UP: (1, 0)}, lasts=HOUR, fires=False, why="nothing was set"),
    Case("GpuwatchTunerSettingKept", {CAP: (None, 1.4e9), HOLDING: (None, 1), **ENFORCES}, lasts=HOUR, fires=False),
]

BUDGET = [
    Case("GpuwatchPowerBudgetExceeded", {budget(""): (1800, 1800), budget("_limits"): (1800, 1900), **ENFORCES}),
    Case("GpuwatchPowerBudgetExceeded", {budget(""): (1800, 1800), budget("_draw"): (1700, 1900), **ENFORCES}),
    Case(
        "GpuwatchPowerBudgetExceeded",
        {budget(""): (1800, 1800), budget("_limits"): (5600, 5600), **OBSERVES},
        lasts=HOUR,
        fires=False,
        why="it is not kept in this mode",
    ),
    Case(
        "GpuwatchPowerBudgetExceeded",
        {budget(""): (1800, 1800), budget("_limits"): (1800, 1800), budget("_draw"): (1700, 1800), **ENFORCES},
        lasts=HOUR,
        fires=False,
        why="just within",
    ),
    Case("GpuwatchPowerBudgetExceeded", {budget("_draw"): (1, 9000), **ENFORCES}, lasts=HOUR, fires=False, why="none"),
]

SLOWDOWN = [
    Case("GpuwatchTunerSlowdownOverBound", {**upper(0.06), PROMISED: (0.05, 0.05), HOLDING: (1, 1)}, GPU),
    Case(
        "GpuwatchTunerSlowdownOverBound",
        {**upper(0.052), PROMISED: (0.05, 0.05), HOLDING: (1, 1)},
        lasts=3 * HOUR,
        fires=False,
        why="by less than can be told",
    ),
    Case(
        "GpuwatchTunerSlowdownOverBound",
        {**upper(0.06), PROMISED: (0.05, 0.05), f'gpuwatch_tuner_state{{{OF_GPU},state="verifying"}}': (1, 1)},
        lasts=3 * HOUR,
        fires=False,
        why="it is being looked at",
    ),
    Case(
        "GpuwatchTunerSlowdownOverBound",
        {**upper(0.06), PROMISED: (0.05, 0.05), HOLDING: (1, 1)},
        lasts=HOUR,
        fires=False,
        why="a verification has raised it",
    ),
]

TUNING = [*DRIFT, *CONFLICT, *REVERTED, *NO_GUARD, *KEPT, *BUDGET, *SLOWDOWN]
