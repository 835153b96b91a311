"""The remediator's stages and reasons in words and colours."""

from dashboards.source.panel import State
from gpuwatch.remediation.model import BlockReason, NodeStage

_STAGES = {
    NodeStage.HEALTHY: ("healthy", "green"),
    NodeStage.SUSPECT: ("suspect, not acted on", "yellow"),
    NodeStage.RECOVERING: ("recovering", "blue"),
    NodeStage.UNKNOWN: ("unknown", "purple"),
    NodeStage.QUARANTINED: ("quarantined", "orange"),
    NodeStage.DRAINING: ("draining", "dark-orange"),
    NodeStage.DRAINED: ("drained", "red"),
}

_REASONS = {
    BlockReason.MODE: "the mode is observe",
    BlockReason.BUDGET: "the fleet's budget is used up",
    BlockReason.BUDGET_UNREADABLE: "the budget cannot be read",
    BlockReason.FOREIGN: "another controller has the node",
    BlockReason.OPT_OUT: "the node opted out",
    BlockReason.MAINTENANCE: "the node is under maintenance",
    BlockReason.ACKNOWLEDGED: "a person overruled it",
    BlockReason.IDENTITY: "the Node is not this machine",
    BlockReason.STALE: "no fresh view of the GPUs",
    BlockReason.HOLD: "not long enough yet",
    BlockReason.RATE: "too many changes lately",
    BlockReason.PERMISSION: "rights are missing",
    BlockReason.API: "the API server does not answer",
    BlockReason.PDB: "a pod disruption budget",
    BlockReason.PROTECTED: "pods that are never evicted",
    BlockReason.DEADLINE: "draining took too long",
    BlockReason.HELD: "only a person may release it",
}

STAGES = tuple(State(stage, text, color) for stage, (text, color) in _STAGES.items())
"""By name."""
STAGE_CODES = tuple(State(str(code), text, color) for code, (text, color) in enumerate(_STAGES.values()))
"""By the number that the recording rule node:gpuwatch_remediator_stage:code gives."""
REASONS = tuple(State(reason, text) for reason, text in _REASONS.items())
