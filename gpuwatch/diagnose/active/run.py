"""All active checks of a node, one device after another: never more than one GPU is loaded at a time.

Only idle and healthy devices are tested: GPUs, and the MIG instances of partitioned GPUs.
"""

import time
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.diagnose.active.parent import run_job
from gpuwatch.diagnose.active.results import Active, DeviceRun, Job, Test
from gpuwatch.model.finding import Health, Severity
from gpuwatch.model.snapshot import Gpu, GpuState, Record
from gpuwatch.model.view import View
from gpuwatch.model.workload import DeviceUse

DEVICE_SECONDS = 30.0
"""For one device or pair; the start of CUDA takes part of it on a machine with many GPUs and no persistence mode."""

DEADLINE_SECONDS = 300.0

MOST_LEFT = 2
"""After this many processes that hang in the driver, no more are started: they would hang, too."""

NOTICEABLE_BYTES = 1 << 30
"""This much memory in use without a visible process belongs to a hidden one, of another container for example."""

DEVICE_TESTS: tuple[Test, ...] = ("vector_add", "bandwidth", "memory")


class ActiveDevice(Record, frozen=True, kw_only=True):
    """A GPU, or a MIG instance of the GPU at NVML's `index`. `refused`: why it is not tested."""

    uuid: str
    index: int
    refused: str | None = None
    is_instance: bool = False
    numa_node: int | None = None


class GpuPair(NamedTuple):
    """Two GPUs that are joined by NVLink."""

    one: ActiveDevice
    other: ActiveDevice


def active_devices(view: View, selected: frozenset[int] | None, *, force: bool) -> tuple[ActiveDevice, ...]:
    """Every device of the selected GPUs, by index. `force` overrules use and health, but not missing samples."""
    gpus = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    found: list[ActiveDevice] = []
    for status in sorted(view.snapshot.statuses, key=lambda status: status.identity.index):
        uuid, index, node = status.identity.uuid, status.identity.index, status.identity.numa_node
        gpu = gpus.get(uuid)
        if selected is not None and index not in selected:
            continue
        if gpu is None or status.state is not GpuState.FRESH:
            found.append(ActiveDevice(uuid=uuid, index=index, refused=f"it is {status.state.value}"))
            continue
        failure = None
        if not force and view.judgement.gpus.get(uuid) is Health.FAILED:
            critical = (f for f in view.judgement.findings if f.gpu == uuid and f.severity is Severity.CRITICAL)
            failure = f"it has failed: {next((f.message for f in critical), 'no reason given')}"
        if not gpu.mig_enabled:
            refused = failure or (None if force else gpu_use(view, gpu))
            found.append(ActiveDevice(uuid=uuid, index=index, refused=refused, numa_node=node))
        for mig in gpu.mig if gpu.mig_enabled else ():
            refused = failure
            if not force and failure is None:
                use = next((d for d in view.attribution.devices if d.mig == mig.uuid), None)
                here = [p for p in gpu.processes or () if p.gi == mig.gi and p.ci in (mig.ci, None)]
                refused = _use(use, None if gpu.processes is None else len(here), mig.memory.used)
            found.append(ActiveDevice(uuid=mig.uuid, index=index, refused=refused, is_instance=True, numa_node=node))
    return tuple(found)


def gpu_use(view: View, gpu: Gpu) -> str | None:
    """Why a GPU that is not partitioned counts as in use; None: it is idle."""
    if gpu.vgpus:
        return f"in use by {len(gpu.vgpus)} vGPU(s)"
    use = next((d for d in view.attribution.devices if d.gpu == gpu.identity.uuid and d.mig is None), None)
    return _use(use, None if gpu.processes is None else len(gpu.processes), gpu.memory.used)


def _use(use: DeviceUse | None, processes: int | None, used_bytes: int | None) -> str | None:
    """Why the device counts as in use; None: it is free."""
    if use is not None and use.allocated:
        pods = [f"{h.workload.namespace}/{h.workload.pod}" for h in use.holders if h.workload.pod]
        return f"allocated to {', '.join(pods) or 'a pod'}"
    if processes is None:
        return "whether it is in use is not known: its processes cannot be read"
    if processes:
        return f"in use by {processes} process{'es' if processes > 1 else ''}"
    if used_bytes is not None and used_bytes >= NOTICEABLE_BYTES:
        return f"{used_bytes / 2**30:.1f} GiB of its memory are in use by processes that cannot be seen from here"
    return None


