"""What each GPU would draw without a limit and would lose under one, and when a node draws more than it may.

A probe of the energy tuner gives two ratios, of the speed and of the draw. They are those of an unlimited GPU only if
no power limit held it while it was probed.
"""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.model.snapshot import Gpu, Power, Record
from gpuwatch.tuning.energy.estimate import slowest
from gpuwatch.tuning.energy.model import Probe, TrialPhase, TrialState, WindowPair
from gpuwatch.tuning.power_budget.curve import DRIFT, Curve, LimitEffects, fit, free, hindered, measured, unhindered

WINDOW_SECONDS = 60.0
ENOUGH_SECONDS = 30.0
"""A window in which readings span less is of no use."""

HELD = 0.9
"""Share of its limit: a GPU that draws as much may be held by it, and would draw more."""

OVERDRAW_SECONDS = 3.0
EMERGENCY_SECONDS = 60.0
"""How long an emergency lasts after the newest reading that made it one."""


class PowerReading(NamedTuple):
    """Watts at a monotonic second."""

    at: float
    watts: float


def p95(readings: Sequence[PowerReading], now: float) -> float | None:
    """Watts that 95 % of the readings of the last minute do not exceed; None: there are not enough."""
    recent = [each for each in readings if 0 <= now - each.at <= WINDOW_SECONDS]
    if not recent or max(each.at for each in recent) - min(each.at for each in recent) < ENOUGH_SECONDS:
        return None
    ranked = sorted(each.watts for each in recent)
    return ranked[math.ceil(0.95 * len(ranked)) - 1]


def natural(known: float | None, draw: float | None, limit: float | None) -> float | None:
    """Watts a GPU draws unheld. `known`: the previous answer, None after its owner changed; `draw`: its p95 of now
    under `limit`. None: not known, it might draw more without the limit.
    """
    if draw is None or limit is None:
        return known
    if draw < HELD * limit:
        return draw
    if known is not None and draw <= known * DRIFT:
        return max(known, draw)
    return None


class Overdraw(Record, frozen=True, kw_only=True):
    """Monotonic seconds. `since`: first of the unbroken readings above the budget; `last`: newest of those that made
    it an emergency.
    """

    since: float | None = None
    last: float | None = None

    def is_emergency(self, now: float) -> bool:
        """Whether the node is to be capped at once, or still is."""
        return self.last is not None and now - self.last < EMERGENCY_SECONDS


def with_reading(before: Overdraw, reading: PowerReading | None, budget: float) -> Overdraw:
    """Add what all GPUs draw together; None: it could not be read, which neither begins nor ends an emergency."""
    if reading is None:
        return before
    if reading.watts <= budget:
        return Overdraw(last=before.last)
    since = reading.at if before.since is None else before.since
    lasts = reading.at - since >= OVERDRAW_SECONDS
    return Overdraw(since=since, last=reading.at if lasts else before.last)


FEW = 3
"""Readings from which a draw is estimated when a GPU is about to be held before there are more."""

CAPPED = "sw_power_cap"
"""The clock event reason of a GPU that its power limit slows down; work of short peaks may draw far less than that."""

SAME_WATTS = 1.0
"""Limits that differ by less are one: drivers round."""


class Draw(Record, frozen=True, kw_only=True):
    """One GPU with one owner. `readings`: those under `limit` (watts) and `held` (the energy tuner's cap in force).

    `natural`: watts unheld; None: not known. `demand`: the same, but not changed by noise, and the `ceiling` for a
    GPU that its limit holds. `points`: ratios of draw and speed to those unheld, from `probes`. `hold`:
    what limits did to it. `at`: unix seconds of the newest sample; `reports_cap`: it shows whether the limit slows the
    GPU down; `capped`: monotonic seconds of the newest that it did. `ceiling`: the limit before gpuwatch.
    """

    owner: str | None = None
    limit: float = 0.0
    is_free: bool = True
    ceiling: float = math.inf
    held: float | None = None
    at: float | None = None
    reports_cap: bool = False
    capped: float | None = None
    readings: tuple[PowerReading, ...] = ()
    natural: float | None = None
    demand: float | None = None
    probes: tuple[Probe, ...] = ()
    points: tuple[tuple[float, float], ...] = ()
    hold: LimitEffects = LimitEffects()

    @property
    def curve(self) -> Curve | None:
        """By measurement; None: there was none, or what it would draw is not known."""
        if self.natural is None or self.demand is None or not self.points:
            return None
        return fit(measured(self.hold, self.points, self.demand, self.ceiling), self.demand)


def watts_of(power: Power) -> float | None:
    """What a GPU draws; None: not known."""
    return next((each for each in (power.average, power.instant) if each is not None and 0 < each < math.inf), None)


