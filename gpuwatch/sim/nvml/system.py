"""Functions about the driver as a whole: start, versions, and handles."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pynvml

from gpuwatch.sim.node.gpu import SimGpu
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.nvml.answers import Handle, refuse

if TYPE_CHECKING:
    from gpuwatch.sim.nvml import SimNvml


def _init(nvml: "SimNvml", flags: int = 0) -> None:
    with nvml.lock:
        node = nvml.keeper.update()
        if not node.driver_up:
            refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        if node.init_error:
            refuse(getattr(pynvml, f"NVML_ERROR_{node.init_error}", pynvml.NVML_ERROR_UNKNOWN))
        if nvml.generation is None:
            nvml.generation = node.generation
        nvml.enter()


def _about(answer: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the node."""

    def ask(nvml: "SimNvml", *args: Any) -> Any:
        with nvml.lock:
            return answer(nvml.enter(), *args)

    return ask


def _attached(node: SimNode) -> list[SimGpu]:
    return [gpu for gpu in node.gpus if gpu.attached]


def _by_index(node: SimNode, index: int) -> Handle:
    gpus = _attached(node)
    if not 0 <= index < len(gpus):
        return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    if gpus[index].faults.lost:
        return refuse(pynvml.NVML_ERROR_GPU_IS_LOST)
    return Handle(gpus[index].index)


def _by_uuid(node: SimNode, uuid: str | bytes) -> Handle:
    wanted = uuid.decode() if isinstance(uuid, bytes) else uuid
    for gpu in _attached(node):
        if gpu.uuid == wanted:
            return Handle(gpu.index)
        if any(unit.uuid == wanted for unit in gpu.units):
            return Handle(gpu.index, wanted)
    return refuse(pynvml.NVML_ERROR_NOT_FOUND)


def _by_address(node: SimNode, address: str | bytes) -> Handle:
    wanted = (address.decode() if isinstance(address, bytes) else address).lower()
    for gpu in _attached(node):
        if wanted in (gpu.address.nvml.lower(), str(gpu.address)):
            return Handle(gpu.index)
    return refuse(pynvml.NVML_ERROR_NOT_FOUND)


CUDA = {
    470: 11040, 510: 11060, 515: 11070, 520: 11080, 525: 12000, 530: 12010, 535: 12020, 545: 12030, 550: 12040,
    555: 12050, 560: 12060, 565: 12070, 570: 12080, 575: 12090, 580: 13000, 590: 13010, 595: 13020,
}  # fmt: skip
"""Driver branch -> the CUDA version it brings, as NVML counts."""


def cuda_version(node: SimNode) -> int:
    """As NVML counts: 12080 is 12.8."""
    branch = int(node.driver.partition(".")[0])
    return CUDA[max((known for known in CUDA if known <= branch), default=min(CUDA))]


SYSTEM: dict[str, Callable[..., Any]] = {
    "nvmlInit": _init,
    "nvmlInitWithFlags": _init,
    "nvmlShutdown": lambda nvml: None,
    "nvmlSystemGetDriverVersion": _about(lambda node: node.driver),
    "nvmlSystemGetNVMLVersion": _about(lambda node: f"{cuda_version(node) // 1000}.{node.driver}"),
    "nvmlSystemGetCudaDriverVersion": _about(cuda_version),
    "nvmlSystemGetCudaDriverVersion_v2": _about(cuda_version),
    "nvmlDeviceGetCount": _about(lambda node: len(_attached(node))),
    "nvmlDeviceGetHandleByIndex": _about(_by_index),
    "nvmlDeviceGetHandleByUUID": _about(_by_uuid),
    "nvmlDeviceGetHandleByPciBusId": _about(_by_address),
}
"""Function -> answer, with the whole driver first."""
