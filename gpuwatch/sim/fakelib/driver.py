"""The test's hand on a fake driver: every method takes effect at once in each process that has the library loaded."""

import ctypes
import math
import mmap
import platform
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from gpuwatch.sim.fakelib import layout, library, models

NO_INSTANCE = 0xFFFFFFFF  # gi and ci outside MIG
COMPUTE, GRAPHICS, MPS = 1, 2, 4
_FUTEX = {"x86_64": 202, "aarch64": 98}  # syscall numbers; without one, sleepers notice within a second
_VALUE_TYPES = {"double": 0, "uint": 1, "ulong": 2, "ull": 3, "sll": 4, "sint": 5}  # nvmlValueType_t


class FakeProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU client: memory in bytes, utilization in percent (`sm=None`: none sampled), seen_us=None: just now."""

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
    seen_us: int | None = None


class FakeMig(msgspec.Struct, frozen=True, kw_only=True):
    """A MIG device. `profile` as NVIDIA writes it: `1g.10gb`, or `1c.3g.40gb` for a part of an instance's compute."""

    gi: int
    ci: int = 0
    profile: str = "1g.10gb"
    uuid: str | None = None
    memory_used: int = 0


class FakeDriver:
    """A driver with up to 16 GPUs, kept in `directory/control`; use it as a context manager.

    `profile` picks the exported symbols and the versions, `model` one of models.MODELS. A function is named as in
    nvml.h; without a version suffix the name covers all its versions, `*` covers every function. `gpu` is the slot,
    which is also the NVML index as long as no lower GPU was removed; None means all.
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
        directory.mkdir(parents=True, exist_ok=True)
        with self.path.open("wb+") as file:
            file.truncate(ctypes.sizeof(layout.Control))
            self._map = mmap.mmap(file.fileno(), 0)
        self.control = layout.Control.from_buffer(self._map)
        self._lock = threading.Lock()
        self._lacks = models.DRIVER_LACKS.get(profile, {})
        version, self.control.cuda_version = models.VERSIONS[profile]
        self._set_version(version)
        self.control.gpu_count = gpus
        for gpu in range(gpus):
            self._install(gpu, model)
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

    # ---- what the GPUs are and hold ----

    def set(self, gpu: int | None = None, **values: Any) -> None:
        """Sets fields of layout.Gpu: numbers, texts (name, uuid...) or tables (clock_mhz...); None = unsupported."""
        for slot in self._slots(gpu):
            target = self.control.gpus[slot]
            if "power_mw" in values:  # the energy so far was drawn at the old power
                now = time.monotonic_ns()
                if layout.ABSENT not in (target.energy_mj, target.power_mw):
                    target.energy_mj += target.power_mw * (now - target.energy_since_ns) // 1_000_000_000
                target.energy_since_ns = now
                if target.power_average_mw != layout.ABSENT:
                    values.setdefault("power_average_mw", values["power_mw"])
            for name, value in values.items():
                _assign(target, name, value)

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
        """Sets fields of layout.Link: `active` (0, 1), `tx_kib`, `rx_kib`, `errors` (five counters)."""
        for name, value in values.items():
            _assign(self.control.gpus[gpu].links[link], name, value)

    def set_field(
        self, gpu: int | None, field: int, value: int = 0, *, kind: str = "ull", rate: float = 0.0, error: int = 0
    ) -> None:
        """Dictates an NVML_FI_* answer: value + rate per second (kind of _VALUE_TYPES), or an nvmlReturn_t."""
        for slot in self._slots(gpu):
            self.control.gpus[slot].fields[field] = layout.Field(
                1, error, _VALUE_TYPES[kind], 0, value, rate, time.monotonic_ns()
            )

    def set_gpm(self, gpu: int, values: Mapping[int, float | None], *, gi: int | None = None) -> None:
        """Sets GPM metrics by nvmlGpmMetricId_t (percent, MiB/s), of the GPU or of one GPU instance."""
        target = self.control.gpus[gpu]
        tables = [target.gpm_values] if gi is None else [m.gpm for m in target.migs[: target.mig_count] if m.gi == gi]
        for table in tables:
            for metric, value in values.items():
                table[metric] = math.nan if value is None else value

    def set_processes(self, gpu: int, processes: Iterable[FakeProcess]) -> None:
        """Replaces the GPU's processes (64 at most)."""
        target = self.control.gpus[gpu]
        target.process_count = 0
        count = 0
        for count, process in enumerate(processes, start=1):
            slot = target.processes[count - 1]
            for name in process.__struct_fields__:
                _assign(slot, name, getattr(process, name))
            slot.seen_us = process.seen_us or 0
        target.process_count = count

    def set_mig(self, gpu: int, instances: Iterable[FakeMig] | None) -> None:
        """Turns MIG on with these devices (8 at most), or off with None."""
        target = self.control.gpus[gpu]
        target.mig_mode = target.mig_pending = int(instances is not None)
        target.mig_count = 0
        count = 0
        for count, instance in enumerate(instances or (), start=1):
            _partition(target, target.migs[count - 1], gpu, instance)
        target.mig_count = count

    def push_sample(self, gpu: int, kind: int, value: int, *, timestamp_us: int | None = None) -> None:
        """Adds to the sample ring (nvmlSamplingType_t; mW, percent, MHz); Unix time, now unless said."""
        target = self.control.gpus[gpu]
        stamp = time.time_ns() // 1000 if timestamp_us is None else timestamp_us
        target.samples[target.sample_count % layout.MAX_SAMPLES] = layout.Sample(kind, value, stamp)
        target.sample_count += 1

    # ---- events ----

    def push_event(self, gpu: int, kind: int, data: int = 0, *, gi: int = NO_INSTANCE, ci: int = NO_INSTANCE) -> None:
        """Delivers an event (nvmlEventType*) to every set registered for it."""
        with self._lock:
            head = self.control.event_head
            self.control.events[head % layout.MAX_EVENTS] = layout.Event(kind, data, gpu, gi, ci)
            self.control.event_head = head + 1
        self._wake(ctypes.addressof(self.control) + layout.Control.event_head.offset)

    def xid(self, gpu: int, code: int, *, gi: int = NO_INSTANCE, ci: int = NO_INSTANCE) -> None:
        """Delivers an XID critical error event."""
        self.push_event(gpu, models.XID, code, gi=gi, ci=ci)

    # ---- misbehaviour ----

    def hang(self, function: str = "*", gpu: int | None = None) -> None:
        """Calls do not return until `clear`."""
        self._rule(function, gpu, hang=1)

    def crash(self, function: str = "*", gpu: int | None = None) -> None:
        """The next call dies of SIGSEGV; the one after it does not."""
        self._rule(function, gpu, crash=1)

    def delay(self, seconds: float, function: str = "*", gpu: int | None = None) -> None:
        """Calls take this much longer."""
        self._rule(function, gpu, delay_us=int(seconds * 1e6))

    def error(self, code: int, function: str = "*", gpu: int | None = None) -> None:
        """Calls return this nvmlReturn_t (0: success, with nothing written)."""
        self._rule(function, gpu, error=code + 1)

    def clear(self, function: str | None = None, gpu: int | None = None) -> None:
        """Ends the misbehaviour set with the same names (all of it without a function) and releases hung calls."""
        if function is not None:
            self._rule(function, gpu, hang=0, crash=0, delay_us=0, error=0)
            return
        for call in self.control.calls[: len(library.functions()) + 1]:
            hung = [rule for rule in call.rules if rule.hang]
            ctypes.memset(call.rules, 0, ctypes.sizeof(call.rules))
            for rule in hung:
                self._wake(ctypes.addressof(rule))

    def lose(self, gpu: int) -> None:
        """The GPU falls off the bus: every call for it returns GPU_IS_LOST."""
        self.set(gpu, lost=1)

    def restore(self, gpu: int) -> None:
        """A lost or removed GPU is back; processes see a removed one again after their next nvmlInit."""
        self.set(gpu, lost=0, present=1)

    def remove(self, gpu: int) -> None:
        """As `lose`, and the next nvmlInit no longer counts the GPU."""
        self.set(gpu, present=0)

    def reload(self, driver_version: str | None = None) -> None:
        """The driver is loaded anew: processes that used it get UNINITIALIZED, their nvmlInit a version mismatch."""
        if driver_version is not None:
            self._set_version(driver_version)
        self.control.generation += 1
        self._wake(ctypes.addressof(self.control) + layout.Control.event_head.offset)

    # ---- counters ----

    def calls(self, function: str | None = None) -> int:
        """Calls since the start or `reset_calls`, of one function or of all."""
        indices = range(1, len(library.functions()) + 1) if function is None else self._indices(function)
        return sum(self.control.calls[index].count for index in indices)

    def called(self) -> dict[str, int]:
        """Each function that was called, and how often."""
        counts = ((f.name, self.control.calls[i].count) for i, f in enumerate(library.functions(), start=1))
        return {name: count for name, count in counts if count}

    def in_flight(self, function: str) -> int:
        """Calls that have not returned; a process that died inside one is counted until `reset_calls`."""
        return sum(self.control.calls[index].in_flight for index in self._indices(function))

    def reset_calls(self) -> None:
        """All counters to 0; only while no call is inside."""
        for call in self.control.calls:
            call.count = call.in_flight = 0

    # ---- how ----

    def _slots(self, gpu: int | None) -> Iterator[int]:
        count = self.control.gpu_count
        if gpu is not None and not 0 <= gpu < count:
            raise IndexError(f"there is no GPU {gpu}, only {count}")
        yield from range(count) if gpu is None else (gpu,)

    def _indices(self, function: str) -> list[int]:
        if function == "*":
            return [0]
        name = re.compile(re.escape(function) + r"(WithFlags)?(_v\d+)?")
        found = [i for i, f in enumerate(library.functions(), start=1) if name.fullmatch(f.name)]
        if not found:
            raise ValueError(f"nvml.h has no function {function}")
        return found

    def _rule(self, function: str, gpu: int | None, **values: int) -> None:
        column = 0 if gpu is None else gpu + 1
        for index in self._indices(function):
            rule = self.control.calls[index].rules[column]
            for name, value in values.items():
                setattr(rule, name, value)
            self._wake(ctypes.addressof(rule))

    def _wake(self, address: int) -> None:
        if number := _FUTEX.get(platform.machine()):
            wake, everybody = 1, 2**31 - 1
            ctypes.CDLL(None).syscall(number, ctypes.c_void_p(address), wake, everybody, None, None, 0)

    def _set_version(self, version: str) -> None:
        self.control.driver_version = version.encode()
        self.control.nvml_version = f"{self.control.cuda_version // 1000}.{version}".encode()

    def _install(self, gpu: int, model: str) -> None:
        target = self.control.gpus[gpu]
        for name in (*layout.GPU_VALUES, "clock_mhz", "clock_max_mhz", "remap_banks"):
            _assign(target, name, None)
        for table in (target.gpm_values, *(mig.gpm for mig in target.migs)):
            table[:] = [math.nan] * layout.MAX_GPM
        for counter in range(2):
            for kind in range(2):
                _fill(target.ecc[counter][kind], (None, None, 0, None, None, None, None, 0))
        values = {**models.COMMON, **models.MODELS[model], **self._lacks}
        self.set(
            gpu,
            **values,
            minor_number=gpu,
            module_id=gpu,
            pci_bus=0x0F * (gpu + 1),
            board_id=0x0F00 * (gpu + 1),
            serial=f"165122{gpu:07d}",
            uuid=f"GPU-{gpu:08x}-5e4d-4c3b-2a19-{gpu:012x}",
        )
        if target.gpm == 1:
            self.set_gpm(gpu, models.GPM_AT_REST)
        for link in range(max(target.nvlinks, 0)):
            self.set_link(gpu, link, active=1, tx_kib=0, rx_kib=0, errors=(0, 0, 0, 0, 0))