def with_sample(
    before: Draw, gpu: Gpu, *, limit: float, ceiling: float, owner: str | None, state: TrialState | None, now: float
) -> Draw:
    """Take in a sample. `limit`: in force; `ceiling`: the limit before gpuwatch; `now`: monotonic seconds."""
    held = state.held if state is not None and state.phase is TrialPhase.HOLD and not state.lifted else None
    draw = before if before.owner == owner else Draw(owner=owner)
    if draw.held != held or abs(draw.limit - limit) > SAME_WATTS:
        draw = replace(draw, natural=_known_draw(draw), readings=(), capped=None, limit=limit, held=held)
    draw = replace(draw, is_free=limit >= ceiling - SAME_WATTS, ceiling=ceiling)
    reading = watts_of(gpu.power)
    if reading is not None and gpu.at != draw.at:
        recent = (each for each in draw.readings if now - each.at <= WINDOW_SECONDS)
        is_capped = gpu.clock_events.active.get(CAPPED)
        capped = now if is_capped else draw.capped
        readings = (*recent, PowerReading(now, reading))
        draw = replace(draw, readings=readings, at=gpu.at, reports_cap=is_capped is not None, capped=capped)
    return _with_effect(_measured(_demanded(draw, state, now), state), state, now)


def _demanded(draw: Draw, state: TrialState | None, now: float) -> Draw:
    """The demand. Under the energy tuner's cap a GPU draws a known share of its draw without it."""
    probes = () if state is None or draw.held is None else state.probes
    held = [probe for probe in probes if probe.cap == draw.held][:1]
    share, peak = next(_points(held), (1.0, 1.0))[0], p95(draw.readings, now)
    known = None if draw.natural is None else draw.natural * share
    bound = draw.limit if peak is None or not _is_capped(draw, now) else min(peak, draw.limit)
    found = natural(known, peak, math.inf if draw.is_free or _is_unhindered(draw, now) else bound)
    if found is None:
        return replace(draw, natural=None, demand=draw.demand if peak is None else draw.ceiling)
    found = found / share
    is_noise = draw.demand is not None and draw.demand / DRIFT <= found <= draw.demand * DRIFT
    return replace(draw, natural=found) if is_noise else replace(draw, natural=found, demand=found, hold=LimitEffects())


def _is_capped(draw: Draw, now: float) -> bool:
    return draw.capped is not None and now - draw.capped <= WINDOW_SECONDS


def _is_unhindered(draw: Draw, now: float) -> bool:
    """The driver's report counts, if it is possible: a GPU that on average draws almost its limit is held."""
    mean = fmean([each.watts for each in draw.readings]) if draw.readings else math.inf
    return draw.reports_cap and not _is_capped(draw, now) and mean < HELD * draw.limit


def _with_effect(draw: Draw, state: TrialState | None, now: float) -> Draw:
    """The effect of its limit. While the energy tuner compares two settings, a mean is of no use."""
    is_probing = state is not None and state.phase in (TrialPhase.SEARCH, TrialPhase.VERIFY)
    if is_probing or not draw.readings or draw.readings[-1].at - draw.readings[0].at < ENOUGH_SECONDS:
        return draw
    mean = fmean([each.watts for each in draw.readings])
    if _is_capped(draw, now) and not draw.is_free:
        return replace(draw, hold=hindered(draw.hold, draw.limit, mean))
    if draw.held is not None:
        return draw
    if draw.is_free:
        return replace(draw, hold=free(draw.hold, mean))
    return replace(draw, hold=unhindered(draw.hold, draw.limit, mean)) if _is_unhindered(draw, now) else draw


def _known_draw(draw: Draw) -> float | None:
    """The draw that is known when its circumstances change."""
    if draw.natural is not None or not draw.is_free or draw.held is not None or len(draw.readings) < FEW:
        return draw.natural
    return sorted(each.watts for each in draw.readings)[math.ceil(0.95 * len(draw.readings)) - 1]


def _measured(draw: Draw, state: TrialState | None) -> Draw:
    """The points of the energy tuner's probes, unless they were made while a power limit held the GPU. The
    earlier points stay valid when a search begins again under another limit.
    """
    probes = () if state is None else state.probes
    if probes == draw.probes:
        return draw
    is_held = not draw.is_free and max((each.watts for each in draw.readings), default=math.inf) >= HELD * draw.limit
    if is_held if probes else not draw.is_free:
        return replace(draw, probes=probes)
    return replace(draw, probes=probes, points=tuple(_points(probes)))


def _points(probes: Sequence[Probe]) -> Iterator[tuple[float, float]]:
    """(draw, speed) of each probe, as ratios."""
    for probe in probes:
        draws = [each for each in map(_log_draw, probe.pairs) if each is not None]
        speed = slowest(probe.pairs) if len(probe.pairs) > 1 else None
        if speed is not None and draws:
            yield math.exp(fmean(draws)), min(1.0, speed.ratio)


def _log_draw(pair: WindowPair) -> float | None:
    """Energy for a unit of work times work for a second; of each GPU DRAM measures the work, else its pipes."""
    work = [pipe if dram is None else dram for dram, pipe in zip(pair.speed[::2], pair.speed[1::2], strict=True)]
    known = [each for each in work if each is not None]
    return pair.energy + fmean(known) if pair.energy is not None and known else None
