"""The node's power budget as a running loop: look, share, write, read back. Pure; the caller's hand turns the knobs.

The sum of the limits in force stays within the budget: nobody gets more before the others were seen to have less, and
what cannot be read counts as the highest it could be. So the budget holds when the loop dies after any write.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from gpuwatch.tuning.model.order import Order
from gpuwatch.tuning.model.status import BudgetState
from gpuwatch.tuning.power_budget import limits
from gpuwatch.tuning.power_budget.decision import bound, drawn, judged, watched
from gpuwatch.tuning.power_budget.limits import Times
from gpuwatch.tuning.power_budget.state import Look, Memory, Plight, Step, ceiling
from gpuwatch.tuning.power_budget.write_order import UNIT_WATTS, InForce, steps

EXCEEDED_WATTS = 0.5
"""Above the budget by less is rounding."""


def cycle(memory: Memory, look: Look) -> Step:
    """One cycle. All orders are to be carried out before the next one, and their outcomes handed in with it."""
    memory = replace(memory, limits=limits.answered(memory.limits, look.turned, look.now, look.at))
    if look.budget is None:
        return _returned(memory, look)
    try:
        return _kept(memory, look, look.budget)
    except ValueError as error:
        words = f"the budget cannot be shared, everything is given back: {error}"
        state = BudgetState(budget=look.budget, how=Plight.INVALID, words=words)
        mine = replace(memory, ours=memory.ours | look.settings.keys())
        return replace(_returned(mine, look), state=state)


def _returned(memory: Memory, look: Look) -> Step:
    """Everything of ours given back, in any order: there is nothing that could be exceeded."""
    ours = memory.ours if look.actuation is None else memory.ours & look.settings.keys()
    free = sorted(uuid for uuid in ours & look.settings.keys() if not memory.limits.is_resting(uuid, look.now))
    why = "no power budget any more"
    orders = tuple(Order(uuid=uuid, knob="power_limit", value=None, why=why) for uuid in free)
    asked = {uuid: look.settings[uuid].original or 0.0 for uuid in free}
    return Step(memory=Memory(limits=replace(memory.limits, asked=asked), ours=ours), orders=orders)


def _kept(memory: Memory, look: Look, budget: float) -> Step:
    settings = look.settings
    if look.actuation is None:
        return _waiting(memory, budget, "the record of settings cannot be read: limits stay as they are")
    if look.view is None or not look.fresh:
        return _waiting(memory, budget, "the agent's view is too old: limits stay as they are")
    if memory.since is None:
        memory = replace(memory, since=look.now, limits=limits.adopted(memory.limits, settings))
    times = Times(now=look.now, at=look.at)
    seen = limits.looked(memory.limits, look.view.snapshot, look.boards, settings, times)
    memory = replace(memory, limits=seen, ours=memory.ours | settings.keys())
    now = limits.in_force(seen, look.now)
    if now is None:
        return _waiting(memory, budget, "no GPU tells which power limits it may have")
    memory = watched(memory, look, budget)
    is_exceeded = sum(each.at_worst for each in now) > budget + EXCEEDED_WATTS
    memory = judged(memory, look, budget, now, is_exceeded)
    orders = {order.uuid: order for order in _orders(memory, look, budget, now)}
    asked = {uuid: ceiling(memory, look, uuid) if each.value is None else each.value for uuid, each in orders.items()}
    memory = replace(memory, limits=replace(seen, asked=asked), ours=memory.ours | asked.keys())
    return Step(memory=memory, orders=tuple(orders.values()), state=_told(memory, look, budget, now))


def _waiting(memory: Memory, budget: float, words: str) -> Step:
    return Step(memory=memory, state=BudgetState(budget=budget, how=Plight.WAITING, words=words))


def _orders(memory: Memory, look: Look, budget: float, now: tuple[InForce, ...]) -> Iterator[Order]:
    """All decreases at once; only when there are none, increases, all into what is free now. And those that failed are
    asked again for the least they may have: when that shows, it is known what they have.
    """
    free = {each.uuid for each in now if bound(memory, look, each) is None}
    verdict, failed = memory.verdict, memory.limits.failed
    wanted = {uuid: watts for uuid, watts in verdict.limits.items() if uuid in free} if verdict else {}
    plan = steps(now, wanted, budget, failed)
    decreases = [move for move in plan if move.watts < move.before]
    for move in decreases or (() if memory.limits.in_grace(look.now) else plan):
        yield _order(memory, look, move.uuid, move.watts, verdict.how if verdict else "")
    for each in now:
        is_asked = each.uuid in failed and each.uuid not in look.fixed
        if is_asked and each.watts is not None and not memory.limits.is_resting(each.uuid, look.now):
            setting = look.settings.get(each.uuid)
            least = min(each.watts, failed[each.uuid], *(setting.applied if setting else ()))
            yield _order(memory, look, each.uuid, least, "what was asked for did not show")


def _order(memory: Memory, look: Look, uuid: str, watts: float, why: str) -> Order:
    """What was before is given back, not set: then nothing is recorded any more."""
    is_own = uuid in look.settings and watts >= ceiling(memory, look, uuid) - UNIT_WATTS
    return Order(uuid=uuid, knob="power_limit", value=None if is_own else watts, why=f"power budget: {why}")


def _told(memory: Memory, look: Look, budget: float, now: tuple[InForce, ...]) -> BudgetState:
    verdict, read = memory.verdict, [each.watts for each in now if each.watts is not None]
    blind = [f"{each.uuid} counts for {each.most:.0f} W: it cannot be read" for each in now if each.watts is None]
    late = [f"{uuid} may still get {watts:.0f} W" for uuid, watts in memory.limits.failed.items()]
    words = verdict.words if verdict else "nobody is held yet: looking what each GPU draws"
    total, is_whole = drawn(memory, look)
    return BudgetState(
        budget=budget,
        how=verdict.how if verdict else Plight.LEARNING,
        words="; ".join((words, *blind, *late)),
        limits=sum(read) if len(read) == len(now) else None,
        draw=total if is_whole else None,
    )
