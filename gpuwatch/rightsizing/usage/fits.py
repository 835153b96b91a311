"""How much longer a workload's work would take on each MIG profile of a GPU model, as decaying histograms.

Only windows with work count: whoever uses a GPU twice a week would else seem to lose nothing on the smallest slice.
"""

import math

from gpuwatch.model.snapshot import Record
from gpuwatch.rightsizing.mig.fit import slowdowns
from gpuwatch.rightsizing.model.mig_profiles import Profile
from gpuwatch.rightsizing.model.usage import Slowdown, Window
from gpuwatch.rightsizing.usage.decaying_histogram import SLOWDOWN, Histogram, HistogramState

QUANTILE = 0.95
"""For so much of the time in which it works, it would not be slower than that."""


class FitState(Record, frozen=True, kw_only=True):
    """One profile at rest."""

    low: HistogramState
    high: HistogramState


class FitsState(Record, frozen=True, kw_only=True):
    """Fits at rest. `weight`: of all that was judged; what is in no histogram would not have been slower."""

    weight: float = 0.0
    profiles: dict[str, FitState] = {}


class Fits:
    """Of one workload on one model."""

    __slots__ = ("_pairs", "_profiles", "_weight")

    def __init__(self, state: FitsState) -> None:
        """Go on from `state`."""
        self._weight = state.weight
        self._profiles: tuple[Profile, ...] = ()
        self._pairs = {
            name: (Histogram(SLOWDOWN, fit.low), Histogram(SLOWDOWN, fit.high)) for name, fit in state.profiles.items()
        }

    def add(self, window: Window, weight: float, profiles: tuple[Profile, ...]) -> None:
        """Judge one more window for all `profiles`; with others than before it begins anew."""
        found = slowdowns(window, profiles)
        if found is None or not found[0][1] < math.inf:  # a counter that cannot be
            return
        if profiles is not self._profiles:
            self._adopt(profiles)
        self._weight += weight
        for (low, high), (least, most) in zip(self._pairs.values(), found, strict=True):
            if least > 0:
                low.add(least, weight)
            if most > 0 or least > 0:
                high.add(most if most > least else least, weight)  # the 95th percentile of rare work is below its mean

    def fade(self, factor: float) -> None:
        """Let all that was added weigh so much less."""
        self._weight *= factor
        for low, high in self._pairs.values():
            low.fade(factor)
            high.fade(factor)

    def slowdowns(self) -> tuple[Slowdown, ...]:
        """Of each profile."""
        return tuple(
            Slowdown(profile=name, low=self._quantile(low), high=self._quantile(high))
            for name, (low, high) in self._pairs.items()
        )

    def state(self) -> FitsState:
        """To be saved."""
        profiles = {name: FitState(low=low.state(), high=high.state()) for name, (low, high) in self._pairs.items()}
        return FitsState(weight=self._weight, profiles=profiles)

    def _adopt(self, profiles: tuple[Profile, ...]) -> None:
        self._profiles = profiles
        if [profile.name for profile in profiles] != list(self._pairs):
            self._weight = 0.0
            self._pairs = {profile.name: (Histogram(SLOWDOWN), Histogram(SLOWDOWN)) for profile in profiles}

    def _quantile(self, histogram: Histogram) -> float:
        return histogram.quantile(QUANTILE, max(0.0, self._weight - histogram.weight))
