"""One cycle of the tuner, pure: from samples and consents to orders, statuses and audit entries.

The caller carries the orders out and passes their results to the next cycle. In doubt settings are restored: whatever
is recorded as set, and not wanted by this very cycle, is ordered back.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from gpuwatch.model.setting import KNOBS
from gpuwatch.model.snapshot import Gpu, Record
from gpuwatch.tuning.cycle.gang import CycleSamples, GangDecision, decide
from gpuwatch.tuning.cycle.gang_energy import ACTIVE, results
from gpuwatch.tuning.cycle.obstacles import GateResults, gates, is_ended
from gpuwatch.tuning.cycle.state import Account, CycleInputs, CycleMemory, CycleResult, Key, OrderReport
from gpuwatch.tuning.cycle.status import account, gpu_status, order_reports, rest_saved, since, why, why_not
from gpuwatch.tuning.energy.model import TrialState
from gpuwatch.tuning.gates.owners import gangs
from gpuwatch.tuning.model.order import SettingOrder, setting_text
from gpuwatch.tuning.model.status import BudgetState, GpuTuning, Obstacle, ObstacleReason
from gpuwatch.tuning.power_budget.loop import BudgetCondition, BudgetInputs, BudgetMemory, BudgetStep
from gpuwatch.tuning.power_budget.loop import cycle as budget_cycle


class Want(Record, frozen=True, kw_only=True):
    """What should be in force of one knob, hertz or watts. `value` None: nothing now, but something again in seconds.

    `before`: what was ordered last.
    """

    value: float | None
    before: float | None
    why: str
    pod_uid: str | None = None


def orders(wanted: Mapping[Key, Want], held: Collection[Key], whys: Mapping[str, str]) -> Iterator[SettingOrder]:
    """First what is given back. `held`: what may be in force; `whys`: uuid -> why nothing is wanted of a GPU."""
    for uuid, knob in sorted(key for key in held if key not in wanted):
        yield SettingOrder(uuid=uuid, knob=knob, value=None, why=whys.get(uuid, "nobody uses it"))
    for (uuid, knob), want in sorted(wanted.items(), key=lambda item: item[0]):
        if want.value != want.before:
            keep = want.value is None
            yield SettingOrder(uuid=uuid, knob=knob, value=want.value, why=want.why, keep=keep, pod_uid=want.pod_uid)


FIXED = frozenset(
    ObstacleReason(name)
    for name in [
        "lost",
        "unresponsive",
        "unknown",
        "fault",
        "xid",
        "repair_pending",
        "slowdown",
        "conflict",
        "opted_out",
    ]
)
"""Reasons for which a GPU's power limit is not written. That nobody has opted in, or that it is shared, is none."""

FIRST = 1 << 31
"""Above the priority of every PriorityClass."""


def budgeted(
    memory: BudgetMemory,
    inputs: CycleInputs,
    closed: Mapping[str, tuple[Obstacle, ...]],
    decisions: Iterable[GangDecision],
) -> BudgetStep:
    """One cycle of the budget. `closed`: what stands against each GPU, by uuid."""
    budget = inputs.config.node_budget_watts
    if is_ended(inputs) or not inputs.enforcing or budget is None:
        return BudgetStep(memory=BudgetMemory())  # whoever gives back everything gives back these limits, too
    if not inputs.guarded:
        message = "the guard was not heard yet: limits stay as they are"
        return BudgetStep(memory=memory, state=BudgetState(budget=budget, how=BudgetCondition.WAITING, message=message))
    by_uuid = {uuid: decision for decision in decisions for uuid in decision.gang.uuids}
    against = {uuid: (*each, *by_uuid[uuid].closed.get(uuid, ())) for uuid, each in closed.items() if uuid in by_uuid}
    limited = (
        {each.uuid for each in inputs.actuation.settings if each.knob == "power_limit"} if inputs.actuation else ()
    )
    reasons = {uuid: {one.reason for one in each} & FIXED for uuid, each in against.items()}
    owed = {uuid for uuid, fixed in reasons.items() if fixed == {ObstacleReason.OPTED_OUT} and uuid in limited}
    look = BudgetInputs(
        view=inputs.view,
        fresh=inputs.fresh,
        now=inputs.now,
        at=inputs.at,
        budget=budget,
        actuation=inputs.actuation,
        capabilities=inputs.capabilities,
        results=inputs.results,
        fixed=frozenset(uuid for uuid, fixed in reasons.items() if fixed and uuid not in owed),
        probes={uuid: decision.tuned.state for uuid, decision in by_uuid.items() if decision.tuned is not None},
        owners={uuid: decision.gang.key for uuid, decision in by_uuid.items()},
        priorities={uuid: FIRST if uuid in owed else decision.request.priority for uuid, decision in by_uuid.items()},
    )
    return budget_cycle(memory, look)


def _budget_reports(step: BudgetStep) -> Iterator[OrderReport]:
    """Each order is a decision."""
    for order in step.orders:
        known = step.memory.limits.known.get(order.uuid)
        after = setting_text("power_limit", order.value)
        before = setting_text("power_limit", known.watts if known else None)
        yield OrderReport("budget", order.uuid, "power_limit", before, after, order.why)


Moves = tuple[GangDecision, ...]


