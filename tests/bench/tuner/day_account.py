"""The true account of a day: what pods did and drew, when which cap was in force, and what follows from both."""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tests.bench.tuner.curves import model
from tests.bench.tuner.day_node import TOP, Done
from tests.bench.tuner.day_work import HOUR, Fault, Pod, bursts
from tests.bench.tuner.rivals import oracle

MARGIN = 0.01
"""Work is over the bound when it is so much slower than promised."""

QUIET = 10.0
"""Seconds without a cap, after which it is gone."""

SHORT = 1e-3
"""Units of work (seconds of a whole GPU) that are none."""


class Sum:
    """Of one pod: seconds at work, work, joules, seconds at work over the bound, by phase, and joules of its phases."""

    def __init__(self) -> None:
        self.busy = self.work = self.joules = 0.0
        self.over: dict[int, float] = defaultdict(float)
        self.until: dict[int, float] = defaultdict(float)


class Account:
    """All pods."""

    def __init__(self) -> None:
        self.pods: dict[str, Sum] = defaultdict(Sum)
        self.second = 0.0

    def take(self, done: Iterable[Done]) -> None:
        """One second."""
        self.second += 1.0
        for each in done:
            own = self.pods[each.pod.name]
            own.busy += each.busy
            own.work += each.work
            own.joules += each.joules
            bound = each.pod.bound
            if bound is not None and each.speed < 1 - bound - MARGIN:
                own.over[_phase(each.pod, self.second - 1)] += each.busy / len(each.pod.gpus)


def _phase(pod: Pod, second: float) -> int:
    return max(0, bisect_right(pod.phases, second, key=lambda phase: phase[0]) - 1)


class Caps:
    """When which cap was in force on which GPU: (seconds, cap), in order."""

    def __init__(self, gpus: int) -> None:
        self.events: list[list[tuple[float, float | None]]] = [[(0.0, None)] for _ in range(gpus)]

    def changed(self, gpu: int, at: float, cap: float | None) -> None:
        """From `at` on."""
        self.events[gpu].append((at, cap))

    def at(self, gpu: int, when: float) -> float | None:
        """In force then."""
        return self.events[gpu][self._index(gpu, when)][1]

    def gone(self, gpu: int, when: float) -> float | None:
        """Seconds from `when` until the last cap before QUIET without one was gone; None: there was none from then on.

        So an alternation of full and reduced that goes on is not taken for the end.
        """
        events, ended = self.events[gpu], None
        for (begin, cap), (end, _) in pairwise([*events[self._index(gpu, when) :], (math.inf, None)]):
            if begin > (ended or when) + QUIET:
                break
            if cap is not None:
                ended = end
        return None if ended is None else ended - when

    def capped(self, gpu: int, begin: float, end: float) -> float:
        """Seconds with a cap between two times."""
        seconds, index = 0.0, self._index(gpu, begin)
        events = self.events[gpu]
        while index < len(events) and events[index][0] < end:
            until = min(end, events[index + 1][0]) if index + 1 < len(events) else end
            if events[index][1] is not None:
                seconds += max(0.0, until - max(begin, events[index][0]))
            index += 1
        return seconds

    def actions(self, gpu: int, changes: Sequence[float]) -> list[float]:
        """When a cap came into force that is another one than the one before it, or the first since an owner change."""
        found, last, owner = [], None, 0
        for at, cap in self.events[gpu]:
            now = bisect_right(changes, at)
            if cap is not None and (cap != last or now != owner):
                found.append(at)
                last, owner = cap, now
        return found

    def _index(self, gpu: int, when: float) -> int:
        return bisect_right(self.events[gpu], when, key=lambda event: event[0]) - 1


class Kind(NamedTuple):
    """Pods of one kind. `joules`: of the same work without a tuner; `saved`: share of that; `best`: that of one who has
    set the best cap from the first second of each phase on; `over`: share of their time at work.
    """

    name: str
    pods: int
    joules: float
    saved: float
    best: float
    slowdown: float
    worst: float
    over: float


class Report(NamedTuple):
    """A day. `spans`: seconds until a cap was gone after what should end it."""

    hours: float
    gpus: int
    kinds: tuple[Kind, ...]
    saved_of_all: float
    claimed: float
    actions_most: int
    actions_mean: float
    decisions: int
    spans: tuple[tuple[str, tuple[float, ...]], ...]
    untouchable: float
    phases: tuple[float, ...]
    cost: float

    def span(self, what: str) -> tuple[float, ...]:
        """One of `spans`."""
        return dict(self.spans)[what]


OWNER, OWNER_REFUSED, BURST, GATE = (
    "owner went until its cap was gone",
    "the same, the driver refused or hung",
    "burst until the cap was gone",
    "gate closed until the cap was gone",
)


