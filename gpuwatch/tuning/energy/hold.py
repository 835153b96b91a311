"""A cap that is held: is the work still the same as when the cap was found, and does it still keep the bound?"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from gpuwatch.tuning.energy.estimate import contradicted, energy, slowest, spread, weak_signals_allow
from gpuwatch.tuning.energy.model import WEAK, GangWindow, Ladder, Probe, Signal, Terms, TrialState, WindowPair
from gpuwatch.tuning.energy.search import hides_loader, resolution, slo_holds

Usual = tuple[float, float]
"""Of one signal: its mean logarithm, and how far a window may be from it."""


class SavingEstimate(NamedTuple):
    """Shares of the speed lost, most likely and at most (95 % of all caps held; None: an SLO shows neither), and of the
    energy for a unit of work saved.
    """

    slowdown: float | None
    at_most: float | None
    saved: float


SELECTION_FACTOR = 1.3
"""A cap is held because its measurement was good, which is chance in part: its error counts so many times."""

SIGNAL_ERROR: Mapping[Signal, float] = {"counters": 0.018, "progress": 0.006}
"""How far a signal itself may be from the slowdown: both such that 95 % of the evaluation's cases lie within."""

HOLD_SECONDS = 1800.0
BLOCK = 6
"""Pairs of a verification."""

KEPT = 64
"""Pairs kept as evidence for a held cap; older ones are dropped."""

LEVEL = 24
"""Windows at the start of a hold from which the level of the work is computed."""

CHANGE = 0.15
"""A signal that differs so much from its level is another phase, however noisy the level was."""

QUIET = 0.04
"""No signal is taken to be steadier than this."""

SAME = 0.002
"""A difference of speed that is too small to mean other work, however little the pairs happen to vary."""

BURST, CALM = 0.9, 6
"""The cap of a serving GPU this busy is lifted at once, and set again after so many windows that are not."""

SHOWN_IDLE, GONE = 0.012, 0.4
"""Of the time a GPU waits at a held cap: the least that differs from none, and the share of it that counts as none."""

ROOMY = 1.5
"""With less than so many reserves of the wait for a loader left, a lower cap is not tried again."""

ODD = 3
"""Windows in a row that have to be far from the level: one or two are a stall of the data loader."""


def level(watched: Sequence[GangWindow]) -> tuple[Usual, ...]:
    """The level of the work, from its first windows: from LEVEL of them on, smaller changes count."""
    columns = list(zip(*map(_signature, watched), strict=True))
    if len(watched) < LEVEL:
        return tuple((fmean(column), CHANGE) for column in columns)
    return tuple((fmean(column), min(CHANGE, max(QUIET, 5 * spread(column)))) for column in columns)


def is_odd(usual: Sequence[Usual], windows: GangWindow, idle: float, terms: Terms) -> bool:
    """Whether a window is one of other work. `idle`: the share of time for which the GPUs wait at the held cap; where
    it is gone, a loader has become faster, and the cap may cost speed that it did not cost before.
    """
    waits = min((1 - window.engine for window in windows if window.engine is not None), default=1.0)
    if terms.latency == "batch" and idle >= SHOWN_IDLE and waits < GONE * idle:
        return True
    return any(abs(now - mean) > allowed for now, (mean, allowed) in zip(_signature(windows), usual, strict=True))


def is_uncovered(block: Sequence[WindowPair], idle: float, terms: Terms) -> bool:
    """Whether a held cap is too low by its newest two pairs, because a loader that the GPUs waited for is faster now:
    with this known cause, two pairs are enough. `idle`: as for `is_odd`.
    """
    if not wait_is_gone(block, idle, 1, terms):
        return False
    speed = slowest(block[-2:])
    return speed is not None and speed.ratio < 1 - terms.slowdown


def wait_is_gone(pairs: Sequence[WindowPair], idle: float, place: int, terms: Terms) -> bool:
    """Whether the share `idle` of time for which the GPUs waited is gone in the newest two pairs, at full speed
    (`place` 0) or at the cap (1).
    """
    known = [each.idle[place] for each in pairs[-2:] if each.idle is not None]
    if terms.slo or terms.latency != "batch" or len(known) < 2:  # serving GPUs wait for requests
        return False
    return idle >= SHOWN_IDLE and max(known) < GONE * idle


