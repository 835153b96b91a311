"""One cycle of the tuner, pure: from what is seen and consented to what is to be set and what is said about it.

Whoever calls it carries the orders out and hands in what became of them with the next cycle. Any doubt lifts: what is
recorded as set, and not wanted by this very cycle, is ordered back.
"""

from collections.abc import Iterator, Mapping

from gpuwatch.model.setting import KNOBS
from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.cycle import orders as ordering
from gpuwatch.tuning.cycle import power_budget as budgets
from gpuwatch.tuning.cycle import status as faces
from gpuwatch.tuning.cycle.audit_entries import deeds, why, why_not
from gpuwatch.tuning.cycle.gang import Moved, Sight, move
from gpuwatch.tuning.cycle.gang_energy import ACTIVE, evolve, turned
from gpuwatch.tuning.cycle.obstacles import Gates, gates, is_ended
from gpuwatch.tuning.cycle.orders import Key, Told, Want
from gpuwatch.tuning.cycle.state import Account, Inputs, Memory, Step
from gpuwatch.tuning.energy.state import State
from gpuwatch.tuning.gates.owners import teams
from gpuwatch.tuning.model.order import Order
from gpuwatch.tuning.model.status import GpuTuning

__all__ = ["Inputs", "Memory", "Step", "Told", "cycle"]

Moves = tuple[Moved, ...]


def cycle(memory: Memory, inputs: Inputs) -> Step:
    """One cycle. In the modes off and observe there are no orders."""
    held = _held(memory, inputs)
    if inputs.view is None or inputs.config.mode == "off":
        forgetful = Memory(
            pauses=memory.pauses, paces=memory.paces, accounts=memory.accounts, held=held, budget=memory.budget
        )
        return Step(memory=forgetful, orders=_orders(inputs, (), held))
    view = inputs.view
    samples = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    news = samples if inputs.fresh and view.snapshot.at != memory.view_at else {}
    passed = gates(memory, inputs, news)
    sight = Sight(samples, news, passed.closed)
    moves = tuple(move(team, memory, inputs, sight, held) for team in teams(view, inputs.consents))
    budget = budgets.budgeted(memory.budget, inputs, passed.closed, moves)
    orders = (*_orders(inputs, moves, held), *budget.orders)
    moves = tuple(_after(moved, inputs) for moved in moves)
    accounts = {**memory.accounts, **dict(_accounts(memory, moves, news))}
    gpus = _faces(memory, inputs, passed, moves, accounts)
    remembered = _remembered(memory, inputs, passed, moves, held.union(_set(orders)), gpus, accounts)
    return Step(
        memory=evolve(remembered, budget=budget.memory),
        orders=orders,
        gpus=gpus,
        deeds=(*deeds(memory, moves), *budgets.deeds(budget)) if inputs.enforcing else (),
        kept=_kept(moves),
        budget=budget.state,
    )


def _held(memory: Memory, inputs: Inputs) -> frozenset[Key]:
    """Knobs that may have something of ours in force: those recorded, or where that is not known, those remembered."""
    if inputs.actuation is None:
        return memory.held
    return frozenset((setting.uuid, setting.knob) for setting in inputs.actuation.settings)


def _set(orders: tuple[Order, ...]) -> set[Key]:
    return {(order.uuid, order.knob) for order in orders if order.value is not None}


def _orders(inputs: Inputs, moves: Moves, held: frozenset[Key]) -> tuple[Order, ...]:
    if not inputs.enforcing:
        return ()
    knobs = KNOBS if is_ended(inputs) else inputs.knobs
    wanted = {
        (uuid, moved.tuned.ladder.knob): Want(
            value=moved.aim.value,
            before=moved.tuned.cap,
            why=why(moved.tuned),
            pod_uid=next((owner.uid for owner in moved.team.owners if owner.uid), None),
        )
        for moved in moves
        if moved.tuned is not None and moved.aim is not None
        for uuid in moved.team.uuids
    }
    whys = {uuid: why_not(moved, uuid) for moved in moves for uuid in moved.team.uuids}
    return tuple(ordering.orders(wanted, {key for key in held if key[1] in knobs}, whys))


def _after(moved: Moved, inputs: Inputs) -> Moved:
    """As it is once the orders are carried out."""
    if moved.tuned is None:
        return moved
    return moved._replace(tuned=turned(moved.tuned, moved.aim, inputs.at))


def _accounts(memory: Memory, moves: Moves, news: Mapping[str, Gpu]) -> Iterator[tuple[str, Account]]:
    for moved in moves:
        before = memory.tuned.get(moved.team.key)
        for uuid in moved.team.uuids:
            if uuid in news:
                known = memory.accounts.get(uuid, Account())
                share = faces.rest_saved(before, moved.tuned) / len(moved.team.uuids)
                yield uuid, faces.account(known, news[uuid], before, share)


def _faces(
    memory: Memory, inputs: Inputs, passed: Gates, moves: Moves, accounts: Mapping[str, Account]
) -> tuple[GpuTuning, ...]:
    settings = inputs.actuation.settings if inputs.actuation else ()
    by_uuid = {uuid: moved for moved in moves for uuid in moved.team.uuids}
    return tuple(
        faces.face(
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
    memory: Memory,
    inputs: Inputs,
    passed: Gates,
    moves: Moves,
    held: frozenset[Key],
    gpus: tuple[GpuTuning, ...],
    accounts: Mapping[str, Account],
) -> Memory:
    limited = {
        (uuid, moved.pause.reason): moved.pause
        for moved in moves
        if moved.pause is not None
        for uuid in moved.team.uuids
    }
    return Memory(
        seen=passed.seen,
        tuned={moved.team.key: moved.tuned for moved in moves if moved.tuned is not None},
        teams={moved.team.key: moved.team for moved in moves},
        met=memory.met.union(moved.team.key for moved in moves if moved.team.key in inputs.saved),
        pauses={**passed.pauses, **limited},
        paces={**memory.paces, **{uuid: pace for moved in moves for uuid, pace in moved.paces.items()}},
        watches=passed.watches,
        accounts=accounts,
        since=faces.since(gpus),
        held=held,
        view_at=None if inputs.view is None else inputs.view.snapshot.at,
    )


def _kept(moves: Moves) -> dict[str, State]:
    """What is worth a verification by the next tuner, without the windows."""
    return {
        moved.team.key: evolve(moved.tuned.state, watched=(), full=(), before=None, reduced=None, newest=None)
        for moved in moves
        if moved.tuned is not None and moved.tuned.state.phase in ACTIVE and moved.tuned.state.held is not None
    }
