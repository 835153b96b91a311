"""A cap that is held: does the work still look as it did when the cap was found, and does it still keep the bound?"""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from gpuwatch.rules.energy_estimate import slowest
from gpuwatch.rules.energy_search import is_hopeless, step
from gpuwatch.rules.energy_windows import WEAK, Gang, Ladder, Pair, Terms

HOLD_SECONDS = 1800.0
BLOCK = 6
"""Pairs of a verification."""

KEPT = 30
"""Pairs that speak for a held cap; older ones are forgotten."""

LEVEL = 12
"""Windows at the start of a hold that tell how the work looks."""

CHANGE = 0.15
"""A signal that differs so much from its level is another phase, however noisy the level was."""

ODD = 3
"""Windows in a row that have to be far from the level: one or two are a stall of the data loader."""


def is_odd(level: Sequence[Gang], gang: Gang) -> bool:
    """Whether a window looks like other work than that of `level`; quieter levels show smaller changes."""
    return any(
        abs(now - fmean(usual)) > min(CHANGE, max(0.03, 5 * stdev(usual)))
        for now, usual in zip(_look(gang), zip(*map(_look, level), strict=True), strict=True)
    )


def is_idle(gang: Gang) -> bool:
    """Whether nobody works on any of the GPUs: nothing can be told, and nothing slowed."""
    return all((window.dram or 0.0) < WEAK and (window.engine or 0.0) < WEAK for window in gang)


def keeps(block: Sequence[Pair], evidence: Sequence[Pair], terms: Terms) -> bool:
    """Whether a verification is passed. `evidence`: all pairs that speak for the cap, `block`: the newest of them."""
    newest, everything = slowest(block), slowest(evidence)
    if newest is None or everything is None:
        return False
    return newest.upper >= 1 - terms.slowdown and everything.ratio >= 1 - terms.slowdown


def is_over(block: Sequence[Pair], terms: Terms) -> bool:
    """Whether the work is another one than the cap was found for."""
    if len(block) < 2:
        return False
    speed = slowest(block)
    return speed is None or is_hopeless(speed, len(block), terms)


def raised(cap: float, ladder: Ladder, terms: Terms) -> float | None:
    """One step up. None: that is the top."""
    above = ladder.at_least(cap + max(step(ladder, terms), 1e-3 * ladder.top))
    return None if above >= ladder.top else above


def _look(gang: Gang) -> list[float]:
    """Logarithms of what a phase is known by."""
    return [
        math.log(max(value, 1e-3))
        for window in gang
        for value in (window.dram or 0.0, window.pipe or 0.0, window.watts)
    ]
