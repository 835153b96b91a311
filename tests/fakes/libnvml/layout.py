"""The control file that a test and the fake library both map: one definition, read by Python, printed as C.

Every number a test may change is an int64; ABSENT stands for "this GPU does not support it" and makes the call
answer NVML_ERROR_NOT_SUPPORTED. Units are NVML's own (mW, mJ, MHz, °C, bytes, KB/s), so that reading `control.h`
beside nvml.h needs no conversion table.
"""

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

ABSENT = -(2**63)
MAX_GPUS, MAX_MIG, MAX_LINKS, MAX_PROCESSES, MAX_VGPUS = 16, 8, 18, 64, 16
MAX_EVENTS, MAX_SAMPLES, MAX_FIELDS, MAX_GPM, MAX_CALLS = 256, 256, 512, 512, 512
MAX_CLOCKS, MAX_SETS = 256, 8192

I64, U64, U32, DOUBLE = ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_double

GPU_VALUES = (
    # identity
    *("present", "lost", "minor_number", "board_id", "module_id", "brand", "architecture", "cc_major", "cc_minor"),
    *("pci_domain", "pci_bus", "pci_device", "pci_device_id", "pci_subsystem_id", "numa_node", "cores", "bus_width"),
    *("platform_slot", "platform_tray", "platform_host"),  # of a GPU in a rack
    # modes: 0 or 1 (nvmlEnableState_t) unless NVML says otherwise
    *("persistence_mode", "compute_mode", "display_mode", "display_active", "accounting_mode", "gsp_mode"),
    *("ecc_mode", "ecc_pending", "mig_mode", "mig_pending", "virtualization_mode", "addressing_mode"),
    # vGPU licence of a guest: 0 or 1, unix seconds (ABSENT: it does not end); what confidential computing protects
    *("licensed", "license_expires", "protected_total", "protected_used"),
    # power; energy_mj is the value at energy_since_ns (CLOCK_MONOTONIC), from where power_mw is integrated
    *("power_mw", "power_average_mw", "memory_power_mw", "energy_mj", "energy_since_ns"),
    *("power_limit_mw", "power_limit_enforced_mw", "power_limit_default_mw"),
    *("power_limit_min_mw", "power_limit_max_mw"),
    # temperature; the *_tlimit values are margins to the throttling point (Hopper and newer)
    *("temperature", "memory_temperature", "margin", "temperature_shutdown", "temperature_slowdown"),
    *("temperature_memory_max", "temperature_gpu_max", "shutdown_tlimit", "slowdown_tlimit"),
    *("memory_max_tlimit", "gpu_max_tlimit", "fans", "fan_percent"),
    # load and memory
    *("util_gpu", "util_memory", "util_encoder", "util_decoder", "util_jpeg", "util_ofa", "pstate"),
    *("encoder_sessions", "encoder_fps", "encoder_latency_us"),
    *("memory_total", "memory_used", "memory_reserved", "bar1_total", "bar1_used"),
    # clocks
    *("clock_events", "clock_events_supported", "clock_min_mhz", "locked_min_mhz", "locked_max_mhz"),
    "coupled",  # 1: clock, power and clock events follow `work` and the knobs
    # PCIe
    *("pcie_gen", "pcie_gen_max", "pcie_width", "pcie_width_max", "pcie_tx_kbps", "pcie_rx_kbps", "pcie_replays"),
    # reliability
    *("remapped_correctable", "remapped_uncorrectable", "remap_pending", "remap_failure"),
    *("retired_sbe", "retired_dbe", "retired_pending", "recovery_action", "reset_status", "drain_and_reset_status"),
    "smoothing_profile",  # what every power smoothing field answers
    *("sram_parity_volatile", "sram_secded_volatile", "sram_corrected_volatile", "sram_parity", "sram_secded"),
    *("sram_corrected", "sram_bucket_l2", "sram_bucket_sm", "sram_bucket_pcie", "sram_bucket_mcu"),
    *("sram_bucket_other", "sram_threshold_exceeded", "channel_repair_pending", "tpc_repair_pending"),
    "unrepairable_memory",
    # NVLink, fabric, capabilities
    *("c2c_links", "c2c_mbps", "nvlink_effective_ber", "nvlink_symbol_ber", "nvlink_fec_blocks"),
    *("nvlinks", "nvlink_version", "nvlink_speed_mbps", "fabric_state", "fabric_status", "fabric_clique"),
    *("fabric_health_mask", "fabric_health_summary", "gpm", "supported_events"),
)


