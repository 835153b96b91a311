"""Users of each GPU: the kubelet's allocations, the processes on the GPUs and their owners, joined.

Device readings are never copied to the pods that share a device: a pod's own values come from its own processes, so a
sum over pods never exceeds the GPU.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.model.snapshot import Gpu, GpuProcess, MigInstance
from gpuwatch.model.workload import (
    Allocatable,
    Allocation,
    Attribution,
    DeviceUse,
    EnergyMethod,
    Holder,
    PodUsage,
    ProcessOwner,
    Workload,
)
from gpuwatch.workloads.devices import Device, devices_of, on_instance, resolve

Key = tuple[str, str | None]
Holders = dict[Key, list[Holder]]
PodName = tuple[str | None, str | None]


def attribute(
    gpus: Sequence[Gpu],
    allocations: Iterable[Allocation] | None,
    owners: Mapping[int, ProcessOwner],
    allocatable: Sequence[Allocatable] | None = None,
) -> Attribution:
    """Join one snapshot's GPUs with what kubelet and /proc report.

    `gpus`: the fresh samples, and of a lost GPU its last one without processes, so that its holders stay known.
    `allocations` None: no kubelet is queried; pods are then known by their processes only. `owners` by host pid.
    `allocatable`: what the kubelet may allocate; where it names no device here, no device plugin is registered.
    """
    given, unknown = _given(gpus, allocations or ())
    names = _pods_by_uid(gpus, given, owners)
    # the other way round; a name that two uids have (a pod that was recreated) is left out
    counts = Counter(names.values())
    uids = {pod: uid for uid, pod in names.items() if counts[pod] == 1}
    for holders in given.values():
        for place, holder in enumerate(holders):
            uid = holder.workload.pod_uid or uids.get(_pod(holder.workload))
            holders[place] = replace(holder, workload=replace(holder.workload, pod_uid=uid))
    workloads = {
        (gpu.identity.uuid, process.pid): _named(owner.workload, names, _held(given, gpu, process.gi, process.ci))
        for gpu in gpus
        for process in gpu.processes or ()
        if (owner := owners.get(process.pid)) and owner.workload
    }
    devices = tuple(
        _device_use(device, given.get(device.key, []), workloads, kubelet=allocations is not None, owners=owners)
        for gpu in gpus
        for device in devices_of(gpu)
    )
    usage = tuple(row for gpu in gpus for row in pod_usage(gpu, workloads, devices))
    offered = {
        d.gpu.identity.uuid for each in allocatable or () for text in each.device_ids for d in resolve(text, gpus)
    }
    withheld = tuple(uuid for gpu in gpus if (uuid := gpu.identity.uuid) not in offered) if offered else None
    return Attribution(devices=devices, usage=usage, unknown_devices=unknown, withheld=withheld)


def _given(gpus: Sequence[Gpu], allocations: Iterable[Allocation]) -> tuple[Holders, tuple[str, ...]]:
    """Holders of each device as the kubelet reports them, and the ids that name no device here."""
    slots: dict[Key, dict[tuple[Workload, str], int]] = {}
    unknown: dict[str, None] = {}
    for allocation in allocations:
        holder = (allocation.workload, allocation.resource)
        for text in allocation.device_ids:
            devices = resolve(text, gpus)
            if not devices:
                unknown[text] = None
            for device in devices:
                held = slots.setdefault(device.key, {})
                held[holder] = held.get(holder, 0) + 1
    holders = {
        key: [
            Holder(workload=workload, resource=resource, replicas=count) for (workload, resource), count in held.items()
        ]
        for key, held in slots.items()
    }
    return holders, tuple(unknown)


def _pods_by_uid(gpus: Sequence[Gpu], given: Holders, owners: Mapping[int, ProcessOwner]) -> dict[str, PodName]:
    """Names of pods by uid: from the log folders, else the one pod that holds every device its processes are on."""
    named = {o.workload.pod_uid: _pod(o.workload) for o in owners.values() if o.workload and o.workload.pod}
    possible: dict[str, set[PodName]] = {}
    for gpu in gpus:
        for process in gpu.processes or ():
            owner = owners.get(process.pid)
            if owner is None or owner.pod_uid is None or owner.pod_uid in named:
                continue
            here = {_pod(h.workload) for h in _held(given, gpu, process.gi, process.ci)} - set(named.values())
            possible[owner.pod_uid] = possible.get(owner.pod_uid, here) & here
    guessed = {uid: next(iter(pods)) for uid, pods in possible.items() if len(pods) == 1}
    claimed = Counter(guessed.values())
    unique = {uid: pod for uid, pod in guessed.items() if claimed[pod] == 1}
    return unique | {uid: pod for uid, pod in named.items() if uid}


def _held(given: Holders, gpu: Gpu, gi: int | None, ci: int | None) -> list[Holder]:
    device = on_instance(gpu, gi, ci)
    return given.get(device.key, []) if device else []


def _named(workload: Workload, names: Mapping[str, PodName], held: Sequence[Holder]) -> Workload:
    """The process's workload with its pod's name, and its container where only one of the pod holds the device."""
    namespace, pod = names.get(workload.pod_uid or "", _pod(workload))
    if workload.container:
        return Workload(namespace=namespace, pod=pod, container=workload.container, pod_uid=workload.pod_uid)
    containers = {h.workload.container for h in held if _pod(h.workload) == (namespace, pod)}
    only = next(iter(containers)) if len(containers) == 1 else None
    return Workload(namespace=namespace, pod=pod, container=only, pod_uid=workload.pod_uid)


def _device_use(
    device: Device,
    given: Sequence[Holder],
    workloads: Mapping[tuple[str, int], Workload],
    *,
    kubelet: bool,
    owners: Mapping[int, ProcessOwner],
) -> DeviceUse:
    gpu, mig = device
    here = [p.pid for p in gpu.processes or () if (at := on_instance(gpu, p.gi, p.ci)) and at.key == device.key]
    running = {workload for pid in here if (workload := workloads.get((gpu.identity.uuid, pid)))}
    others = [Holder(workload=workload) for workload in running - {holder.workload for holder in given}]
    batch = any((owner := owners.get(pid)) and owner.slurm_job for pid in here)
    return DeviceUse(
        gpu=gpu.identity.uuid,
        mig=mig.uuid if mig else None,
        gi=mig.gi if mig else None,
        ci=mig.ci if mig else None,
        profile=mig.profile if mig else None,
        allocated=bool(given) if kubelet else (True if running or batch else None),
        holders=tuple(sorted([*given, *others], key=_order)),
    )


def _pod(workload: Workload) -> PodName:
    return workload.namespace, workload.pod


def _order(holder: Holder) -> tuple[str, ...]:
    workload = holder.workload
    parts = (workload.namespace, workload.pod, workload.container, workload.pod_uid, holder.resource)
    return tuple(part or "" for part in parts)


class EnergyClaim(NamedTuple):
    """One user of one GPU: its instance and summed values. `workload` None: all processes outside pods together."""

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
    idle = [EnergyClaim(*holder) for holder in dict.fromkeys(held) if holder not in present]
    method, shares = energy_shares(active or idle, gpu.mig)
    rows = zip([*active, *idle], shares + (0.0,) * (len(idle) if active else 0), strict=True)
    return tuple(
        PodUsage(
            gpu=uuid,
            gi=claim.gi,
            workload=claim.workload,
            processes=claim.processes,
            memory=claim.memory,
            utilization=claim.utilization,
            energy_share=share,
            energy_method=method,
        )
        for claim, share in rows
        if claim.workload
    )


def energy_shares(claims: Sequence[EnergyClaim], mig: Sequence[MigInstance]) -> tuple[EnergyMethod, tuple[float, ...]]:
    """Each claim's part of the GPU's energy, in their order, and the method used; sums to 1.

    A GPU instance counts by its multiprocessors times their activity, if that is known of every instance in question,
    and is split evenly among the claims on it.
    """
    sizes: Counter[int | None] = Counter()
    activity: dict[int | None, float] = {}
    for each in mig:  # compute instances share the activity of their GPU instance
        sizes[each.gi] += each.multiprocessors or 1
        if each.activity.sm is not None:
            activity[each.gi] = each.activity.sm
    crowd = Counter(claim.gi for claim in claims)
    by_method: dict[EnergyMethod, list[float]] = {
        "activity": [activity[claim.gi] * sizes[claim.gi] / crowd[claim.gi] for claim in claims]
        if crowd.keys() <= activity.keys()
        else [],
        "utilization": [claim.utilization or 0.0 for claim in claims],
        "size": [(sizes[claim.gi] or 1) / crowd[claim.gi] for claim in claims],
    }
    method: EnergyMethod = next((name for name, weights in by_method.items() if any(weights)), "size")
    total = sum(by_method[method])
    return method, tuple(weight / total for weight in by_method[method])


def _claims(gpu: Gpu, workloads: Mapping[int, Workload]) -> list[EnergyClaim]:
    parties: dict[tuple[Workload | None, int | None], list[GpuProcess]] = {}
    # a process that computes and draws is in two of NVML's lists: one entry per process and instance
    fullest_last = sorted(gpu.processes or (), key=lambda process: process.used_memory is not None)
    for process in {(each.pid, each.gi, each.ci): each for each in fullest_last}.values():
        parties.setdefault((workloads.get(process.pid), process.gi), []).append(process)
    claims = []
    for (workload, gi), processes in parties.items():
        memory = [each.used_memory for each in processes if each.used_memory is not None]
        # NVML has no sample of a process that did nothing, so gaps count as idle
        busy = [each.sm_utilization for each in processes if each.sm_utilization is not None]
        claims.append(
            EnergyClaim(
                workload,
                gi,
                processes=len(processes),
                memory=sum(memory) if len(memory) == len(processes) else None,  # a partial sum would be too low
                utilization=min(sum(busy), 1.0) if busy else None,
            )
        )
    return claims
