"""What a search compares windows by: the application's own count of its work where it is good enough, or GPU counters.

GPU counters show how busy units are, and that is not the speed of all work. A counter of steps or tokens is, but it may
be slow, uneven or missing. So its noise is estimated at full speed before anything is tried; a counter that is not good
enough is refused with the reason, and GPU counters decide. The values are data from others: they can end a cap, and
they cannot keep one that every GPU counter calls too slow (`estimate.contradicted`).
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from gpuwatch.model.consent import ProgressCounter
from gpuwatch.tuning.energy.estimate import spread
from gpuwatch.tuning.energy.model import STEADY, WEAK, GangWindow, Rate, Refusal, Terms
from gpuwatch.tuning.energy.slo import COVERED

FEWEST = 20
"""Counts in a window: with fewer, a window cannot be distinguished from one that is 5 % slower."""


def rates(counters: Sequence[ProgressCounter | None], begin: float, end: float) -> tuple[Rate | None, ...]:
    """The rate of each owner's counter between two times, unix seconds. None: it was not read, or was set back."""
    return tuple(None if counter is None else _rate(counter, begin, end) for counter in counters)


def _rate(counter: ProgressCounter, begin: float, end: float) -> Rate | None:
    samples = [(at, value) for at, value in counter.samples if begin <= at <= end]
    if len(samples) < 2 or samples[-1][0] - samples[0][0] < COVERED * (end - begin):
        return None
    steps = [after[1] - before[1] for before, after in pairwise(samples)]
    seconds, work = samples[-1][0] - samples[0][0], sum(steps)
    if min(steps) < 0 or min(after[0] - before[0] for before, after in pairwise(samples)) <= 0:
        return None
    whole = all(step.is_integer() for step in steps)
    unit = math.gcd(*(int(step) for step in steps)) if whole else 0
    return Rate(per_second=work / seconds, counts=work / unit if unit else math.inf if work else 0.0)


def refused_because(full: Sequence[GangWindow], terms: Terms) -> str:
    """Why the counters in windows at full speed are no signal; empty: they are, or none is named."""
    counters = [windows[0].progress for windows in full]
    if any(counters) and terms.latency == "serving":
        return "the rate of serving work follows its requests"
    most = max(map(len, counters))
    for column in zip(*(each or (None,) * most for each in counters), strict=True):
        known = [rate for rate in column if rate is not None]
        if len(known) < len(column):
            return "its counter could not be read all the time, or was set back"
        values, counts = [rate.per_second for rate in known], max(rate.counts for rate in known)
        if counts < FEWEST:
            return f"its counter counts {counts:.0f} times in a window, {FEWEST} at least are needed"
        if (varies := spread(values) / fmean(values)) > STEADY:
            return (
                f"its counter's rate varies by {100 * varies:.0f} % from window to window, {100 * STEADY:.0f} % at most"
            )
    return ""


READABLE = 0.002
"""Pipe activity below this is no signal. DRAM traffic alone shows no speed: polling and spilling are no progress."""


def unfit(full: tuple[GangWindow, ...]) -> Refusal | None:
    """Why full windows do not allow a search. None: they do."""
    for member in zip(*full, strict=True):
        drams = [window.dram or 0.0 for window in member]
        pipes = [window.pipe or 0.0 for window in member]
        strong = [values for values in (drams, pipes) if fmean(values) >= WEAK]
        if not strong or fmean(pipes) < READABLE:
            return Refusal.WEAK_SIGNAL
        if any(spread(values) > STEADY * fmean(values) for values in strong):
            return Refusal.UNSTEADY
    return None
