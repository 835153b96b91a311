"""What a workload asks of a GPU, as decaying histograms: how busy, how much of what, how slow on a MIG profile.

Their clock adds up the steps between windows, none backwards and none longer than a day: a wall clock that jumps, or a
month in which the workload did not run, makes nothing old at once.
"""

from typing import NamedTuple

from gpuwatch.model.snapshot import Record
from gpuwatch.model.work import Distribution, WorkClass
from gpuwatch.rightsizing.model.mig_profiles import Profile
from gpuwatch.rightsizing.model.usage import Slowdown, Window
from gpuwatch.rightsizing.usage.decaying_histogram import (
    BYTES_PER_SECOND,
    RATIO,
    WATTS,
    Histogram,
    HistogramState,
    Mean,
    MeanState,
    Scale,
)
from gpuwatch.rightsizing.usage.mig_slowdown import Fits, FitsState

DAY = 86400.0
HALF_LIFE: dict[WorkClass | None, float] = {"batch": DAY, "notebook": DAY, "serving": 7 * DAY, None: 7 * DAY}
"""Seconds. What people ask for has a weekly cycle."""

FADE_HALF_LIVES = 32.0
"""After so many the weights are made small again."""

MAX_MODELS = 4
"""Of GPUs, that are told apart for one workload."""

SWING = (0.1, 0.5)
"""A window that goes from below the one to above the other swings between idle and busy."""


class Measure(NamedTuple):
    """What of a window becomes a histogram; `high`: where its high end is, if it has one."""

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
SHARES = ("swings", "cpu_throttled")
"""Of its time: in windows that swing, and in which its CPU was held back."""


class MeasuresState(Record, frozen=True, kw_only=True):
    """Measures at rest. `fits`: by model of GPU."""

    at: float
    age: float = 0.0
    half_life: float
    histograms: dict[str, HistogramState] = {}
    shares: dict[str, MeanState] = {}
    fits: dict[str, FitsState] = {}


class Measures:
    """Of one workload. Its age: seconds on its clock since the weights were last made small."""

    __slots__ = ("_age", "_at", "_fits", "_half_life", "_histograms", "_shares")

    def __init__(self, state: MeasuresState) -> None:
        """Go on from `state`."""
        self._at, self._age, self._half_life = state.at, state.age, state.half_life
        self._histograms = {name: Histogram(scale, state.histograms.get(name)) for name, scale, _ in MEASURES}
        self._shares = {name: Mean(state.shares.get(name)) for name in SHARES}
        self._fits = {model: Fits(fits) for model, fits in state.fits.items()}

    def add(self, window: Window, seconds: float, is_work: bool | None, profiles: tuple[Profile, ...]) -> None:
        """Take the `seconds` that were seen of a window; `is_work`: as `usage_hold.activity` has it."""
        self._step(window.at)
        weight = seconds * 2.0 ** (self._age / self._half_life)
        for name, _, high in MEASURES:
            value = getattr(window, name)
            if value is not None:
                self._histograms[name].add_span(value, getattr(window, high) if high else None, weight)
        if window.busy_low is not None and window.busy_high is not None:
            self._shares["swings"].add(window.busy_low <= SWING[0] and window.busy_high >= SWING[1], weight)
        if window.cpu_throttled is not None:
            self._shares["cpu_throttled"].add(window.cpu_throttled, weight)
        if profiles and window.model is not None and is_work:  # rest would hide how slow the rare work becomes
            self._fits_on(window.model).add(window, weight, profiles)

    def settle(self, half_life: float) -> None:
        """Forget at another pace from now on."""
        if half_life != self._half_life:
            self._fade()
            self._half_life = half_life

    def clip(self, now: float) -> None:
        """The clock has been set back to `now`."""
        self._at = min(self._at, now)

    def distributions(self) -> dict[str, Distribution | None]:
        """By name of the measure; None: never known."""
        return {name: each.distribution() for name, each in self._histograms.items()}

    def share(self, name: str) -> float | None:
        """One of SHARES; None: never known."""
        return self._shares[name].value

    def slowdowns(self, model: str | None) -> tuple[Slowdown, ...]:
        """For the profiles of a GPU model."""
        fits = self._fits.get(model or "")
        return fits.slowdowns() if fits else ()

    def state(self) -> MeasuresState:
        """To be saved."""
        return MeasuresState(
            at=self._at,
            age=self._age,
            half_life=self._half_life,
            histograms={name: each.state() for name, each in self._histograms.items() if each.weight > 0},
            shares={name: each.state() for name, each in self._shares.items() if each.weight > 0},
            fits={model: fits.state() for model, fits in self._fits.items()},
        )

    def _fits_on(self, model: str) -> Fits:
        fits = self._fits.get(model)
        if fits is None:
            if len(self._fits) >= MAX_MODELS:
                del self._fits[next(iter(self._fits))]
            fits = self._fits[model] = Fits(FitsState())
        return fits

    def _step(self, at: float) -> None:
        self._age += min(max(at - self._at, 0.0), DAY)
        self._at = max(self._at, at)
        if self._age > FADE_HALF_LIVES * self._half_life:
            self._fade()

    def _fade(self) -> None:
        factor, self._age = 2.0 ** -(self._age / self._half_life), 0.0
        fading: tuple[Histogram | Mean | Fits, ...]
        fading = (*self._histograms.values(), *self._shares.values(), *self._fits.values())
        for each in fading:
            each.fade(factor)
