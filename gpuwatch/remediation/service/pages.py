"""The remediator's HTTP pages: metrics, liveness, readiness and a landing page."""

from functools import partial

from gpuwatch.metrics.metric import Metric, Parts, node
from gpuwatch.metrics.process_pages import ProcessPages
from gpuwatch.model.event import Result
from gpuwatch.remediation.model import ACTIONS, BlockReason, NodeStage, RemediatorState

Row = Metric[RemediatorState]
_row = partial(Row, scope="node")

ERRORS = (
    "Conflict", "NotFound", "AlreadyExists", "Gone", "Invalid", "Forbidden", "Unauthorized", "TooMany", "Unavailable",
    "Garbled",
)  # fmt: skip
"""Kinds of refused and failed requests, by the names in `kube.errors`."""

QUARANTINED = (NodeStage.QUARANTINED, NodeStage.DRAINING, NodeStage.DRAINED, NodeStage.RECOVERING)
COUNTED = (Result.DONE, Result.FAILED, Result.SKIPPED, Result.OBSERVED)


def _stages(state: RemediatorState) -> Parts:
    return (((stage,), float(state.plan.stage is stage)) for stage in NodeStage) if state.plan else ()


def _quarantined(state: RemediatorState) -> Parts:
    yield (), None if state.plan is None else float(state.plan.stage in QUARANTINED and state.plan.scope == "node")


def _actions(state: RemediatorState) -> Parts:
    return (((action, result), state.actions.get((action, result), 0)) for action in ACTIONS for result in COUNTED)


def _blocked(state: RemediatorState) -> Parts:
    reasons = {obstacle.reason for obstacle in state.plan.blocked} if state.plan else set()
    return (((reason,), float(reason in reasons)) for reason in BlockReason)


def _slots(state: RemediatorState) -> Parts:
    yield ("total",), state.slots
    yield ("used",), state.slots_used


REMEDIATOR_METRICS: tuple[Row, ...] = (
    _row("remediator_mode", "Mode in force: off, observe or enforce.", node(lambda s: [((s.mode,), 1)]), ("mode",)),
    _row("remediator_quarantined", "Whether this node is quarantined by gpuwatch.", node(_quarantined)),
    _row(
        "remediator_boot_info",
        "The boot of the machine it acts for: `gpuwatch_boot_info` of the agent has it, too.",
        node(lambda s: [((s.boot_id,), 1)] if s.boot_id else ()),
        ("boot_id",),
    ),
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


def _unready(now: RemediatorState) -> str | None:
    return now.trouble or (None if now.plan or now.mode == "off" else "no plan yet")


def _rows(now: RemediatorState) -> list[tuple[str, str]]:
    rows = [("Node", now.node), ("Mode", now.mode)]
    if now.plan is not None:
        rows += [("Stage", now.plan.stage), ("Plan", now.plan.message)]
        rows += [("In the way", obstacle.message) for obstacle in now.plan.blocked]
    if now.slots is not None:
        rows.append(("Budget", f"{now.slots_used} of {now.slots} nodes"))
    rows += [("Trouble", why) for why in (now.trouble, now.config_error) if why]
    return rows


PAGES = ProcessPages[RemediatorState]("gpuwatch remediator", REMEDIATOR_METRICS, _unready, _rows)
