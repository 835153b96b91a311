"""Which cap to try next, and what the windows of a trial are worth.

The problem: find the clock or power limit that uses least energy for a unit of work, within a bounded slowdown. The
tuner cannot count units of work: it does not know the program. It reads DRAM and pipe activity, joules and clocks.

Comparing a minute at full speed with a minute at a cap does not work: work can drift between the two minutes (data,
evaluation, temperature) by as much as the few percent of the bound, and a longer average has more drift. A model
without measurements does not work either: what a cap costs depends on how much of the time waits for the clock, and
that differs between programs.

So windows of 4 to 7 s alternate between full and reduced, and each reduced one is compared with the two full ones
around it (`model.pair`): a linear drift cancels. Neighbouring pairs share a window and noise lasts longer than one, so
the error of their mean is estimated twice, and the larger one counts (`estimate`). A trial is judged at a few fixed
numbers of pairs only (JUDGED_AT), because every judgement is another chance of a false positive; before EARLY pairs
errors count EARLY_FACTOR times. One that is far outside the bound ends after two pairs: the search itself must not
exceed the bound.

Time for a unit of work is close to a straight line in top/cap. Two points show where the line meets the bound, and the
next trial is there, less a margin for the noise so far. The line alone decides nothing: a cap is held only
when its own windows keep the bound, and it is verified again every half hour.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from gpuwatch.tuning.energy.estimate import contradicted, energy, slowest, weak_signals_allow
from gpuwatch.tuning.energy.model import GangWindow, Ladder, Probe, Terms, WindowPair
from gpuwatch.tuning.energy.slo import holds, together

PROBES = 6
JUDGED_AT = (4, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of pairs at which a probe is judged. One that is close to the bound is worth more pairs than others."""

EARLY, EARLY_FACTOR = 16, 1.9
"""Each judgement is another chance of a false positive: before EARLY pairs, errors count EARLY_FACTOR times."""

PLANNED = 48
"""Pairs that the last probe is expected to need."""

MARGIN = 0.8
"""The search aims so many standard errors of the last probe inside the bound."""

FAR_OVER = 0.08
"""Two pairs that cost so much more than the bound end a probe."""

STRIDE = 1.35
"""No probe stretches top/cap by more than this beyond what was found good: a line may bend."""

STEP = 0.1
"""Caps that differ by less than this share of the bound, times the top, count as the same."""

SAFE = 0.01
"""A cap that held for the same work before is tried first so much higher, as a share of the top."""

COARSE = 0.04
"""As STEP, but a share of the top, where an SLO decides: requests come unevenly, and show no smaller difference."""

GAIN = 0.002
"""A lower cap has to save this share more than the best so far."""


COUNTED = 0.95
"""Share of the bound at which a search aims, where GPU counters are the signal."""

WAITING = 0.02
"""A GPU that is idle for this share of its time waits for something: its loader, most often."""

RESERVE, KEPT_IDLE = 0.03, 0.6
"""A cap has to leave so much of that idle time, as a share of all time or of it: its end shows a faster loader."""

BOOST = 0.02
"""A GPU that is so close to its highest clock is taken to be there: boost moves by a step or two."""


class Point(NamedTuple):
    """A cap on the line: `x` top/cap, `t` time for a unit of work (full speed: 1)."""

    x: float
    t: float


def judge(pairs: Sequence[WindowPair], terms: Terms, best: float) -> bool | None:
    """Whether a cap keeps the bound and saves energy, None: more pairs are needed.

    `best`: natural logarithm of the energy for a unit of work of the best cap so far, 0 without a cap.
    """
    if len(pairs) < 2:
        return None
    return (_judge_slo if terms.slo else _judge_speed)(pairs, terms, best)


