"""Event sets: what happened to the registered GPUs since registration, delivered within milliseconds."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pynvml

from gpuwatch.sim.nvml.answers import Handle, refuse, struct

if TYPE_CHECKING:
    from gpuwatch.sim.nvml import SimNvml

NO_INSTANCE = 0xFFFFFFFF
SUPPORTED = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x400 | 0x800 | 0x4000 | 0x8000


class EventSet:
    """Which GPUs are watched for which event types, and how far they were told."""

    def __init__(self) -> None:
        self.types: dict[int, int] = {}
        self.handles: dict[int, Handle] = {}
        self.told = 0


def _create(nvml: "SimNvml") -> EventSet:
    with nvml.lock:
        made = EventSet()
        made.told = nvml.enter().event_count
        return made


def _supported(nvml: "SimNvml", handle: Handle) -> int:
    with nvml.lock:
        nvml.device(handle)
    return SUPPORTED


def _register(nvml: "SimNvml", handle: Handle, types: int, events: EventSet) -> None:
    with nvml.lock:
        device = nvml.device(handle)
    if types & ~SUPPORTED:
        refuse()
    events.types[device.gpu.index] = types
    events.handles[device.gpu.index] = handle


def _wait(nvml: "SimNvml", events: EventSet, timeout_ms: int) -> SimpleNamespace:
    pause = threading.Event()
    deadline = nvml.keeper.clock.monotonic() + timeout_ms / 1000
    while True:
        with nvml.lock:
            found = _next(nvml.enter(), events)
            soon = nvml.keeper.until_next()
        if found is not None:
            return found
        left = deadline - nvml.keeper.clock.monotonic()
        if left <= 0:
            refuse(pynvml.NVML_ERROR_TIMEOUT)
        pause.wait(min(left, soon))


def _next(node: Any, events: EventSet) -> SimpleNamespace | None:
    if node.event_count == events.told:
        return None
    for event in node.events:
        if event.number <= events.told:
            continue
        events.told = event.number
        if event.type & events.types.get(event.gpu, 0):
            return struct(
                device=events.handles[event.gpu],
                eventType=event.type,
                eventData=event.data,
                gpuInstanceId=NO_INSTANCE if event.gi is None else event.gi,
                computeInstanceId=NO_INSTANCE if event.ci is None else event.ci,
            )
    return None


EVENTS: dict[str, Callable[..., Any]] = {
    "nvmlEventSetCreate": _create,
    "nvmlEventSetFree": lambda nvml, events: None,
    "nvmlDeviceGetSupportedEventTypes": _supported,
    "nvmlDeviceRegisterEvents": _register,
    "nvmlEventSetWait": _wait,
    "nvmlEventSetWait_v2": _wait,
}
"""Function -> answer, with the whole driver first."""
