"""Who shares a fake GPU: processes, MIG devices and vGPUs, as a test writes them down."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from tests.fakes.libnvml import layout, models

NO_INSTANCE = 0xFFFFFFFF  # gi and ci outside MIG
COMPUTE, GRAPHICS, MPS = 1, 2, 4
HOST_VGPU = 3  # nvmlGpuVirtualizationMode_t
_PROFILE = re.compile(r"(?:(\d)c\.)?(\d)g\.(\d+)gb(?:\+\w+)?")
_PROFILE_IDS = {1: 19, 2: 14, 3: 9, 4: 5, 7: 0}  # slices -> the id of `nvidia-smi mig -lgip` on A100 and H100


class FakeProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU client: memory in bytes, utilization in percent (`sm=None`: never sampled), seen_us 0: sampled just now."""

    pid: int
    memory: int | None = 0
    kind: int = COMPUTE
    gi: int = NO_INSTANCE
    ci: int = NO_INSTANCE
    name: str = "python"
    sm: int | None = None
    mem: int = 0
    enc: int = 0
    dec: int = 0
    jpg: int = 0
    ofa: int = 0
    seen_us: int = 0


class FakeMig(msgspec.Struct, frozen=True, kw_only=True):
    """A MIG device. `profile` as NVIDIA writes it: `1g.10gb`, or `1c.3g.40gb` for a part of an instance's compute."""

    gi: int
    ci: int = 0
    profile: str = "1g.10gb"
    uuid: str = ""
    memory_used: int = 0


class FakeVgpu(msgspec.Struct, frozen=True, kw_only=True):
    """A vGPU of a virtual machine; instance numbers are unique over all GPUs."""

    instance: int
    vm: str
    uuid: str
    type: int = 1
    name: str = "GRID H100-10C"
    memory_used: int = 0
    utilization: int = 0
    licensed: bool = True


def set_processes(gpu: Any, processes: Iterable[FakeProcess]) -> None:
    """Replaces the processes of a layout.GpuStruct."""
    _write(gpu, "process_count", gpu.processes, [msgspec.structs.asdict(process) for process in processes])


def set_vgpus(gpu: Any, vgpus: Iterable[FakeVgpu]) -> None:
    """Replaces the vGPUs of a layout.GpuStruct and makes it a hypervisor's."""
    gpu.virtualization_mode = HOST_VGPU
    _write(gpu, "vgpu_count", gpu.vgpus, [msgspec.structs.asdict(vgpu) for vgpu in vgpus])


def set_mig(gpu: Any, instances: Iterable[FakeMig] | None) -> None:
    """Replaces the MIG devices of a layout.GpuStruct; None turns MIG off."""
    gpu.mig_mode = gpu.mig_pending = int(instances is not None)
    _write(gpu, "mig_count", gpu.migs, [_mig_values(gpu, instance) for instance in instances or ()])
    for mig in gpu.migs[: gpu.mig_count]:
        mig.gpm[:] = gpu.gpm_values[:]


def _write(gpu: Any, count: str, slots: Any, rows: list[dict[str, Any]]) -> None:
    if len(rows) > len(slots):
        raise ValueError(f"a fake GPU has room for {len(slots)}, not {len(rows)}")
    setattr(gpu, count, 0)  # a reader meanwhile sees none rather than half of them
    for slot, row in zip(slots, rows, strict=False):
        for name, value in row.items():
            layout.assign(slot, name, value)
    setattr(gpu, count, len(rows))


def _mig_values(gpu: Any, instance: FakeMig) -> dict[str, Any]:
    shape = _PROFILE.fullmatch(instance.profile)
    if shape is None:
        raise ValueError(f"{instance.profile!r} is no MIG profile such as 1g.10gb")
    slices, gibibytes = int(shape[2]), int(shape[3])
    compute = int(shape[1] or slices)
    tail = gpu.uuid.decode().removeprefix("GPU-").partition("-")[2]
    return {
        "gi": instance.gi,
        "ci": instance.ci,
        "profile": _PROFILE_IDS.get(slices, 0),
        "slices": slices,
        "ci_slices": compute,
        "multiprocessors": 16 * compute,
        "copy_engines": slices,
        "decoders": slices,
        "jpegs": slices,
        "memory_total": gibibytes * models.GIB,
        "memory_used": instance.memory_used,
        "memory_reserved": 0,
        "uuid": instance.uuid or f"MIG-{instance.gi:04x}{instance.ci:04x}-{tail}",
        "name": f"{gpu.name.decode()} MIG {instance.profile}",
    }
