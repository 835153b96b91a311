"""The node's power budget as a running loop: look, share, write, read back. Pure; the caller carries the orders out.

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
    watch,
    watts_of,
    with_sample,
)
from gpuwatch.tuning.power_budget.limits import (
    UNIT_WATTS,
    InForce,
    KnownLimits,
    Times,
    answered,
    in_force,
    looked,
    recorded,
    steps,
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
    verdict: BudgetPlan | None = None
    ours: frozenset[str] = frozenset()


class BudgetStep(Record, frozen=True, kw_only=True):
    """The results of a cycle. `orders` may be carried out in any order. `state` None: there is no budget."""

    memory: BudgetMemory
    orders: tuple[SettingOrder, ...] = ()
    state: BudgetState | None = None


def ceiling(memory: BudgetMemory, look: BudgetInputs, uuid: str) -> float:
    """The limit before gpuwatch, watts: where it has written none, that is the present one."""
    setting = look.settings.get(uuid)
    original = setting.original if setting else None
    return original or memory.limits.known[uuid].watts or 0.0


SHARE_SECONDS = 30.0

LEARN_SECONDS = ENOUGH_SECONDS + 5.0
"""At the start no GPU is held for so long, unless too much is drawn: a GPU that is held does not show what it needs."""


def watched(memory: BudgetMemory, look: BudgetInputs, budget: float) -> BudgetMemory:
    """Take in what each GPU draws, and what all draw together."""
    draws = {uuid: draw for uuid, draw in memory.draws.items() if uuid in memory.limits.known}
    for gpu in look.view.snapshot.gpus if look.view else ():
        uuid = gpu.identity.uuid
        if (limit := memory.limits.known[uuid].watts) is not None:
            draws[uuid] = with_sample(
                draws.get(uuid, Draw()),
                gpu,
                limit=limit,
                ceiling=ceiling(memory, look, uuid),
                owner=look.owners.get(uuid),
                state=look.probes.get(uuid),
                now=look.now,
            )
    total, is_whole = drawn(memory, look)
    reading = PowerReading(look.now, total) if is_whole or total > budget else None  # the others add 0 W at least
    return replace(memory, draws=draws, overdraw=watch(memory.overdraw, reading, budget))


def drawn(memory: BudgetMemory, look: BudgetInputs) -> tuple[float, bool]:
    """Watts that all GPUs that were read draw together, and whether these are all."""
    samples = look.view.snapshot.gpus if look.view else ()
    known = [watts for watts in (watts_of(gpu.power) for gpu in samples) if watts is not None]
    return sum(known), len(known) == len(memory.limits.known)


def bound(memory: BudgetMemory, look: BudgetInputs, gpu: InForce) -> float | None:
    """Watts that a GPU counts for if its limit must not be written now. None: it may be written."""
    known, failed = memory.limits, memory.limits.failed.get(gpu.uuid)
    is_free = gpu.uuid not in look.fixed and not known.is_resting(gpu.uuid, look.now) and failed is None
    if is_free and gpu.watts is not None and known.known[gpu.uuid].floor is not None:
        return None
    return max(gpu.at_worst, failed or 0.0)


def judged(
    memory: BudgetMemory, look: BudgetInputs, budget: float, now: Collection[InForce], exceeded: bool
) -> BudgetMemory:
    """Share again after SHARE_SECONDS, or when the situation that the verdict was made for has changed."""
    verdict, is_urgent = memory.verdict, memory.overdraw.is_emergency(look.now)
    if verdict is not None and memory.limits.in_grace(look.now) and not exceeded:
        return memory
    situation = (budget, is_urgent, *sorted(_bearing(memory, look, each) for each in now))
    if verdict is not None and verdict.situation == situation and look.now - verdict.at < SHARE_SECONDS:
        return memory
    gpus = tuple(_demand(memory, look, each) for each in now)
    if is_urgent:
        at_most = emergency(budget, gpus, {each.uuid: each.at_worst for each in now})
        how, message, limits = (
            str(BudgetCondition.EMERGENCY),
            f"more than {budget:.0f} W was drawn: equal parts at most",
            at_most,
        )
    else:
        shares = share(budget, gpus)
        is_plain = shares.how is ShareMethod.UNLIMITED and not memory.limits.failed
        if not is_plain and _is_learning(memory, look, gpus, exceeded):
            return memory
        how, message, limits = str(shares.how), shares.message, dict(shares.limits)
    return replace(
        memory, verdict=BudgetPlan(limits=limits, how=how, message=message, at=look.now, situation=situation)
    )


def _demand(memory: BudgetMemory, look: BudgetInputs, gpu: InForce) -> PowerDemand:
    draw = memory.draws.get(gpu.uuid, Draw())
    return PowerDemand(
        uuid=gpu.uuid,
        floor=memory.limits.known[gpu.uuid].floor or 0.0,
        ceiling=ceiling(memory, look, gpu.uuid),
        draw=draw.demand,
        curve=draw.curve,
        priority=look.priorities.get(gpu.uuid, 0),
        fixed=bound(memory, look, gpu),
    )


def _bearing(memory: BudgetMemory, look: BudgetInputs, gpu: InForce) -> tuple[str, str, int, int]:
    """The facts of a GPU whose change leads to a new verdict at once."""
    fixed = bound(memory, look, gpu)
    watts = -1 if fixed is None else round(fixed)
    return gpu.uuid, look.owners.get(gpu.uuid, ""), look.priorities.get(gpu.uuid, 0), watts


def _is_learning(memory: BudgetMemory, look: BudgetInputs, gpus: Collection[PowerDemand], exceeded: bool) -> bool:
    """Whether this loop is new and has held no GPU yet (an earlier one may have), and a GPU's draw is not known."""
    is_new = memory.since is not None and look.now - memory.since < LEARN_SECONDS
    is_untouched = memory.verdict is None and not (look.settings and exceeded)
    asked = memory.limits.failed
    return is_new and is_untouched and any(gpu.draw is None for gpu in gpus if gpu.fixed is None or gpu.uuid in asked)


