"""What stands against each GPU in this cycle: the gates of the View, what stops everything, and pauses that last."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.cycle.gang_energy import Tuned
from gpuwatch.tuning.cycle.state import Inputs, Memory
from gpuwatch.tuning.gates import consent
from gpuwatch.tuning.gates import pauses as rests
from gpuwatch.tuning.gates.conflict import Watch, look
from gpuwatch.tuning.gates.eligibility import Seen, judge
from gpuwatch.tuning.model.status import GpuTuning, Obstacle, Reason

FASTEST_VIEW = 1.05
"""Seconds between Views, at most: a new owner has to be seen within two."""

DOUBTS = (
    Reason.STOPPED,
    Reason.NO_GUARD,
    Reason.STALE_VIEW,
    Reason.SLOW_VIEW,
    Reason.UNKNOWN,
    Reason.MONITORING,
    Reason.OWNERS_UNKNOWN,
    Reason.NO_CONSENT,
    Reason.RATE_LIMIT,
    Reason.NOT_SET,
)
"""Reasons that say nothing about a GPU or its work: an agent or a kubelet that is started anew, for example."""

RANKS = {reason: rank for rank, reason in enumerate(Reason)}


class Gates(NamedTuple):
    """After all gates: `closed` by uuid, in the order in which obstacles are told."""

    judged: tuple[GpuTuning, ...]
    seen: Seen
    pauses: rests.Pauses
    watches: Mapping[str, Watch]
    closed: Mapping[str, tuple[Obstacle, ...]]


def gates(memory: Memory, inputs: Inputs, samples: Mapping[str, Gpu]) -> Gates:
    """`samples`: those that are new, by uuid."""
    if inputs.view is None:
        return Gates((), memory.seen, memory.pauses, memory.watches, {})
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
    news = list(rests.after(inputs.turned, inputs.now, inputs.knobs))
    watches = dict(memory.watches)
    for uuid, gpu in samples.items():
        watches[uuid], words = _looked(memory, inputs, uuid, gpu)
        news += [(uuid, rests.conflict(inputs.now, words))] if words else []
    pauses = rests.kept(memory.pauses, news, inputs.now)
    common = tuple(everywhere(inputs))
    closed = {
        gpu.uuid: told((*common, *gpu.obstacles, *rests.obstacles(gpu.uuid, pauses, inputs.now))) for gpu in judged
    }
    return Gates(judged, seen, pauses, watches, closed)


def told(obstacles: tuple[Obstacle, ...]) -> tuple[Obstacle, ...]:
    """In the order of Reason, none twice."""
    by_reason = {each.reason: each for each in reversed(obstacles)}
    return tuple(by_reason[reason] for reason in sorted(by_reason, key=RANKS.__getitem__))


def everywhere(inputs: Inputs) -> Iterator[Obstacle]:
    """What stands against every GPU of the node."""
    if words := stopped(inputs):
        yield Obstacle(reason=Reason.STOPPED, words=words)
    if not inputs.enforcing:
        return
    if not inputs.heard:
        missing = "waiting for the guard" if inputs.awaited else "no guard is heard"
        words = f"{missing}: nobody would give back what a dead tuner has set"
        yield Obstacle(reason=Reason.NO_GUARD, words=words)
    if inputs.view is not None and inputs.view.snapshot.interval > FASTEST_VIEW:
        words = f"the agent looks each {inputs.view.snapshot.interval:g} s; set agent.interval to 1"
        yield Obstacle(reason=Reason.SLOW_VIEW, words=words)
    if inputs.actuation is None:
        yield Obstacle(reason=Reason.NOT_SET, words="what gpuwatch has set cannot be read")


def is_ended(inputs: Inputs) -> bool:
    """Whether everything is to be given back, the budget's limits, too: at once where somebody says so, and for want of
    a guard only when it is sure that there is none.
    """
    if stopped(inputs):
        return True
    return inputs.enforcing and not inputs.heard and not inputs.awaited


def stopped(inputs: Inputs) -> str:
    """Who has stopped tuning on this node; empty: nobody."""
    return inputs.stopped or consent.stopped(inputs.consents)


def _looked(memory: Memory, inputs: Inputs, uuid: str, gpu: Gpu) -> tuple[Watch, str]:
    tuned = _of(memory, uuid)
    clocked = tuned is not None and tuned.ladder.knob == "locked_clocks"
    board = inputs.boards.get(uuid)
    top = max(board.clocks) if board is not None and board.clocks else gpu.clocks.graphics_max
    watch = memory.watches.get(uuid, Watch())
    if top is None:
        return watch, ""
    cap = tuned.cap if tuned is not None and clocked else None
    return look(watch, gpu, cap, top, tuned.switched if tuned is not None else None)


def _of(memory: Memory, uuid: str) -> Tuned | None:
    keys = (key for key, team in memory.teams.items() if uuid in team.uuids)
    return memory.tuned.get(next(keys, ""))
