"""What a remediator says about itself: the source of its metrics and of its landing page."""

from gpuwatch.model.snapshot import Record
from gpuwatch.remediation.model.plan import Plan

ACTIONS = (
    "claim", "slot", "taint", "refresh", "condition", "event", "evict", "handover", "untaint", "forget", "free_slot",
    "label",
)  # fmt: skip
"""What a remediator does, in about the order of a quarantine's life: the actions of its audit lines."""


class RemediatorState(Record, frozen=True, kw_only=True):
    """As of the newest cycle. `actions` and `errors` count since the start."""

    node: str
    mode: str
    plan: Plan | None = None
    planned_at: float | None = None
    view_at: float | None = None
    slots: int | None = None  # of the whole fleet; None where they were not read
    slots_used: int | None = None
    actions: dict[tuple[str, str], int] = {}  # (action, result) -> count
    errors: dict[str, int] = {}  # kind of a refused or failed request -> count
    config_error: str | None = None
    trouble: str | None = None  # why nothing is done just now: no agent, no API server, no right
