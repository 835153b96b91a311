"""The driver's event set: XIDs and other events within milliseconds, also of a GPU that is already gone.

A lost GPU no longer answers for its UUID, so identities are kept from registration and looked up by handle.
"""

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

from gpuwatch.collect.nvml.library import Nvml, NvmlFailure, ask
from gpuwatch.model.snapshot import Identity
from gpuwatch.model.xid import DriverEvent

EVENT_TYPES = {
    "xid": "nvmlEventTypeXidCriticalError",
    "single_bit_ecc": "nvmlEventTypeSingleBitEccError",
    "double_bit_ecc": "nvmlEventTypeDoubleBitEccError",
    "single_bit_ecc_storm": "nvmlEventTypeSingleBitEccErrorStorm",
    "dram_retirement": "nvmlEventTypeDramRetirementEvent",
    "dram_retirement_failure": "nvmlEventTypeDramRetirementFailure",
    "fatal_poison": "nvmlEventTypeFatalPoisonError",
    "nonfatal_poison": "nvmlEventTypeNonFatalPoisonError",
    "gpu_unavailable": "nvmlEventTypeGpuUnavailableError",
    "recovery_action": "nvmlEventTypeGpuRecoveryAction",
}
"""Kind -> event type; a GPU that supports fewer is registered for those it has."""

NO_INSTANCE = 0xFFFFFFFF


class DriverEventReader:
    """One event set over all added GPUs. `wait` blocks, so it belongs in a thread of its own.

    Raises on construction:
        NvmlFailure: the driver has no event sets.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._set = ask(nvml, "nvmlEventSetCreate")
        self._bits = {
            getattr(nvml, constant): kind for kind, constant in EVENT_TYPES.items() if hasattr(nvml, constant)
        }
        self._added: dict[Any, tuple[Any, Identity]] = {}

    def add(self, handle: Any, identity: Identity) -> None:
        """Register a GPU for every known event type that it supports.

        Raises:
            NvmlFailure: this GPU has no events.
        """
        self._added[handle_key(handle)] = handle, identity
        supported = ask(self._nvml, "nvmlDeviceGetSupportedEventTypes", handle)
        ask(self._nvml, "nvmlDeviceRegisterEvents", handle, supported & sum(self._bits), self._set)

    def reopen(self) -> None:
        """Make a new set without the GPUs that refuse: with a lost one in the set every wait fails.

        Raises:
            NvmlFailure: the driver makes no new set.
        """
        old, self._set = self._set, ask(self._nvml, "nvmlEventSetCreate")
        for handle, identity in list(self._added.values()):
            with contextlib.suppress(NvmlFailure):
                self.add(handle, identity)
        with contextlib.suppress(NvmlFailure):
            ask(self._nvml, "nvmlEventSetFree", old)

    def wait(self, timeout_ms: int, time: Callable[[], float]) -> DriverEvent | None:
        """The next event, or None when the timeout passed without one.

        Raises:
            NvmlFailure: the wait failed; the caller has to pause before the next one, which may fail at once.
        """
        try:
            data = ask(self._nvml, "nvmlEventSetWait_v2", self._set, timeout_ms)
        except NvmlFailure as error:
            if error.code == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise
        _, identity = self._added.get(handle_key(data.device), (None, None))
        return DriverEvent(
            kind=self._bits.get(data.eventType, f"0x{data.eventType:x}"),
            at=time(),
            data=int(data.eventData),
            uuid=identity.uuid if identity else None,
            pci_bus_id=identity.pci_bus_id if identity else None,
            gi=None if data.gpuInstanceId == NO_INSTANCE else int(data.gpuInstanceId),
            ci=None if data.computeInstanceId == NO_INSTANCE else int(data.computeInstanceId),
        )


def handle_key(handle: Any) -> Any:
    """The key of a handle: ctypes compares pointers by object, so their address is used."""
    return ctypes.cast(handle, ctypes.c_void_p).value if isinstance(handle, pynvml.c_nvmlDevice_t) else handle
