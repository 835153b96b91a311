"""A node whose power limits a budget loop turns: boards, a driver that may fail or come late, a record, and Views."""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from gpuwatch.model.snapshot import ClockEvents, Gpu, GpuState, GpuStatus, Identity, Power, Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.tuning.energy.model import TrialState
from gpuwatch.tuning.model.setting import Actuation, ApplyResult, OrderOutcome, Setting, SettingOrder, is_same
from gpuwatch.tuning.power_budget import loop as budget_loop
from gpuwatch.tuning.power_budget.loop import BudgetInputs, BudgetMemory, BudgetStep

FLOOR, DEFAULT = 100.0, 300.0
START = 1.79e9
"""Unix seconds at which a node's clock shows 0."""

Demand = Callable[[float], float]
"""What a GPU draws under a limit, watts."""


class Luck(NamedTuple):
    """Shares of orders that fail, that fail and come all the same, that are silent, and of samples that are missed."""

    fails: float = 0.0
    late: float = 0.0
    silent: float = 0.0
    refused: float = 0.0
    unread: float = 0.0


GOOD_LUCK = Luck()


class Board:
    """One GPU. `pending`: watts that a driver call still sets, and when."""

    def __init__(self, uuid: str, limit: float, draws: Demand, default: float, floor: float) -> None:
        self.uuid, self.limit, self.draws, self.default, self.floor = uuid, limit, draws, default, floor
        self.is_capped: Callable[[float], bool] | None = lambda limit: (
            False
        )  # whether a limit slows it down; None: untold
        self.owner = "somebody"
        self.state: TrialState | None = None
        self.priority = 0
        self.configured = limit  # as the newest sample but four has it
        self.pending: tuple[float, float] | None = None
        self.is_busy = False
        self.is_lost = False

    @property
    def at_worst(self) -> float:
        """What it may come to have without anybody's doing."""
        return self.limit if self.pending is None else max(self.limit, self.pending[0])


