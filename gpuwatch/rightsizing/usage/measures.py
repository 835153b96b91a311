"""What a workload asks of a GPU, as decaying histograms: how busy it is, what it uses, how slow it would be on MIG.

Their clock adds up the steps between windows, none backwards and none longer than a day: a wall clock that jumps, or a
month in which the workload did not run, makes nothing old at once.
"""

from copy import copy
from typing import NamedTuple

import msgspec

from gpuwatch.model.snapshot import Record
from gpuwatch.model.work import Distribution, WorkClass
from gpuwatch.rightsizing.model.mig_profiles import Profile
from gpuwatch.rightsizing.model.usage import Slowdown, UsageWindow
from gpuwatch.rightsizing.usage.decaying_histogram import (
    BYTES_PER_SECOND,
    RATIO,
    WATTS,
    Histogram,
    HistogramState,
    Moments,
    Scale,
)
from gpuwatch.rightsizing.usage.mig_slowdown import MigSlowdowns, MigSlowdownsState

DAY = 86400.0
HALF_LIFE: dict[WorkClass | None, float] = {"batch": DAY, "notebook": DAY, "serving": 7 * DAY, None: 7 * DAY}
"""Seconds. Requests of people have a weekly cycle."""

FADE_HALF_LIVES = 32.0
"""After so many half-lives the weights are made small again."""

MAX_MODELS = 4
"""Models of GPUs for which a workload has slowdowns."""

SWING = (0.1, 0.5)
"""A window that goes from below the one to above the other swings between idle and busy."""


class Measure(NamedTuple):
    """A member of windows that becomes a histogram; `high`: the member with its high end, if any."""

    name: str
    scale: Scale
    high: str | None = None


MEASURES = (
    Measure("busy", RATIO, "busy_high"),
    Measure("sm", RATIO, "sm_high"),
    Measure("dram", RATIO, "dram_high"),
    Measure("pipe", RATIO),
    Measure("pcie", BYTES_PER_SECOND),
    Measure("watts", WATTS),
)


class MeasuresState(Record, frozen=True, kw_only=True):
    """Measures in a checkpoint. `slowdowns`: by model of GPU."""

    at: float
    age: float = 0.0
    half_life: float
    histograms: dict[str, HistogramState] = {}
    swings: Moments = msgspec.field(default_factory=Moments)
    cpu_throttled: Moments = msgspec.field(default_factory=Moments)
    slowdowns: dict[str, MigSlowdownsState] = {}


class Measures:
    """Of one workload. Its age: seconds on its clock since the weights were last made small. `swings` and
    `cpu_throttled`: share of its time in windows that swing, and in which its CPU was throttled.
    """

    __slots__ = ("_age", "_at", "_half_life", "_histograms", "_slowdowns", "cpu_throttled", "swings")

    def __init__(self, state: MeasuresState) -> None:
        """Continue from `state`."""
        self._at, self._age, self._half_life = state.at, state.age, state.half_life
        self._histograms = {name: Histogram(scale, state.histograms.get(name)) for name, scale, _ in MEASURES}
        self.swings, self.cpu_throttled = copy(state.swings), copy(state.cpu_throttled)
        self._slowdowns = {model: MigSlowdowns(each) for model, each in state.slowdowns.items()}

    def add(self, window: UsageWindow, seconds: float, is_work: bool | None, profiles: tuple[Profile, ...]) -> None:
        """Add the `seconds` of a window that were observed; `is_work`: as `activity` has it."""
        self._age += min(max(window.at - self._at, 0.0), DAY)
        self._at = max(self._at, window.at)
        if self._age > FADE_HALF_LIVES * self._half_life:
            self._fade()
        weight = seconds * 2.0 ** (self._age / self._half_life)
        for name, _, high in MEASURES:
            value = getattr(window, name)
            if value is not None:
                self._histograms[name].add_span(value, getattr(window, high) if high else None, weight)
        if window.busy_low is not None and window.busy_high is not None:
            self.swings.add(window.busy_low <= SWING[0] and window.busy_high >= SWING[1], weight)
        if window.cpu_throttled is not None:
            self.cpu_throttled.add(window.cpu_throttled, weight)
        if profiles and window.model is not None and is_work:  # idle windows would hide how slow rare work becomes
            slowdowns = self._slowdowns.get(window.model)
            if slowdowns is None:
                if len(self._slowdowns) >= MAX_MODELS:
                    del self._slowdowns[next(iter(self._slowdowns))]
                slowdowns = self._slowdowns[window.model] = MigSlowdowns(MigSlowdownsState())
            slowdowns.add(window, weight, profiles)

    def set_half_life(self, half_life: float) -> None:
        """Let values decay at another rate from now on."""
        if half_life != self._half_life:
            self._fade()
            self._half_life = half_life

    def clip(self, now: float) -> None:
        """The clock has been set back to `now`."""
        self._at = min(self._at, now)

    def distributions(self) -> dict[str, Distribution | None]:
        """By name of the measure; None: never known."""
        return {name: each.distribution() for name, each in self._histograms.items()}

    def slowdowns(self, model: str | None) -> tuple[Slowdown, ...]:
        """For the profiles of a GPU model."""
        found = self._slowdowns.get(model or "")
        return found.slowdowns() if found else ()

    def state(self) -> MeasuresState:
        """For the checkpoint."""
        return MeasuresState(
            at=self._at,
            age=self._age,
            half_life=self._half_life,
            histograms={name: each.state() for name, each in self._histograms.items() if each.weight > 0},
            swings=copy(self.swings),
            cpu_throttled=copy(self.cpu_throttled),
            slowdowns={model: each.state() for model, each in self._slowdowns.items()},
        )

    def _fade(self) -> None:
        factor, self._age = 2.0 ** -(self._age / self._half_life), 0.0
        fading: tuple[Histogram | Moments | MigSlowdowns, ...]
        fading = (*self._histograms.values(), *self._slowdowns.values(), self.swings, self.cpu_throttled)
        for each in fading:
            each.fade(factor)
