"""Functions of the driver as a whole: start, versions, handles, and event sets."""

import threading
from types import SimpleNamespace
from typing import Any

import pynvml

from gpuwatch.sim.node.gpu import SimGpu
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.nvml.driver import NO_INSTANCE, Answer, Handle, SimDriver, answers, refuse, struct

CUDA = {
    470: 11040, 510: 11060, 515: 11070, 520: 11080, 525: 12000, 530: 12010, 535: 12020, 545: 12030, 550: 12040,
    555: 12050, 560: 12060, 565: 12070, 570: 12080, 575: 12090, 580: 13000, 590: 13010, 595: 13020,
}  # fmt: skip
"""Driver branch -> the CUDA version it brings, as NVML counts."""

SUPPORTED = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x400 | 0x800 | 0x4000 | 0x8000
"""nvmlEventType* bits."""


def cuda_version(node: SimNode) -> int:
    """As NVML counts: 12080 is 12.8."""
    branch = int(node.driver.partition(".")[0])
    return CUDA[max((known for known in CUDA if known <= branch), default=min(CUDA))]


def _of_node(answer: Answer) -> Answer:
    """A function of the node instead of the driver."""

    def ask(nvml: SimDriver, *args: Any) -> Any:
        with nvml.lock:
            return answer(nvml.enter(), *args)

    return ask


def _attached(node: SimNode) -> list[SimGpu]:
    return [gpu for gpu in node.gpus if gpu.attached]


SYSTEM: dict[str, Answer] = {
    "nvmlShutdown": lambda nvml: None,
    "nvmlSystemGetDriverVersion": _of_node(lambda node: node.driver),
    "nvmlSystemGetNVMLVersion": _of_node(lambda node: f"{cuda_version(node) // 1000}.{node.driver}"),
    "nvmlSystemGetCudaDriverVersion": _of_node(cuda_version),
    "nvmlSystemGetCudaDriverVersion_v2": _of_node(cuda_version),
    "nvmlSystemGetConfComputeState": _of_node(lambda node: struct(environment=0, ccFeature=0, devToolsMode=0)),
    "nvmlDeviceGetCount": _of_node(lambda node: len(_attached(node))),
    "nvmlEventSetFree": lambda nvml, events: None,
}
"""Function -> answer, with the whole driver first; the decorators below add theirs."""


@answers(SYSTEM, "nvmlInit", "nvmlInitWithFlags")
def _init(nvml: SimDriver, flags: int = 0) -> None:
    with nvml.lock:
        node = nvml.replica.update()
        if not node.driver_up:
            refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        if node.init_error:
            refuse(getattr(pynvml, f"NVML_ERROR_{node.init_error}", pynvml.NVML_ERROR_UNKNOWN))
        if nvml.generation is None:
            nvml.generation = node.generation
        nvml.enter()


@answers(SYSTEM, "nvmlDeviceGetHandleByIndex")
@_of_node
def _by_index(node: SimNode, index: int) -> Handle:
    gpus = _attached(node)
    if not 0 <= index < len(gpus):
        return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    if gpus[index].faults.lost:
        return refuse(pynvml.NVML_ERROR_GPU_IS_LOST)
    return Handle(gpus[index].index)


@answers(SYSTEM, "nvmlDeviceGetHandleByUUID")
@_of_node
def _by_uuid(node: SimNode, uuid: str | bytes) -> Handle:
    wanted = uuid.decode() if isinstance(uuid, bytes) else uuid
    for gpu in _attached(node):
        if gpu.uuid == wanted:
            return Handle(gpu.index)
        if any(unit.uuid == wanted for unit in gpu.units):
            return Handle(gpu.index, wanted)
    return refuse(pynvml.NVML_ERROR_NOT_FOUND)


@answers(SYSTEM, "nvmlDeviceGetHandleByPciBusId")
@_of_node
def _by_address(node: SimNode, address: str | bytes) -> Handle:
    wanted = (address.decode() if isinstance(address, bytes) else address).lower()
    for gpu in _attached(node):
        if wanted in (gpu.address.nvml.lower(), str(gpu.address)):
            return Handle(gpu.index)
    return refuse(pynvml.NVML_ERROR_NOT_FOUND)


class EventSet:
    """The registered GPUs with their event types, and the number of the last event delivered."""

    def __init__(self, delivered: int) -> None:
        self.types: dict[int, int] = {}
        self.handles: dict[int, Handle] = {}
        self.delivered = delivered


@answers(SYSTEM, "nvmlEventSetCreate")
def _create(nvml: SimDriver) -> EventSet:
    with nvml.lock:
        return EventSet(nvml.enter().event_count)


@answers(SYSTEM, "nvmlDeviceGetSupportedEventTypes")
def _supported(nvml: SimDriver, handle: Handle) -> int:
    with nvml.lock:
        nvml.device(handle)
    return SUPPORTED


@answers(SYSTEM, "nvmlDeviceRegisterEvents")
def _register(nvml: SimDriver, handle: Handle, types: int, events: EventSet) -> None:
    with nvml.lock:
        device = nvml.device(handle)
    if types & ~SUPPORTED:
        refuse()
    events.types[device.gpu.index] = types
    events.handles[device.gpu.index] = handle


@answers(SYSTEM, "nvmlEventSetWait", "nvmlEventSetWait_v2")
def _wait_for_event(nvml: SimDriver, events: EventSet, timeout_ms: int) -> SimpleNamespace:
    """The next event since registration, within milliseconds of it."""
    pause = threading.Event()
    deadline = nvml.replica.clock.monotonic() + timeout_ms / 1000
    while True:
        with nvml.lock:
            node = nvml.enter()
            fresh = [event for event in node.events if event.number > events.delivered]
            event = next((each for each in fresh if each.type & events.types.get(each.gpu, 0)), None)
            events.delivered = event.number if event else node.event_count
            soon = nvml.replica.until_next()
        if event is not None:
            return struct(
                device=events.handles[event.gpu],
                eventType=event.type,
                eventData=event.data,
                gpuInstanceId=NO_INSTANCE if event.gi is None else event.gi,
                computeInstanceId=NO_INSTANCE if event.ci is None else event.ci,
            )
        left = deadline - nvml.replica.clock.monotonic()
        if left <= 0:
            refuse(pynvml.NVML_ERROR_TIMEOUT)
        pause.wait(min(left, soon))
