"""What a GPU is to work, and what a part of it would be: the truth that a slowdown is predicted against.

Work has phases. A phase needs a share of the multiprocessors and of the memory bandwidth to run at its speed. On a
slice that has less of either it takes longer; what is short of both pays partly for both; less L2 makes more traffic.
Counters see more than is needed: one warp marks a multiprocessor as active.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tests.bench.rightsizing.work_laws import log_uniform


class Phase(NamedTuple):
    """Shares of the GPU while kernels run. `width`: multiprocessors needed; `seen`: active ones; `pipe`: busiest."""

    width: float
    seen: float
    pipe: float
    dram: float


class Physics(NamedTuple):
    """Of one workload. `mix`: share of busy time in the first phase; `swing`: unevenness within minutes."""

    phases: tuple[Phase, Phase]
    mix: float
    swing: float
    saturation: float  # of memory bandwidth, that can be had
    both: float  # how much of the lesser shortage is paid on top of the larger
    cache: float  # more traffic without any L2

    def stretch(self, multiprocessors: float, bandwidth: float) -> float:
        """How many times longer busy time takes on a slice with such shares of the GPU."""
        parts = zip((self.mix, 1 - self.mix), self.phases, strict=True)
        return sum(share * self.longer(phase, multiprocessors, bandwidth) for share, phase in parts)

    def longer(self, phase: Phase, multiprocessors: float, bandwidth: float) -> float:
        """The same for one phase."""
        traffic = phase.dram * (1 + self.cache * (1 - bandwidth))
        short = sorted((max(1.0, phase.width / multiprocessors), max(1.0, traffic / (self.saturation * bandwidth))))
        return short[1] + self.both * (short[0] - 1)

    def seen(self, at: int) -> float:
        """The mean over busy time of a member of Phase, by its place."""
        return self.mix * self.phases[0][at] + (1 - self.mix) * self.phases[1][at]


def physics(rng: Random) -> Physics:
    """Any work there may be."""
    saturation = rng.uniform(0.8, 0.95)
    return Physics(
        phases=(phase(rng, saturation), phase(rng, saturation)),
        mix=rng.random(),
        swing=rng.uniform(0.0, 1.0),
        saturation=saturation,
        both=rng.uniform(0.0, 0.3),
        cache=rng.uniform(0.0, 0.15),
    )


def phase(rng: Random, saturation: float) -> Phase:
    """One kind of kernels."""
    width = log_uniform(rng, 0.04, 1.0)
    seen = width + (1 - width) * rng.uniform(0.0, 0.6)
    return Phase(width, seen, width * rng.uniform(0.1, 0.8), min(saturation, log_uniform(rng, 0.02, 0.95)))


class Hardware(NamedTuple):
    """A GPU model. `counters`: multiprocessor, memory and pipe activity can be read (GPM)."""

    model: str
    mebibytes: int
    counters: bool
    mig: bool
    idle: float
    loaded: float
    limit: float

    @property
    def total(self) -> int:
        """Bytes."""
        return self.mebibytes << 20


HARDWARE: Sequence[tuple[float, Hardware]] = (
    (0.34, Hardware("NVIDIA H100 80GB HBM3", 81559, True, True, 70, 115, 700)),
    (0.12, Hardware("NVIDIA H200", 143771, True, True, 75, 120, 700)),
    (0.04, Hardware("NVIDIA B200", 183359, True, True, 140, 190, 1000)),
    (0.20, Hardware("NVIDIA A100-SXM4-80GB", 81920, False, True, 58, 85, 400)),
    (0.12, Hardware("NVIDIA A100-SXM4-40GB", 40960, False, True, 45, 65, 400)),
    (0.04, Hardware("NVIDIA A30", 24576, False, True, 28, 40, 165)),
    (0.08, Hardware("NVIDIA L40S", 46068, False, False, 33, 85, 350)),
    (0.06, Hardware("Tesla T4", 15360, False, False, 10, 27, 70)),
)
