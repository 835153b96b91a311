"""Hosts on which checks fail: functional."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gpuwatch.diagnose.active.results import Active, DeviceRun
from gpuwatch.diagnose.model import CheckStatus
from tests.diagnose.checks.broken import Broken
from tests.diagnose.hosts import Host

MEASURED: dict[str, dict[str, Any]] = {
    "vector_add": {"bytes": 12 << 20},
    "bandwidth": {"bytes": 64 << 20, "host_to_device": 55e9, "device_to_host": 54e9},
    "memory": {"bytes": 1 << 30},
}


def _ran(host: Host) -> None:
    """What the active checks bring home from eight good GPUs."""
    assert host.view is not None
    uuids = [gpu.identity.uuid for gpu in host.view.snapshot.gpus]
    runs = [
        DeviceRun(test=test, device=uuid, index=i, **members)
        for i, uuid in enumerate(uuids)
        for test, members in MEASURED.items()
    ]
    for i, uuid in enumerate(uuids):
        runs.append(DeviceRun(test="peer", device=uuid, index=i, peer=(i + 1) % len(uuids), peer_bandwidth=380e9))
    host.active = Active(runs=tuple(runs))


def _changed(test: str, index: int | None = 3, **changes: Any) -> Callable[[Host], None]:
    """One run of `test` ends otherwise; index None: all of them do."""

    def breaks(host: Host) -> None:
        assert host.active is not None
        runs = tuple(
            replace(run, **changes) if run.test == test and index in (None, run.index) else run
            for run in host.active.runs
        )
        host.active = replace(host.active, runs=runs)

    return breaks


def _row(
    id_: str, breaks: Callable[[Host], None], message: str, remedy: str, result: CheckStatus = CheckStatus.FAIL
) -> Broken:
    return Broken(id=id_, breaks=breaks, message=message, remedy=remedy, result=result, well=_ran, active=True)


def _refused_by_cuda(code: int, name: str, message: str, remedy: str) -> Broken:
    error = f"cuInit: {name} ({code}): {message}"
    breaks = _changed("vector_add", None, error=error, fault="cuda", code=code, function="cuInit")
    return _row("X01", breaks, f"GPU 0: {error} (and 7 more)", remedy)


BROKEN: tuple[Broken, ...] = (
    _refused_by_cuda(802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized", "fabric manager must run"),
    _refused_by_cuda(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "unsupported combination", "reload the modules"),
    _refused_by_cuda(804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility", "LD_LIBRARY_PATH"),
    _refused_by_cuda(999, "CUDA_ERROR_UNKNOWN", "unknown error", "modprobe nvidia-uvm"),
    _refused_by_cuda(100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device", "may not open the device files"),
    _refused_by_cuda(46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "busy or unavailable", "--compute-mode=DEFAULT"),
    _refused_by_cuda(2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory", "taken the GPU's memory"),
    _refused_by_cuda(807, "CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS", "nvidia-cuda-mps-control"),
    _refused_by_cuda(221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "not found", "libnvidia-ptxjitcompiler.so.1"),
    _row(
        "X01",
        _changed("vector_add", error="vectorAdd is wrong at i=4711: 4711 + 4718 gave 9430.0", fault="wrong"),
        "GPU 3: vectorAdd is wrong at i=4711",
        "dcgmi diag -r 3 -i 3",
    ),
    _row(
        "X01",
        _changed("vector_add", error="uncorrectable ECC error", fault="cuda", code=214, function="cuCtxSynchronize"),
        "GPU 3: uncorrectable ECC error",
        "nvidia-smi -i 3 --gpu-reset",
    ),
    _row(
        "X01",
        _changed("vector_add", error="no answer within 30 s in cuInit; process 7 was left alone", fault="hang"),
        "GPU 3: no answer within 30 s in cuInit",
        "Do not kill the process",
    ),
    _row(
        "X01",
        _changed("vector_add", error="the check was ended by SIGSEGV in cuInit", fault="crash"),
        "ended by SIGSEGV in cuInit",
        "Reinstall the driver's user space",
    ),
    _row(
        "X01",
        _changed("vector_add", None, error="libcuda.so.1: cannot open shared object file", fault="library"),
        "GPU 0: libcuda.so.1: cannot open",
        "NVIDIA_DRIVER_CAPABILITIES",
    ),
    _row(
        "X02",
        _changed("bandwidth", host_to_device=6.1e9),
        "GPU 3: 6.1 GB/s to the GPU, 54.0 GB/s back, of 63.0 (PCIe 5.0 x16)",
        "reseat the card",
    ),
    _row(
        "X02",
        _changed("bandwidth", device_to_host=30e9),
        "GPU 3: 55.0 GB/s to the GPU, 30.0 GB/s back",
        "iommu=pt",
        CheckStatus.WARN,
    ),
    _row(
        "X02",
        _changed("bandwidth", error="64 MiB copied to the GPU and back came back changed", fault="wrong"),
        "came back changed",
        "reseat the card",
    ),
    _row(
        "X03",
        _changed("memory", error="1 of 268435456 words are wrong, the first at byte 4711", fault="wrong"),
        "GPU 3: 1 of 268435456 words are wrong",
        "dcgmi diag -r memtest -i 3",
    ),
    _row(
        "X04",
        _changed("peer", error="the GPUs cannot reach each other's memory", fault="wrong"),
        "GPUs 3 and 4: the GPUs cannot reach each other's memory",
        "fabric manager",
    ),
    _row(
        "X04",
        _changed("peer", error="uncorrectable NVLink error", fault="cuda", code=220, function="cuMemcpyPeer"),
        "GPUs 3 and 4: uncorrectable NVLink error",
        "nvidia-smi nvlink -e -i 3",
    ),
    _row(
        "X04",
        _changed("peer", peer_bandwidth=24e9),
        "GPUs 3 and 4: 24 GB/s, no more than PCIe can do",
        "nvidia-smi topo -p2p r",
        CheckStatus.WARN,
    ),
)
