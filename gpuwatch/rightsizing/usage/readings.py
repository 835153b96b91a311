"""What one View says of everybody who is on a GPU: who, on what, and how much of it is his own doing.

Where somebody is alone on a device, the device's figures are his. Where several share it, only what the driver tells of
their own processes is: a neighbour's work is never taken for his.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gpuwatch.model.snapshot import Activity, Gpu, GpuProcess, Identity, MigInstance, Record, Utilization
from gpuwatch.model.view import View
from gpuwatch.model.workload import DeviceUse, Holder, PodUsage, ProcessOwner, Workload
from gpuwatch.rightsizing.model.mig_profiles import instance
from gpuwatch.rightsizing.usage.allocation import IDLE_BUSY
from gpuwatch.rightsizing.usage.mig_slowdown import of_whole_gpu
from gpuwatch.workloads.workload_key import Tenant

COMPUTE = ("compute", "mps")
SERVERS = ("nvidia-cuda-mps-server", "nvidia-cuda-mps-control")
"""Programs on a GPU that do no work of their own."""

PIPES = ("tensor", "fp64", "fp32", "fp16")


class Party(NamedTuple):
    """One tenant on one device; `device` is the uuid of a MIG instance, empty for a whole GPU."""

    gpu: str
    device: str
    tenant: Tenant


class Facts(Record, frozen=True, kw_only=True):
    """What hardly changes while somebody holds a device."""

    index: int | None = None
    model: str | None = None
    profile: str | None = None
    resource: str | None = None
    replicas: int = 1
    holders: int = 1
    memory_total: int | None = None


class Reading(Record, frozen=True, kw_only=True):
    """One party in one View; names and units as in `model.usage.Window`. `seen`: the GPU gave a sample at all;
    `traffic`: bytes over PCIe since the driver was loaded; `pids`: its processes.
    """

    facts: Facts
    seen: bool = False
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
    def strangers(self) -> bool:
        """Whether a process runs there of which nobody knows whose it is."""
        return any(process.pid not in self.owners for process in self.processes or ())


def readings(view: View) -> dict[Party, Reading]:
    """All parties of a View."""
    gpus = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    identities = {status.identity.uuid: status.identity for status in view.snapshot.statuses}
    identities |= {uuid: gpu.identity for uuid, gpu in gpus.items()}
    owners = {owner.pid: owner for owner in view.owners}
    usage = {(row.gpu, row.gi, tenant_of(row.workload)): row for row in view.attribution.usage}
    found: dict[Party, Reading] = {}
    for use in view.attribution.devices:
        gpu = gpus.get(use.gpu)
        mig = next((each for each in gpu.mig if each.uuid == use.mig), None) if gpu else None
        device = _Device(use, identities.get(use.gpu), gpu, mig, _running(gpu, use), owners)
        found |= dict(_parties(device, usage))
    return found


def tenant_of(workload: Workload) -> Tenant | None:
    """None: neither name nor uid is known."""
    pod = workload.pod or workload.pod_uid
    return Tenant(workload.namespace or "", pod, workload.container or "") if pod else None


def _running(gpu: Gpu | None, use: DeviceUse) -> tuple[GpuProcess, ...] | None:
    """Each process once; None: the driver does not tell."""
    if gpu is None or gpu.processes is None:
        return None
    here = (
        process
        for process in gpu.processes
        if process.type in COMPUTE
        and program(process.name) not in SERVERS
        and (use.mig is None or (process.gi == use.gi and process.ci in (None, use.ci)))
    )
    return tuple({process.pid: process for process in here}.values())


def _parties(
    device: _Device, usage: Mapping[tuple[str, int | None, Tenant | None], PodUsage]
) -> Iterator[tuple[Party, Reading]]:
    holders: dict[Tenant, Holder | None] = {
        tenant: holder for holder in device.use.holders if (tenant := tenant_of(holder.workload))
    }
    outside: dict[Tenant, list[GpuProcess]] = {}
    for process in device.processes or ():
        if (tenant := _outside(device.owners.get(process.pid))) is not None:
            outside.setdefault(tenant, []).append(process)
    everybody = holders | dict.fromkeys(outside)
    alone = len(everybody) == 1 and (bool(holders) or not device.strangers)
    for tenant, holder in everybody.items():
        facts = _facts(device, holder, len(everybody))
        row = usage.get((device.use.gpu, device.use.gi, tenant))
        own = outside[tenant] if holder is None else _own(device, tenant, alone=alone)
        party = Party(device.use.gpu, device.use.mig or "", tenant)
        yield party, _reading(device, facts, own, row, alone=alone)


def _outside(owner: ProcessOwner | None) -> Tenant | None:
    """Who runs a process outside pods and containers."""
    if owner is None or owner.workload or owner.pod_uid or owner.container_id:
        return None
    if owner.slurm_job:
        return Tenant("", owner.slurm_job, kind="SlurmJob")
    return Tenant("", owner.account, kind="User") if owner.account else None


def _own(device: _Device, tenant: Tenant, *, alone: bool) -> list[GpuProcess] | None:
    """The processes of a pod's container; None: they cannot be told from others'."""
    if device.processes is None:
        return None
    if alone:
        return list(device.processes)
    if device.strangers:
        return None
    return [process for process in device.processes if _is_of(device.owners[process.pid], tenant)]


def _is_of(owner: ProcessOwner, tenant: Tenant) -> bool:
    """A container that nobody names is any of its pod."""
    mine = tenant_of(owner.workload) if owner.workload else None
    return mine is not None and mine[:2] == tenant[:2] and mine.container in ("", tenant.container)


def _facts(device: _Device, holder: Holder | None, holders: int) -> Facts:
    identity, gpu, mig = device.identity, device.gpu, device.mig
    memory = mig.memory if mig else gpu.memory if gpu else None
    return Facts(
        index=identity.index if identity else None,
        model=identity.name if identity else None,
        profile=device.use.profile,
        resource=holder.resource if holder else None,
        replicas=holder.replicas if holder else 1,
        holders=holders,
        memory_total=memory.total if memory else None,
    )


def _reading(
    device: _Device, facts: Facts, own: Sequence[GpuProcess] | None, row: PodUsage | None, *, alone: bool
) -> Reading:
    gpu = device.gpu
    if gpu is None:
        return Reading(facts=facts)
    activity = _activity(device)
    busy = _busy(device, activity)
    sm, dram, pipe = activity.sm, activity.dram, _busiest(activity)
    if device.mig:
        profile = instance(facts.model, gpu.memory.total, facts.profile)
        sm, dram, pipe = of_whole_gpu(profile, sm=sm, dram=dram, pipe=pipe) if profile else (None, None, None)
    if not alone:
        sm = dram = pipe = None
        busy = _own_busy(busy, own, row)
    memory = device.mig.memory if device.mig else gpu.memory
    return Reading(
        facts=facts,
        seen=True,
        busy=busy,
        sm=sm,
        dram=dram,
        pipe=pipe,
        memory=memory.used if alone else _memory(own, row),
        traffic=_traffic(gpu) if alone and device.use.mig is None else None,
        watts=_first(gpu.power.mean, gpu.power.average, gpu.power.instant),
        power_limit=gpu.power.limit_enforced,
        processes=None if own is None else len(own),
        programs=_programs(own or (), device.owners),
        pids=tuple(process.pid for process in own or ()),
    )


def _activity(device: _Device) -> Activity:
    if device.mig:
        return device.mig.activity
    return device.gpu.activity if device.gpu else Activity()


def _busy(device: _Device, activity: Activity) -> float | None:
    """Share of time with a kernel; of a GPU that is cut the driver tells it through its counters only."""
    use = device.gpu.utilization if device.gpu and not device.mig else Utilization()
    return _first(activity.graphics, use.gpu_mean, use.gpu)


def _own_busy(busy: float | None, own: Sequence[GpuProcess] | None, row: PodUsage | None) -> float | None:
    """Of one among several: by his own processes, without any he does nothing; else nothing if nobody does anything."""
    if own is not None and not own:
        return 0.0
    told = [process.sm_utilization for process in own or () if process.sm_utilization is not None]
    if told:
        return min(1.0, sum(told))
    if row is not None and row.utilization is not None:
        return row.utilization
    return busy if busy is not None and busy < IDLE_BUSY else None


def _memory(own: Sequence[GpuProcess] | None, row: PodUsage | None) -> int | None:
    if own is None:
        return row.memory if row else None
    sizes = [process.used_memory for process in own]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _busiest(activity: Activity) -> float | None:
    return max((value for name in PIPES if (value := getattr(activity, name)) is not None), default=None)


def _traffic(gpu: Gpu) -> int | None:
    sent, received = gpu.pcie.transmit_bytes, gpu.pcie.receive_bytes
    return None if sent is None or received is None else sent + received


def _programs(own: Sequence[GpuProcess], owners: Mapping[int, ProcessOwner]) -> tuple[str, ...]:
    """What the kernel calls them, which servers set themselves, and the file that the driver names."""
    names: dict[str, None] = {}
    for process in own:
        owner = owners.get(process.pid)
        for name in (owner.name if owner else None, program(process.name)):
            if name:
                names[name] = None
    return tuple(names)


def program(name: str | None) -> str | None:
    """The file of a program, without its folder and without arguments, which may hold secrets."""
    words = (name or "").split()
    return words[0].rpartition("/")[2] or None if words else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
