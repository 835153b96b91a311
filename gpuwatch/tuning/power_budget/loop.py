"""The node's power budget as a running loop: read, share, write, read back. Pure; the caller carries the orders out.

The sum of the limits in force stays within the budget: no GPU gets more before others were read back with less, and
what cannot be read counts as the highest it could be. So the budget holds when the loop dies after any write.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

from msgspec.structs import replace

from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import View
from gpuwatch.tuning.energy.model import TrialState
from gpuwatch.tuning.model.setting import Actuation, ApplyResult, GpuCapabilities, Setting, SettingOrder
from gpuwatch.tuning.model.status import BudgetState
from gpuwatch.tuning.power_budget.allocation import PowerDemand, ShareMethod, emergency, share
from gpuwatch.tuning.power_budget.demand import (
    ENOUGH_SECONDS,
    Draw,
    Overdraw,
    PowerReading,
    watts_of,
    with_reading,
    with_sample,
)
from gpuwatch.tuning.power_budget.limits import (
    UNIT_WATTS,
    InForce,
    KnownLimits,
    Times,
    in_force,
    recorded,
    steps,
    with_results,
    with_snapshot,
)


class BudgetCondition(StrEnum):
    """How the budget is handled when it is not shared by a `ShareMethod`."""

    EMERGENCY = "emergency"  # more was drawn than the budget
    LEARNING = "learning"  # it has begun a moment ago, and measures what each GPU draws
    WAITING = "waiting"  # nothing is written: the View, the record or the guard is missing, or no limits are known
    INVALID = "invalid"  # it cannot be shared; everything is restored


class BudgetInputs(Record, frozen=True, kw_only=True):
    """The inputs of a cycle. `now`: monotonic seconds, `at`: unix seconds. `budget` watts, None: there is none, so
    everything is restored. `fresh`: the View is not too old. `actuation`: the record, None: it cannot be read.

    By uuid: `capabilities`; `probes`, the energy tuner's states; `owners`, the keys of the gangs;
    `priorities`. `fixed`: GPUs that are not to be written. `results`: of the orders of the cycle before.
    """

    view: View | None
    fresh: bool
    now: float
    at: float
    budget: float | None
    actuation: Actuation | None
    capabilities: Mapping[str, GpuCapabilities] = {}
    results: tuple[ApplyResult, ...] = ()
    fixed: Collection[str] = ()
    probes: Mapping[str, TrialState] = {}
    owners: Mapping[str, str] = {}
    priorities: Mapping[str, int] = {}

    @property
    def settings(self) -> dict[str, Setting]:
        """Power limits that are recorded."""
        return recorded(self.actuation) if self.actuation else {}


class BudgetPlan(Record, frozen=True, kw_only=True):
    """Limits wanted, watts by uuid. `at`: monotonic seconds; `situation`: what they were made for."""

    limits: Mapping[str, float]
    how: str
    message: str
    at: float
    situation: tuple[object, ...]


class BudgetMemory(Record, frozen=True, kw_only=True):
    """What is carried from one cycle to the next; BudgetMemory() at the start. `since`: monotonic seconds of the first
    fresh View. `ours`: GPUs whose power limit may be the budget's.
    """

    since: float | None = None
    limits: KnownLimits = KnownLimits()
    draws: Mapping[str, Draw] = {}
    overdraw: Overdraw = Overdraw()
    plan: BudgetPlan | None = None
    ours: frozenset[str] = frozenset()


class BudgetStep(Record, frozen=True, kw_only=True):
    """The results of a cycle. `orders` may be carried out in any order. `state` None: there is no budget."""

    memory: BudgetMemory
    orders: tuple[SettingOrder, ...] = ()
    state: BudgetState | None = None


def ceiling(memory: BudgetMemory, inputs: BudgetInputs, uuid: str) -> float:
    """The limit before gpuwatch, watts: where it has written none, that is the present one."""
    setting = inputs.settings.get(uuid)
    original = setting.original if setting else None
    return original or memory.limits.known[uuid].watts or 0.0


SHARE_SECONDS = 30.0

LEARN_SECONDS = ENOUGH_SECONDS + 5.0
"""At the start no GPU is held for so long, unless too much is drawn: a GPU that is held does not show what it needs."""


def with_draws(memory: BudgetMemory, inputs: BudgetInputs, budget: float) -> BudgetMemory:
    """Take in what each GPU draws, and what all draw together."""
    draws = {uuid: draw for uuid, draw in memory.draws.items() if uuid in memory.limits.known}
    for gpu in inputs.view.snapshot.gpus if inputs.view else ():
        uuid = gpu.identity.uuid
        if (limit := memory.limits.known[uuid].watts) is not None:
            draws[uuid] = with_sample(
                draws.get(uuid, Draw()),
                gpu,
                limit=limit,
                ceiling=ceiling(memory, inputs, uuid),
                owner=inputs.owners.get(uuid),
                state=inputs.probes.get(uuid),
                now=inputs.now,
            )
    total, is_whole = total_draw(memory, inputs)
    reading = PowerReading(inputs.now, total) if is_whole or total > budget else None  # the others add 0 W at least
    return replace(memory, draws=draws, overdraw=with_reading(memory.overdraw, reading, budget))


def total_draw(memory: BudgetMemory, inputs: BudgetInputs) -> tuple[float, bool]:
    """Watts that all GPUs that were read draw together, and whether these are all."""
    samples = inputs.view.snapshot.gpus if inputs.view else ()
    known = [watts for watts in (watts_of(gpu.power) for gpu in samples) if watts is not None]
    return sum(known), len(known) == len(memory.limits.known)


def fixed_limit(memory: BudgetMemory, inputs: BudgetInputs, gpu: InForce) -> float | None:
    """Watts that a GPU counts for if its limit must not be written now. None: it may be written."""
    known, failed = memory.limits, memory.limits.failed.get(gpu.uuid)
    is_free = gpu.uuid not in inputs.fixed and not known.in_cooldown(gpu.uuid, inputs.now) and failed is None
    if is_free and gpu.watts is not None and known.known[gpu.uuid].floor is not None:
        return None
    return max(gpu.at_worst, failed or 0.0)


def planned(
    memory: BudgetMemory, inputs: BudgetInputs, budget: float, now: Collection[InForce], exceeded: bool
) -> BudgetMemory:
    """Share again after SHARE_SECONDS, or when the situation that the plan was made for has changed."""
    plan, is_urgent = memory.plan, memory.overdraw.is_emergency(inputs.now)
    if plan is not None and memory.limits.in_grace(inputs.now) and not exceeded:
        return memory
    fixed = {each.uuid: fixed_limit(memory, inputs, each) for each in now}
    facts = (
        (uuid, inputs.owners.get(uuid, ""), inputs.priorities.get(uuid, 0), -1 if watts is None else round(watts))
        for uuid, watts in fixed.items()
    )
    situation = (budget, is_urgent, *sorted(facts))
    if plan is not None and plan.situation == situation and inputs.now - plan.at < SHARE_SECONDS:
        return memory
    draws = {uuid: memory.draws.get(uuid, Draw()) for uuid in fixed}
    gpus = tuple(
        PowerDemand(
            uuid=uuid,
            floor=memory.limits.known[uuid].floor or 0.0,
            ceiling=ceiling(memory, inputs, uuid),
            draw=draws[uuid].demand,
            curve=draws[uuid].curve,
            priority=inputs.priorities.get(uuid, 0),
            fixed=watts,
        )
        for uuid, watts in fixed.items()
    )
    if is_urgent:
        how = str(BudgetCondition.EMERGENCY)
        limits = emergency(budget, gpus, {each.uuid: each.at_worst for each in now})
        message = f"more than {budget:.0f} W was drawn: equal parts at most"
    else:
        shares = share(budget, gpus)
        is_plain = shares.how is ShareMethod.UNLIMITED and not memory.limits.failed
        if not is_plain and _is_learning(memory, inputs, gpus, exceeded):
            return memory
        how, message, limits = str(shares.how), shares.message, dict(shares.limits)
    return replace(memory, plan=BudgetPlan(limits=limits, how=how, message=message, at=inputs.now, situation=situation))


def _is_learning(memory: BudgetMemory, inputs: BudgetInputs, gpus: Collection[PowerDemand], exceeded: bool) -> bool:
    """Whether this loop is new and has held no GPU yet (an earlier one may have), and a GPU's draw is not known."""
    is_new = memory.since is not None and inputs.now - memory.since < LEARN_SECONDS
    is_untouched = memory.plan is None and not (inputs.settings and exceeded)
    failed = memory.limits.failed
    return is_new and is_untouched and any(gpu.draw is None for gpu in gpus if gpu.fixed is None or gpu.uuid in failed)