def report(
    free: Account,
    tuned: Account,
    caps: Caps,
    actuator: Any,
    pods: Sequence[Pod],
    faults: Sequence[Fault],
    hours: float,
    told: tuple[int, float, float],
) -> Report:
    """What a day came to."""
    end, gpus = hours * HOUR, len(caps.events)
    here = [pod for pod in pods if pod.begins < end]
    kinds = tuple(_kinds(here, free, tuned))
    saved = sum(kind.joules * kind.saved for kind in kinds)
    owners, refused = _owners(here, caps, actuator.trouble, end)
    changes = [sorted(at for pod in here if gpu in pod.gpus for at in (pod.begins, pod.ends)) for gpu in range(gpus)]
    actions = [caps.actions(gpu, changes[gpu]) for gpu in range(gpus)]
    decided, believed, cost = told
    return Report(
        hours=hours,
        gpus=gpus,
        kinds=kinds,
        saved_of_all=saved / sum(own.joules for own in free.pods.values()),
        claimed=believed / saved if saved else 0.0,
        actions_most=max(_most(own) for own in actions),
        actions_mean=sum(map(len, actions)) / gpus / hours,
        decisions=decided,
        spans=(
            (OWNER, owners),
            (OWNER_REFUSED, refused),
            (BURST, tuple(_bursts(here, caps, end))),
            (GATE, tuple(_gates(faults, caps, end))),
        ),
        untouchable=sum(
            caps.capped(gpu, pod.begins + 2.0, min(pod.ends, end))
            for pod in here
            if pod.bound is None
            for gpu in pod.gpus
        ),
        phases=tuple(_phases(here, tuned, end)),
        cost=cost,
    )


def _kinds(pods: Sequence[Pod], free: Account, tuned: Account) -> Iterator[Kind]:
    for name in dict.fromkeys(pod.kind for pod in pods):
        own = [pod for pod in pods if pod.kind == name]
        pairs = [(free.pods[pod.name], tuned.pods[pod.name]) for pod in own]
        without = sum(a.joules * (b.work / a.work if a.work > SHORT else 1.0) for a, b in pairs)
        slow = [1 - b.work / b.busy * a.busy / a.work for a, b in pairs if min(a.work, b.busy) > SHORT]
        busy = sum(b.busy for _, b in pairs)
        yield Kind(
            name,
            len(own),
            without,
            1 - sum(b.joules for _, b in pairs) / without,
            _best(own),
            sum(slow) / len(slow) if slow else 0.0,
            max(slow, default=0.0),
            sum(sum(b.over.values()) * len(pod.gpus) for pod, (_, b) in zip(own, pairs, strict=True))
            / max(busy, SHORT),
        )


def _best(pods: Sequence[Pod]) -> float:
    """Of work that is never idle."""
    drawn = saved = 0.0
    for pod in pods:
        for (begin, work), end in zip(pod.phases, (*(at for at, _ in pod.phases[1:]), pod.ends), strict=True):
            joules = work.watts * (end - begin) * len(pod.gpus)
            drawn += joules
            if pod.bound is not None:
                curve = model("", "", TOP, work.b, work.s, work.a)
                saved += joules * (1 - curve.at(oracle(curve, pod.bound, TOP / 2))[1])
    return saved / drawn


def _owners(
    pods: Sequence[Pod], caps: Caps, trouble: Sequence[tuple[float, int]], end: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Those whose orders the driver obeyed, and the others."""
    obeyed, refused = [], []
    for pod in pods:
        for gpu in pod.gpus:
            if pod.ends < end and (seconds := caps.gone(gpu, pod.ends)) is not None:
                bad = any(slot == gpu and pod.ends - 4 < at < pod.ends + seconds + 1 for at, slot in trouble)
                (refused if bad else obeyed).append(seconds)
    return tuple(obeyed), tuple(refused)


def _bursts(pods: Sequence[Pod], caps: Caps, end: float) -> Iterator[float]:
    for pod in pods:
        for begin in bursts(pod):
            if begin < min(end, pod.ends) - 5 and (seconds := caps.gone(pod.gpus[0], begin)) is not None:
                yield seconds


def _gates(faults: Sequence[Fault], caps: Caps, end: float) -> Iterator[float]:
    for fault in faults:
        for gpu in range(len(caps.events)) if fault.gpu is None else (fault.gpu,):
            if fault.begins < end - 5 and (seconds := caps.gone(gpu, fault.begins)) is not None:
                yield seconds


def _phases(pods: Sequence[Pod], tuned: Account, end: float) -> Iterator[float]:
    """Seconds over the bound in each phase but the first."""
    for pod in pods:
        if pod.bound is not None:
            for number, (begin, _) in enumerate(pod.phases):
                if number and begin < end:
                    yield tuned.pods[pod.name].over.get(number, 0.0)


def _most(times: Sequence[float]) -> int:
    """In any hour."""
    return max((number - bisect_right(times, at - HOUR) + 1 for number, at in enumerate(times)), default=0)
