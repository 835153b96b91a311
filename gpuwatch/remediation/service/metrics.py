"""Rows about the remediator itself, on its own page at :9401. Event counters are there at 0 before the first event."""

from functools import partial

from gpuwatch.metrics.metric import Metric, Parts, node
from gpuwatch.model.event import Result
from gpuwatch.remediation.model.plan import Reason, Stage
from gpuwatch.remediation.model.status import ACTIONS, RemediatorState

Row = Metric[RemediatorState]
_row = partial(Row, scope="node")

ERRORS = (
    "Conflict", "NotFound", "AlreadyExists", "Gone", "Invalid", "Forbidden", "Unauthorized", "TooMany", "Unavailable",
    "Garbled",
)  # fmt: skip
"""Kinds of refused and failed requests, by the names of `sinks.kube_errors`."""

QUARANTINED = (Stage.QUARANTINED, Stage.DRAINING, Stage.DRAINED, Stage.RECOVERING)
COUNTED = (Result.DONE, Result.FAILED, Result.SKIPPED, Result.OBSERVED)


def _stages(state: RemediatorState) -> Parts:
    return (((stage,), float(state.plan.stage is stage)) for stage in Stage) if state.plan else ()


def _quarantined(state: RemediatorState) -> Parts:
    yield (), None if state.plan is None else float(state.plan.stage in QUARANTINED)


def _actions(state: RemediatorState) -> Parts:
    return (((action, result), state.actions.get((action, result), 0)) for action in ACTIONS for result in COUNTED)


def _blocked(state: RemediatorState) -> Parts:
    reasons = {obstacle.reason for obstacle in state.plan.blocked} if state.plan else set()
    return (((reason,), float(reason in reasons)) for reason in Reason)


def _slots(state: RemediatorState) -> Parts:
    yield ("total",), state.slots
    yield ("used",), state.slots_used


REMEDIATOR_METRICS: tuple[Row, ...] = (
    _row("remediator_mode", "Mode in force: off, observe or enforce.", node(lambda s: [((s.mode,), 1)]), ("mode",)),
    _row("remediator_quarantined", "Whether this node is quarantined by gpuwatch.", node(_quarantined)),
    _row("remediator_stage", "Where the node is in its life.", node(_stages), ("stage",), states=True),
    _row("remediator_actions_total", "Actions by how they went.", node(_actions), ("action", "result")),
    _row("remediator_blocked", "Whether something keeps gpuwatch from what it wants.", node(_blocked), ("reason",)),
    _row(
        "remediator_budget_slots",
        "Nodes of the fleet that may be quarantined at once, and that are; as last read.",
        node(_slots),
        ("state",),
    ),
    _row(
        "remediator_plan_timestamp_seconds",
        "When the plan was last made without trouble.",
        node(lambda s: [((), s.planned_at)]),
    ),
    _row("remediator_view_timestamp_seconds", "Time of the agent's newest View.", node(lambda s: [((), s.view_at)])),
    _row(
        "remediator_api_errors_total",
        "Requests that the API server refused or did not answer.",
        node(lambda s: (((kind,), s.errors.get(kind, 0)) for kind in ERRORS)),
        ("error",),
    ),
    _row(
        "remediator_config_last_reload_successful",
        "Whether the configuration in the file is the one in use.",
        node(lambda s: [((), s.config_error is None)]),
    ),
)
