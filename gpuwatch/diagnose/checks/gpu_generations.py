"""Which generation a GPU is by its PCI device id, and which drivers know it: for GPUs that no driver answers for."""

from typing import NamedTuple

from gpuwatch.host.pci import BusGpu


class Generation(NamedTuple):
    """`first`, `last`: driver branches that support it, from NVIDIA's release notes; `last` None: still supported."""

    name: str
    first: int
    last: int | None = None
    proprietary: bool = True  # NVIDIA's proprietary kernel modules work
    open: bool = True  # the open ones do, which need the GPU's own processor (GSP)


_GENERATIONS: tuple[tuple[range, Generation], ...] = (
    (range(0x1340, 0x1580), Generation("Maxwell", 346, 580, open=False)),
    (range(0x15F0, 0x1D80), Generation("Pascal", 367, 580, open=False)),
    (range(0x1D80, 0x1E00), Generation("Volta", 384, 580, open=False)),
    (range(0x1E00, 0x2080), Generation("Turing", 410)),
    (range(0x2080, 0x2200), Generation("Ampere", 450)),
    (range(0x2200, 0x2300), Generation("Ampere", 455)),
    (range(0x2342, 0x2349), Generation("Grace Hopper", 535, proprietary=False)),
    (range(0x2300, 0x2400), Generation("Hopper", 525)),
    (range(0x2400, 0x2600), Generation("Ampere", 455)),
    (range(0x2600, 0x2900), Generation("Ada Lovelace", 520)),
    (range(0x2900, 0x3000), Generation("Blackwell", 570, proprietary=False)),
    (range(0x3180, 0x3200), Generation("Blackwell Ultra", 575, proprietary=False)),
)
"""Device ids as in the PCI ID repository; an id in none of the ranges is of a generation unknown here."""


def generation(gpu: BusGpu) -> Generation | None:
    """None where the id does not tell."""
    try:
        number = int(gpu.device_id or "", 16)
    except ValueError:
        return None
    return next((found for ids, found in _GENERATIONS if number in ids), None)


def branch(version: str) -> int | None:
    """`570.86.15` -> 570"""
    head = version.partition(".")[0]
    return int(head) if head.isdecimal() else None
