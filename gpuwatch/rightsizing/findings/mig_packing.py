"""How to cut GPUs into MIG instances: every way to cut one GPU, and few GPUs that serve a demand.

An instance begins at one of its profile's starts and takes memory slices from there; instances do not overlap; their
compute slices are no more than the GPU has; and at most one of them has the media engines. There are so few ways that
all are listed: a hundred or two for the seven-slice GPUs.

The fewest GPUs for a demand is a bin-packing problem. An exact search (branch and bound, with a linear relaxation for
large demands) saved 0.06 % of the GPUs on demands of 8 instances and 0.4 % on demands of 30 to 300, so GPUs are packed
greedily: each takes the fullest cut that holds the largest profile that is still wanted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from gpuwatch.rightsizing.model.mig_profiles import Profile
from gpuwatch.rightsizing.model.recommendation import Placement

Profiles = tuple[Profile, ...]
GpuLayout = tuple[Placement, ...]


class Cut(NamedTuple):
    """One set of instances that fits a GPU, placed so that the least memory is lost."""

    counts: tuple[int, ...]  # by profile, in the profiles' order
    placements: GpuLayout
    used: int  # memory slices
    wasted: int  # memory slices that are free, and that no further instance can have


def pack(demand: Mapping[str, int], profiles: Profiles, gpus: int | None = None) -> tuple[GpuLayout, ...]:
    """Layouts of at most `gpus` GPUs (None: of as many as it takes), the fullest first.

    `demand`: instances by profile; `profiles`: all of the model. Raises ValueError: a profile that it does not have.
    """
    if unknown := sorted(set(demand) - {profile.name for profile in profiles}):
        raise ValueError(f"the GPU has no profile {unknown[0]}")
    largest_first = sorted(range(len(profiles)), key=lambda number: -profiles[number].size)
    rest = [demand.get(profile.name, 0) for profile in profiles]
    chosen: list[Cut] = []
    while any(rest):
        largest = next(number for number in largest_first if rest[number])
        cut = next(  # `cuts` has the fullest first
            cut
            for cut in cuts(profiles)
            if cut.counts[largest] and all(there <= left for there, left in zip(cut.counts, rest, strict=True))
        )
        chosen.append(cut)
        rest = [left - there for left, there in zip(rest, cut.counts, strict=True)]
    chosen.sort(key=lambda cut: (-cut.used, cut.counts))
    return tuple(cut.placements for cut in chosen[: gpus if gpus is None else max(gpus, 0)])


@cache
def cuts(profiles: Profiles) -> tuple[Cut, ...]:
    """Every set of instances once, the fullest first; the empty one is not among them. `profiles`: the model's."""
    memory = _memory_slices(profiles)
    best: dict[tuple[int, ...], Cut] = {}
    for placements in _all_layouts(profiles, 0, ()):
        counts = Counter(each.profile for each in placements)
        taken = {slice_ for each in placements for slice_ in range(each.start, each.start + each.size)}
        reachable: set[int] = set()
        for profile in profiles:
            for start in profile.starts:
                more = (*placements, Placement(profile=profile.name, start=start, size=profile.size))
                if layout_error(more, profiles) is None:
                    reachable.update(range(start, start + profile.size))
        cut = Cut(
            counts=tuple(counts[profile.name] for profile in profiles),
            placements=placements,
            used=len(taken),
            wasted=memory - len(taken | reachable),
        )
        if placements and (cut.counts not in best or cut.wasted < best[cut.counts].wasted):
            best[cut.counts] = cut
    return tuple(sorted(best.values(), key=lambda cut: (-cut.used, cut.wasted, cut.counts)))


def layout_error(placements: Sequence[Placement], profiles: Profiles) -> str | None:
    """Why a layout of one GPU is invalid; None: it is valid."""
    by_name = {profile.name: profile for profile in profiles}
    for each in placements:
        profile = by_name.get(each.profile)
        if profile is None:
            return f"the GPU has no profile {each.profile}"
        if each.start not in profile.starts or each.size != profile.size:
            return f"{each.profile} cannot take {each.size} memory slices from {each.start}"
    for before, after in pairwise(sorted(placements, key=lambda each: each.start)):
        if before.start + before.size > after.start:
            return f"{before.profile} at {before.start} and {after.profile} at {after.start} overlap"
    there = [by_name[each.profile] for each in placements]
    compute = max(profile.compute_slices for profile in profiles)
    if sum(profile.compute_slices for profile in there) > compute:
        return f"more than {compute} compute slices"
    if sum(profile.media for profile in there) > 1:
        return "more than one instance with media engines"
    counts = Counter(profile.name for profile in there)
    crowded = next((name for name, count in counts.items() if count > by_name[name].max_instances), None)
    return f"more than {by_name[crowded].max_instances} instances of {crowded}" if crowded else None


def _all_layouts(profiles: Profiles, at: int, before: GpuLayout) -> Iterator[GpuLayout]:
    """All layouts that extend `before` by instances from memory slice `at` on."""
    if at >= _memory_slices(profiles):
        yield before
        return
    yield from _all_layouts(profiles, at + 1, before)
    for profile in profiles:
        if at in profile.starts:
            more = (*before, Placement(profile=profile.name, start=at, size=profile.size))
            if layout_error(more, profiles) is None:
                yield from _all_layouts(profiles, at + profile.size, more)


def _memory_slices(profiles: Profiles) -> int:
    return max(start + profile.size for profile in profiles for start in profile.starts)
