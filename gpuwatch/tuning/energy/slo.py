"""Whether requests are served in time: of each target of an SLO the requests counted, and how many were late.

A quantile is read from cumulative buckets. Prometheus' histogram_quantile interpolates within a bucket; here a request
counts as late unless its whole bucket is within the bound, which is the conservative reading: the quantile is the upper
end of its bucket. The counts are data from others: they can end a cap, and they cannot keep one that every GPU counter
calls too slow (`estimate.contradicted`).
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpuwatch.model.consent import Histogram
from gpuwatch.model.slo import Target

COVERED = 0.5
"""A page that was read for less than this share of a window does not count for it."""

MARGIN = 0.5
"""Part of the share of late requests that a target allows; with p95 a cap is kept while 2.5 % are late at most."""

FEWEST = 20
"""Requests without which no target holds, whatever the quantile."""

TargetHistogram = tuple[Target, Histogram | None]
"""A target, and its histogram on the page of its pod; None: there is none."""


class Served(NamedTuple):
    """Of one target in some seconds: requests, or tokens where the histogram counts those, and how many were late."""

    requests: float
    late: float


def served(histograms: Sequence[TargetHistogram], begin: float, end: float) -> tuple[Served | None, ...]:
    """Requests by target between two times, unix seconds. None: its histogram was not read, or set back or invalid."""
    return tuple(
        None if histogram is None else _served(target, histogram, begin, end) for target, histogram in histograms
    )


def _served(target: Target, histogram: Histogram, begin: float, end: float) -> Served | None:
    grown = _grown(histogram, begin, end)
    if grown is None:
        return None
    within = sum(bound <= target.seconds for bound in histogram.bounds)
    return Served(grown[-1], grown[-1] - (grown[within - 1] if within else 0.0))


def _grown(histogram: Histogram, begin: float, end: float) -> list[float] | None:
    """What the buckets grew by. The sample before `begin` counts too, so that none is lost between two windows. One
    much older would add what was not of this window, and without one near `end` late requests would be left out.
    """
    until = [sample for sample in histogram.samples if sample[0] <= end]
    earlier = [sample for sample in until if sample[0] <= begin]
    samples = [*earlier[-1:], *until[len(earlier) :]]
    if len(samples) < 2 or samples[-1][0] <= begin:
        return None
    unread = (1 - COVERED) * (end - begin)
    if samples[0][0] < begin - unread or samples[-1][0] < end - unread:
        return None
    size = len(histogram.bounds) + 1
    if any(len(counts) != size for _, counts in samples):
        return None
    steps = [[now - before for before, now in zip(a[1], b[1], strict=True)] for a, b in pairwise(samples)]
    if any(min(step) < 0 or step != sorted(step) or not math.isfinite(step[-1]) for step in steps):
        return None  # set back, or not cumulative
    return [sum(column) for column in zip(*steps, strict=True)]


def quantile(target: Target, histogram: Histogram) -> float | None:
    """Seconds, over all samples that are kept: the upper end of the bucket. None: no request, or it was set back."""
    if not histogram.samples:
        return None
    grown = _grown(histogram, histogram.samples[0][0], histogram.samples[-1][0])
    if grown is None or not grown[-1]:
        return None
    reached = (
        bound for bound, count in zip(histogram.bounds, grown, strict=False) if count >= target.quantile * grown[-1]
    )
    return next(reached, math.inf)


def together(parts: Iterable[tuple[Served | None, ...]]) -> tuple[Served, ...]:
    """All of them added up, target by target; what is not known, or no part at all, adds nothing."""
    columns = zip(*filter(None, parts), strict=True)
    known = [[each for each in column if each is not None] for column in columns]
    return tuple(Served(sum(a.requests for a in each), sum(a.late for a in each)) for each in known)


def holds(targets: Sequence[Target], counts: Sequence[Served]) -> bool | None:
    """Whether every target holds with its margin. None: too few requests to decide.

    One late request never breaks a target. More than the margin allows break it before enough requests came.
    """
    verdicts = [_holds(target, each) for target, each in zip(targets, counts, strict=True)]
    return False if False in verdicts else None if None in verdicts else True


def _holds(target: Target, counts: Served) -> bool | None:
    allowed = MARGIN * (1 - target.quantile)
    if counts.late > max(1.0, allowed * max(counts.requests, FEWEST)):
        return False
    return True if counts.requests >= max(FEWEST, 1 / allowed) else None