def gpu_pairs(view: View, devices: tuple[ActiveDevice, ...]) -> tuple[GpuPair, ...]:
    """Each direct NVLink neighbour once; GPUs on NVSwitches, each with the next one, in a ring."""
    gpus = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    linked = {
        device: {link.remote_pci.upper() for link in gpus[device.uuid].nvlinks if link.active and link.remote_pci}
        for device in devices
        if not device.is_instance and device.uuid in gpus
    }
    addresses = {gpu.identity.pci_bus_id.upper(): uuid for uuid, gpu in gpus.items()}
    neighbours = {d: {addresses[remote] for remote in remotes if remote in addresses} for d, remotes in linked.items()}
    direct = [GpuPair(a, b) for a, b in combinations(linked, 2) if b.uuid in neighbours[a] or a.uuid in neighbours[b]]
    switched = [d for d, remotes in linked.items() if remotes and not neighbours[d]]
    ring = [GpuPair(a, b) for a, b in zip(switched, switched[1:] + switched[:1], strict=True) if a != b]
    return tuple(direct + (ring[:1] if len(switched) == 2 else ring))


def unavailable(*, live: bool, library: str) -> str | None:
    """Why active checks are impossible: there is no GPU behind a simulated or recorded node."""
    if live or library:
        return None
    return "there is no CUDA behind a recorded or simulated node; run --active on the machine itself"


def run_active(
    view: View,
    *,
    selected: frozenset[int] | None = None,
    force: bool = False,
    deadline: float = DEADLINE_SECONDS,
    device_deadline: float = DEVICE_SECONDS,
    library: str = "",
    progress: Callable[[str], None] = lambda text: None,
) -> Active:
    """Run all tests within `deadline` seconds, each device or pair within `device_deadline`. `selected`: NVML indexes;
    `force`: also on GPUs in use or failed; `library`: libcuda.so.1 unless empty; `progress` gets the name of each step.

    Never raises and never waits for a driver that hangs: failures are part of the result.
    """
    rounds = _Rounds(library, time.monotonic() + deadline, device_deadline, progress)
    devices = active_devices(view, selected, force=force)
    runs = [run for device in devices for run in rounds.runs(device, DEVICE_TESTS)]
    broken = {run.device for run in runs if run.error and run.test == "vector_add"}
    for one, other in gpu_pairs(view, devices):
        if not broken & {one.uuid, other.uuid}:
            runs += rounds.runs(one, ("peer",), other)
    return Active(runs=tuple(runs))


class _Rounds:
    """One pass over all devices; counts the processes that hang."""

    def __init__(self, library: str, until: float, each: float, progress: Callable[[str], None]) -> None:
        self._library, self._until, self._each, self._progress = library, until, each, progress
        self._left = 0

    def runs(
        self, one: ActiveDevice, tests: tuple[Test, ...], other: ActiveDevice | None = None
    ) -> Iterator[DeviceRun]:
        """The tests on one device, or between two."""
        refused = one.refused or (f"GPU {other.index}: {other.refused}" if other and other.refused else None)
        left = self._until - time.monotonic()
        if not refused and self._left >= MOST_LEFT:
            refused = f"{self._left} processes hang in the driver already"
        elif not refused and left <= 0:
            refused = "no time was left"
        if refused:
            found = tuple(DeviceRun(test=test, device="", refused=refused) for test in tests)
        else:
            instance = f" {one.uuid}" if one.is_instance else ""
            name = f"GPU {one.index} and GPU {other.index}: copies over NVLink" if other else ""
            self._progress(name or f"GPU {one.index}{instance}: {', '.join(tests)}")
            visible = (one.uuid, other.uuid) if other else (one.uuid,)
            job = Job(devices=visible, tests=tests, library=self._library, numa_node=one.numa_node)
            ended = run_job(job, min(self._each, left))
            self._left += ended.left
            found = ended.runs
        for run in found:
            complete = replace(run, device=one.uuid, index=one.index, peer=other.index if other else None)
            if run.fault == "hang" and left < self._each:  # it had less time than a healthy device may take
                complete = replace(complete, error=None, fault=None, refused=f"no time was left: {run.error}")
            yield complete