class RuleStruct(ctypes.Structure):
    """How one function misbehaves for one GPU; error is 0 for none, else nvmlReturn_t + 1."""

    _fields_ = (("hang", U32), ("crash", U32), ("delay_us", U32), ("error", U32))


class CallStruct(ctypes.Structure):
    """One function of nvml.h: how often it was called, how many calls are inside it now, and its rules."""

    _fields_ = (("count", U64), ("in_flight", U32), ("padding", U32), ("rules", RuleStruct * (MAX_GPUS + 1)))


class LinkStruct(ctypes.Structure):
    """One NVLink; errors are replay, recovery, CRC flit, CRC data, ECC data."""

    _fields_ = (("active", I64), ("tx_kib", I64), ("rx_kib", I64), ("errors", I64 * 5))


class FieldStruct(ctypes.Structure):
    """An answer of nvmlDeviceGetFieldValues that a test dictates; it grows by `rate` a second since `since_ns`."""

    _fields_ = (("set", U32), ("result", U32), ("type", U32), ("padding", U32), ("value", I64), ("rate", DOUBLE),
                ("since_ns", U64))  # fmt: skip


class ProcessStruct(ctypes.Structure):
    """A client of the GPU; kind is a mask (1 compute, 2 graphics, 4 MPS); seen_us 0 stands for "just now"."""

    _fields_ = (("pid", U32), ("kind", U32), ("gi", U32), ("ci", U32), ("memory", I64), ("seen_us", U64),
                ("sm", I64), ("mem", I64), ("enc", I64), ("dec", I64), ("jpg", I64), ("ofa", I64),
                ("name", ctypes.c_char * 64))  # fmt: skip


class MigStruct(ctypes.Structure):
    """A MIG device: one compute instance of one GPU instance."""

    _fields_ = (("gi", U32), ("ci", U32), ("profile", U32), ("multiprocessors", U32), ("slices", U32),
                ("ci_slices", U32), ("copy_engines", U32), ("decoders", U32), ("encoders", U32), ("jpegs", U32),
                ("ofas", U32), ("padding", U32), ("memory_total", I64), ("memory_used", I64), ("memory_reserved", I64),
                ("uuid", ctypes.c_char * 80), ("name", ctypes.c_char * 96), ("gpm", DOUBLE * MAX_GPM))  # fmt: skip


class VgpuStruct(ctypes.Structure):
    """A vGPU instance of a hypervisor's GPU; utilization in percent."""

    _fields_ = (
        ("instance", U32),
        ("type", U32),
        ("licensed", U32),
        ("utilization", U32),
        ("memory_used", U64),
        ("uuid", ctypes.c_char * 80),
        ("vm", ctypes.c_char * 80),
        ("name", ctypes.c_char * 64),
    )


class SampleStruct(ctypes.Structure):
    """An entry of the driver's sample ring (nvmlDeviceGetSamples)."""

    _fields_ = (("type", U32), ("value", U32), ("timestamp_us", U64))


class WorkStruct(ctypes.Structure):
    """What a coupled GPU does at each of its clocks, highest first; `pace` is its speed there, 1 at the highest.

    `now` is the row in force, negative while nothing runs. The sums run up to `since_ns`, from where the row goes on.
    """

    _fields_ = (("count", I64), ("now", I64), ("idle_mhz", I64), ("idle_mw", I64), ("since_ns", U64),
                ("work_ns", DOUBLE),  # time at full speed that would have done the same
                ("cycles_ns", DOUBLE),  # time in which the pipes would have been as busy at full speed
                ("mhz", I64 * MAX_CLOCKS), ("power_mw", I64 * MAX_CLOCKS), ("pace", DOUBLE * MAX_CLOCKS))  # fmt: skip


class GpuStruct(ctypes.Structure):
    """One GPU slot."""

    _fields_ = (
        *((name, I64) for name in GPU_VALUES),
        ("clock_mhz", I64 * 4),  # graphics, sm, memory, video
        ("clock_max_mhz", I64 * 4),
        ("event_ns", I64 * 12),  # time under each nvmlPerfPolicyType_t
        ("ecc", I64 * 8 * 2 * 2),  # [0 volatile, 1 aggregate][0 corrected, 1 uncorrected][nvmlMemoryLocation_t]
        ("remap_banks", I64 * 5),  # max, high, partial, low, none
        ("name", ctypes.c_char * 96),
        ("uuid", ctypes.c_char * 80),
        ("serial", ctypes.c_char * 32),
        ("vbios", ctypes.c_char * 32),
        ("part_number", ctypes.c_char * 80),
        ("inforom", ctypes.c_char * 32),
        ("links", LinkStruct * MAX_LINKS),
        ("fields", FieldStruct * MAX_FIELDS),
        ("gpm_values", DOUBLE * MAX_GPM),  # by nvmlGpmMetricId_t, NaN = unsupported
        ("process_count", U64),
        ("processes", ProcessStruct * MAX_PROCESSES),
        ("mig_count", U64),
        ("migs", MigStruct * MAX_MIG),
        ("vgpu_count", U64),
        ("vgpus", VgpuStruct * MAX_VGPUS),
        ("sample_count", U64),
        ("samples", SampleStruct * MAX_SAMPLES),
        ("work", WorkStruct),
    )