def _judge_speed(pairs: Sequence[WindowPair], terms: Terms, best: float) -> bool | None:
    speed, work = slowest(pairs), energy(pairs)
    if speed is None or work is None or is_far_over(pairs, terms):
        return False
    if len(pairs) not in JUDGED_AT:
        return None
    gains, bound = work.mean <= best - GAIN, math.log(1 - allowed(pairs, terms))
    trusted = speed.mean - speed.quantile * speed.error * (EARLY_FACTOR if len(pairs) < EARLY else 1.0)
    if trusted >= bound and work.upper < 1 and gains:
        # The strong signals let the cap pass; `passes`: whether the weak ones do, too. None: not known.
        if hides_loader(pairs, terms) or contradicted(pairs, terms.slowdown):
            return False
        passes = weak_signals_allow(pairs, terms.slowdown)
        return False if passes is None and len(pairs) == JUDGED_AT[-1] else passes
    if len(pairs) == JUDGED_AT[0]:
        return False if speed.mean + speed.error < bound else None
    unlikely = speed.mean < bound or not gains
    return False if unlikely or len(pairs) == JUDGED_AT[-1] else None


def _judge_slo(pairs: Sequence[WindowPair], terms: Terms, best: float) -> bool | None:
    """The same with an SLO: the requests that were served at the cap decide, and GPU counters can veto."""
    held, work = slo_holds(pairs, terms), energy(pairs)
    if held is False or work is None:
        return False
    if len(pairs) not in JUDGED_AT:
        return None
    gains = work.mean <= best - GAIN
    if contradicted(pairs, terms.slowdown) or work.mean - work.error > best - GAIN:
        return False
    if held and gains and work.mean + work.quantile * work.error * (EARLY_FACTOR if len(pairs) < EARLY else 1.0) < 0:
        return True
    return False if len(pairs) == JUDGED_AT[-1] else None


def slo_holds(pairs: Sequence[WindowPair], terms: Terms) -> bool | None:
    """Whether the SLO holds at the cap of these pairs. None: too few requests came while it was in force."""
    return holds(terms.slo, together(pair.served for pair in pairs))


def allowed(pairs: Sequence[WindowPair], terms: Terms) -> float:
    """The slowdown at which a search aims: GPU counters are not the speed, and get less of the bound."""
    return terms.slowdown if pairs and pairs[0].progress else COUNTED * terms.slowdown


def hides_loader(pairs: Sequence[WindowPair], terms: Terms, reserves: float = 1.0) -> bool:
    """Whether a cap leaves less than so many `reserves` of the time in which a GPU waits for its loader: with a faster
    loader it would be too slow, and nothing would show it.
    """
    known = [each.idle for each in pairs if each.idle is not None]
    if not known or terms.latency == "serving":
        return False
    full, left = (fmean(column) for column in zip(*known, strict=True))
    return full >= WAITING and left < reserves * min(RESERVE, KEPT_IDLE * full)


def is_far_over(pairs: Sequence[WindowPair], terms: Terms) -> bool:
    """Whether the newest pairs, two or three, are so far beyond the bound that the trial must end."""
    if terms.slo:
        return slo_holds(pairs, terms) is False
    bound = math.log(1 - terms.slowdown)
    two, three = slowest(pairs[-2:]), slowest(pairs[-3:])
    if two is None or three is None or two.mean < bound - FAR_OVER:
        return True
    return len(pairs) > 2 and three.mean + 4 * max(three.error, 0.003) < bound


def finished(probe: Probe, terms: Terms, *, good: bool) -> Probe:
    """A probe with its verdict."""
    disagreed = len(probe.pairs) > 1 and contradicted(probe.pairs, terms.slowdown)
    return Probe(cap=probe.cap, pairs=probe.pairs, good=good, disagreed=disagreed)


def best(probes: Sequence[Probe]) -> Probe | None:
    """The good probe that saves most. None: none is good."""
    return min((probe for probe in probes if probe.good), key=saved, default=None)


def saved(probe: Probe) -> float:
    """Natural logarithm of the energy for a unit of work; 0: not known, as without a cap."""
    found = energy(probe.pairs)
    return 0.0 if found is None else found.mean


