"""What the energy tuner looks at: windows of a GPU at work, in threes of full, reduced and full again.

A program moves the same bytes for each unit of its work, so the DRAM activity of a reduced window over that of the full
windows around it is the share of its speed that is left; slow drift cancels. Pipe activity tells the same once it is
scaled by the clock.
"""

import math
from collections.abc import Iterable
from typing import Literal

from gpuwatch.model.setting import Knob
from gpuwatch.model.snapshot import Record

WEAK = 0.05
"""An activity below this says nothing about a GPU's speed."""


class Window(Record, frozen=True, kw_only=True):
    """A few seconds of one GPU. Activities are ratios 0..1 (GPM or DCGM), None: not known.

    `cap`: hertz or watts in force, None: none. `clock`: the mean SM clock in hertz. `joules`: what the energy counter
    rose by. `settled` False: the setting changed shortly before, so that the window tells of two.
    """

    cap: float | None
    seconds: float
    dram: float | None
    pipe: float | None
    engine: float | None
    joules: float
    clock: float | None = None
    settled: bool = True

    @property
    def watts(self) -> float:
        """The mean draw."""
        return self.joules / self.seconds

    @property
    def is_sound(self) -> bool:
        """Whether its numbers can be. A counter that jumped back, as after a driver was loaded anew, is no draw."""
        known = [each for each in (self.dram, self.pipe, self.engine, self.clock) if each is not None]
        positive = all(0 < each < math.inf for each in (self.seconds, self.joules))
        return positive and all(0 <= each < math.inf for each in known)

    @property
    def has_signal(self) -> bool:
        """Whether its speed can be told at all."""
        return self.dram is not None or self.pipe is not None


Gang = tuple[Window, ...]
"""The same seconds of all GPUs that are moved together, always in the same order; mostly it is one."""


class Ladder(Record, frozen=True, kw_only=True):
    """The values a knob may take, highest first. The first is the GPU's own, and is never set: no cap is."""

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
        """All that may be set; empty: the knob has nothing to turn."""
        return self.steps[1:]

    def at_least(self, value: float) -> float:
        """The lowest step that is not below `value`: in doubt the faster one."""
        return min((step for step in self.steps if step >= value - 1e-6), default=self.top)


class Terms(Record, frozen=True, kw_only=True):
    """What was promised. `slowdown`: the share of its speed that the work may lose."""

    slowdown: float = 0.05
    latency: Literal["batch", "serving"] = "batch"


class Pair(Record, frozen=True, kw_only=True):
    """One reduced window against its full neighbours, in natural logarithms, so that errors add.

    `speed`: DRAM and pipe of the first GPU, of the second, and so on; None: not known or weak. `energy`: joules for a
    unit of work; None: the work is not known.
    """

    speed: tuple[float | None, ...]
    energy: float | None


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


def pair(before: Gang, reduced: Gang, after: Gang, ladder: Ladder) -> Pair:
    """What three windows in a row say."""
    speed: list[float | None] = []
    work = []
    for a, b, c in zip(before, reduced, after, strict=True):
        dram = _ratio(a.dram, b.dram, c.dram)
        pipe = _ratio(a.pipe, b.pipe, c.pipe)
        scale = _ratio(*(_clock(window, ladder) for window in (a, b, c)))
        pipe = None if pipe is None or scale is None else pipe + scale
        speed += [dram, pipe]
        work.append(pipe if dram is None else dram)
    known = [each for each in work if each is not None]
    watts = _log(_watts(reduced)) - (_log(_watts(before)) + _log(_watts(after))) / 2
    return Pair(speed=tuple(speed), energy=watts - sum(known) / len(known) if known else None)


def _clock(window: Window, ladder: Ladder) -> float | None:
    if window.clock is None and ladder.knob == "locked_clocks":
        return window.cap or ladder.top
    return window.clock


def _ratio(before: float | None, reduced: float | None, after: float | None) -> float | None:
    if before is None or reduced is None or after is None or min(before, after) < WEAK:
        return None
    return _log(reduced) - (_log(before) + _log(after)) / 2


def _watts(gang: Gang) -> float:
    return sum(window.watts for window in gang)


def _log(value: float) -> float:
    return math.log(max(value, 1e-6))
