"""What one View reports of each tenant of a GPU: on which device, and how much of the device's work is its own.

A tenant that is alone on a device has the device's figures. Where several share it, only what the driver reports of
their own processes counts: the work of one is never taken for that of another.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gpuwatch.model.snapshot import Gpu, GpuProcess, Identity, MigInstance, Record, Utilization
from gpuwatch.model.view import View
from gpuwatch.model.workload import DeviceUse, Holder, PodUsage, ProcessOwner, Workload
from gpuwatch.rightsizing.model.mig_profiles import instance
from gpuwatch.rightsizing.usage.allocation import IDLE_BUSY
from gpuwatch.rightsizing.usage.mig_slowdown import of_whole_gpu
from gpuwatch.workloads.workload_key import Tenant

COMPUTE = ("compute", "compute+graphics", "mps")
SERVERS = ("nvidia-cuda-mps-server", "nvidia-cuda-mps-control")
"""Programs on a GPU that do no work of their own."""

PIPES = ("tensor", "fp64", "fp32", "fp16")


class TenantDevice(NamedTuple):
    """One tenant on one device; `device` is the uuid of a MIG instance, empty for a whole GPU."""

    gpu: str
    device: str
    tenant: Tenant


class AllocationFacts(Record, frozen=True, kw_only=True):
    """What hardly changes while a tenant holds a device."""

    index: int | None = None
    model: str | None = None
    profile: str | None = None
    resource: str | None = None
    replicas: int = 1
    holders: int = 1
    memory_total: int | None = None


class TenantReading(Record, frozen=True, kw_only=True):
    """One tenant of a device in one View; names and units as in `UsageWindow`. `sampled`: the GPU gave a sample at all;
    `traffic`: bytes over PCIe since the driver was loaded; `pids`: its processes.
    """

    facts: AllocationFacts
    sampled: bool = False
    busy: float | None = None
    sm: float | None = None
    dram: float | None = None
    pipe: float | None = None
    memory: int | None = None
    traffic: int | None = None
    watts: float | None = None
    power_limit: float | None = None
    processes: int | None = None
    programs: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()


class _Device(NamedTuple):
    """A GPU or an instance with what runs there. `gpu` None: it gave no sample."""

    use: DeviceUse
    identity: Identity | None
    gpu: Gpu | None
    mig: MigInstance | None
    processes: tuple[GpuProcess, ...] | None
    owners: Mapping[int, ProcessOwner]

    @property
    def has_unknown_processes(self) -> bool:
        """Whether a process runs there whose owner is not known."""
        return any(process.pid not in self.owners for process in self.processes or ())


def readings(view: View) -> dict[TenantDevice, TenantReading]:
    """All tenants of all devices of a View."""
    gpus = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    identities = {status.identity.uuid: status.identity for status in view.snapshot.statuses}
    identities |= {uuid: gpu.identity for uuid, gpu in gpus.items()}
    owners = {owner.pid: owner for owner in view.owners}
    usage = {(row.gpu, row.gi, tenant_of(row.workload)): row for row in view.attribution.usage}
    found: dict[TenantDevice, TenantReading] = {}
    for use in view.attribution.devices:
        gpu = gpus.get(use.gpu)
        mig = next((each for each in gpu.mig if each.uuid == use.mig), None) if gpu else None
        processes = None
        if gpu is not None and gpu.processes is not None:
            here = (
                process
                for process in gpu.processes
                if process.type in COMPUTE
                and program(process.name) not in SERVERS
                and (use.mig is None or (process.gi == use.gi and process.ci in (None, use.ci)))
            )
            processes = tuple({process.pid: process for process in here}.values())  # each once
        found |= dict(_tenants(_Device(use, identities.get(use.gpu), gpu, mig, processes, owners), usage))
    return found


def tenant_of(workload: Workload) -> Tenant | None:
    """None: neither name nor uid is known."""
    pod = workload.pod or workload.pod_uid
    return Tenant(workload.namespace or "", pod, workload.container or "") if pod else None


def _tenants(
    device: _Device, usage: Mapping[tuple[str, int | None, Tenant | None], PodUsage]
) -> Iterator[tuple[TenantDevice, TenantReading]]:
    holders: dict[Tenant, Holder | None] = {
        tenant: holder for holder in device.use.holders if (tenant := tenant_of(holder.workload))
    }
    outside: dict[Tenant, list[GpuProcess]] = {}
    for process in device.processes or ():
        if (tenant := _outside_kubernetes(device.owners.get(process.pid))) is not None:
            outside.setdefault(tenant, []).append(process)
    tenants = holders | dict.fromkeys(outside)
    alone = len(tenants) == 1 and (bool(holders) or not device.has_unknown_processes)
    memory = device.mig.memory if device.mig else device.gpu.memory if device.gpu else None
    of_pods = None if alone else _pod_processes(device)
    for tenant, holder in tenants.items():
        facts = AllocationFacts(
            index=device.identity.index if device.identity else None,
            model=device.identity.name if device.identity else None,
            profile=device.use.profile,
            resource=holder.resource if holder else None,
            replicas=holder.replicas if holder else 1,
            holders=len(tenants),
            memory_total=memory.total if memory else None,
        )
        row = usage.get((device.use.gpu, device.use.gi, tenant))
        own: Sequence[GpuProcess] | None = None
        if holder is None:
            own = outside[tenant]
        elif alone:
            own = device.processes
        elif of_pods is not None:
            own = [each for container, each in of_pods.get(tenant[:2], ()) if container in ("", tenant.container)]
        yield (
            TenantDevice(device.use.gpu, device.use.mig or "", tenant),
            _reading(device, facts, own, row, alone=alone),
        )


def _outside_kubernetes(owner: ProcessOwner | None) -> Tenant | None:
    """The job, container or account of a process outside pods; a container without a name is none of them."""
    if owner is None or owner.workload or owner.pod_uid or (owner.container_id and owner.container is None):
        return None
    if owner.slurm_job:
        return Tenant("", owner.slurm_job, kind="SlurmJob")
    if (known := owner.container) is not None:
        service = f"{known.project}/{known.service}" if known.project and known.service else None
        return Tenant("", service or known.name, kind="ComposeService" if service else "Container")
    return Tenant("", owner.account, kind="User") if owner.account else None


def _pod_processes(device: _Device) -> dict[tuple[str, str], list[tuple[str, GpuProcess]]] | None:
    """Per namespace and pod its processes, each with its container, "" where that is not known; None: they cannot be
    distinguished from others'.
    """
    if device.processes is None or device.has_unknown_processes:
        return None
    found: dict[tuple[str, str], list[tuple[str, GpuProcess]]] = {}
    for process in device.processes:
        workload = device.owners[process.pid].workload
        if workload and (owner := tenant_of(workload)):
            found.setdefault(owner[:2], []).append((owner.container, process))
    return found


def _reading(
    device: _Device, facts: AllocationFacts, own: Sequence[GpuProcess] | None, row: PodUsage | None, *, alone: bool
) -> TenantReading:
    gpu, mig = device.gpu, device.mig
    if gpu is None:
        return TenantReading(facts=facts)
    activity, memory = (mig.activity, mig.memory) if mig else (gpu.activity, gpu.memory)
    utilization = Utilization() if mig else gpu.utilization  # of a GPU that is cut, only profiling counters report it
    busy = _first(activity.graphics, utilization.gpu_mean, utilization.gpu)
    pipes = [value for name in PIPES if (value := getattr(activity, name)) is not None]
    engines: tuple[float | None, float | None, float | None] = activity.sm, activity.dram, max(pipes, default=None)
    if mig:
        profile = instance(facts.model, gpu.memory.total, facts.profile)
        sm, dram, pipe = engines
        engines = of_whole_gpu(profile, sm=sm, dram=dram, pipe=pipe) if profile else (None, None, None)
    sm, dram, pipe = engines if alone else (None, None, None)
    sent, received = gpu.pcie.transmit_bytes, gpu.pcie.receive_bytes
    has_traffic = alone and device.use.mig is None and sent is not None and received is not None
    names: dict[str, None] = {}  # the kernel's name, which servers set themselves, and the driver's file name
    for process in own or ():
        owner = device.owners.get(process.pid)
        names |= {name: None for name in (owner.name if owner else None, program(process.name)) if name}
    return TenantReading(
        facts=facts,
        sampled=True,
        busy=busy if alone else _own_busy(busy, own, row),
        sm=sm,
        dram=dram,
        pipe=pipe,
        memory=memory.used if alone else _own_memory(own, row),
        traffic=(sent or 0) + (received or 0) if has_traffic else None,
        watts=_first(gpu.power.mean, gpu.power.average, gpu.power.instant),
        power_limit=gpu.power.limit_enforced,
        processes=None if own is None else len(own),
        programs=tuple(names),
        pids=tuple(process.pid for process in own or ()),
    )


def _own_busy(busy: float | None, own: Sequence[GpuProcess] | None, row: PodUsage | None) -> float | None:
    """Busy share of one tenant of several, from its own processes: 0 without any. Unknown unless the driver reports
    them, or the whole device is idle.
    """
    if own is not None and not own:
        return 0.0
    known = [process.sm_utilization for process in own or () if process.sm_utilization is not None]
    if known:
        return min(1.0, sum(known))
    if row is not None and row.utilization is not None:
        return row.utilization
    return busy if busy is not None and busy < IDLE_BUSY else None


def _own_memory(own: Sequence[GpuProcess] | None, row: PodUsage | None) -> int | None:
    if own is None:
        return row.memory if row else None
    sizes = [process.used_memory for process in own]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def program(name: str | None) -> str | None:
    """The file of a program, without its folder and without arguments, which may hold secrets."""
    parts = (name or "").split()
    return parts[0].rpartition("/")[2] or None if parts else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