def first(ladder: Ladder, terms: Terms, watts: float, known: float | None = None) -> float:
    """Where to begin, on a ladder that has caps. A power limit does nothing above the draw of a GPU, `watts`. `known`:
    a cap that held for such work before; a step above it passes sooner.
    """
    if known is not None:
        return min(safe(known, ladder), ladder.caps[0])
    share = 0.9 if terms.latency == "serving" else 0.8
    top = min(ladder.top, watts * 1.1) if ladder.knob == "power_limit" else ladder.top
    return min(ladder.at_least(share * top), ladder.caps[0])


def safe(known: float, ladder: Ladder) -> float:
    """The cap to begin with for work for which `known` has held before."""
    return ladder.at_least(known + SAFE * ladder.top)


def reached(ladder: Ladder, full: Sequence[GangWindow]) -> Ladder:
    """The ladder from the clock down that GPUs reach without a cap: where a power limit holds them below their highest,
    a cap in between does nothing, and shows nothing about a lower one. `full`: windows without a cap.
    """
    members = [[window.clock for window in member] for member in zip(*full, strict=True)]
    known = [[clock for clock in member if clock is not None] for member in members]
    if ladder.knob != "locked_clocks" or not known or not all(known):
        return ladder
    top = max(fmean(member) for member in known)
    steps = tuple(step for step in ladder.caps if step < top)
    return Ladder(knob=ladder.knob, steps=(top, *steps)) if steps and top < (1 - BOOST) * ladder.top else ladder


def following(probes: Sequence[Probe], ladder: Ladder, terms: Terms) -> float | None:
    """The next cap to try. None: there is none worth it."""
    found = best(probes)
    good = Point(1.0, 1.0) if found is None else _point(found, ladder)
    beyond = [probe for probe in probes if not probe.good and ladder.top / probe.cap > good.x]
    time = target_time(probes, terms)
    x = _between(good, beyond, ladder, time) if beyond else _beyond(good, probes, ladder, time)
    apart, cap = resolution(ladder, terms), ladder.top / good.x
    highest, lowest = cap - apart, max([probe.cap + apart for probe in beyond], default=ladder.floor)
    if x is None:
        return None
    steps = [each for each in ladder.steps if lowest <= each <= highest]
    return min((each for each in steps if each >= ladder.top / x), default=max(steps, default=None))


def resolution(ladder: Ladder, terms: Terms) -> float:
    """The least difference between caps that matters."""
    return (COARSE if terms.slo else STEP * terms.slowdown) * ladder.top


def target_time(probes: Sequence[Probe], terms: Terms) -> float:
    """The time for a unit of work at which a probe should still pass, given the noise so far."""
    noise = [
        found.error * math.sqrt(len(probe.pairs)) for probe in probes if (found := slowest(probe.pairs)) is not None
    ]
    margin = MARGIN * (fmean(noise) if noise else 0.0) / math.sqrt(PLANNED)
    slowdown = allowed(probes[-1].pairs if probes else (), terms)
    return 1 / (1 - max(slowdown - margin, terms.slowdown / 4))


def _between(good: Point, beyond: Sequence[Probe], ladder: Ladder, time: float) -> float:
    """On the chord from a good point to the nearest bad one; in the middle where the chord shows nothing."""
    end = _point(max(beyond, key=lambda probe: probe.cap), ladder)
    share = (time - good.t) / (end.t - good.t) if end.t > max(time, good.t) else 0.5
    return good.x + max(share, 0.0) * (end.x - good.x)


def _beyond(good: Point, probes: Sequence[Probe], ladder: Ladder, time: float) -> float | None:
    """On the line through the two furthest good points, but at most STRIDE further. None: the aim is reached."""
    before = max(
        (point for point in (_point(probe, ladder) for probe in probes if probe.good) if point.x < good.x),
        default=Point(1.0, 1.0),
    )
    slope = (good.t - before.t) / (good.x - before.x) if good.x > before.x else 0.0
    reach = good.x + (time - good.t) / slope if slope > 0 else math.inf
    return min(reach, good.x * STRIDE, ladder.top / ladder.floor) if reach > good.x else None


def _point(probe: Probe, ladder: Ladder) -> Point:
    found = slowest(probe.pairs)
    return Point(ladder.top / probe.cap, 1.0 if found is None else math.exp(-found.mean))
