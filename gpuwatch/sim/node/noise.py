"""Randomness without a generator: a number is a function of its key and a counter.

Every process gets the same numbers, in any order of calls.
"""

import hashlib

MASK = (1 << 64) - 1


def key(*parts: object) -> int:
    """A 64-bit key for a stream of numbers, from anything that names it."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest())


def uniform(stream: int, counter: int) -> float:
    """The `counter`-th number of a stream, evenly in 0..1 (the finalizer of splitmix64)."""
    z = (stream + counter * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return (z ^ (z >> 31)) / (MASK + 1)


def uuid(*parts: object) -> str:
    """A UUID as NVIDIA's driver and the kubelet write them."""
    digits = hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
