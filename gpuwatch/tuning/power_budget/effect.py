"""What the power limits of one GPU have done to it: how much of its draw is left, hence how much of its speed.

Probes tell what speed goes with what share of the draw; which limit leaves that share, they do not tell. A limit cuts
the peaks of work that comes in bursts long before it reaches the mean, by 5 % above it or by 40. So what is guessed at
first gives way to what is seen under the limits themselves.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.model.snapshot import Record
from gpuwatch.tuning.power_budget.curve import HEADROOM, Measured
from gpuwatch.tuning.power_budget.overdraw import DRIFT

CUT = 0.97
"""Share of its draw above which it is not sure that a limit cuts anything."""

KEPT = 3
SAME_LIMIT = 4.0
"""Watts; of limits that differ by less, the newer one tells."""


class Felt(NamedTuple):
    """A limit, watts, and the share of its mean draw that it has left to a GPU."""

    limit: float
    ratio: float


class Hold(Record, frozen=True, kw_only=True):
    """One GPU with one load. `full`: watts it draws on average when nobody holds it; `enough`: the lowest limit known
    to cost nothing, as far as is felt; None: not known. `felt`: limits that did hold it, newest last.
    """

    full: float | None = None
    enough: float | None = None
    felt: tuple[Felt, ...] = ()


def free(hold: Hold, mean: float) -> Hold:
    """It draws `mean` watts, and nothing could hold it."""
    return replace(hold, full=mean)


def unhindered(hold: Hold, limit: float, mean: float) -> Hold:
    """It draws `mean` watts under a limit of which the driver says that it slows nothing down."""
    if hold.full is None or mean > hold.full:
        hold = replace(hold, full=mean)
    is_whole = hold.full is not None and mean >= CUT * hold.full  # otherwise it only has less to do
    return replace(hold, enough=min(limit, hold.enough or limit)) if is_whole else hold


def hindered(hold: Hold, limit: float, mean: float) -> Hold:
    """It draws `mean` watts under a limit of which the driver says that it slows it down."""
    if hold.full is None or mean > hold.full * DRIFT:
        return Hold()
    ratio = mean / hold.full
    if ratio >= CUT:
        return hold
    others = tuple(each for each in hold.felt if abs(each.limit - limit) >= SAME_LIMIT)
    return replace(hold, enough=limit / ratio, felt=(*others, Felt(limit, ratio))[-KEPT:])


def measured(hold: Hold, probes: Sequence[tuple[float, float]], demand: float, ceiling: float) -> list[Measured]:
    """Speed by limit, told by what was felt and by `probes`: shares of the mean draw and of the speed. `demand`,
    `ceiling`: watts it peaks at, and of the limit without which it is probed.
    """
    enough = hold.enough or min(demand * HEADROOM, ceiling)
    guessed = [Measured(min(1.0, ratio) * enough, speed) for ratio, speed in probes]
    return guessed + [Measured(each.limit, _speed(probes, each.ratio)) for each in hold.felt]


def _speed(probes: Sequence[tuple[float, float]], ratio: float) -> float:
    """On straight lines through what was probed, from a standstill to full speed."""
    known = sorted({(0.0, 0.0), (1.0, 1.0), *((share, speed) for share, speed in probes if 0 < share < 1)})
    for (low, slow), (high, fast) in pairwise(known):
        if low <= ratio <= high:
            return slow + (fast - slow) * (ratio - low) / max(high - low, 1e-9)
    return 1.0
