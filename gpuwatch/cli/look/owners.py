"""Whose a GPU is, in words: pods first, then Slurm jobs, accounts and processes."""

from collections.abc import Iterable

from gpuwatch.cli.look.items import ProcessItem
from gpuwatch.model.snapshot import Gpu, GpuProcess
from gpuwatch.model.view import View
from gpuwatch.model.workload import DeviceUse, ProcessOwner, Workload


def process_workload(item: ProcessItem) -> str | None:
    """Whose process it is, in a word or two."""
    return _owner_name(item.workload, item.slurm_job, item.user, item.name)


def pod_names(workloads: Iterable[Workload]) -> tuple[str, ...]:
    """Each pod once, however many of its containers there are."""
    return tuple(dict.fromkeys(name for workload in workloads if (name := _owner_name(workload))))


def users(view: View, gpu: Gpu | None, devices: Iterable[DeviceUse], gi: int | None = None) -> tuple[str, ...]:
    """Names of who holds or uses a device: pods first, then what runs outside of pods."""
    holders = (holder.workload for device in devices for holder in device.holders)
    names = dict.fromkeys(_owner_name(workload) for workload in holders)
    owners = {owner.pid: owner for owner in view.owners}
    for process in (gpu.processes or ()) if gpu else ():
        if gi is None or process.gi == gi:
            names[_process_name(process, owners.get(process.pid))] = None
    return tuple(name for name in names if name)


def _process_name(process: GpuProcess, owner: ProcessOwner | None) -> str | None:
    if owner is None:
        return process.name
    if owner.workload is not None or owner.pod_uid is not None:
        return _owner_name(owner.workload or Workload(pod_uid=owner.pod_uid))
    return _owner_name(None, owner.slurm_job, owner.account, owner.name or process.name)


def _owner_name(
    workload: Workload | None, slurm_job: str | None = None, user: str | None = None, process: str | None = None
) -> str | None:
    if workload is not None:
        return f"{workload.namespace}/{workload.pod}" if workload.pod else f"pod {workload.pod_uid}"
    if slurm_job is not None:
        return f"slurm {slurm_job}"
    return f"{user}: {process}" if user and process else process or user
