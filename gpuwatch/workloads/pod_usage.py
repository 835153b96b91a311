"""What each pod does on a GPU it may share, from its own processes, and its share of the GPU's energy.

The energy rule: all energy of a GPU, idle power included, is divided among those who have processes on it, by their
share of the utilization the driver saw. Where the driver tells no utilization (MIG, or nobody was busy) they share by
the size of their instance and evenly within it. Where nobody has a process, those to whom the kubelet gave the device
share evenly: a GPU that is held and left idle is paid for by its holder. Processes outside pods keep their part.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpuwatch.model.snapshot import Gpu, GpuProcess
from gpuwatch.model.workload import DeviceUse, PodUsage, Workload


class Claim(NamedTuple):
    """One party on one GPU: its instance, its summed values. `workload` None: everybody outside pods together."""

    workload: Workload | None
    gi: int | None = None
    processes: int = 0
    memory: int | None = None
    utilization: float | None = None


def pod_usage(
    gpu: Gpu, workloads: Mapping[tuple[str, int], Workload], devices: Iterable[DeviceUse]
) -> tuple[PodUsage, ...]:
    """One row per pod container and instance of this GPU; holders without a process have an energy share only."""
    uuid = gpu.identity.uuid
    active = _claims(gpu, {pid: workload for (where, pid), workload in workloads.items() if where == uuid})
    present = {(claim.workload, claim.gi) for claim in active}
    held = ((holder.workload, device.gi) for device in devices if device.gpu == uuid for holder in device.holders)
    idle = [Claim(*holder) for holder in dict.fromkeys(held) if holder not in present]
    sizes: dict[int | None, int] = {mig.gi: mig.multiprocessors or 1 for mig in gpu.mig}
    shares = energy_shares(active or idle, sizes) + (0.0,) * (len(idle) if active else 0)
    rows = zip([*active, *idle], shares, strict=True)
    return tuple(
        PodUsage(
            gpu=uuid,
            gi=claim.gi,
            workload=claim.workload,
            processes=claim.processes,
            memory=claim.memory,
            utilization=claim.utilization,
            energy_share=share,
        )
        for claim, share in rows
        if claim.workload
    )


def energy_shares(claims: Sequence[Claim], sizes: Mapping[int | None, int]) -> tuple[float, ...]:
    """Each claim's part of the GPU's energy, in their order; sums to 1. `sizes`: multiprocessors by GPU instance."""
    weights = [claim.utilization or 0.0 for claim in claims]
    if not any(weights):
        crowd = [sum(other.gi == claim.gi for other in claims) for claim in claims]
        weights = [sizes.get(claim.gi, 1) / many for claim, many in zip(claims, crowd, strict=True)]
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def _claims(gpu: Gpu, workloads: Mapping[int, Workload]) -> list[Claim]:
    parties: dict[tuple[Workload | None, int | None], list[GpuProcess]] = {}
    for process in _once(gpu.processes or ()):
        parties.setdefault((workloads.get(process.pid), process.gi), []).append(process)
    return [
        Claim(
            workload,
            gi,
            processes=len(processes),
            memory=_all_known([process.used_memory for process in processes]),
            utilization=_utilization(processes),
        )
        for (workload, gi), processes in parties.items()
    ]


def _once(processes: Iterable[GpuProcess]) -> Iterable[GpuProcess]:
    """One entry per process and instance: a process that computes and draws is in two of NVML's lists."""
    fullest_last = sorted(processes, key=lambda process: process.used_memory is not None)
    return {(process.pid, process.gi, process.ci): process for process in fullest_last}.values()


def _all_known(values: Sequence[int | None]) -> int | None:
    """The sum, or None when a part is unknown: half a level is no level."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _utilization(processes: Sequence[GpuProcess]) -> float | None:
    """Sum over processes, at most 1. NVML has no sample of a process that did nothing, so gaps count as idle."""
    known = [process.sm_utilization for process in processes if process.sm_utilization is not None]
    return min(sum(known), 1.0) if known else None
