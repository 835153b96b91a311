"""The tuner's cycle as the power budget sees it: it is the operator's, so no work has a say in whether it holds.

Only GPUs in trouble, in somebody else's hands or opted out are left as they are; they count with what they have. One
that was limited for the work before, and is opted out now, gets back first what the budget has to give.
"""

from collections.abc import Iterable, Iterator, Mapping

from gpuwatch.tuning.cycle.gang import Moved
from gpuwatch.tuning.cycle.obstacles import is_ended
from gpuwatch.tuning.cycle.orders import Told, text
from gpuwatch.tuning.cycle.state import Inputs
from gpuwatch.tuning.model.status import BudgetState, Obstacle, Reason
from gpuwatch.tuning.power_budget.loop import cycle
from gpuwatch.tuning.power_budget.state import Look, Memory, Plight, Step

FIXED = frozenset(
    {
        Reason.LOST, Reason.UNRESPONSIVE, Reason.UNKNOWN, Reason.FAULT, Reason.XID, Reason.REPAIR_PENDING,
        Reason.SLOWDOWN, Reason.CONFLICT, Reason.OPTED_OUT,
    }
)  # fmt: skip
"""Reasons for which a GPU's power limit is not written. That nobody has opted in, or that it is shared, is none."""

FIRST = 1 << 31
"""Above the priority of every PriorityClass."""


def budgeted(
    memory: Memory, inputs: Inputs, closed: Mapping[str, tuple[Obstacle, ...]], moves: Iterable[Moved]
) -> Step:
    """One cycle of the budget. `closed`: what stands against each GPU, by uuid."""
    budget = inputs.config.node_budget_watts
    if is_ended(inputs) or not inputs.enforcing or budget is None:
        return Step(memory=Memory())  # whoever gives back everything gives back these limits, too
    if not inputs.heard:
        words = "the guard was not heard yet: limits stay as they are"
        return Step(memory=memory, state=BudgetState(budget=budget, how=Plight.WAITING, words=words))
    by_uuid = {uuid: moved for moved in moves for uuid in moved.team.uuids}
    against = {uuid: (*each, *by_uuid[uuid].closed.get(uuid, ())) for uuid, each in closed.items() if uuid in by_uuid}
    limited = (
        {each.uuid for each in inputs.actuation.settings if each.knob == "power_limit"} if inputs.actuation else ()
    )
    reasons = {uuid: {one.reason for one in each} & FIXED for uuid, each in against.items()}
    owed = {uuid for uuid, fixed in reasons.items() if fixed == {Reason.OPTED_OUT} and uuid in limited}
    look = Look(
        view=inputs.view,
        fresh=inputs.fresh,
        now=inputs.now,
        at=inputs.at,
        budget=budget,
        actuation=inputs.actuation,
        boards=inputs.boards,
        turned=inputs.turned,
        fixed=frozenset(uuid for uuid, fixed in reasons.items() if fixed and uuid not in owed),
        probes={uuid: moved.tuned.state for uuid, moved in by_uuid.items() if moved.tuned is not None},
        owners={uuid: moved.team.key for uuid, moved in by_uuid.items()},
        priorities={uuid: FIRST if uuid in owed else moved.wish.priority for uuid, moved in by_uuid.items()},
    )
    return cycle(memory, look)


def deeds(step: Step) -> Iterator[Told]:
    """Each order is a decision."""
    for order in step.orders:
        known = step.memory.limits.known.get(order.uuid)
        after = text("power_limit", order.value)
        before = text("power_limit", known.watts if known else None)
        yield Told("budget", order.uuid, "power_limit", before, after, order.why)
