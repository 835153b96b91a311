"""How much a PCIe link can carry: the measure for copies to a GPU and between GPUs."""

from gpuwatch.model.snapshot import Pcie

LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes per second that one lane of a generation carries one way, encoding taken off (PCI Express Base 6.0)."""


def bytes_per_second(link: Pcie | None) -> float | None:
    """Each way. The highest state that GPU and slot can have together counts, for an idle link trains down."""
    if link is None:
        return None
    generation, width = _highest(link)
    lane = LANE.get(generation) if generation else None
    return lane * width if lane and width else None


def in_words(link: Pcie) -> str:
    """`PCIe 5.0 x16`."""
    generation, width = _highest(link)
    return f"PCIe {generation}.0 x{width}"


def _highest(link: Pcie) -> tuple[int | None, int | None]:
    return link.generation_max or link.generation, link.width_max or link.width
