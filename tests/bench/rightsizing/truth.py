"""What will come, read off the fleet: work, memory, and time on a slice. No rule of gpuwatch is asked here."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from gpuwatch.rightsizing.model.mig_profiles import GIB, Profile
from tests.bench.rightsizing.fleet_sight import device_total, part
from tests.bench.rightsizing.fleet_world import Pod, Workload
from tests.bench.rightsizing.work_laws import DAY, STEP

NOTHING = 60.0
"""Seconds of user's kernels a day: a GPU that does less does no work."""


class Here(NamedTuple):
    """One container's device at a moment; `place` in its pod."""

    workload: Workload
    pod: Pod
    place: int

    @property
    def gpu(self) -> str:
        """Uuid."""
        return self.pod.gpus[self.place]

    def seconds(self, begin: int, end: int) -> float:
        """Of user's kernels, while the workload has a pod."""
        load = self.workload.load[self.place]
        return STEP * sum(load[step] for pod in self.workload.pods for step in lived(pod, begin, end))

    def rests(self, step: int, days: float) -> bool:
        """Whether it will do no work for so long: none to speak of."""
        return self.seconds(step, step + int(days * DAY)) < NOTHING * days

    def untouched(self, step: int, days: float) -> bool:
        """Whether nobody will use it at all for so long."""
        return self.seconds(step, step + int(days * DAY)) == 0.0

    def rested(self, step: int) -> int:
        """Steps since it last did anything, at most since its pod's begin."""
        load, begin = self.workload.load[self.place], max(0, int(self.pod.begin))
        last = next((at for at in range(min(step, len(load)) - 1, begin - 1, -1) if load[at]), None)
        return step - begin if last is None else step - 1 - last


def here(fleet: tuple[Workload, ...], step: int) -> Iterator[Here]:
    """All that holds a GPU at a moment."""
    for workload in fleet:
        for pod in workload.pods:
            if pod.begin < step < pod.end:
                yield from (Here(workload, pod, place) for place in range(len(pod.gpus)))


def lived(pod: Pod, begin: int, end: int) -> range:
    """Steps of a pod within a span."""
    return range(max(begin, int(pod.begin), 0), int(min(end, pod.end)))


def peak(workload: Workload, begin: int, end: int) -> float:
    """Bytes: the most that one device of it really needs in a span; 0: no pod then."""
    spans = [lived(pod, begin, end) for pod in workload.pods]
    most = max((need[step] for need in workload.need for span in spans for step in span), default=0.0)
    return most * device_total(workload)


def usable(profile: Profile) -> float:
    """Bytes that an instance really has: as measured, else drawn from what was measured of others for their names."""
    if profile.memory_gib_usable is not None:
        return profile.memory_gib_usable * GIB
    return (
        Random(f"usable {profile.name}").uniform(0.88, 0.985) * float(profile.name.split(".")[1].split("gb")[0]) * GIB
    )


class Slower(NamedTuple):
    """Time lost on a slice: of all time held, and of the worst steps with work (95th percentile)."""

    mean: float
    p95: float


def slower(workload: Workload, profile: Profile, begin: int, end: int) -> Slower | None:
    """By the workload's own physics. None: it does nothing then."""
    multiprocessors = profile.sm_share if profile.sm_fraction is not None else 0.9 * profile.sm_share
    stretch = workload.physics.stretch(multiprocessors, profile.memory_fraction)
    factor = stretch / workload.physics.stretch(*part(workload)) - 1
    loads = sorted(workload.load[0][step] for pod in workload.pods for step in lived(pod, begin, end))
    busy = [load for load in loads if load > 0]
    return Slower(factor * sum(loads) / len(loads), factor * busy[int(0.95 * (len(busy) - 1))]) if busy else None