def _fill(array: Any, values: Any) -> None:
    for index in range(len(array)):
        value = None if values is None else values[index]
        array[index] = layout.ABSENT if value is None else value


def _assign(target: Any, name: str, value: Any) -> None:
    """One field of a control structure; AttributeError for a name it does not have (ctypes would accept any)."""
    kind = next((kind for field, kind, *_ in target._fields_ if field == name), None)
    if kind is None:
        raise AttributeError(f"{type(target).__name__} has no {name}")
    if isinstance(value, str):
        setattr(target, name, value.encode())
    elif hasattr(kind, "_length_"):
        _fill(getattr(target, name), value)
    else:
        setattr(target, name, layout.ABSENT if value is None else value)


def _partition(target: Any, mig: Any, gpu: int, instance: FakeMig) -> None:
    shape = re.fullmatch(r"(?:(\d)c\.)?(\d)g\.(\d+)gb", instance.profile)
    if shape is None:
        raise ValueError(f"{instance.profile!r} is no MIG profile such as 1g.10gb")
    slices, gigabytes = int(shape[2]), int(shape[3])
    ci_slices = int(shape[1] or slices)
    uuid = instance.uuid or f"MIG-{gpu:08x}-0{instance.gi:03x}-5c0{instance.ci:x}-8a2b-0123456789ab"
    texts = {"uuid": uuid, "name": f"{target.name.decode()} MIG {instance.profile}"}
    numbers = {
        "gi": instance.gi, "ci": instance.ci, "slices": slices, "ci_slices": ci_slices, "profile": {1: 0, 2: 1, 3: 2,
        4: 3, 7: 4}.get(slices, 0), "multiprocessors": 16 * ci_slices, "copy_engines": slices, "decoders": slices,
        "jpegs": slices, "memory_total": gigabytes * models.GIB, "memory_used": instance.memory_used,
        "memory_reserved": 0,
    }  # fmt: skip
    for name, value in {**texts, **numbers}.items():
        _assign(mig, name, value)
    mig.gpm[:] = target.gpm_values[:]
