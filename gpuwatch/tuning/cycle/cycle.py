"""One cycle of the tuner, pure: from samples and consents to orders, statuses and audit entries.

The caller carries the orders out and passes their results to the next cycle. In doubt settings are restored: a
recorded setting for which this very cycle has no target gets an order to restore it.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.view import View
from gpuwatch.tuning.cycle.gang import CycleSamples, GangDecision, decide, held_caps
from gpuwatch.tuning.cycle.gang_energy import ACTIVE, after_orders
from gpuwatch.tuning.cycle.obstacles import gates, is_ended
from gpuwatch.tuning.cycle.state import Account, CycleInputs, CycleMemory, CycleResult, Key, OrderReport, Since
from gpuwatch.tuning.cycle.status import account, gpu_status, idle_saved, order_reports, restore_text, set_text
from gpuwatch.tuning.gates.owners import gangs
from gpuwatch.tuning.model.setting import KNOBS, SettingOrder, setting_text
from gpuwatch.tuning.model.status import BudgetState, Obstacle, ObstacleReason
from gpuwatch.tuning.power_budget.loop import BudgetCondition, BudgetInputs, BudgetMemory, BudgetStep
from gpuwatch.tuning.power_budget.loop import cycle as budget_cycle

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
"""Reasons for which a GPU's power limit is not written. A missing opt-in or a shared GPU is not one of them."""

FIRST = 1 << 31
"""Above the priority of every PriorityClass."""


def cycle(memory: CycleMemory, inputs: CycleInputs) -> CycleResult:
    """One cycle. In the modes off and observe there are no orders."""
    held = memory.held  # what may be in force of ours: the recorded settings, where the record is readable
    if inputs.actuation is not None:
        held = frozenset((setting.uuid, setting.knob) for setting in inputs.actuation.settings)
    if inputs.view is not None and inputs.config.mode != "off":
        return _active_cycle(memory, inputs, inputs.view, held)
    paused = CycleMemory(
        cooldowns=memory.cooldowns,
        rate_limits=memory.rate_limits,
        accounts=memory.accounts,
        held=held,
        budget=memory.budget,
    )
    return CycleResult(memory=paused, orders=tuple(_orders(inputs, (), held)))


def _active_cycle(memory: CycleMemory, inputs: CycleInputs, view: View, held: frozenset[Key]) -> CycleResult:
    samples = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    new = samples if inputs.fresh and view.snapshot.at != memory.view_at else {}
    gate_results = gates(memory, inputs, new)
    samples_now = CycleSamples(samples, new, gate_results.closed)
    decisions = tuple(decide(gang, memory, inputs, samples_now, held) for gang in gangs(view, inputs.consents))
    budget = budgeted(memory.budget, inputs, gate_results.closed, decisions)
    orders = (*_orders(inputs, decisions, held), *budget.orders)

    # From here on, decisions are as they will be once these orders are carried out.
    decisions = tuple(
        decision._replace(tuned=decision.tuned and after_orders(decision.tuned, decision.target, inputs.at))
        for decision in decisions
    )
    accounts = _accounts(memory, decisions, new)
    by_uuid = {uuid: decision for decision in decisions for uuid in decision.gang.uuids}
    gpus = tuple(
        gpu_status(gpu, by_uuid.get(gpu.uuid), memory, inputs, accounts.get(gpu.uuid, Account()))
        for gpu in gate_results.judged
    )
    tuned = {decision.gang.key: decision.tuned for decision in decisions if decision.tuned is not None}
    rate_limited = {
        (uuid, decision.cooldown.reason): decision.cooldown
        for uuid, decision in by_uuid.items()
        if decision.cooldown is not None
    }
    gang_keys = frozenset(decision.gang.key for decision in decisions)
    next_memory = CycleMemory(
        gate_history=gate_results.history,
        tuned=tuned,
        gangs={decision.gang.key: decision.gang for decision in decisions},
        used_saves=memory.used_saves | (gang_keys & inputs.saved.keys()),
        cooldowns={**gate_results.cooldowns, **rate_limited},
        rate_limits={
            **memory.rate_limits,
            **{uuid: rate_limit for decision in decisions for uuid, rate_limit in decision.rate_limits.items()},
        },
        watches=gate_results.watches,
        accounts=accounts,
        since={gpu.uuid: Since(gpu.state, gpu.since or 0.0) for gpu in gpus},
        held=held.union((order.uuid, order.knob) for order in orders if order.value is not None),
        view_at=view.snapshot.at,
        budget=budget.memory,
    )
    return CycleResult(
        memory=next_memory,
        orders=orders,
        gpus=gpus,
        reports=(*order_reports(memory, decisions), *_budget_reports(budget)) if inputs.enforcing else (),
        kept={  # the next tuner verifies these states; it cannot use their windows
            key: replace(each.state, watched=(), full=(), before=None, reduced=None, newest=None)
            for key, each in tuned.items()
            if each.state.phase in ACTIVE and each.state.held is not None
        },
        known=held_caps(decisions, inputs),
        budget=budget.state,
    )


