"""The remediator's stages and reasons in words and colours."""

from dashboards.source.panel import State
from gpuwatch.remediation.model.plan import Reason, Stage

_STAGES = {
    Stage.HEALTHY: ("healthy", "green"),
    Stage.SUSPECT: ("suspect, not acted on", "yellow"),
    Stage.RECOVERING: ("recovering", "blue"),
    Stage.UNKNOWN: ("unknown", "purple"),
    Stage.QUARANTINED: ("quarantined", "orange"),
    Stage.DRAINING: ("draining", "dark-orange"),
    Stage.DRAINED: ("drained", "red"),
}

_REASONS = {
    Reason.MODE: "the mode is observe",
    Reason.BUDGET: "the fleet's budget is used up",
    Reason.BUDGET_UNREADABLE: "the budget cannot be read",
    Reason.FOREIGN: "another controller has the node",
    Reason.OPT_OUT: "the node opted out",
    Reason.MAINTENANCE: "the node is under maintenance",
    Reason.ACKNOWLEDGED: "a person overruled it",
    Reason.IDENTITY: "the Node is not this machine",
    Reason.STALE: "no fresh view of the GPUs",
    Reason.HOLD: "not long enough yet",
    Reason.RATE: "too many changes lately",
    Reason.PERMISSION: "rights are missing",
    Reason.API: "the API server does not answer",
    Reason.PDB: "a pod disruption budget",
    Reason.PROTECTED: "pods that are never evicted",
    Reason.DEADLINE: "draining took too long",
    Reason.HELD: "only a person may release it",
}

STAGES = tuple(State(stage, text, color) for stage, (text, color) in _STAGES.items())
"""By name."""
STAGE_CODES = tuple(State(str(code), text, color) for code, (text, color) in enumerate(_STAGES.values()))
"""By the number that `stage_code` gives."""
REASONS = tuple(State(reason, text) for reason, text in _REASONS.items())


def stage_code(by: str) -> str:
    """Where nodes are in their life as a number: the stage's place in STAGES."""
    parts = (
        f'(max by ({by}) (gpuwatch_remediator_stage{{@remediator, stage="{stage}"}}) == 1) * {code}'
        for code, stage in enumerate(_STAGES)
    )
    return f"({' or '.join(parts)})"
