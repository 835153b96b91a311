"""The fewest GPUs that can be cut into a number of MIG instances, by exact search over the ways to cut one.

Up to some tens of instances every way is looked at: the fewest GPUs, and of these ways one that loses the least memory.
More are served in bulk first, as the linear relaxation says, and only the rest is searched. The relaxation also tells
how few GPUs there can be at best: what was found is known to be the fewest (`Packing.proven`), or how far off it is.
How much memory is lost is then only kept low.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import ceil, floor, prod
from typing import NamedTuple

from gpuwatch.model.recommendation import Placement
from gpuwatch.rightsizing.mig.cuts import Cut, Profiles, cuts
from gpuwatch.rightsizing.mig.linear_cover import least_cover

SEARCHED = 2_000
"""Different rests that are looked at, at most, before instances are served in bulk: some tenths of a second."""

TOGETHER = 48
"""Instances that are searched at once, at most."""

Counts = tuple[int, ...]
Layout = tuple[Placement, ...]


class Packing(NamedTuple):
    """Layouts, one a GPU, the fullest first. Nothing that serves all needs fewer than `at_least` GPUs."""

    layouts: tuple[Layout, ...]
    at_least: int

    @property
    def proven(self) -> bool:
        """That it is the fewest."""
        return len(self.layouts) == self.at_least


def pack(demand: Mapping[str, int], profiles: Profiles, gpus: int) -> tuple[Layout, ...]:
    """Layouts of at most `gpus` GPUs: of the fewest that serve all, the fullest, where there are not enough GPUs.

    `demand`: instances by profile; `profiles`: all of the model. ValueError for a profile that it does not have.
    """
    return fewest(demand, profiles).layouts[: max(gpus, 0)]


def fewest(demand: Mapping[str, int], profiles: Profiles) -> Packing:
    """Layouts for all of `demand`. ValueError as in `pack`."""
    strange = sorted(set(demand) - {profile.name for profile in profiles})
    if strange:
        raise ValueError(f"the GPU has no profile {strange[0]}")
    wanted = tuple(demand.get(profile.name, 0) for profile in profiles)
    if _small(wanted):
        chosen = _searched(wanted, profiles)
        return Packing(_layouts(chosen), len(chosen))
    return _in_bulk(wanted, profiles)


def _in_bulk(wanted: Counts, profiles: Profiles) -> Packing:
    times = least_cover([cut.counts for cut in _fullest(profiles)], wanted)
    bulk, rest = _served(wanted, profiles, times)
    return Packing(_layouts([*bulk, *_searched(rest, profiles)]), ceil(sum(times)))


def _small(wanted: Counts) -> bool:
    return prod(count + 1 for count in wanted) <= SEARCHED and sum(wanted) <= TOGETHER


def _served(wanted: Counts, profiles: Profiles, times: Sequence[Fraction]) -> tuple[list[Cut], Counts]:
    """The whole GPUs of the relaxation, without what nobody wants, and the rest: six GPUs' worth or less."""
    bulk: list[Cut] = []
    rest = wanted
    for full, often in zip(_fullest(profiles), times, strict=True):
        still = floor(often)
        while still > 0 and any(part := tuple(map(min, full.counts, rest))):
            now = min(still, *(left // each for left, each in zip(rest, part, strict=True) if each))
            bulk += [_by_counts(profiles)[part]] * now
            rest = tuple(left - now * each for left, each in zip(rest, part, strict=True))
            still -= now
    return bulk, rest


@cache
def _by_counts(profiles: Profiles) -> dict[Counts, Cut]:
    return {cut.counts: cut for cut in cuts(profiles)}


@cache
def _fullest(profiles: Profiles) -> tuple[Cut, ...]:
    """Cuts to which no instance can be added."""
    every = cuts(profiles)
    return tuple(cut for cut in every if not any(other != cut and _within(cut, other.counts) for other in every))


def _within(cut: Cut, counts: Counts) -> bool:
    return all(there <= most for there, most in zip(cut.counts, counts, strict=True))


def _searched(wanted: Counts, profiles: Profiles) -> list[Cut]:
    """The fewest cuts, then the least waste, that make up `wanted` exactly."""
    search = _Search(profiles)
    chosen: list[Cut] = []
    while any(wanted):
        cut = search.best(wanted)[2]
        chosen.append(cut)
        wanted = _less(wanted, cut)
    return chosen


class _Search:
    """Remembers the best for every rest it has met. The rarest fit goes first: the rest's largest profile."""

    def __init__(self, profiles: Profiles) -> None:
        every = cuts(profiles)
        self._sizes = [profile.size for profile in profiles]
        self._order = sorted(range(len(profiles)), key=lambda each: -self._sizes[each])
        self._with = [[cut for cut in every if cut.counts[each]] for each in range(len(profiles))]
        self._memory = max(cut.used for cut in every)
        self._known: dict[Counts, tuple[int, int, Cut]] = {}

    def best(self, rest: Counts) -> tuple[int, int, Cut]:
        """(GPUs, wasted memory slices, a cut to begin with) of a rest that is not empty."""
        known = self._known.get(rest)
        if known is None:
            known = self._known[rest] = self._look(rest)
        return known

    def _look(self, rest: Counts) -> tuple[int, int, Cut]:
        first = next(each for each in self._order if rest[each])
        best: tuple[int, int, Cut] | None = None
        for cut in self._with[first]:
            if not _within(cut, rest):
                continue
            left = _less(rest, cut)
            if best and (1 + self._at_least(left), cut.wasted) >= best[:2]:
                continue
            gpus, wasted = self.best(left)[:2] if any(left) else (0, 0)
            if best is None or (1 + gpus, cut.wasted + wasted) < best[:2]:
                best = (1 + gpus, cut.wasted + wasted, cut)
        assert best is not None, "every profile fits an empty GPU"  # noqa: S101
        return best

    def _at_least(self, rest: Counts) -> int:
        return -(-sum(count * size for count, size in zip(rest, self._sizes, strict=True)) // self._memory)


def _less(rest: Counts, cut: Cut) -> Counts:
    return tuple(left - there for left, there in zip(rest, cut.counts, strict=True))


def _layouts(chosen: Sequence[Cut]) -> tuple[Layout, ...]:
    return tuple(cut.placements for cut in sorted(chosen, key=lambda cut: (-cut.used, cut.counts)))
