"""The obstacles of each GPU in this cycle: closed gates of the View, what stops the whole node, and cooldowns."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.cycle.state import CycleInputs, CycleMemory
from gpuwatch.tuning.gates import consent
from gpuwatch.tuning.gates.conflict import ConflictWatch, check
from gpuwatch.tuning.gates.cooldowns import Cooldowns, conflict_cooldown, cooldown_obstacles, failed_orders, with_new
from gpuwatch.tuning.gates.eligibility import GateHistory, judge
from gpuwatch.tuning.model.status import GpuTuning, Obstacle, ObstacleReason

MAX_VIEW_INTERVAL = 1.05
"""Seconds between Views: a new owner has to be known within two seconds."""

EXTERNAL_REASONS = (
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
    history: GateHistory
    cooldowns: Cooldowns
    watches: Mapping[str, ConflictWatch]
    closed: Mapping[str, tuple[Obstacle, ...]]


def gates(memory: CycleMemory, inputs: CycleInputs, samples: Mapping[str, Gpu]) -> GateResults:
    """`samples`: those that are new, by uuid."""
    if inputs.view is None:
        return GateResults((), memory.gate_history, memory.cooldowns, memory.watches, {})
    judged, history = judge(
        inputs.view,
        fresh=inputs.fresh,
        now=inputs.now,
        settings=inputs.actuation.settings if inputs.actuation else (),
        history=memory.gate_history,
        classes=inputs.classes,
        consents=inputs.consents,
        config=inputs.config,
    )
    new = list(failed_orders(inputs.results, inputs.now, inputs.knobs))
    watches = dict(memory.watches)
    keys = {uuid: key for key, gang in memory.gangs.items() for uuid in gang.uuids}
    for uuid, gpu in samples.items():
        tuned, board = memory.tuned.get(keys.get(uuid, "")), inputs.capabilities.get(uuid)
        top = max(board.clocks) if board is not None and board.clocks else gpu.clocks.graphics_max
        if top is None:
            continue
        cap = tuned.cap if tuned is not None and tuned.ladder.knob == "locked_clocks" else None
        switched = None if tuned is None else tuned.switched
        watches[uuid], message = check(memory.watches.get(uuid, ConflictWatch()), gpu, cap, top, switched)
        new += [(uuid, conflict_cooldown(inputs.now, message))] if message else []
    cooldowns = with_new(memory.cooldowns, new, inputs.now)
    common = tuple(node_obstacles(inputs))
    closed = {
        gpu.uuid: in_order((*common, *gpu.obstacles, *cooldown_obstacles(gpu.uuid, cooldowns, inputs.now)))
        for gpu in judged
    }
    return GateResults(judged, history, cooldowns, watches, closed)


def in_order(obstacles: tuple[Obstacle, ...]) -> tuple[Obstacle, ...]:
    """In the order of ObstacleReason, none twice."""
    by_reason = {each.reason: each for each in reversed(obstacles)}
    return tuple(by_reason[reason] for reason in sorted(by_reason, key=RANKS.__getitem__))


def node_obstacles(inputs: CycleInputs) -> Iterator[Obstacle]:
    """The obstacles of every GPU of the node."""
    if message := stopped(inputs):
        yield Obstacle(reason=ObstacleReason.STOPPED, message=message)
    if not inputs.enforcing:
        return
    if not inputs.guarded:
        missing = "waiting for the guard" if inputs.guard_awaited else "no guard runs"
        message = f"{missing}: nothing would restore what a dead tuner has set"
        yield Obstacle(reason=ObstacleReason.NO_GUARD, message=message)
    if inputs.view is not None and inputs.view.snapshot.interval > MAX_VIEW_INTERVAL:
        message = f"the agent's interval is {inputs.view.snapshot.interval:g} s; set agent.interval to 1"
        yield Obstacle(reason=ObstacleReason.SLOW_VIEW, message=message)
    if inputs.actuation is None:
        yield Obstacle(reason=ObstacleReason.NOT_SET, message="what gpuwatch has set cannot be read")


def is_ended(inputs: CycleInputs) -> bool:
    """Whether everything is to be restored, the budget's limits, too: at once where tuning is stopped, and without
    a guard only when it is certain that there is none.
    """
    return bool(stopped(inputs)) or (inputs.enforcing and not inputs.guarded and not inputs.guard_awaited)


def stopped(inputs: CycleInputs) -> str:
    """The user or the annotation that stops tuning on this node, as a message; empty: it is not stopped."""
    return inputs.stopped or consent.stopped(inputs.consents)
