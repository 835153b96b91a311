"""Controls a fake driver: every method takes effect at once in each process that has the library loaded."""

import ctypes
import math
import mmap
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.fakes.libnvml import layout, library, models, tenants
from tests.fakes.libnvml.coupling import Coupling
from tests.fakes.libnvml.faults import ScriptedFaults
from tests.fakes.libnvml.tenants import NO_INSTANCE, FakeMig, FakeProcess, FakeVgpu

_VALUE_TYPES = {"double": 0, "uint": 1, "ulong": 2, "ull": 3, "sll": 4, "sint": 5}  # nvmlValueType_t
_HEAD = layout.ControlStruct.event_head.offset


class FakeDriver(ScriptedFaults, Coupling):
    """A driver with up to 16 GPUs, kept in `directory/control`; use it as a context manager.

    `profile` (library.PROFILES) picks the exported symbols and the versions, `model` is one of models.MODELS. `gpu`
    is the slot, which is also the NVML index as long as no lower one was removed; None means all GPUs.
    """

    def __init__(
        self,
        directory: Path,
        *,
        gpus: int = 8,
        model: str = "H100",
        profile: str = "580",
        cache_dir: Path | None = None,
    ) -> None:
        if not 0 <= gpus <= layout.MAX_GPUS:
            raise ValueError(f"a fake driver has 0 to {layout.MAX_GPUS} GPUs, not {gpus}")
        self.library = library.build(profile, cache_dir)
        self.path = directory / "control"
        self._lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        with self.path.open("wb+") as file:
            file.truncate(ctypes.sizeof(layout.ControlStruct))
            self.control = layout.ControlStruct.from_buffer(mmap.mmap(file.fileno(), 0))
        version, self.control.cuda_version = models.VERSIONS[profile]
        self._set_version(version)
        self.control.gpu_count = gpus
        for gpu in range(gpus):
            self._install(gpu, {**models.COMMON, **models.MODELS[model], **models.DRIVER_LACKS.get(profile, {})})
        self.control.magic = library.magic()

    @property
    def env(self) -> dict[str, str]:
        """What a client's environment needs: the control file, and the library for those that search for it."""
        return {"GPUWATCH_FAKE_NVML": str(self.path), "LD_LIBRARY_PATH": str(self.library.parent)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()  # nobody stays hung for ever

    def set(self, gpu: int | None = None, **values: Any) -> None:
        """Sets fields of layout.GpuStruct: numbers, texts (uuid...) or tables (clock_mhz...); None = unsupported."""
        for slot in self._slots(gpu):
            target = self.control.gpus[slot]
            self._close(target)
            if "power_mw" in values and target.power_average_mw != layout.ABSENT:
                values.setdefault("power_average_mw", values["power_mw"])
            for name, value in values.items():
                layout.assign(target, name, value)
            self._choose(target)

    def get(self, gpu: int, name: str) -> Any:
        """What `set` would change, as it is now; None when unsupported."""
        value = getattr(self.control.gpus[gpu], name)
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, ctypes.Array):
            return tuple(None if item == layout.ABSENT else item for item in value)
        return None if value == layout.ABSENT else value

    def set_ecc(self, gpu: int, location: int, count: int | None, *, uncorrected: bool, aggregate: bool) -> None:
        """Sets the error counter of one nvmlMemoryLocation_t (2 DRAM, 7 SRAM)."""
        value = layout.ABSENT if count is None else count
        self.control.gpus[gpu].ecc[aggregate][uncorrected][location] = value

    def set_link(self, gpu: int, link: int, **values: Any) -> None:
        """Sets fields of layout.LinkStruct: `active` (0, 1), `tx_kib`, `rx_kib`, `errors` (five counters)."""
        for name, value in values.items():
            layout.assign(self.control.gpus[gpu].links[link], name, value)

    def set_field(
        self, gpu: int | None, field: int, value: int = 0, *, kind: str = "ull", rate: float = 0.0, error: int = 0
    ) -> None:
        """Dictates an NVML_FI_* answer: value + rate per second (kind of _VALUE_TYPES), or an nvmlReturn_t."""
        answer = layout.FieldStruct(1, error, _VALUE_TYPES[kind], 0, value, rate, time.monotonic_ns())
        for slot in self._slots(gpu):
            self.control.gpus[slot].fields[field] = answer

    def set_gpm(self, gpu: int, values: Mapping[int, float | None], *, gi: int | None = None) -> None:
        """Sets GPM metrics by nvmlGpmMetricId_t (percent, MiB/s), of the GPU or of one GPU instance."""
        target = self.control.gpus[gpu]
        tables = [target.gpm_values] if gi is None else [m.gpm for m in target.migs[: target.mig_count] if m.gi == gi]
        for table in tables:
            for metric, value in values.items():
                table[metric] = math.nan if value is None else value

    def set_processes(self, gpu: int, processes: Iterable[FakeProcess]) -> None:
        """Replaces the GPU's processes (64 at most)."""
        tenants.set_processes(self.control.gpus[gpu], processes)

    def set_mig(self, gpu: int, instances: Iterable[FakeMig] | None) -> None:
        """Turns MIG on with these devices (8 at most), or off with None."""
        tenants.set_mig(self.control.gpus[gpu], instances)

    def set_vgpus(self, gpu: int, vgpus: Iterable[FakeVgpu]) -> None:
        """Makes the GPU a hypervisor's, with these vGPUs (16 at most)."""
        tenants.set_vgpus(self.control.gpus[gpu], vgpus)

    def push_sample(self, gpu: int, kind: int, value: int, *, timestamp_us: int | None = None) -> None:
        """Adds to the sample ring (nvmlSamplingType_t; mW, percent, MHz); Unix time, now unless said."""
        target = self.control.gpus[gpu]
        stamp = time.time_ns() // 1000 if timestamp_us is None else timestamp_us
        target.samples[target.sample_count % layout.MAX_SAMPLES] = layout.SampleStruct(kind, value, stamp)
        target.sample_count += 1

    def push_event(self, gpu: int, kind: int, data: int = 0, *, gi: int = NO_INSTANCE, ci: int = NO_INSTANCE) -> None:
        """Delivers an event (nvmlEventType*) to every set registered for it."""
        with self._lock:
            head = self.control.event_head
            self.control.events[head % layout.MAX_EVENTS] = layout.EventStruct(kind, data, gpu, gi, ci)
            self.control.event_head = head + 1
        self._wake(ctypes.addressof(self.control) + _HEAD)

    def xid(self, gpu: int, code: int, *, gi: int = NO_INSTANCE, ci: int = NO_INSTANCE) -> None:
        """Delivers an XID critical error event."""
        self.push_event(gpu, models.XID, code, gi=gi, ci=ci)

    def lose(self, gpu: int) -> None:
        """The GPU falls off the bus: every call for it returns GPU_IS_LOST."""
        self.set(gpu, lost=1)

    def remove(self, gpu: int) -> None:
        """As `lose`, and the next nvmlInit no longer counts the GPU."""
        self.set(gpu, present=0)

    def restore(self, gpu: int) -> None:
        """A lost or removed GPU is back; processes see a removed one again after their next nvmlInit."""
        self.set(gpu, lost=0, present=1)

    def reload(self, driver_version: str | None = None) -> None:
        """The driver is loaded anew, and what was set is gone: processes that used it get UNINITIALIZED, and from their
        nvmlInit, once they have shut down, a version mismatch if it is another version.
        """
        if driver_version is not None:
            self._set_version(driver_version)
        self.forget_settings()
        self.control.generation += 1
        self._wake(ctypes.addressof(self.control) + _HEAD)

    def _set_version(self, version: str) -> None:
        self.control.driver_version = version.encode()
        self.control.nvml_version = f"{self.control.cuda_version // 1000}.{version}".encode()

    def _install(self, gpu: int, values: models.Values) -> None:
        target = self.control.gpus[gpu]
        for name in (*layout.GPU_VALUES, "clock_mhz", "clock_max_mhz", "remap_banks"):
            layout.assign(target, name, None)
        for table in (target.gpm_values, *(mig.gpm for mig in target.migs)):
            table[:] = [math.nan] * layout.MAX_GPM
        for kind in (kind for counter in target.ecc for kind in counter):
            layout.fill(kind, models.ECC_LOCATIONS)
        self.set(gpu, **values, **models.identity(gpu))
        for link in range(max(target.nvlinks, 0)):
            self.set_link(gpu, link, active=1, tx_kib=0, rx_kib=0, errors=(0, 0, 0, 0, 0))
        if target.gpm == 1:
            self.set_gpm(gpu, models.GPM_AT_REST)
            for field, rate in models.PCIE_BYTES_A_SECOND.items():
                self.set_field(gpu, field, rate=rate)
