"""The tuner's states in colours and numbers, for the dashboards of operations and of workloads."""

from dashboards.source.panel import State, Style
from gpuwatch.tuning.model.status import TuningState

_COLORS = {
    TuningState.IDLE: "text",
    TuningState.REFUSED: "yellow",
    TuningState.ELIGIBLE: "light-blue",
    TuningState.OBSERVING: "blue",
    TuningState.SEARCHING: "purple",
    TuningState.VERIFYING: "light-green",
    TuningState.RESTING: "dark-green",
    TuningState.HOLDING: "green",
}
"""The nearer to being tuned, the later; the place in this table is the state's number."""

TUNING_CODES = tuple(State(str(code), state, color) for code, (state, color) in enumerate(_COLORS.items()))
TUNING_STYLES = tuple(Style(match=f"^{state}$", color=color) for state, color in _COLORS.items())

ENFORCING = 'max by (cluster, node) (gpuwatch_tuner_mode{@node, mode="enforce"}) == 1'


def tuning_code(selector: str, by: str) -> str:
    """What the tuner does with a GPU as one number: see TUNING_CODES."""
    parts = (f'gpuwatch_tuner_state{{{selector}, state="{state}"}} * {code}' for code, state in enumerate(_COLORS))
    return f"max by ({by}) ({' or '.join(parts)})"
