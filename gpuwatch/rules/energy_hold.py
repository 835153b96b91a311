"""A cap that is held: does the work still look as it did when the cap was found, and does it still keep the bound?"""

import math
from collections.abc import Sequence
from statistics import fmean

from gpuwatch.rules.energy_estimate import slowest, spread
from gpuwatch.rules.energy_search import step
from gpuwatch.rules.energy_windows import WEAK, Gang, Ladder, Pair, Terms

Usual = tuple[float, float]
"""Of one signal: its mean logarithm, and how far a window may be from it."""

HOLD_SECONDS = 1800.0
BLOCK = 6
"""Pairs of a verification."""

KEPT = 30
"""Pairs that speak for a held cap; older ones are forgotten."""

LEVEL = 24
"""Windows at the start of a hold that tell how the work looks."""

CHANGE = 0.15
"""A signal that differs so much from its level is another phase, however noisy the level was."""

QUIET = 0.04
"""No signal is believed to be steadier than this."""

ODD = 3
"""Windows in a row that have to be far from the level: one or two are a stall of the data loader."""


def level(watched: Sequence[Gang]) -> tuple[Usual, ...]:
    """How work looks, from its first windows: the more there are, the smaller the changes that are seen."""
    columns = list(zip(*map(_look, watched), strict=True))
    if len(watched) < LEVEL:
        return tuple((fmean(column), CHANGE) for column in columns)
    return tuple((fmean(column), min(CHANGE, max(QUIET, 5 * spread(column)))) for column in columns)


def is_odd(usual: Sequence[Usual], gang: Gang) -> bool:
    """Whether a window looks like other work."""
    return any(abs(now - mean) > allowed for now, (mean, allowed) in zip(_look(gang), usual, strict=True))


def is_idle(gang: Gang) -> bool:
    """Whether nobody works on any of the GPUs: nothing can be told, and nothing slowed."""
    return all((window.dram or 0.0) < WEAK and (window.engine or 0.0) < WEAK for window in gang)


def keeps(block: Sequence[Pair], evidence: Sequence[Pair], terms: Terms) -> bool:
    """Whether a verification is passed. `evidence`: all pairs that speak for the cap, `block`: the newest of them."""
    newest, everything = slowest(block), slowest(evidence)
    if newest is None or everything is None:
        return False
    return newest.upper >= 1 - terms.slowdown and everything.ratio >= 1 - terms.slowdown


def is_same(block: Sequence[Pair], evidence: Sequence[Pair]) -> bool:
    """Whether a block tells of the work that `evidence` was gathered on, as far as the noise lets one see."""
    now, then = slowest(block), slowest(evidence) if len(evidence) > 1 else None
    if now is None or then is None:
        return False
    return abs(now.mean - then.mean) < 3 * math.hypot(now.error, then.error)


def raised(cap: float, ladder: Ladder, terms: Terms) -> float | None:
    """One step up. None: that is the top."""
    above = ladder.at_least(cap + step(ladder, terms) / 2)
    return None if above >= ladder.top else above


def _look(gang: Gang) -> list[float]:
    """Logarithms of what a phase is known by."""
    return [
        math.log(max(value, 1e-3))
        for window in gang
        for value in (window.dram or 0.0, window.pipe or 0.0, window.watts)
    ]
