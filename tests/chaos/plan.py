"""What goes wrong and when, drawn from a seed before anything runs: the same seed is the same plan."""

import random
from typing import NamedTuple

DAEMONS = ("agent", "remediator-a", "remediator-b", "tuner", "guard")
GPUS = 4


class Kind(NamedTuple):
    """A sort of failure: what it may hit (GPUs by number), how long it lasts at most, how often it is drawn."""

    targets: tuple[str, ...]
    seconds: float = 0.0
    weight: int = 2


_ANY_GPU = tuple(map(str, range(GPUS)))

KINDS: dict[str, Kind] = {
    "kill": Kind(DAEMONS, weight=5),
    "stop": Kind(DAEMONS, 3.0, 3),  # SIGSTOP, then SIGCONT
    "full disk": Kind(DAEMONS, 6.0, 3),  # no file may grow; what is written fails
    "unread log": Kind(DAEMONS, 8.0, 3),
    "clock": Kind(("-7200", "-30", "30", "7200"), 8.0),  # all daemons' wall clocks, by so many seconds
    "api error": Kind(("429", "500", "503", "drop"), 6.0, 3),
    "api latency": Kind(("api",), 6.0),
    "kubelet": Kind(("absent", "slow", "garbage", "limited"), 6.0),
    "plugin": Kind(("plugin",), 4.0),  # it is restarted: nothing is allocatable meanwhile
    "driver hang": Kind(_ANY_GPU, 6.0),
    "slow driver": Kind(_ANY_GPU, 6.0),
    "forged line": Kind(_ANY_GPU, weight=3),
    "application XID": Kind(_ANY_GPU, weight=3),
    "fatal XID": Kind(("2", "3"), weight=5),  # the tuner has work on the others
    "XID flood": Kind(_ANY_GPU, weight=1),
}


class Action(NamedTuple):
    """One failure: seconds after the start, and seconds that it lasts (0: a moment)."""

    at: float
    kind: str
    target: str
    seconds: float

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:7.2f} s  {self.kind}: {self.target}{lasts}"


def plan(seed: int, seconds: float) -> tuple[Action, ...]:
    """Failures for so long, about one every 1.5 s; they overlap. The last ones end before the time is over."""
    chance = random.Random(seed)
    found, at = [], 0.0
    while (at := at + chance.uniform(0.2, 2.8)) < seconds - 1:
        name = chance.choices(list(KINDS), [kind.weight for kind in KINDS.values()])[0]
        kind = KINDS[name]
        lasts = min(kind.seconds * chance.uniform(0.2, 1.0), seconds - at)
        found.append(Action(round(at, 2), name, chance.choice(kind.targets), round(lasts, 2)))
    return tuple(found)