EXCEEDED_WATTS = 0.5
"""Above the budget by less is rounding."""


def cycle(memory: BudgetMemory, inputs: BudgetInputs) -> BudgetStep:
    """One cycle. All orders are to be carried out before the next one, and their outcomes passed to it."""
    memory = replace(memory, limits=with_results(memory.limits, inputs.results, inputs.now, inputs.at))
    if inputs.budget is None:
        return _restored(memory, inputs)
    try:
        return _keep_budget(memory, inputs, inputs.budget)
    except ValueError as error:
        message = f"the budget cannot be shared, everything is restored: {error}"
        state = BudgetState(budget=inputs.budget, how=BudgetCondition.INVALID, message=message)
        mine = replace(memory, ours=memory.ours | inputs.settings.keys())
        return replace(_restored(mine, inputs), state=state)


def _restored(memory: BudgetMemory, inputs: BudgetInputs) -> BudgetStep:
    """Restore all limits of ours, in any order: there is no budget that could be exceeded."""
    ours = memory.ours if inputs.actuation is None else memory.ours & inputs.settings.keys()
    free = sorted(uuid for uuid in ours & inputs.settings.keys() if not memory.limits.in_cooldown(uuid, inputs.now))
    why = "no power budget any more"
    orders = tuple(SettingOrder(uuid=uuid, knob="power_limit", value=None, why=why) for uuid in free)
    ordered = {uuid: inputs.settings[uuid].original or 0.0 for uuid in free}
    return BudgetStep(memory=BudgetMemory(limits=replace(memory.limits, ordered=ordered), ours=ours), orders=orders)


