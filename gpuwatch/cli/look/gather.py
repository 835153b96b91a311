"""From a View to items: joins by GPU what the View keeps apart (sample, presence, health, users)."""

from collections.abc import Callable, Iterable
from datetime import datetime

from gpuwatch.cli.console.words import utc
from gpuwatch.cli.look.items import (
    FindingItem,
    GpuItem,
    MigItem,
    NvLinkItem,
    PodItem,
    ProcessItem,
    XidItem,
    same_members,
)
from gpuwatch.model.finding import Health, Severity
from gpuwatch.model.pci import pci_key
from gpuwatch.model.view import View
from gpuwatch.model.workload import DeviceUse, Workload
from gpuwatch.model.xid_catalogue import explain

_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}

RECOVERY_ADVICE = 154  # the XID


def gpu_items(view: View) -> list[GpuItem]:
    """Every GPU of the View, present or lost, by index."""
    samples = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    # the newest XID of each GPU; the driver's advice (154) only where there is no other, as it follows the fault
    dated = [(xid.xid != RECOVERY_ADVICE, xid.last, xid.uuid, xid) for xid in xid_items(view) if xid.uuid and xid.last]
    xids = {uuid: xid for _, _, uuid, xid in sorted(dated, key=lambda row: row[:2])}
    items = []
    for status in view.snapshot.statuses:
        identity, uuid = status.identity, status.identity.uuid
        sample = samples.get(uuid)
        devices = [device for device in view.attribution.devices if device.gpu == uuid]
        known = [device.allocated for device in devices if device.allocated is not None]
        items.append(
            same_members(
                GpuItem,
                sample,
                index=identity.index,
                uuid=uuid,
                pci_bus_id=identity.pci_bus_id,
                name=identity.name,
                serial=identity.serial,
                architecture=identity.architecture,
                health=view.judgement.gpus.get(uuid, Health.UNKNOWN),
                state=status.state,
                detail=status.detail or None,
                since=_time(status.since),
                at=_time(sample.at) if sample else None,
                mig_instances=len(sample.mig) if sample else 0,
                processes=len(sample.processes) if sample and sample.processes is not None else None,
                allocated=any(known) if known else None,
                users=users(view, uuid, devices),
                holders=tuple(holder for device in devices for holder in device.holders),
                last_xid=xids.get(uuid),
            )
        )
    return items


def process_items(view: View) -> list[ProcessItem]:
    """Every process on every fresh GPU."""
    owners = {owner.pid: owner for owner in view.owners}
    return [
        same_members(
            ProcessItem,
            process,
            gpu=gpu.identity.index,
            uuid=gpu.identity.uuid,
            name=(owner.name if owner else None) or process.name,
            memory=process.used_memory,
            utilization=process.sm_utilization,
            user=owner.account if owner else None,
            workload=owner.workload if owner else None,
            slurm_job=owner.slurm_job if owner else None,
            container=owner.container if owner else None,
        )
        for gpu in view.snapshot.gpus
        for process in gpu.processes or ()
        for owner in [owners.get(process.pid)]
    ]


def pod_items(view: View) -> list[PodItem]:
    """Every container that holds a device or has a process on one."""
    usage = {(row.gpu, row.gi, row.workload): row for row in view.attribution.usage}
    held = {(d.gpu, d.gi, holder.workload): (d, holder) for d in view.attribution.devices for holder in d.holders}
    joules: dict[tuple[str, int | None, Workload], float] = {}
    for row in view.pod_energy:
        at = (row.gpu, row.gi, row.workload)
        joules[at] = joules.get(at, 0.0) + row.joules
    indices = _indices(view)
    items = []
    for key in dict.fromkeys([*held, *usage]):
        uuid, gi, workload = key
        device, holder = held.get(key) or (None, None)
        used = usage.get(key)
        items.append(
            same_members(
                PodItem,
                workload,
                gpu=indices.get(uuid),
                uuid=uuid,
                gi=gi,
                profile=device.profile if device else None,
                resource=holder.resource if holder else None,
                replicas=holder.replicas if holder and holder.resource else None,
                processes=used.processes if used else 0,
                memory=used.memory if used else None,
                utilization=used.utilization if used else None,
                energy=joules.get(key),
            )
        )
    return sorted(items, key=lambda pod: (pod.namespace or "", pod.pod or "", pod.gpu or 0, pod.gi or 0))


