"""Work that changes under a held cap: scripts of phases, and how long each change leaves a GPU slower than promised."""

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from gpuwatch.tuning.energy.model import Terms
from tests.bench.tuner.curves import FITS, MHZ, model
from tests.bench.tuner.play import Account, Gpu, Noise, play

HOUR = 3600.0
GENTLE, STEEP = 0.1, 0.9
"""Share of the time that goes with the clock, before and after a change."""


class Script(NamedTuple):
    """`changes`: (seconds, share of the time that goes with the clock, DRAM activity without a cap)."""

    name: str
    clock: float  # MHz
    changes: tuple[tuple[float, float, float], ...]


def scripts(count: int, seed: int) -> Iterator[Script]:
    """Gentle, then steep, then gentle, and so on, at times drawn; in every other one memory activity stays the same."""
    chance = random.Random(f"phases {seed}")
    for number in range(count):
        clock = FITS[chance.choice(list(FITS))].clock
        at, dram, changes = 0.0, chance.uniform(0.2, 0.5), []
        for phase in range(5):
            changes.append((at, STEEP if phase % 2 else GENTLE, dram))
            at += chance.uniform(0.1, 1.2) * HOUR
            dram = chance.uniform(0.2, 0.8) if number % 2 else dram
        yield Script(f"script {number}", clock, tuple(changes))


class Run(NamedTuple):
    """`seconds`: in each phase, over the bound by more than a percentage point."""

    account: Account
    seconds: tuple[float, ...]


def run(script: Script, noise: Noise, bound: float, seed: int) -> Run:
    """Six hours of it."""
    curves = {share: model("phases", f"b={share}", script.clock * MHZ, share, 0.4, 2.75) for share in (GENTLE, STEEP)}
    gpu = Gpu(curves[GENTLE], noise, f"{script.name} {seed}")
    begun: list[float] = []

    def change(now: float, over: float) -> None:
        if len(begun) < len(script.changes) and now >= script.changes[len(begun)][0]:
            _, share, gpu.dram = script.changes[len(begun)]
            gpu.curve = curves[share]
            begun.append(over)

    account = play(gpu, gpu.curve.ladder(), Terms(slowdown=bound), 6 * HOUR, change)
    return Run(account, tuple(after - before for before, after in pairwise([*begun, account.over])))