class EventStruct(ctypes.Structure):
    """One event of the ring that nvmlEventSetWait reads."""

    _fields_ = (("type", U64), ("data", U64), ("gpu", U32), ("gi", U32), ("ci", U32), ("padding", U32))


class SetStruct(ctypes.Structure):
    """A call of a setter that has returned; value is ABSENT where it resets."""

    _fields_ = (("knob", U32), ("gpu", U32), ("result", U32), ("pid", U32), ("value", I64))


class ControlStruct(ctypes.Structure):
    """The whole file."""

    _fields_ = (
        ("magic", U64),  # the layout's hash: an old library refuses a new file
        ("generation", U32),  # driver loads so far; a process that saw an older one is out
        ("gpu_count", U32),
        ("event_head", U32),  # events pushed so far, and the futex that waiters sleep on
        ("cuda_version", U32),
        ("driver_version", ctypes.c_char * 80),
        ("nvml_version", ctypes.c_char * 80),
        ("confidential", U32),  # confidential computing: 0 off, 1 on, 2 on with development tools
        ("padding", U32),
        ("calls", CallStruct * MAX_CALLS),  # index 0 stands for every function
        ("events", EventStruct * MAX_EVENTS),
        ("set_head", U64),  # setters called so far
        ("sets", SetStruct * MAX_SETS),
        ("gpus", GpuStruct * MAX_GPUS),
    )


STRUCTS: Sequence[type[ctypes.Structure]] = (
    *(
        RuleStruct,
        CallStruct,
        LinkStruct,
        FieldStruct,
        ProcessStruct,
        MigStruct,
        VgpuStruct,
        SampleStruct,
        WorkStruct,
        GpuStruct,
        EventStruct,
        SetStruct,
        ControlStruct,
    ),
)
_C_TYPES: dict[Any, str] = {
    I64: "int64_t", U64: "uint64_t", U32: "uint32_t", DOUBLE: "double", ctypes.c_char: "char"}  # fmt: skip


def _c_name(kind: type[ctypes.Structure]) -> str:
    return kind.__name__.removesuffix("Struct").lower()


def _declaration(name: str, kind: Any) -> str:
    dimensions = ""
    while hasattr(kind, "_length_"):
        dimensions += f"[{kind._length_}]"
        kind = kind._type_
    base = _C_TYPES.get(kind) or f"struct {_c_name(kind)}"
    return f"{base} {name}{dimensions};"


def c_header() -> Iterator[str]:
    """The lines of `control.h`: the structs above as C, with their sizes asserted."""
    yield "#define ABSENT INT64_MIN"
    yield from (f"#define {name} {value}" for name, value in globals().items() if name.startswith("MAX_"))
    for struct in STRUCTS:
        name = _c_name(struct)
        yield f"struct {name} {{"
        for field, kind, *_ in struct._fields_:
            yield f"    {_declaration(field, kind)}"
        yield "};"
        yield f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(struct)}, "layout of {name}");'


def fill(array: Any, values: Sequence[Any] | None) -> None:
    """Writes a whole array of int64; None stands for ABSENT, for one item or for all."""
    for index in range(len(array)):
        value = None if values is None else values[index]
        array[index] = ABSENT if value is None else value


def assign(target: Any, name: str, value: Any) -> None:
    """Writes one field of a structure; AttributeError for a name it does not have (ctypes would accept any)."""
    kind = next((kind for field, kind, *_ in target._fields_ if field == name), None)
    if kind is None:
        raise AttributeError(f"{type(target).__name__} has no {name}")
    if isinstance(value, str):
        setattr(target, name, value.encode())
    elif hasattr(kind, "_length_") and kind._type_ is I64:
        fill(getattr(target, name), value)
    else:
        setattr(target, name, ABSENT if value is None else value)
