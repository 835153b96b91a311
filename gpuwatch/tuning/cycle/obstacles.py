"""The obstacles of each GPU in this cycle: closed gates of the View, what stops the whole node, and cooldowns."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.cycle.state import CycleInputs, CycleMemory
from gpuwatch.tuning.gates import consent
from gpuwatch.tuning.gates.conflict import ConflictWatch, look
from gpuwatch.tuning.gates.cooldowns import Cooldowns, conflict_cooldown, cooldown_obstacles, failed_orders, with_new
from gpuwatch.tuning.gates.eligibility import GateHistory, judge
from gpuwatch.tuning.model.status import GpuTuning, Obstacle, ObstacleReason

FASTEST_VIEW = 1.05
"""Seconds between Views, at most: a new owner has to be known within two seconds."""

DOUBTS = (
    ObstacleReason.STOPPED,
    ObstacleReason.NO_GUARD,
    ObstacleReason.STALE_VIEW,
    ObstacleReason.SLOW_VIEW,
    ObstacleReason.UNKNOWN,
    ObstacleReason.MONITORING,
    ObstacleReason.OWNERS_UNKNOWN,
    ObstacleReason.NO_CONSENT,
    ObstacleReason.RATE_LIMIT,
    ObstacleReason.NOT_SET,
)
"""Reasons that are not about a GPU or its work: an agent or a kubelet that restarts, for example."""

RANKS = {reason: rank for rank, reason in enumerate(ObstacleReason)}


class GateResults(NamedTuple):
    """After all gates: `closed` by uuid, in the order of ObstacleReason."""

    judged: tuple[GpuTuning, ...]
    seen: GateHistory
    cooldowns: Cooldowns
    watches: Mapping[str, ConflictWatch]
    closed: Mapping[str, tuple[Obstacle, ...]]


def gates(memory: CycleMemory, inputs: CycleInputs, samples: Mapping[str, Gpu]) -> GateResults:
    """`samples`: those that are new, by uuid."""
    if inputs.view is None:
        return GateResults((), memory.seen, memory.cooldowns, memory.watches, {})
    judged, seen = judge(
        inputs.view,
        fresh=inputs.fresh,
        now=inputs.now,
        settings=inputs.actuation.settings if inputs.actuation else (),
        seen=memory.seen,
        classes=inputs.classes,
        consents=inputs.consents,
        config=inputs.config,
    )
    news = list(failed_orders(inputs.results, inputs.now, inputs.knobs))
    watches = dict(memory.watches)
    keys = {uuid: key for key, gang in memory.gangs.items() for uuid in gang.uuids}
    for uuid, gpu in samples.items():
        tuned, board = memory.tuned.get(keys.get(uuid, "")), inputs.capabilities.get(uuid)
        top = max(board.clocks) if board is not None and board.clocks else gpu.clocks.graphics_max
        if top is None:
            continue
        cap = tuned.cap if tuned is not None and tuned.ladder.knob == "locked_clocks" else None
        switched = None if tuned is None else tuned.switched
        watches[uuid], message = look(memory.watches.get(uuid, ConflictWatch()), gpu, cap, top, switched)
        news += [(uuid, conflict_cooldown(inputs.now, message))] if message else []
    cooldowns = with_new(memory.cooldowns, news, inputs.now)
    common = tuple(everywhere(inputs))
    closed = {
        gpu.uuid: in_order((*common, *gpu.obstacles, *cooldown_obstacles(gpu.uuid, cooldowns, inputs.now)))
        for gpu in judged
    }
    return GateResults(judged, seen, cooldowns, watches, closed)


def in_order(obstacles: tuple[Obstacle, ...]) -> tuple[Obstacle, ...]:
    """In the order of ObstacleReason, none twice."""
    by_reason = {each.reason: each for each in reversed(obstacles)}
    return tuple(by_reason[reason] for reason in sorted(by_reason, key=RANKS.__getitem__))


def everywhere(inputs: CycleInputs) -> Iterator[Obstacle]:
    """The obstacles of every GPU of the node."""
    if message := stopped(inputs):
        yield Obstacle(reason=ObstacleReason.STOPPED, message=message)
    if not inputs.enforcing:
        return
    if not inputs.guarded:
        missing = "waiting for the guard" if inputs.guard_awaited else "no guard runs"
        message = f"{missing}: nothing would restore what a dead tuner has set"
        yield Obstacle(reason=ObstacleReason.NO_GUARD, message=message)
    if inputs.view is not None and inputs.view.snapshot.interval > FASTEST_VIEW:
        message = f"the agent looks each {inputs.view.snapshot.interval:g} s; set agent.interval to 1"
        yield Obstacle(reason=ObstacleReason.SLOW_VIEW, message=message)
    if inputs.actuation is None:
        yield Obstacle(reason=ObstacleReason.NOT_SET, message="what gpuwatch has set cannot be read")


def is_ended(inputs: CycleInputs) -> bool:
    """Whether everything is to be restored, the budget's limits, too: at once where tuning is stopped, and without
    a guard only when it is certain that there is none.
    """
    if stopped(inputs):
        return True
    return inputs.enforcing and not inputs.guarded and not inputs.guard_awaited


def stopped(inputs: CycleInputs) -> str:
    """By whom or what tuning is stopped on this node, in words; empty: it is not."""
    return inputs.stopped or consent.stopped(inputs.consents)