def _keep_budget(memory: BudgetMemory, inputs: BudgetInputs, budget: float) -> BudgetStep:
    settings = inputs.settings
    if inputs.actuation is None:
        return _waiting(memory, budget, "the record of settings cannot be read: limits stay as they are")
    if inputs.view is None or not inputs.fresh:
        return _waiting(memory, budget, "the agent's view is too old: limits stay as they are")
    if memory.since is None:  # after a restart: what an earlier process has set may be in force, or still take effect
        failed = {uuid: max(setting.applied) for uuid, setting in settings.items()}
        memory = replace(memory, since=inputs.now, limits=replace(memory.limits, failed=failed))
    times = Times(now=inputs.now, at=inputs.at)
    limits = with_snapshot(memory.limits, inputs.view.snapshot, inputs.capabilities, settings, times)
    memory = replace(memory, limits=limits, ours=memory.ours | settings.keys())
    now = in_force(limits, inputs.now)
    if now is None:
        return _waiting(memory, budget, "no GPU reports its power limits")
    memory = with_draws(memory, inputs, budget)
    is_exceeded = sum(each.at_worst for each in now) > budget + EXCEEDED_WATTS
    memory = planned(memory, inputs, budget, now, is_exceeded)
    orders = {order.uuid: order for order in _orders(memory, inputs, budget, now)}
    ordered = {
        uuid: ceiling(memory, inputs, uuid) if each.value is None else each.value for uuid, each in orders.items()
    }
    memory = replace(memory, limits=replace(limits, ordered=ordered), ours=memory.ours | ordered.keys())
    plan, read = memory.plan, [each.watts for each in now if each.watts is not None]
    unread = [f"{each.uuid} counts for {each.most:.0f} W: it cannot be read" for each in now if each.watts is None]
    pending = [f"{uuid} may still get {watts:.0f} W" for uuid, watts in memory.limits.failed.items()]
    message = plan.message if plan else "no GPU is limited yet: measuring what each one draws"
    total, is_whole = total_draw(memory, inputs)
    return BudgetStep(
        memory=memory,
        orders=tuple(orders.values()),
        state=BudgetState(
            budget=budget,
            how=plan.how if plan else BudgetCondition.LEARNING,
            message="; ".join((message, *unread, *pending)),
            limits=sum(read) if len(read) == len(now) else None,
            draw=total if is_whole else None,
        ),
    )


def _waiting(memory: BudgetMemory, budget: float, message: str) -> BudgetStep:
    return BudgetStep(memory=memory, state=BudgetState(budget=budget, how=BudgetCondition.WAITING, message=message))


def _orders(
    memory: BudgetMemory, inputs: BudgetInputs, budget: float, now: tuple[InForce, ...]
) -> Iterator[SettingOrder]:
    """All decreases at once; only when there are none, increases, all into what is free now. GPUs that failed
    are set again to the least they may have: when that shows, their limit is known.
    """
    free = {each.uuid for each in now if fixed_limit(memory, inputs, each) is None}
    plan, failed = memory.plan, memory.limits.failed
    targets = {uuid: watts for uuid, watts in plan.limits.items() if uuid in free} if plan else {}
    writes = steps(now, targets, budget, failed)
    decreases = [move for move in writes if move.watts < move.before]
    for move in decreases or (() if memory.limits.in_grace(inputs.now) else writes):
        yield _order(memory, inputs, move.uuid, move.watts, plan.how if plan else "")
    for each in now:
        is_retried = each.uuid in failed and each.uuid not in inputs.fixed
        if is_retried and each.watts is not None and not memory.limits.in_cooldown(each.uuid, inputs.now):
            setting = inputs.settings.get(each.uuid)
            least = min(each.watts, failed[each.uuid], *(setting.applied if setting else ()))
            yield _order(memory, inputs, each.uuid, least, "the limit that was set did not show")


def _order(memory: BudgetMemory, inputs: BudgetInputs, uuid: str, watts: float, why: str) -> SettingOrder:
    """A limit of before gpuwatch is restored, not set: then nothing is recorded any more."""
    is_own = uuid in inputs.settings and watts >= ceiling(memory, inputs, uuid) - UNIT_WATTS
    return SettingOrder(uuid=uuid, knob="power_limit", value=None if is_own else watts, why=f"power budget: {why}")
