"""Packing of MIG instances without thought: all ways, tried one instance after the other, and first-fit decreasing.

It shares nothing with the rules but the rows of the table: slices are bits, a GPU is what is taken of it.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from gpuwatch.rightsizing.model.mig_profiles import Profile

Gpu = tuple[int, int]
"""Memory slices that are taken, as bits, and compute slices that are."""

EMPTY = (0, 0)


def drawn(profiles: Sequence[Profile], most: int, chance: random.Random) -> Counter[str]:
    """Up to `most` instances of random profiles; small ones more often."""
    weights = [1 / profile.size for profile in profiles]
    names = [profile.name for profile in profiles]
    return Counter(chance.choices(names, weights, k=chance.randint(1, most)))


def brute(demand: Counter[str], profiles: Sequence[Profile]) -> tuple[int, int]:
    """(GPUs, memory slices that are lost on them) at best, of all ways there are."""
    instances = [profile for profile in profiles for _ in range(demand[profile.name])]
    instances.sort(key=lambda profile: -profile.size)
    gpus = -(-sum(profile.size for profile in instances) // _memory(profiles))
    while True:
        ways: set[tuple[Gpu, ...]] = {(EMPTY,) * gpus}
        for profile in instances:
            ways = {more for way in ways for more in _one_more(way, profile, profiles)}
        if ways:
            return gpus, min(sum(_lost(gpu, profiles) for gpu in way) for way in ways)
        gpus += 1


def first_fit(demand: Counter[str], profiles: Sequence[Profile]) -> int:
    """GPUs, if each instance goes to the first that has room, at the first start with room; large ones first."""
    gpus: list[Gpu] = []
    for profile in sorted(profiles, key=lambda profile: (-profile.size, -profile.compute_slices)):
        at = 0  # what had no room for this profile has none later
        for _ in range(demand[profile.name]):
            while at < len(gpus) and not any(_placed(gpus[at], profile, profiles)):
                at += 1
            if at == len(gpus):
                gpus.append(EMPTY)
            gpus[at] = next(_placed(gpus[at], profile, profiles))
    return len(gpus)


def _one_more(way: tuple[Gpu, ...], profile: Profile, profiles: Sequence[Profile]) -> Iterator[tuple[Gpu, ...]]:
    for at in range(len(way)):
        if at == 0 or way[at] != way[at - 1]:
            for gpu in _placed(way[at], profile, profiles):
                yield tuple(sorted((*way[:at], gpu, *way[at + 1 :])))


def _placed(gpu: Gpu, profile: Profile, profiles: Sequence[Profile]) -> Iterator[Gpu]:
    taken, compute = gpu
    if compute + profile.compute_slices <= max(each.compute_slices for each in profiles):
        for start in profile.starts:
            bits = (2**profile.size - 1) << start
            if not taken & bits:
                yield taken | bits, compute + profile.compute_slices


def _lost(gpu: Gpu, profiles: Sequence[Profile]) -> int:
    reachable = gpu[0]
    for profile in profiles:
        for taken, _ in _placed(gpu, profile, profiles):
            reachable |= taken
    return _memory(profiles) - reachable.bit_count()


def _memory(profiles: Sequence[Profile]) -> int:
    return max(profile.memory_slices for profile in profiles)
