"""Which devices the work is done on: what nobody uses and what is well, GPUs and the MIG instances of GPUs cut up."""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from gpuwatch.model.finding import Health, Severity
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, MigInstance, Record
from gpuwatch.model.view import View
from gpuwatch.model.workload import DeviceUse

NOTICEABLE_BYTES = 1 << 30
"""So much memory in use with no process to be seen is somebody's: a container does not see its neighbours."""


class Target(Record, frozen=True, kw_only=True):
    """A GPU, or a MIG instance of the GPU at NVML's `index`. `refused`: why nothing is done on it."""

    uuid: str
    index: int
    refused: str | None = None
    is_instance: bool = False
    numa_node: int | None = None


class Pair(NamedTuple):
    """Two GPUs that are joined by NVLink."""

    one: Target
    other: Target


def targets(view: View, selected: frozenset[int] | None, *, force: bool) -> tuple[Target, ...]:
    """Every device of the GPUs asked for, by index. `force` overrules use and health, but not silence."""
    gpus = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    found: list[Target] = []
    for status in sorted(view.snapshot.statuses, key=lambda status: status.identity.index):
        if selected is None or status.identity.index in selected:
            found += _of_gpu(view, status, gpus.get(status.identity.uuid), force=force)
    return tuple(found)


def _of_gpu(view: View, status: GpuStatus, gpu: Gpu | None, *, force: bool) -> Iterator[Target]:
    uuid, index, node = status.identity.uuid, status.identity.index, status.identity.numa_node
    if gpu is None or status.state is not GpuState.FRESH:
        yield Target(uuid=uuid, index=index, refused=f"it is {status.state.value}")
        return
    illness = None if force else _illness(view, uuid)
    if not gpu.mig_enabled:
        yield Target(uuid=uuid, index=index, refused=illness or (None if force else _use(view, gpu)), numa_node=node)
    for instance in gpu.mig if gpu.mig_enabled else ():
        refused = illness or (None if force else _instance_use(view, gpu, instance))
        yield Target(uuid=instance.uuid, index=index, refused=refused, is_instance=True, numa_node=node)


def pairs(view: View, devices: tuple[Target, ...]) -> tuple[Pair, ...]:
    """Each direct NVLink neighbour once; of GPUs on NVSwitches each with the next one, in a ring."""
    gpus = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    linked = {d: _remotes(gpus[d.uuid]) for d in devices if not d.is_instance and d.uuid in gpus}
    addresses = {gpu.identity.pci_bus_id.upper(): uuid for uuid, gpu in gpus.items()}
    neighbours = {d: {addresses[remote] for remote in remotes if remote in addresses} for d, remotes in linked.items()}
    direct = [Pair(a, b) for a, b in combinations(linked, 2) if b.uuid in neighbours[a] or a.uuid in neighbours[b]]
    switched = [d for d, remotes in linked.items() if remotes and not neighbours[d]]
    ring = [Pair(a, b) for a, b in zip(switched, switched[1:] + switched[:1], strict=True) if a != b]
    return tuple(direct + (ring[:1] if len(switched) == 2 else ring))


def _remotes(gpu: Gpu) -> set[str]:
    return {link.remote_pci.upper() for link in gpu.nvlinks if link.active and link.remote_pci}


def _illness(view: View, uuid: str) -> str | None:
    if view.judgement.gpus.get(uuid) is not Health.FAILED:
        return None
    critical = (f for f in view.judgement.findings if f.gpu == uuid and f.severity is Severity.CRITICAL)
    return f"it has failed: {next((f.message for f in critical), 'no reason given')}"


def _use(view: View, gpu: Gpu) -> str | None:
    """Why nobody should be disturbed there; None: it is free."""
    if gpu.vgpus:
        return f"in use by {len(gpu.vgpus)} vGPU(s)"
    use = next((d for d in view.attribution.devices if d.gpu == gpu.identity.uuid and d.mig is None), None)
    return _held(use) or _busy(None if gpu.processes is None else len(gpu.processes), gpu.memory.used)


def _instance_use(view: View, gpu: Gpu, instance: MigInstance) -> str | None:
    use = next((d for d in view.attribution.devices if d.mig == instance.uuid), None)
    here = [p for p in gpu.processes or () if p.gi == instance.gi and p.ci in (instance.ci, None)]
    return _held(use) or _busy(None if gpu.processes is None else len(here), instance.memory.used)


def _held(use: DeviceUse | None) -> str | None:
    if use is None or not use.allocated:
        return None
    pods = [f"{h.workload.namespace}/{h.workload.pod}" for h in use.holders if h.workload.pod]
    return f"allocated to {', '.join(pods) or 'a pod'}"


def _busy(processes: int | None, used: int | None) -> str | None:
    if processes is None:
        return "whether it is in use is not known: its processes cannot be read"
    if processes:
        return f"in use by {processes} process{'es' if processes > 1 else ''}"
    if used is not None and used >= NOTICEABLE_BYTES:
        return f"{used / 2**30:.1f} GiB of its memory are in use by nobody that can be seen from here"
    return None
