"""How much longer work would take on a MIG instance, from what it does on the GPU it has.

An instance has a share of the GPU's multiprocessors and a share of its memory bandwidth. Time without a kernel stays as
it is; time with one grows where the work needs more than the share. This has not been validated on hardware: a
multiprocessor counts as active with a single warp on it, so that the high end is pessimistic, and the low end goes by
the busiest pipe instead. Recommendations must stand on the high end.

The slowdown is computed for every window and kept as a histogram. Computed once from the mean and the 95th percentile
of each reading instead, 14-18 % of the recommended instances would be too slow, instead of 0-2 %.
"""

import math
from collections.abc import Sequence

from gpuwatch.model.snapshot import Record
from gpuwatch.rightsizing.model.mig_profiles import Profile
from gpuwatch.rightsizing.model.usage import Slowdown, UsageWindow
from gpuwatch.rightsizing.usage.decaying_histogram import SLOWDOWN, Histogram, HistogramState

BANDWIDTH = 0.9
"""Of its share of bandwidth that an instance can really draw."""

PIPE = 0.8
"""Of a pipe's cycles that well-written work can fill: above that, it waits for the pipe."""

QUANTILE = 0.95
"""For this share of the time in which it works, it would not be slower than reported."""


def slowdowns(window: UsageWindow, profiles: Sequence[Profile]) -> list[tuple[float, float]] | None:
    """How much longer the window's work would take on each profile: (low, high), where 0.2 is 20 % longer, 0 the least.

    High: from the window's high ends, and what is unknown is taken as if the work needed it whenever a kernel ran. Low:
    from its means, and what is unknown is taken as not needed. Ratios of the window are of the whole GPU. None: how
    busy it was is not known.
    """
    if window.busy is None:
        return None
    busy = window.busy if window.busy_high is None else window.busy_high
    sm = window.sm if window.sm_high is None else window.sm_high
    dram = window.dram if window.dram_high is None else window.dram_high
    high = busy, busy if sm is None else sm, busy if dram is None else dram
    pipe = None if window.pipe is None else window.pipe / PIPE
    known = [each for each in (window.sm, pipe) if each is not None]
    low = window.busy, min(*known, window.busy) if known else 0.0, window.dram or 0.0

    def longer(needs: tuple[float, float, float], profile: Profile) -> float:
        busy, sm, dram = needs
        return max(busy, sm / profile.sm_share, dram / (BANDWIDTH * profile.memory_fraction)) - busy

    return [(longer(low, profile), longer(high, profile)) for profile in profiles]


def of_whole_gpu(
    profile: Profile, *, sm: float | None, dram: float | None, pipe: float | None
) -> tuple[float | None, float | None, float | None]:
    """What a MIG instance did, as ratios of the whole GPU: (sm, dram, pipe). Time with a kernel needs no scaling."""
    return (
        None if sm is None else sm * profile.sm_share,
        None if dram is None else dram * profile.memory_fraction,
        None if pipe is None else pipe * profile.sm_share,
    )


class MigSlowdownsState(Record, frozen=True, kw_only=True):
    """MigSlowdowns in a checkpoint. `weight`: of all windows; those in no histogram would not have been slower.
    `profiles`: low and high by name.
    """

    weight: float = 0.0
    profiles: dict[str, tuple[HistogramState, HistogramState]] = {}


class MigSlowdowns:
    """Of one workload on one model of GPU. Only windows with work count: a workload that uses its GPU twice a week
    would otherwise seem to lose nothing on the smallest slice.
    """

    __slots__ = ("_pairs", "_profiles", "_weight")

    def __init__(self, state: MigSlowdownsState) -> None:
        """Continue from `state`."""
        self._weight = state.weight
        self._profiles: tuple[Profile, ...] = ()
        self._pairs = {
            name: (Histogram(SLOWDOWN, low), Histogram(SLOWDOWN, high)) for name, (low, high) in state.profiles.items()
        }

    def add(self, window: UsageWindow, weight: float, profiles: tuple[Profile, ...]) -> None:
        """Add one more window for all `profiles`; with other profiles than before, all histograms start empty."""
        found = slowdowns(window, profiles)
        if found is None or not found[0][1] < math.inf:  # a counter with an impossible value
            return
        if profiles is not self._profiles:
            self._profiles = profiles
            if [profile.name for profile in profiles] != list(self._pairs):
                self._weight = 0.0
                self._pairs = {profile.name: (Histogram(SLOWDOWN), Histogram(SLOWDOWN)) for profile in profiles}
        self._weight += weight
        for (low, high), (least, most) in zip(self._pairs.values(), found, strict=True):
            if least > 0:
                low.add(least, weight)
            if most > 0 or least > 0:
                high.add(most if most > least else least, weight)  # the 95th percentile of rare work is below its mean

    def fade(self, factor: float) -> None:
        """Multiply the weight of all windows by `factor`."""
        self._weight *= factor
        for low, high in self._pairs.values():
            low.fade(factor)
            high.fade(factor)

    def slowdowns(self) -> tuple[Slowdown, ...]:
        """Of each profile."""
        return tuple(
            Slowdown(
                profile=name,
                low=low.quantile(QUANTILE, max(0.0, self._weight - low.weight)),
                high=high.quantile(QUANTILE, max(0.0, self._weight - high.weight)),
            )
            for name, (low, high) in self._pairs.items()
        )

    def state(self) -> MigSlowdownsState:
        """For the checkpoint."""
        profiles = {name: (low.state(), high.state()) for name, (low, high) in self._pairs.items()}
        return MigSlowdownsState(weight=self._weight, profiles=profiles)
