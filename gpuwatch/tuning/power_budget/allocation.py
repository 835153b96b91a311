"""How a node's watts are shared: the GPU that loses most is lifted first, and the limits never exceed the budget.

The sum of the limits stays within the budget, not that of the draws: limits hold even when the tuner is dead.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from gpuwatch.model.snapshot import Record
from gpuwatch.tuning.power_budget.curve import Curve, prior

HALVINGS = 40
"""A level of 1,000 W is found to within a nanowatt."""


class Range(NamedTuple):
    """Watts that a limit may have."""

    low: float
    high: float

    def clip(self, watts: float) -> float:
        """The nearest watts within."""
        return min(self.high, max(self.low, watts))


def fill(budget: float, needs: Callable[[float], Sequence[float]], top: float) -> tuple[float, ...]:
    """Watts for each GPU at the highest level of 0..`top` that fits; where none does, what level 0 needs.
    `needs` gives watts at a level, never less at a higher one.
    """
    if sum(needs(top)) <= budget:
        return tuple(needs(top))
    low, high = 0.0, top
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if sum(needs(middle)) <= budget:
            low = middle
        else:
            high = middle
    return tuple(needs(low))


def level(budget: float, ranges: Sequence[Range]) -> tuple[float, ...]:
    """The same watts for each, as far as the ranges allow."""
    return fill(
        budget, lambda watts: [each.clip(watts) for each in ranges], max((each.high for each in ranges), default=0)
    )


FULL = 0.95
"""Share of the budget drawn below which no GPU is held."""

OTHER_PHASE = 0.5
"""Share of its curve's draw: a GPU that draws less no longer follows the curve."""

ROUNDING_WATTS = 1e-6
"""Watts by which a level may be missed, so that rounding down does not lose a whole watt."""


class PowerDemand(Record, frozen=True, kw_only=True):
    """One GPU, watts. `floor`: the lowest limit its board takes; `ceiling`: its limit before gpuwatch.

    `draw`: p95 without being held (`demand.natural`); None: not known. `curve`: by measurement; None: none
    was made. `priority`: higher ones are served first. `fixed`: the limit of a GPU that is not to be written, or the
    highest it could have where it cannot be read.
    """

    uuid: str
    floor: float
    ceiling: float
    draw: float | None = None
    curve: Curve | None = None
    priority: int = 0
    fixed: float | None = None

    @property
    def range(self) -> Range:
        """Limits it may get."""
        return Range(min(self.floor, self.ceiling), self.ceiling)


class ShareMethod(StrEnum):
    """In which way the budget was shared."""

    UNLIMITED = "unlimited"  # all original limits fit: nothing to do
    ROOMY = "roomy"  # no GPU is held: each has at least what it draws
    SHARED = "shared"  # by estimated loss of performance
    UNIFORM = "uniform"  # nothing is known of any GPU
    INFEASIBLE = "infeasible"  # even the lowest limits exceed it


class Shares(Record, frozen=True, kw_only=True):
    """Limits, watts by uuid, without the GPUs that are fixed; and the reason, as text for display."""

    limits: Mapping[str, float]
    how: ShareMethod
    message: str


def share(budget: float, gpus: Sequence[PowerDemand]) -> Shares:
    """Share a budget in watts. The limits, with those that are fixed, never exceed it unless it is infeasible.

    An impossible draw or curve counts as not known. Raises ValueError for a GPU that is named twice, and for a
    budget, a floor, a ceiling or a fixed limit that is no number.
    """
    _check(budget, gpus)
    free = tuple(gpu for gpu in gpus if gpu.fixed is None)
    fixed = sum(gpu.fixed for gpu in gpus if gpu.fixed is not None)
    left = budget - fixed
    least = sum(gpu.range.low for gpu in free)
    if least > left:
        others = f", {fixed:.0f} W are bound by limits that cannot be changed" if fixed else ""
        message = f"infeasible: the lowest limits are {least:.0f} W together, the budget is {budget:.0f} W{others}"
        return _shares(free, [gpu.range.low for gpu in free], ShareMethod.INFEASIBLE, message)
    if sum(gpu.ceiling for gpu in free) <= left:
        return _shares(free, [gpu.ceiling for gpu in free], ShareMethod.UNLIMITED, f"all limits fit {budget:.0f} W")
    left = float(math.floor(left))  # whole watts: what is rounded below then stays within
    roomy = {gpu.uuid: Range(gpu.range.clip((_draw(gpu) or 0.0) / FULL), gpu.ceiling) for gpu in free}
    if all(_draw(gpu) is not None for gpu in free) and sum(each.low for each in roomy.values()) <= left:
        drawn = sum(_draw(gpu) or 0.0 for gpu in free)
        message = f"{drawn:.0f} W are drawn of {left:.0f} W: no GPU is limited"
        return _shares(free, _by_tiers(left, free, roomy), ShareMethod.ROOMY, message)
    if not any(_curve(gpu) for gpu in free):
        return _shares(free, uniform(left, free), ShareMethod.UNIFORM, f"{left:.0f} W in equal parts: nothing is known")
    unknown = sum(_curve(gpu) is None for gpu in free)
    message = f"{left:.0f} W by estimated loss" + (f", {unknown} unknown in equal parts" if unknown else "")
    return _shares(free, _by_tiers(left, free, {gpu.uuid: gpu.range for gpu in free}), ShareMethod.SHARED, message)