def _accounts(
    memory: CycleMemory, decisions: tuple[GangDecision, ...], new: Mapping[str, Gpu]
) -> Mapping[str, Account]:
    """The joules saved, by uuid, with the new samples."""
    accounts = dict(memory.accounts)
    for decision in decisions:
        before = memory.tuned.get(decision.gang.key)
        share = idle_saved(before, decision.tuned) / len(decision.gang.uuids)
        for uuid in new.keys() & set(decision.gang.uuids):
            accounts[uuid] = account(accounts.get(uuid, Account()), new[uuid], before, share)
    return accounts


def _orders(inputs: CycleInputs, decisions: tuple[GangDecision, ...], held: frozenset[Key]) -> Iterator[SettingOrder]:
    """First the orders that restore, then those that set. `held`: what may be in force."""
    if not inputs.enforcing:
        return
    knobs = KNOBS if is_ended(inputs) else inputs.knobs
    by_uuid = {uuid: decision for decision in decisions for uuid in decision.gang.uuids}
    targets = {
        (uuid, decision.tuned.ladder.knob): (decision, decision.tuned, decision.target.value)
        for uuid, decision in by_uuid.items()
        if decision.tuned is not None and decision.target is not None
    }
    for uuid, knob in sorted(key for key in held if key[1] in knobs and key not in targets):
        why = restore_text(by_uuid[uuid], uuid) if uuid in by_uuid else "no workload uses it"
        yield SettingOrder(uuid=uuid, knob=knob, value=None, why=why)
    for (uuid, knob), (decision, tuned, value) in sorted(targets.items(), key=lambda item: item[0]):
        if value != tuned.cap:
            pod_uid = next((owner.uid for owner in decision.gang.owners if owner.uid), None)
            why, keep = set_text(tuned), value is None
            yield SettingOrder(uuid=uuid, knob=knob, value=value, why=why, keep=keep, pod_uid=pod_uid)


def budgeted(
    memory: BudgetMemory,
    inputs: CycleInputs,
    closed: Mapping[str, tuple[Obstacle, ...]],
    decisions: Iterable[GangDecision],
) -> BudgetStep:
    """One cycle of the power budget. `closed`: the obstacles of each GPU, by uuid."""
    budget = inputs.config.node_budget_watts
    if is_ended(inputs) or not inputs.enforcing or budget is None:
        return BudgetStep(memory=BudgetMemory())  # the orders that restore everything restore these limits, too
    if not inputs.guarded:
        message = "waiting for the guard: limits stay as they are"
        return BudgetStep(memory=memory, state=BudgetState(budget=budget, how=BudgetCondition.WAITING, message=message))
    by_uuid = {uuid: decision for decision in decisions for uuid in decision.gang.uuids}
    obstacles = {uuid: (*each, *by_uuid[uuid].closed.get(uuid, ())) for uuid, each in closed.items() if uuid in by_uuid}
    limited = (
        {each.uuid for each in inputs.actuation.settings if each.knob == "power_limit"} if inputs.actuation else ()
    )
    reasons = {uuid: {one.reason for one in each} & FIXED for uuid, each in obstacles.items()}
    to_restore = {uuid for uuid, fixed in reasons.items() if fixed == {ObstacleReason.OPTED_OUT} and uuid in limited}
    return budget_cycle(
        memory,
        BudgetInputs(
            view=inputs.view,
            fresh=inputs.fresh,
            now=inputs.now,
            at=inputs.at,
            budget=budget,
            actuation=inputs.actuation,
            capabilities=inputs.capabilities,
            results=inputs.results,
            fixed=frozenset(uuid for uuid, fixed in reasons.items() if fixed and uuid not in to_restore),
            probes={uuid: decision.tuned.state for uuid, decision in by_uuid.items() if decision.tuned is not None},
            owners={uuid: decision.gang.key for uuid, decision in by_uuid.items()},
            priorities={
                uuid: FIRST if uuid in to_restore else decision.request.priority for uuid, decision in by_uuid.items()
            },
        ),
    )


def _budget_reports(step: BudgetStep) -> Iterator[OrderReport]:
    for order in step.orders:
        known = step.memory.limits.known.get(order.uuid)
        before = setting_text("power_limit", known.watts if known else None)
        after = setting_text("power_limit", order.value)
        yield OrderReport("budget", order.uuid, "power_limit", before, after, order.why)
