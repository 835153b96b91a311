"""The data types of a search: its state, and windows of a GPU at work, compared in threes: full, reduced, full.

A program moves the same bytes for each unit of its work, so the DRAM activity of a reduced window over that of the full
windows around it is the share of its speed that is left; slow drift cancels. Pipe activity shows the same once it is
scaled by the clock.
"""

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, NamedTuple

from gpuwatch.model.slo import Target
from gpuwatch.model.snapshot import Record
from gpuwatch.tuning.energy.slo import Served
from gpuwatch.tuning.model.setting import Knob

WEAK = 0.05
"""An activity below this is too weak to show a GPU's speed; it can only end a cap."""


STEADY = 0.05
"""Full windows that vary more than this (standard deviation over mean) are of no use."""

Signal = Literal["counters", "progress", "slo"]
"""What caps are judged by: DRAM and pipe activity, the application's own count of its work, or requests' latencies."""


class Rate(NamedTuple):
    """The rise of an owner's counter in a window. `counts`: in steps of its unit; inf: it has none."""

    per_second: float
    counts: float


class TrialWindow(Record, frozen=True, kw_only=True):
    """A few seconds of one GPU. Activities are ratios 0..1 (GPM or DCGM), None: not known.

    `cap`: hertz or watts in force, None: none. `clock`: the mean SM clock in hertz. `joules`: what the energy counter
    rose by. `settled` False: the setting changed shortly before, so that the window covers two. `progress`: the work
    counted by each owner of the gang, the same for all its GPUs; empty: no owner names a counter. `served`: as
    `progress`, of each target of its SLO.
    """

    cap: float | None
    seconds: float
    dram: float | None
    pipe: float | None
    engine: float | None
    joules: float
    clock: float | None = None
    settled: bool = True
    progress: tuple[Rate | None, ...] = ()
    served: tuple[Served | None, ...] = ()

    @property
    def watts(self) -> float:
        """The mean draw."""
        return self.joules / self.seconds

    @property
    def is_sound(self) -> bool:
        """Whether its numbers are possible. A counter that jumped back, as after a driver reload, shows no draw."""
        known = [each for each in (self.dram, self.pipe, self.engine, self.clock) if each is not None]
        positive = all(0 < each < math.inf for each in (self.seconds, self.joules))
        return positive and all(0 <= each < math.inf for each in known)

    @property
    def has_signal(self) -> bool:
        """Whether it shows the speed of the work at all."""
        return self.dram is not None or self.pipe is not None


WINDOW_SECONDS = 5.0

LENGTHS = (4.0, 5.0, 6.0, 7.0)
"""Seconds of windows that are compared with each other: drawn at random, so that they match no period of the work."""

GangWindow = tuple[TrialWindow, ...]
"""The same seconds of all GPUs that are moved together, always in the same order; mostly one GPU."""


class Ladder(Record, frozen=True, kw_only=True):
    """The values a knob may take, highest first. The first is the GPU's own: it means no cap, and is never set."""

    knob: Knob
    steps: tuple[float, ...]

    @property
    def top(self) -> float:
        """The value that is in force without a cap."""
        return self.steps[0]

    @property
    def floor(self) -> float:
        """The lowest value that may be tried."""
        return self.steps[-1]

    @property
    def caps(self) -> tuple[float, ...]:
        """All that may be set; empty: the knob has no lower value."""
        return self.steps[1:]

    def at_least(self, value: float) -> float:
        """The lowest step that is not below `value`: in doubt the faster one."""
        return min((step for step in self.steps if step >= value - 1e-6), default=self.top)


class Terms(Record, frozen=True, kw_only=True):
    """The bound. `slowdown`: the share of its speed that the work may lose. `each`: several owners share GPUs,
    and the bound holds for each of them, which GPU counters cannot show. `slo`: the targets of all owners, where
    each has some; then `slowdown` only bounds the loss that GPU counters may show.
    """

    slowdown: float = 0.05
    latency: Literal["batch", "serving"] = "batch"
    each: bool = False
    slo: tuple[Target, ...] = ()


class WindowPair(Record, frozen=True, kw_only=True):
    """One reduced window against its full neighbours, in natural logarithms, so that errors add.

    `speed`: DRAM and pipe of the first GPU, of the second, and so on; None: not known. `weak`: which of them are weak,
    by their place. `energy`: joules for a unit of work; None: the work is not known. `progress`: of each owner, where
    that is the signal. `idle`: of the graphics engine, the share of time without work at full speed and at the cap, of
    the GPU that has least left at the cap; None: not known. `served`: at the cap, by target of the SLO; empty: there is
    none.
    """

    speed: tuple[float | None, ...]
    energy: float | None
    progress: tuple[float | None, ...] = ()
    weak: frozenset[int] = frozenset()
    idle: tuple[float, float] | None = None
    served: tuple[Served, ...] = ()


def clocks(supported: Iterable[float], *, top: float, min_fraction: float = 0.5) -> Ladder:
    """The ladder of SM clocks (hertz), none below `min_fraction` of `top`."""
    steps = {clock for clock in supported if min_fraction * top <= clock < top}
    return Ladder(knob="locked_clocks", steps=(top, *sorted(steps, reverse=True)))


def limits(*, top: float, lowest: float, step: float = 5.0, min_fraction: float = 0.4) -> Ladder:
    """The ladder of power limits (watts) from the board's `top` down to NVML's `lowest`.

    Below `min_fraction` work took more energy again on every board that was measured.
    """
    count = max(0, int((top - max(lowest, min_fraction * top)) / step))
    return Ladder(knob="power_limit", steps=tuple(top - step * number for number in range(count + 1)))


