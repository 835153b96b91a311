"""All ways in which one GPU can be cut into MIG instances.

An instance begins at one of its profile's starts and takes memory slices from there; instances do not overlap; their
compute slices are no more than the GPU has; and one of them at most has the media engines. There are so few ways that
all are listed: a hundred or two for the seven-slice GPUs.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from gpuwatch.model.recommendation import Placement
from gpuwatch.rightsizing.model.mig_profiles import Profile

Profiles = tuple[Profile, ...]


class Cut(NamedTuple):
    """One set of instances that fits a GPU, placed so that the least memory is lost."""

    counts: tuple[int, ...]  # by profile, in the profiles' order
    placements: tuple[Placement, ...]
    used: int  # memory slices
    wasted: int  # memory slices that are free, and that no further instance can have


@cache
def cuts(profiles: Profiles) -> tuple[Cut, ...]:
    """Every set of instances once, the fullest first; the empty one is not among them. `profiles`: the model's."""
    best: dict[tuple[int, ...], Cut] = {}
    for placements in _placed(profiles, 0, ()):
        if not placements:
            continue
        cut = _cut(placements, profiles)
        if cut.counts not in best or cut.wasted < best[cut.counts].wasted:
            best[cut.counts] = cut
    return tuple(sorted(best.values(), key=lambda cut: (-cut.used, cut.wasted, cut.counts)))


def valid(placements: Sequence[Placement], profiles: Profiles) -> str | None:
    """What is wrong with a layout of one GPU, in words; None: nothing."""
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
    if sum(profile.compute_slices for profile in there) > _compute(profiles):
        return f"more than {_compute(profiles)} compute slices"
    if sum(profile.media for profile in there) > 1:
        return "more than one instance with media engines"
    counts = Counter(profile.name for profile in there)
    crowded = next((name for name, count in counts.items() if count > by_name[name].max_instances), None)
    return f"more than {by_name[crowded].max_instances} instances of {crowded}" if crowded else None


def _placed(profiles: Profiles, at: int, before: tuple[Placement, ...]) -> Iterator[tuple[Placement, ...]]:
    """All layouts whose instances from memory slice `at` on are still to be chosen."""
    if at >= _memory(profiles):
        yield before
        return
    yield from _placed(profiles, at + 1, before)
    for profile in profiles:
        if at in profile.starts:
            more = (*before, Placement(profile=profile.name, start=at, size=profile.size))
            if valid(more, profiles) is None:
                yield from _placed(profiles, at + profile.size, more)


def _cut(placements: tuple[Placement, ...], profiles: Profiles) -> Cut:
    counts = Counter(each.profile for each in placements)
    taken = {slice_ for each in placements for slice_ in range(each.start, each.start + each.size)}
    reachable: set[int] = set()
    for profile in profiles:
        for start in profile.starts:
            more = (*placements, Placement(profile=profile.name, start=start, size=profile.size))
            if valid(more, profiles) is None:
                reachable.update(range(start, start + profile.size))
    return Cut(
        counts=tuple(counts[profile.name] for profile in profiles),
        placements=placements,
        used=len(taken),
        wasted=_memory(profiles) - len(taken | reachable),
    )


def _memory(profiles: Profiles) -> int:
    return max(start + profile.size for profile in profiles for start in profile.starts)


def _compute(profiles: Profiles) -> int:
    return max(profile.compute_slices for profile in profiles)