class Node:
    """GPUs, the driver and the record; `memory` is the loop's. Time passes in `step`."""

    def __init__(self, budget: float | None, seed: int = 0, luck: Luck = GOOD_LUCK, noise: float = 0.0) -> None:
        self.budget, self.random, self.luck, self.noise = budget, random.Random(seed), luck, noise
        self.boards: dict[str, Board] = {}
        self.record: dict[str, Setting] = {}
        self.memory = BudgetMemory()
        self.now, self.samples, self.made, self.writes = 0.0, 0, 0, 0
        self.results: tuple[ApplyResult, ...] = ()
        self.orders: tuple[SettingOrder, ...] = ()
        self.fixed: set[str] = set()
        self.fresh, self.readable = True, True
        self.unanswered: dict[int, str] = {}
        self.bus: tuple[str, ...] | None = None

    def come(
        self,
        limit: float = DEFAULT,
        draws: float | Demand = 150.0,
        *,
        default: float = DEFAULT,
        floor: float = FLOOR,
    ) -> str:
        """One GPU more."""
        self.made += 1
        uuid = f"GPU-{self.made}"
        demand = draws if callable(draws) else _constant(draws)
        self.boards[uuid] = Board(uuid, limit, demand, default, floor)
        return uuid

    def hold(self, limit: float, draws: float | Demand = 150.0) -> str:
        """One GPU more, whose limit an earlier tuner has lowered."""
        uuid = self.come(limit, draws)
        self.record[uuid] = _setting(uuid, DEFAULT, (limit,))
        return uuid

    def go(self, uuid: str) -> None:
        """A GPU is taken out, and forgotten by the agent."""
        del self.boards[uuid]
        self.record.pop(uuid, None)

    @property
    def total(self) -> float:
        """Watts that all limits in force are together."""
        return sum(board.limit for board in self.boards.values())

    @property
    def at_worst(self) -> float:
        """The same with what driver calls under way may still set."""
        return sum(board.at_worst for board in self.boards.values())

    @property
    def limits(self) -> dict[str, float]:
        """In force, watts."""
        return {uuid: board.limit for uuid, board in self.boards.items()}

    def crash(self) -> None:
        """The tuner dies and another one starts. A call that the driver has not answered is done, or never was."""
        self.memory, self.results = BudgetMemory(), ()
        for board in self.boards.values():
            if board.pending is not None and self.random.random() < 0.5:
                board.pending, board.is_busy = None, False
            self._land(board, at_once=True)

    def step(self, seconds: float = 1.0, *, dies_after: int | None = None) -> Iterator[float]:
        """One cycle, a while after the one before; yields after every change of a limit. `dies_after`: so many
        orders the tuner dies.
        """
        self.now += seconds
        for board in self.boards.values():
            if self._land(board):
                yield self.total
        inputs = self.inputs()
        result = budget_loop.cycle(self.memory, inputs)
        self.memory, self.orders, self.result = result.memory, result.orders, result
        self.results = ()
        for number, order in enumerate(result.orders):
            if dies_after is not None and number >= dies_after:
                break
            self.results = (*self.results, self._turn(order))
            yield self.total
        if dies_after is not None:
            self.crash()
            yield self.total

    def run(self, seconds: float, each: float = 1.0) -> BudgetStep:
        """Cycles of a second, or of `each`; the last one's result."""
        for _ in range(round(seconds / each)):
            for _ in self.step(each):
                pass
        return self.result

    def inputs(self) -> BudgetInputs:
        """What the loop is told."""
        boards = self.boards.values()
        return BudgetInputs(
            view=self.view(),
            fresh=self.fresh,
            now=self.now,
            at=START + self.now,
            budget=self.budget,
            actuation=Actuation(settings=tuple(self.record.values())) if self.readable else None,
            results=self.results,
            fixed=frozenset(self.fixed),
            owners={board.uuid: board.owner for board in boards},
            priorities={board.uuid: board.priority for board in boards},
            probes={board.uuid: board.state for board in boards if board.state is not None},
        )

    def view(self) -> View:
        """The configured limit is asked for with every fifth sample, as agents do."""
        self.samples += 1
        shown = [board for board in self.boards.values() if not board.is_lost]
        if self.samples % 5 == 1:
            for board in shown:
                board.configured = board.limit
        read = [board for board in shown if self.random.random() >= self.luck.unread]
        snapshot = Snapshot(
            at=START + self.now,
            interval=1.0,
            gpus=tuple(self._sample(board) for board in read),
            statuses=tuple(_status(board) for board in self.boards.values()),
            unanswered=self.unanswered,
            bus=self.bus,
        )
        return View(snapshot=snapshot, agent=AgentStatus(version="1", started=START))

    def _sample(self, board: Board) -> Gpu:
        drawn = board.draws(board.limit) * (1 + self.noise * self.random.gauss(0.0, 1.0))
        power = Power(
            average=max(1.0, min(board.limit, drawn)),
            limit_configured=board.configured,
            limit_enforced=board.limit,
            limit_default=board.default,
            limit_min=board.floor,
            limit_max=board.default,
        )
        told = board.is_capped
        events = ClockEvents(active={} if told is None else {"sw_power_cap": told(board.limit)})
        return Gpu(identity=_identity(board.uuid), at=START + self.now, power=power, clock_events=events)

    def _land(self, board: Board, *, at_once: bool = False) -> bool:
        if board.pending is None or (board.pending[1] > self.now and not at_once):
            return False
        board.limit, board.pending, board.is_busy = board.pending[0], None, False
        return True

    def _turn(self, order: SettingOrder) -> ApplyResult:
        """As the hand does: recorded, done, read back; never above the original, nor what somebody else has set."""
        board = self.boards.get(order.uuid)
        if board is None or board.is_lost:
            return ApplyResult(order=order, outcome=OrderOutcome.FAILED)
        if board.is_busy:
            return ApplyResult(order=order, outcome=OrderOutcome.TIMEOUT)
        own = self.record.get(order.uuid)
        if own is not None and not any(is_same(board.limit, watts) for watts in (*own.applied, own.original or 0.0)):
            if order.value is None:
                del self.record[order.uuid]
            return ApplyResult(order=order, outcome=OrderOutcome.FOREIGN)
        if order.value is None and own is None:
            return ApplyResult(order=order, outcome=OrderOutcome.DONE)
        if self.random.random() < self.luck.refused:
            return ApplyResult(order=order, outcome=OrderOutcome.REFUSED)
        return self._write(order, board, own)

    def _write(self, order: SettingOrder, board: Board, own: Setting | None) -> ApplyResult:
        original = board.limit if own is None or own.original is None else own.original
        watts = original if order.value is None else order.value
        if not min(board.floor, original) - 1 <= watts <= original + 1:
            return ApplyResult(order=order, outcome=OrderOutcome.REFUSED)
        applied = tuple(dict.fromkeys((watts, *(own.applied if own else ()))))
        self.record[board.uuid] = _setting(board.uuid, original, applied)
        outcome, luck, roll = OrderOutcome.DONE, self.luck, self.random.random()
        if roll < luck.silent:
            board.pending, board.is_busy = (watts, self.now + self.random.uniform(1, 100)), True
            outcome = OrderOutcome.TIMEOUT
        elif roll < luck.silent + luck.late:
            board.pending = (watts, self.now + self.random.uniform(1, 20))
            outcome = OrderOutcome.FAILED
        elif roll < luck.silent + luck.late + luck.fails:
            outcome = OrderOutcome.FAILED
        else:
            self.writes += board.limit != watts
            board.limit, board.pending = watts, None
            self.record[board.uuid] = _setting(board.uuid, original, (watts,))
            if order.value is None:
                del self.record[board.uuid]
        in_force = order.value if outcome is OrderOutcome.DONE else None
        return ApplyResult(order=order, outcome=outcome, in_force=in_force)


def _constant(watts: float) -> Demand:
    return lambda limit: min(limit, watts)


def _identity(uuid: str) -> Identity:
    number = int(uuid.removeprefix("GPU-"))
    return Identity(index=number, uuid=uuid, pci_bus_id=f"00000000:{number % 256:02X}:00.0")


def _status(board: Board) -> GpuStatus:
    return GpuStatus(identity=_identity(board.uuid), state=GpuState.LOST if board.is_lost else GpuState.FRESH)


def _setting(uuid: str, original: float, applied: Iterable[float]) -> Setting:
    return Setting(
        uuid=uuid, knob="power_limit", original=original, applied=tuple(applied), at=START, boot_id="b", driver="1"
    )
