"""The work of a day: pods that come to a node's GPUs and go, what each of them does, and what goes wrong meanwhile.

Everything is drawn from one seed. Training is as fast as its GPU; requests come at their own rate, so that a slower
GPU is only busier, until it cannot keep up; a notebook holds its GPU and does nothing most of the time.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpuwatch.model.consent import AUTOTUNE, CLASS, MAX_SLOWDOWN
from tests.bench.tuner.curves import FITS, parameters

HOUR = 3600.0


class Work(NamedTuple):
    """What a GPU does: time 1-b+b*x and power s+(1-s)*x**-a at full clock / clock = x; activities and watts at full."""

    b: float
    s: float
    a: float
    dram: float
    pipe: float
    watts: float


class Pod(NamedTuple):
    """`gpus`: slots. `phases`: (from when on, what work). The load is `base`, and in `spans` (begin, end, load), which
    are in order, another one: a share of the GPU's time, or where it is `asked` of the GPU's full speed.
    """

    name: str
    kind: str
    gpus: tuple[int, ...]
    begins: float
    ends: float
    phases: tuple[tuple[float, Work], ...]
    base: float
    spans: tuple[tuple[float, float, float], ...]
    annotations: dict[str, str]
    bound: float | None  # None: it must not be touched

    @property
    def asked(self) -> bool:
        """Whether its work comes from others, at their rate."""
        return self.kind == "serving"

    def load(self, second: float) -> float:
        """The mean of one second."""
        index = max(0, bisect_right(self.spans, (second, math.inf, 0.0)) - 1)
        loads = (
            max(0.0, min(end, second + 1) - max(begin, second)) * (load - self.base)
            for begin, end, load in self.spans[index : index + 2]
        )
        return self.base + sum(loads)

    def work(self, second: float) -> Work:
        """What it does then."""
        return next((work for at, work in reversed(self.phases) if at <= second), self.phases[0][1])


class Fault(NamedTuple):
    """Something that closes a gate: of one GPU, or of all (None)."""

    kind: str  # finding, thermal, unresponsive, no guard, blind
    gpu: int | None
    begins: float
    ends: float


KINDS = {"training": 10, "serving": 5, "notebook": 4, "churn": 8, "silent": 2, "opted out": 2}
"""How often each comes. Churn is training of a few minutes; of `silent` nobody has said anything."""

LENGTHS = {
    "training": (0.4, 6.0),
    "serving": (1.0, 7.0),
    "notebook": (0.5, 4.0),
    "churn": (0.01, 0.15),
    "silent": (0.3, 2.0),
    "opted out": (0.3, 2.0),
}
"""Hours, shortest and longest, drawn on a logarithmic scale."""

SPANS = {
    "serving": ((180, 1500), (15, 150), (1.0, 1.2)),
    "notebook": ((60, 2700), (10, 240), (0.3, 1.0)),
}
"""Seconds from one span to the next, seconds it lasts, and its load; least and most."""

CHECKPOINTS = ((900, 2700), (8, 40), (0.0, 0.0))

ENFORCE = {AUTOTUNE: "enforce"}


def schedule(gpus: int, hours: float, seed: int, hurry: float = 1.0) -> tuple[Pod, ...]:
    """Pods of a node; the last two GPUs are always given to a pod together. `hurry`: lengths are so much shorter."""
    lanes = [(slot,) for slot in range(gpus - 2)] + [(gpus - 2, gpus - 1)]
    return tuple(pod for lane in lanes for pod in _lane(lane, hours * HOUR, random.Random(f"{lane} {seed}"), hurry))


def faults(gpus: int, hours: float, seed: int) -> tuple[Fault, ...]:
    """One for each hour or so, of one kind after the other."""
    chance = random.Random(f"faults {seed}")
    kinds = {"finding": 60.0, "thermal": 30.0, "unresponsive": 20.0, "blind": 15.0, "no guard": 60.0}
    found = []
    for number in range(max(2, int(hours))):
        kind = list(kinds)[number % len(kinds)]
        begins = chance.uniform(0, hours * HOUR)
        slot = None if kind in ("blind", "no guard") else chance.randrange(gpus)
        found.append(Fault(kind, slot, begins, begins + kinds[kind]))
    return tuple(sorted(found, key=lambda fault: fault.begins))


def _lane(gpus: tuple[int, ...], seconds: float, chance: random.Random, hurry: float) -> Iterator[Pod]:
    now, number = chance.uniform(0, 120), 0
    while now < seconds:
        kinds = {"training": 3, "churn": 1, "opted out": 1} if len(gpus) > 1 else KINDS
        kind = chance.choices(list(kinds), list(kinds.values()))[0]
        shortest, longest = LENGTHS[kind]
        ends = now + HOUR / hurry * shortest * (longest / shortest) ** chance.random()
        yield _pod(f"{kind.replace(' ', '-')}-{gpus[0]}-{number}", kind, gpus, now, ends, chance)
        gap = chance.uniform(0, 1) if chance.random() < 0.3 else chance.uniform(5, 900 / hurry)
        now, number = ends + gap, number + 1


def _pod(name: str, kind: str, gpus: tuple[int, ...], begins: float, ends: float, chance: random.Random) -> Pod:
    annotations, bound = _terms(kind, chance)
    base = {"serving": chance.uniform(0.2, 0.6), "notebook": 0.0}.get(kind, 1.0)
    spans = _spans(begins, ends, chance, *SPANS.get(kind, CHECKPOINTS))
    phases = tuple(_phases(begins, ends, chance, changes=kind == "training"))
    return Pod(name, kind, gpus, begins, ends, phases, base, tuple(spans), annotations, bound)


def _terms(kind: str, chance: random.Random) -> tuple[dict[str, str], float | None]:
    if kind in ("silent", "opted out"):
        return ({} if kind == "silent" else {AUTOTUNE: "off", CLASS: "batch"}), None
    asked = chance.choice((None, None, "0.03", "10%"))
    own = {} if asked is None else {MAX_SLOWDOWN: asked}
    bound = 0.03 if asked == "0.03" else 0.05  # the configuration's: a pod may only ask for less
    return {**ENFORCE, CLASS: "serving" if kind == "serving" else "batch", **own}, bound


def _phases(begins: float, ends: float, chance: random.Random, *, changes: bool) -> Iterator[tuple[float, Work]]:
    now = begins
    while now < ends:
        b, s, a = parameters(chance.choice(list(FITS)), chance)
        yield now, Work(b, s, a, chance.uniform(0.1, 0.8), chance.uniform(0.08, 0.6), chance.uniform(350, 650))
        now = now + chance.uniform(1500, 9000) if changes and chance.random() < 0.7 else ends


def _spans(
    begins: float,
    ends: float,
    chance: random.Random,
    between: tuple[float, float],
    length: tuple[float, float],
    load: tuple[float, float],
) -> list[tuple[float, float, float]]:
    found, now = [], begins + chance.uniform(*between)
    while now < ends:
        end = now + chance.uniform(*length)
        found.append((now, min(end, ends), chance.uniform(*load)))
        now = end + chance.uniform(*between)
    return found


def bursts(pod: Pod) -> Sequence[float]:
    """When many requests begin to come."""
    return [begin for begin, _, load in pod.spans if load >= 1.0] if pod.kind == "serving" else ()