def uniform(budget: float, gpus: Sequence[PowerDemand]) -> tuple[float, ...]:
    """The same limit for all, as far as their boards allow, in the order of `gpus`, watts."""
    return level(budget, [gpu.range for gpu in gpus])


def emergency(budget: float, gpus: Sequence[PowerDemand], now: Mapping[str, float]) -> dict[str, float]:
    """Limits for when more is drawn than the budget: at most an equal part, and no GPU gets more than `now`.

    Raises ValueError as `share` does.
    """
    _check(budget, gpus)
    free = tuple(gpu for gpu in gpus if gpu.fixed is None)
    left = budget - sum(gpu.fixed for gpu in gpus if gpu.fixed is not None)
    return {
        gpu.uuid: min(watts, now.get(gpu.uuid, watts)) for gpu, watts in zip(free, uniform(left, free), strict=True)
    }


def _shares(gpus: Sequence[PowerDemand], watts: Sequence[float], how: ShareMethod, message: str) -> Shares:
    limits = {  # rounded down, so that the sum stays within; an original limit is restored exactly
        gpu.uuid: gpu.ceiling if each >= gpu.ceiling else max(gpu.range.low, float(math.floor(each + ROUNDING_WATTS)))
        for gpu, each in zip(gpus, watts, strict=True)
    }
    return Shares(limits=limits, how=how, message=message)


def _curve(gpu: PowerDemand) -> Curve | None:
    """None: nothing is known. A GPU that draws far less than when it was measured does something else by now."""
    draw, curve = _draw(gpu), gpu.curve if gpu.curve is not None and gpu.curve.is_sound else None
    if draw is None:
        return curve
    return curve if curve is not None and draw >= OTHER_PHASE * curve.draw else prior(draw)


def _draw(gpu: PowerDemand) -> float | None:
    """None: not known. No GPU draws 0 W: such a reading is none."""
    return gpu.draw if gpu.draw is not None and 0 < gpu.draw < math.inf else None


def _check(budget: float, gpus: Sequence[PowerDemand]) -> None:
    numbers = [budget, *(each for gpu in gpus for each in (gpu.floor, gpu.ceiling, gpu.fixed) if each is not None)]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"a budget or a limit is no number: {numbers}")
    if len({gpu.uuid for gpu in gpus}) < len(gpus):
        raise ValueError(f"a GPU is named twice: {sorted(gpu.uuid for gpu in gpus)}")


def _by_tiers(budget: float, gpus: Sequence[PowerDemand], ranges: Mapping[str, Range]) -> tuple[float, ...]:
    """The highest priority first, the others at their lowest meanwhile; what no GPU needs is spread at the end."""
    given = {uuid: each.low for uuid, each in ranges.items()}
    for priority in sorted({gpu.priority for gpu in gpus}, reverse=True):
        tier = {gpu.uuid: gpu for gpu in gpus if gpu.priority == priority}
        others = sum(watts for uuid, watts in given.items() if uuid not in tier)
        given |= _within(budget - others, tier, ranges)
    return level(budget, [Range(given[gpu.uuid], gpu.ceiling) for gpu in gpus])


def _within(budget: float, tier: Mapping[str, PowerDemand], ranges: Mapping[str, Range]) -> Iterator[tuple[str, float]]:
    """An equal part for each GPU of which nothing is known; the rest for the others, the slowest as fast as can be."""
    equal = dict(zip(tier, level(budget, [ranges[uuid] for uuid in tier]), strict=True))
    known = {uuid: curve for uuid, gpu in tier.items() if (curve := _curve(gpu)) is not None}
    unknown = equal.keys() - known.keys()
    left = budget - sum(equal[uuid] for uuid in unknown)
    watts = fill(left, lambda speed: [ranges[uuid].clip(curve.watts(speed)) for uuid, curve in known.items()], 1.0)
    yield from ((uuid, equal[uuid]) for uuid in unknown)
    yield from zip(known, watts, strict=True)
