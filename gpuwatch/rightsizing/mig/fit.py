"""How much longer work would take on a MIG instance, from what it does on the GPU it has.

An instance has a share of the GPU's multiprocessors and a share of its memory bandwidth. Time without a kernel stays as
it is; time with one grows where the work needs more than the share. Nobody has validated this on hardware: a
multiprocessor counts as active with a single warp on it, so that the high end is pessimistic, and the low end goes by
the busiest pipe instead. Advice must stand on the high end.
"""

from collections.abc import Sequence

from gpuwatch.rightsizing.model.mig_profiles import Profile
from gpuwatch.rightsizing.model.usage import Window

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