def pair(before: GangWindow, reduced: GangWindow, after: GangWindow, ladder: Ladder) -> WindowPair:
    """Compare three windows in a row."""
    speed: list[float | None] = []
    weak: set[int] = set()
    work = []
    for gpu in zip(before, reduced, after, strict=True):
        scale = _ratio(*(_clock(window, ladder) for window in gpu))
        signals = [[window.dram for window in gpu], [None if scale is None else window.pipe for window in gpu]]
        dram, pipe = (_ratio(*signal) for signal in signals)
        pipe = None if pipe is None or scale is None else pipe + scale
        is_strong = [all(value is not None and value >= WEAK for value in signal[::2]) for signal in signals]
        weak |= {len(speed) + place for place, strong in enumerate(is_strong) if not strong}
        speed += [dram, pipe]
        work.append(dram if is_strong[0] else pipe if is_strong[1] else None)
    columns = zip(before[0].progress, reduced[0].progress, after[0].progress, strict=True)
    rates = [[None if rate is None else rate.per_second for rate in column] for column in columns]
    progress = tuple(_ratio(*column) for column in rates)
    known = [each for each in progress or work if each is not None]
    watts = _log(_watts(reduced)) - (_log(_watts(before)) + _log(_watts(after))) / 2
    served = tuple(each for each in reduced[0].served if each is not None)
    spent = watts if served else watts - sum(known) / len(known) if known else None
    idle = [
        (1 - (a.engine + c.engine) / 2, 1 - b.engine)
        for a, b, c in zip(before, reduced, after, strict=True)
        if a.engine is not None and b.engine is not None and c.engine is not None
    ]
    least = min(idle, key=lambda each: each[1], default=None)
    return WindowPair(
        speed=tuple(speed), energy=spent, progress=progress, weak=frozenset(weak), idle=least, served=served
    )


def _clock(window: TrialWindow, ladder: Ladder) -> float | None:
    if window.clock is None and ladder.knob == "locked_clocks":
        return window.cap or ladder.top
    return window.clock


def _ratio(before: float | None, reduced: float | None, after: float | None) -> float | None:
    if before is None or reduced is None or after is None or min(before, after) <= 0:
        return None
    return _log(reduced) - (_log(before) + _log(after)) / 2


def _watts(windows: GangWindow) -> float:
    return sum(window.watts for window in windows)


def _log(value: float) -> float:
    return math.log(max(value, 1e-6))


class TrialPhase(StrEnum):
    """What is being done."""

    OBSERVE = "observe"  # at full speed: is there a signal, and is it steady?
    SEARCH = "search"
    HOLD = "hold"
    VERIFY = "verify"  # one block at the held cap
    REFUSED = "refused"  # nothing is done, for the reason in `refusal`


class Refusal(StrEnum):
    """Why a GPU is not tuned. The first ones are about its work, the last ones about what was found out."""

    WEAK_SIGNAL = "weak_signal"
    UNSTEADY = "unsteady"
    DISAGREE = "signals_disagree"
    NO_PROGRESS = "no_progress"  # GPU counters measure only the sum of its owners
    NO_SLO = "no_slo"  # the histogram that its SLO names cannot be read
    NO_STEP = "no_step"  # the knob has no lower setting that may be tried
    NOT_OBEYED = "cap_not_obeyed"
    UNREADABLE = "unreadable"
    NO_GAIN = "no_gain"
    FAILED = "verification_failed"
    RELEASED = "released"  # the caller lifted the cap: a gate closed


class Probe(Record, frozen=True, kw_only=True):
    """What was measured at one cap. `good` None: not decided yet; `disagreed`: its signals contradict each other."""

    cap: float
    pairs: tuple[WindowPair, ...] = ()
    good: bool | None = None
    disagreed: bool = False


class TrialState(Record, frozen=True, kw_only=True):
    """A gang of GPUs. `seconds`: of the windows since the phase began, as there is no clock here.

    `full`: the windows of OBSERVE. `before`, `reduced`: those of the pair under way in `probe`; `newest`: the reduced
    one of the pair before. `probes`: those that are finished and apply to the present work; `left`: how many more may
    follow. `held`: the cap that is held, whose probe is among `probes`. `watched`: the first windows of a hold,
    `level`: computed from them, `odd`: windows in a row that differ from it, `holds`: how many ended by time since the
    search. `failures`: verifications in a row that failed. `rest`: seconds to wait when refused, doubled each time.
    `ignored`: windows in a row that were measured at another cap than ordered or could not be read. `lifted`: windows
    for which a burst, or an SLO that did not hold, keeps the cap lifted. `served`: since the SLO was judged last;
    `breaks`: how often it did not hold of late at this cap. `signal`: what caps are judged by since OBSERVE; `unfit`:
    why a named counter of progress is not the signal, empty: it is, or none is named. `known`: a cap that held for the
    same work when it was here before, None: nothing is known; it is dropped when the work turns out to be another.
    """

    phase: TrialPhase = TrialPhase.OBSERVE
    refusal: Refusal | None = None
    seconds: float = 0.0
    full: tuple[GangWindow, ...] = ()
    before: GangWindow | None = None
    reduced: GangWindow | None = None
    newest: GangWindow | None = None
    probe: Probe | None = None
    probes: tuple[Probe, ...] = ()
    left: int = 0
    held: float | None = None
    watched: tuple[GangWindow, ...] = ()
    level: tuple[tuple[float, float], ...] = ()
    odd: int = 0
    holds: int = 0
    failures: int = 0
    rest: float = 0.0
    ignored: int = 0
    lifted: int = 0
    served: tuple[Served, ...] = ()
    breaks: int = 0
    signal: Signal = "counters"
    unfit: str = ""
    known: float | None = None