def is_idle(windows: GangWindow) -> bool:
    """Whether none of the GPUs does any work: nothing can be measured, and nothing slowed."""
    readings = (value or 0.0 for window in windows for value in (window.dram, window.pipe, window.engine))
    return all(value < WEAK for value in readings)


def is_burst(windows: GangWindow, terms: Terms) -> bool:
    """Whether serving GPUs are so busy that requests would wait longer under a cap."""
    return terms.latency == "serving" and not terms.slo and any((window.engine or 0.0) > BURST for window in windows)


def keeps(block: Sequence[WindowPair], evidence: Sequence[WindowPair], terms: Terms) -> bool:
    """Whether a verification is passed. `evidence`: all pairs kept for the cap, `block`: the newest of them."""
    if terms.slo:
        return slo_holds(block, terms) is not False and not contradicted(evidence, terms.slowdown)
    newest, everything = slowest(block), slowest(evidence)
    if newest is None or everything is None or weak_signals_allow(evidence, terms.slowdown) is False:
        return False
    if block[0].progress and contradicted(evidence, terms.slowdown):
        return False
    return newest.upper >= 1 - terms.slowdown and everything.ratio >= 1 - terms.slowdown


def is_same_work(block: Sequence[WindowPair], evidence: Sequence[WindowPair]) -> bool:
    """Whether a block shows the same speed as `evidence`, within the noise, and so the same work."""
    now, then = slowest(block), slowest(evidence) if len(evidence) > 1 else None
    if now is None or then is None:
        return False
    return abs(now.mean - then.mean) < max(SAME, 3 * math.hypot(now.error, then.error))


def saving_estimate(state: TrialState) -> SavingEstimate | None:
    """What is known of the cap that is held. None: none is, or too little is."""
    pairs = next((probe.pairs for probe in state.probes if probe.cap == state.held), ())
    speed, work = (slowest(pairs), energy(pairs)) if len(pairs) > 1 else (None, None)
    if work is not None and state.signal == "slo":
        return SavingEstimate(slowdown=None, at_most=None, saved=1 - work.ratio)
    if speed is None or work is None:
        return None
    error = math.hypot(SELECTION_FACTOR * speed.quantile * speed.error, SIGNAL_ERROR[state.signal])
    return SavingEstimate(slowdown=1 - speed.ratio, at_most=1 - math.exp(speed.mean - error), saved=1 - work.ratio)


def idle_at(probes: Sequence[Probe], held: float | None) -> float:
    """The share of time for which the GPUs wait at the held cap; 0: they do not, or it is not known."""
    return idle_share(next((probe.pairs for probe in probes if probe.cap == held), ()), 1)


def idle_share(pairs: Sequence[WindowPair], place: int) -> float:
    """The mean of these pairs, at full speed (`place` 0) or at the cap (1)."""
    known = [each.idle[place] for each in pairs if each.idle is not None]
    return fmean(known) if known else 0.0


def has_room(probes: Sequence[Probe], terms: Terms) -> bool:
    """Whether half of the bound is left at each of these caps, and enough of the wait for a loader. An SLO that held
    does not show how much is left.
    """
    if terms.slo:
        return True
    if any(hides_loader(probe.pairs, terms, ROOMY) for probe in probes):
        return False
    found = [slowest(probe.pairs) for probe in probes if len(probe.pairs) > 1]
    return all(speed is not None and speed.lower > 1 - terms.slowdown / 2 for speed in found)


def raised(cap: float, ladder: Ladder, terms: Terms) -> float | None:
    """One step up. None: that is the top."""
    above = ladder.at_least(cap + resolution(ladder, terms) / 2)
    return None if above >= ladder.top else above


def _signature(windows: GangWindow) -> list[float]:
    """Logarithms of the signals by which a phase of work is recognised."""
    counted = (rate.per_second for rate in windows[0].progress if rate is not None)
    used = (value for window in windows for value in (window.dram or 0.0, window.pipe or 0.0, window.watts))
    return [math.log(max(value, 1e-3)) for value in (*used, *counted)]