EXCEEDED_WATTS = 0.5
"""Above the budget by less is rounding."""


def cycle(memory: BudgetMemory, look: BudgetInputs) -> BudgetStep:
    """One cycle. All orders are to be carried out before the next one, and their outcomes passed to it."""
    memory = replace(memory, limits=answered(memory.limits, look.results, look.now, look.at))
    if look.budget is None:
        return _returned(memory, look)
    try:
        return _kept(memory, look, look.budget)
    except ValueError as error:
        message = f"the budget cannot be shared, everything is restored: {error}"
        state = BudgetState(budget=look.budget, how=BudgetCondition.INVALID, message=message)
        mine = replace(memory, ours=memory.ours | look.settings.keys())
        return replace(_returned(mine, look), state=state)


def _returned(memory: BudgetMemory, look: BudgetInputs) -> BudgetStep:
    """Restore all limits of ours, in any order: there is no budget that could be exceeded."""
    ours = memory.ours if look.actuation is None else memory.ours & look.settings.keys()
    free = sorted(uuid for uuid in ours & look.settings.keys() if not memory.limits.is_resting(uuid, look.now))
    why = "no power budget any more"
    orders = tuple(SettingOrder(uuid=uuid, knob="power_limit", value=None, why=why) for uuid in free)
    asked = {uuid: look.settings[uuid].original or 0.0 for uuid in free}
    return BudgetStep(memory=BudgetMemory(limits=replace(memory.limits, asked=asked), ours=ours), orders=orders)


def _kept(memory: BudgetMemory, look: BudgetInputs, budget: float) -> BudgetStep:
    settings = look.settings
    if look.actuation is None:
        return _waiting(memory, budget, "the record of settings cannot be read: limits stay as they are")
    if look.view is None or not look.fresh:
        return _waiting(memory, budget, "the agent's view is too old: limits stay as they are")
    if memory.since is None:  # after a restart: what an earlier process asked for may be in force, or still take effect
        failed = {uuid: max(setting.applied) for uuid, setting in settings.items()}
        memory = replace(memory, since=look.now, limits=replace(memory.limits, failed=failed))
    times = Times(now=look.now, at=look.at)
    seen = looked(memory.limits, look.view.snapshot, look.capabilities, settings, times)
    memory = replace(memory, limits=seen, ours=memory.ours | settings.keys())
    now = in_force(seen, look.now)
    if now is None:
        return _waiting(memory, budget, "no GPU tells which power limits it may have")
    memory = watched(memory, look, budget)
    is_exceeded = sum(each.at_worst for each in now) > budget + EXCEEDED_WATTS
    memory = judged(memory, look, budget, now, is_exceeded)
    orders = {order.uuid: order for order in _orders(memory, look, budget, now)}
    asked = {uuid: ceiling(memory, look, uuid) if each.value is None else each.value for uuid, each in orders.items()}
    memory = replace(memory, limits=replace(seen, asked=asked), ours=memory.ours | asked.keys())
    verdict, read = memory.verdict, [each.watts for each in now if each.watts is not None]
    blind = [f"{each.uuid} counts for {each.most:.0f} W: it cannot be read" for each in now if each.watts is None]
    late = [f"{uuid} may still get {watts:.0f} W" for uuid, watts in memory.limits.failed.items()]
    message = verdict.message if verdict else "no GPU is limited yet: measuring what each one draws"
    total, is_whole = drawn(memory, look)
    return BudgetStep(
        memory=memory,
        orders=tuple(orders.values()),
        state=BudgetState(
            budget=budget,
            how=verdict.how if verdict else BudgetCondition.LEARNING,
            message="; ".join((message, *blind, *late)),
            limits=sum(read) if len(read) == len(now) else None,
            draw=total if is_whole else None,
        ),
    )


def _waiting(memory: BudgetMemory, budget: float, message: str) -> BudgetStep:
    return BudgetStep(memory=memory, state=BudgetState(budget=budget, how=BudgetCondition.WAITING, message=message))


def _orders(
    memory: BudgetMemory, look: BudgetInputs, budget: float, now: tuple[InForce, ...]
) -> Iterator[SettingOrder]:
    """All decreases at once; only when there are none, increases, all into what is free now. GPUs that failed are
    asked again for the least they may have: when that shows, their limit is known.
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


def _order(memory: BudgetMemory, look: BudgetInputs, uuid: str, watts: float, why: str) -> SettingOrder:
    """A limit of before gpuwatch is restored, not set: then nothing is recorded any more."""
    is_own = uuid in look.settings and watts >= ceiling(memory, look, uuid) - UNIT_WATTS
    return SettingOrder(uuid=uuid, knob="power_limit", value=None if is_own else watts, why=f"power budget: {why}")
