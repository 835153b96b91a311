"""How much longer work would take on a MIG instance, from what it does on the GPU it has.

An instance has a share of the GPU's multiprocessors and a share of its memory bandwidth. Time without a kernel stays as
it is; time with one grows where the work needs more than the share. This has not been validated on hardware: a
multiprocessor counts as active with a single warp on it, so that the high end is pessimistic, and the low end goes by
the busiest pipe instead. Recommendations must stand on the high end.
"""

import math
from collections.abc import Sequence

from gpuwatch.model.snapshot import Record
from gpuwatch.rightsizing.model.mig_profiles import Profile
from gpuwatch.rightsizing.model.usage import Slowdown, Window
from gpuwatch.rightsizing.usage.decaying_histogram import SLOWDOWN, Histogram, HistogramState

BANDWIDTH = 0.9
"""Of its share of bandwidth that an instance can really draw."""

PIPE = 0.8
"""Of a pipe's cycles that well-written work can fill: more than that and it waits for the pipe."""


def slowdown(window: Window, profile: Profile, *, high: bool) -> float | None:
    """How much longer the window's work would take: 0.2 is 20 % longer, 0 the least. None: nobody saw how busy it was.

    High: from the window's high ends, and what is unknown is taken as if the work needed it whenever a kernel ran. Low:
    from its means, and what is unknown is taken as not needed. Ratios of the window are of the whole GPU.
    """
    found = slowdowns(window, (profile,))
    return None if found is None else found[0][high]


def slowdowns(window: Window, profiles: Sequence[Profile]) -> list[tuple[float, float]] | None:
    """Low and high of `slowdown` for each profile, in one go: it is asked for every window of a fleet."""
    if window.busy is None:
        return None
    least, most = _needs_at_least(window, window.busy), _needs_at_most(window, window.busy)
    return [(_longer(*least, share, memory), _longer(*most, share, memory)) for share, memory in map(_shares, profiles)]


def of_whole_gpu(
    profile: Profile, *, sm: float | None, dram: float | None, pipe: float | None
) -> tuple[float | None, float | None, float | None]:
    """What a MIG instance did, as ratios of the whole GPU: (sm, dram, pipe). Time with a kernel needs no scaling."""
    return (
        None if sm is None else sm * profile.sm_share,
        None if dram is None else dram * profile.memory_fraction,
        None if pipe is None else pipe * profile.sm_share,
    )


def _shares(profile: Profile) -> tuple[float, float]:
    return profile.sm_share, BANDWIDTH * profile.memory_fraction


def _longer(busy: float, multiprocessors: float, bandwidth: float, share: float, memory: float) -> float:
    return max(busy, multiprocessors / share, bandwidth / memory) - busy


def _needs_at_most(window: Window, mean: float) -> tuple[float, float, float]:
    busy = mean if window.busy_high is None else window.busy_high
    sm = window.sm if window.sm_high is None else window.sm_high
    dram = window.dram if window.dram_high is None else window.dram_high
    return busy, busy if sm is None else sm, busy if dram is None else dram


def _needs_at_least(window: Window, mean: float) -> tuple[float, float, float]:
    pipe = None if window.pipe is None else window.pipe / PIPE
    known = [each for each in (window.sm, pipe) if each is not None]
    return mean, min(*known, mean) if known else 0.0, window.dram or 0.0


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