def mig_items(view: View) -> list[MigItem]:
    """Every MIG device of every fresh GPU."""
    uses = {device.mig: device for device in view.attribution.devices if device.mig}
    return [
        same_members(
            MigItem,
            mig,
            gpu=gpu.identity.index,
            allocated=use.allocated if use else None,
            users=users(view, gpu.identity.uuid, [use] if use else [], mig.gi),
        )
        for gpu in view.snapshot.gpus
        for mig in gpu.mig
        for use in [uses.get(mig.uuid)]
    ]


def nvlink_items(view: View) -> list[NvLinkItem]:
    """Every NVLink of every fresh GPU."""
    return [
        same_members(NvLinkItem, link, gpu=gpu.identity.index, uuid=gpu.identity.uuid)
        for gpu in view.snapshot.gpus
        for link in gpu.nvlinks
    ]


def finding_items(view: View) -> list[FindingItem]:
    """Findings, the worst first."""
    indices = _indices(view)
    items = [
        same_members(
            FindingItem,
            finding,
            gpu=indices.get(finding.gpu or ""),
            uuid=finding.gpu,
            since=_time(finding.since),
            last=_time(finding.last),
        )
        for finding in view.judgement.findings
    ]
    return sorted(items, key=lambda item: (_ORDER[item.severity], -1 if item.gpu is None else item.gpu))


def xid_items(view: View) -> list[XidItem]:
    """Every XID with a count, by GPU and code."""
    indices = _indices(view)
    by_pci = {pci_key(s.identity.pci_bus_id): s.identity.uuid for s in view.snapshot.statuses}
    items = []
    for xid in view.xids:
        if not xid.count and xid.last is None:
            continue
        uuid, info = xid.uuid or by_pci.get(pci_key(xid.pci)), explain(xid.xid)
        items.append(
            XidItem(
                gpu=indices.get(uuid or ""),
                uuid=uuid,
                pci_bus_id=xid.pci,
                xid=xid.xid,
                count=xid.count,
                last=_time(xid.last),
                mnemonic=info.name if info else None,
                **{name: getattr(info, name, None) for name in ("description", "severity", "category", "action")},
            )
        )
    return sorted(items, key=lambda item: (item.gpu is None, item.gpu or 0, item.xid))


def by_index(view: View | None) -> Callable[[str], str]:
    """Turns a text that names GPUs by uuid into one that names them by index, as people do."""
    indices = _indices(view) if view is not None else {}

    def renamed(text: str) -> str:
        for uuid, index in indices.items():
            text = text.replace(f"GPU {uuid}", f"GPU {index}").replace(uuid, f"GPU {index}")
        return text

    return renamed


def _indices(view: View) -> dict[str, int]:
    return {status.identity.uuid: status.identity.index for status in view.snapshot.statuses}


def _time(at: float | None) -> datetime | None:
    return None if at is None else utc(at)


def process_workload(item: ProcessItem) -> str | None:
    """The pod, Slurm job, container or account of a process, with its name."""
    if item.workload is not None:
        return _pod_name(item.workload)
    if item.slurm_job is not None:
        return f"slurm {item.slurm_job}"
    if item.container is not None:
        return f"container {item.container.name}"
    return f"{item.user}: {item.name}" if item.user and item.name else item.name or item.user


def pod_names(workloads: Iterable[Workload]) -> tuple[str, ...]:
    """Each pod once, however many of its containers there are."""
    return tuple(dict.fromkeys(map(_pod_name, workloads)))


def short_name(user: str) -> str:
    """A pod's name without its namespace; other users as they are."""
    return user.rpartition("/")[2] if " " not in user else user


def users(view: View, uuid: str, devices: Iterable[DeviceUse], gi: int | None = None) -> tuple[str, ...]:
    """Names of the users of a device: pods first, then Slurm jobs, containers, accounts and processes."""
    pods = pod_names(holder.workload for device in devices for holder in device.holders)
    here = (item for item in process_items(view) if item.uuid == uuid and gi in (None, item.gi))
    return tuple(name for name in dict.fromkeys((*pods, *map(process_workload, here))) if name)


def _pod_name(workload: Workload) -> str:
    return f"{workload.namespace}/{workload.pod}" if workload.pod else f"pod {workload.pod_uid}"