def cycle(memory: CycleMemory, inputs: CycleInputs) -> CycleResult:
    """One cycle. In the modes off and observe there are no orders."""
    held = _held(memory, inputs)
    if inputs.view is None or inputs.config.mode == "off":
        forgetful = CycleMemory(
            cooldowns=memory.cooldowns,
            rate_limits=memory.rate_limits,
            accounts=memory.accounts,
            held=held,
            budget=memory.budget,
        )
        return CycleResult(memory=forgetful, orders=_orders(inputs, (), held))
    view = inputs.view
    samples = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    news = samples if inputs.fresh and view.snapshot.at != memory.view_at else {}
    passed = gates(memory, inputs, news)
    samples_now = CycleSamples(samples, news, passed.closed)
    decisions = tuple(decide(gang, memory, inputs, samples_now, held) for gang in gangs(view, inputs.consents))
    budget = budgeted(memory.budget, inputs, passed.closed, decisions)
    orders = (*_orders(inputs, decisions, held), *budget.orders)
    decisions = tuple(_after(decision, inputs) for decision in decisions)
    accounts = {**memory.accounts, **dict(_accounts(memory, decisions, news))}
    gpus = _gpu_statuses(memory, inputs, passed, decisions, accounts)
    remembered = _remembered(memory, inputs, passed, decisions, held.union(_set(orders)), gpus, accounts)
    return CycleResult(
        memory=replace(remembered, budget=budget.memory),
        orders=orders,
        gpus=gpus,
        reports=(*order_reports(memory, decisions), *_budget_reports(budget)) if inputs.enforcing else (),
        kept=_kept(decisions),
        budget=budget.state,
    )


def _held(memory: CycleMemory, inputs: CycleInputs) -> frozenset[Key]:
    """Knobs that may have something of ours in force: those recorded, or where that is not known, those remembered."""
    if inputs.actuation is None:
        return memory.held
    return frozenset((setting.uuid, setting.knob) for setting in inputs.actuation.settings)


def _set(orders: tuple[SettingOrder, ...]) -> set[Key]:
    return {(order.uuid, order.knob) for order in orders if order.value is not None}


def _orders(inputs: CycleInputs, decisions: Moves, held: frozenset[Key]) -> tuple[SettingOrder, ...]:
    if not inputs.enforcing:
        return ()
    knobs = KNOBS if is_ended(inputs) else inputs.knobs
    wanted = {
        (uuid, decision.tuned.ladder.knob): Want(
            value=decision.aim.value,
            before=decision.tuned.cap,
            why=why(decision.tuned),
            pod_uid=next((owner.uid for owner in decision.gang.owners if owner.uid), None),
        )
        for decision in decisions
        if decision.tuned is not None and decision.aim is not None
        for uuid in decision.gang.uuids
    }
    whys = {uuid: why_not(decision, uuid) for decision in decisions for uuid in decision.gang.uuids}
    return tuple(orders(wanted, {key for key in held if key[1] in knobs}, whys))


def _after(decision: GangDecision, inputs: CycleInputs) -> GangDecision:
    """As it is once the orders are carried out."""
    if decision.tuned is None:
        return decision
    return decision._replace(tuned=results(decision.tuned, decision.aim, inputs.at))


def _accounts(memory: CycleMemory, decisions: Moves, news: Mapping[str, Gpu]) -> Iterator[tuple[str, Account]]:
    for decision in decisions:
        before = memory.tuned.get(decision.gang.key)
        for uuid in decision.gang.uuids:
            if uuid in news:
                known = memory.accounts.get(uuid, Account())
                share = rest_saved(before, decision.tuned) / len(decision.gang.uuids)
                yield uuid, account(known, news[uuid], before, share)


def _gpu_statuses(
    memory: CycleMemory, inputs: CycleInputs, passed: GateResults, decisions: Moves, accounts: Mapping[str, Account]
) -> tuple[GpuTuning, ...]:
    settings = inputs.actuation.settings if inputs.actuation else ()
    by_uuid = {uuid: decision for decision in decisions for uuid in decision.gang.uuids}
    return tuple(
        gpu_status(
            gpu,
            by_uuid.get(gpu.uuid),
            memory,
            inputs.at,
            accounts.get(gpu.uuid, Account()),
            tuple(setting for setting in settings if setting.uuid == gpu.uuid),
        )
        for gpu in passed.judged
    )


def _remembered(
    memory: CycleMemory,
    inputs: CycleInputs,
    passed: GateResults,
    decisions: Moves,
    held: frozenset[Key],
    gpus: tuple[GpuTuning, ...],
    accounts: Mapping[str, Account],
) -> CycleMemory:
    limited = {
        (uuid, decision.cooldown.reason): decision.cooldown
        for decision in decisions
        if decision.cooldown is not None
        for uuid in decision.gang.uuids
    }
    return CycleMemory(
        seen=passed.seen,
        tuned={decision.gang.key: decision.tuned for decision in decisions if decision.tuned is not None},
        gangs={decision.gang.key: decision.gang for decision in decisions},
        met=memory.met.union(decision.gang.key for decision in decisions if decision.gang.key in inputs.saved),
        cooldowns={**passed.cooldowns, **limited},
        rate_limits={
            **memory.rate_limits,
            **{uuid: rate_limit for decision in decisions for uuid, rate_limit in decision.rate_limits.items()},
        },
        watches=passed.watches,
        accounts=accounts,
        since=since(gpus),
        held=held,
        view_at=None if inputs.view is None else inputs.view.snapshot.at,
    )


def _kept(decisions: Moves) -> dict[str, TrialState]:
    """What is worth a verification by the next tuner, without the windows."""
    return {
        decision.gang.key: replace(decision.tuned.state, watched=(), full=(), before=None, reduced=None, newest=None)
        for decision in decisions
        if decision.tuned is not None and decision.tuned.state.phase in ACTIVE and decision.tuned.state.held is not None
    }
