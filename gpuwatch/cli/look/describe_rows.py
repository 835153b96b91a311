"""SECTIONS: the values that `describe gpu` prints, a row each. `path` is a member of GpuDescription."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gpuwatch.cli.console.words import Words, utc

MIB = 1 << 20

RECOVERY = (
    "none",
    "reset the GPU",
    "reboot the node",
    "drain peer-to-peer work",
    "drain, then reset the GPU",
    "recover the IMEX domain",
    "reset the PCIe bus",
    "reboot the system",
)
"""Indexed by the number of NVML_GPU_RECOVERY_ACTION_*."""

FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}


class DescriptionRow(NamedTuple):
    """One line. `text` formats a value that is known."""

    label: str
    path: str
    text: Callable[[Words, Any], str] = lambda _, value: str(value)


def _size(_: Words, value: int) -> str:
    return f"{value / MIB:.0f} MiB" + (f" ({value / (1 << 30):.1f} GiB)" if value >= 1 << 30 else "")


def _watts(_: Words, value: float) -> str:
    return f"{value:.2f} W"


def _energy(words: Words, value: float) -> str:
    return f"{words.joules(value)} since the driver was loaded" + (f" ({value:.0f} J)" if value >= 3600 else "")


def _celsius(words: Words, value: float) -> str:
    return f"{value:g} {words.glyphs.degree}"


def _lanes(_: Words, value: int) -> str:
    return f"x{value}"


def _percent(_: Words, value: float) -> str:
    return f"{value * 100:.4g} %"


def _on(_: Words, value: bool) -> str:
    return "enabled" if value else "disabled"


def _recovery(_: Words, value: int) -> str:
    return RECOVERY[value] if 0 <= value < len(RECOVERY) else f"action {value}"


def _utilization(name: str, label: str) -> DescriptionRow:
    return DescriptionRow(label, f"utilization.{name}", _percent)


def _activity(name: str, label: str) -> DescriptionRow:
    return DescriptionRow(label, f"activity.{name}", _percent)


def _clock(path: str, label: str) -> DescriptionRow:
    return DescriptionRow(label, f"clocks.{path}", Words.clock)


def _members(prefix: str, *names: str) -> Callable[[Words, Any], str]:
    """Several members that are known, in one line: `slot 3, tray 1`."""

    def text(_: Words, value: Any) -> str:
        found = {name: getattr(value, prefix + name) for name in names}
        known = [f"{name.replace('_', ' ')} {part}" for name, part in found.items() if part is not None]
        return ", ".join(known) or "not reported"

    return text


SECTIONS: tuple[tuple[str, tuple[DescriptionRow, ...]], ...] = (
    (
        "Identity",
        (
            DescriptionRow("Index", "identity.index"),
            DescriptionRow("UUID", "identity.uuid"),
            DescriptionRow("PCI address", "identity.pci_bus_id"),
            DescriptionRow("Brand", "identity.brand"),
            DescriptionRow("Architecture", "identity.architecture"),
            DescriptionRow("Compute capability", "identity.compute_capability"),
            DescriptionRow("Serial number", "identity.serial"),
            DescriptionRow("Board part number", "identity.board_part_number"),
            DescriptionRow("VBIOS", "identity.vbios"),
            DescriptionRow("InfoROM image", "identity.inforom_image"),
            DescriptionRow("InfoROM objects", "identity", _members("inforom_", "oem", "ecc", "power")),
            DescriptionRow("GSP firmware", "identity.gsp_firmware"),
            DescriptionRow("GSP", "identity.gsp_enabled", _on),
            DescriptionRow("Device", "identity.minor", lambda _, minor: f"/dev/nvidia{minor}"),
            DescriptionRow("CUDA cores", "identity.cores"),
            DescriptionRow("Memory bus", "identity.memory_bus_width", lambda _, bits: f"{bits} bits"),
            DescriptionRow("NUMA node", "identity.numa_node"),
            DescriptionRow("Place", "identity", _members("", "chassis_serial", "slot", "tray", "host", "module")),
        ),
    ),
    (
        "Modes",
        (
            DescriptionRow("Performance state", "performance_state", lambda _, state: f"P{state}"),
            DescriptionRow("Persistence mode", "persistence_mode", _on),
            DescriptionRow("Compute mode", "compute_mode"),
            DescriptionRow("Virtualization", "virtualization_mode"),
            DescriptionRow("Accounting mode", "accounting_mode", _on),
            DescriptionRow("Display active", "display_active", Words.flag),
            DescriptionRow("Confidential computing", "confidential", _on),
            DescriptionRow("vGPU licence", "license.licensed", Words.flag),
            DescriptionRow("vGPU licence, product", "license.product"),
            DescriptionRow("vGPU licence, until", "license.expires", lambda _, at: f"{utc(at):%Y-%m-%d %H:%M:%S} UTC"),
            DescriptionRow("MIG mode", "mig_enabled", _on),
            DescriptionRow("MIG mode after reset", "mig_pending", _on),
            DescriptionRow("ECC mode", "ecc.enabled", _on),
            DescriptionRow("ECC mode after reboot", "ecc.pending", _on),
        ),
    ),
    (
        "Utilization",
        (
            _utilization("gpu", "GPU"),
            _utilization("memory", "Memory"),
            _utilization("encoder", "Encoder"),
            DescriptionRow("Encoder sessions", "encoder.sessions"),
            DescriptionRow("Frame capture sessions", "frame_capture.sessions"),
            _utilization("decoder", "Decoder"),
            _utilization("jpeg", "JPEG"),
            _utilization("ofa", "Optical flow"),
            _utilization("gpu_mean", "GPU, mean since last read"),
            _utilization("gpu_max", "GPU, peak since last read"),
            _activity("sm", "SM activity"),
            _activity("sm_occupancy", "SM occupancy"),
            _activity("tensor", "Tensor activity"),
            _activity("dram", "DRAM activity"),
            _activity("fp64", "FP64 activity"),
            _activity("fp32", "FP32 activity"),
            _activity("fp16", "FP16 activity"),
            _activity("integer", "Integer activity"),
            _activity("graphics", "Graphics activity"),
        ),
    ),
    (
        "Memory",
        (
            DescriptionRow("Total", "memory.total", _size),
            DescriptionRow("Used", "memory.used", _size),
            DescriptionRow("Free", "memory.free", _size),
            DescriptionRow("Reserved", "memory.reserved", _size),
            DescriptionRow("Protected", "protected_memory.total", _size),
            DescriptionRow("Protected, used", "protected_memory.used", _size),
            DescriptionRow("BAR1 total", "bar1.total", _size),
            DescriptionRow("BAR1 used", "bar1.used", _size),
            DescriptionRow("BAR1 free", "bar1.free", _size),
        ),
    ),
    (
        "Power",
        (
            DescriptionRow("Draw, average", "power.average", _watts),
            DescriptionRow("Draw, instant", "power.instant", _watts),
            DescriptionRow("Draw, mean since last read", "power.mean", _watts),
            DescriptionRow("Draw, peak since last read", "power.max", _watts),
            DescriptionRow("Energy", "power.energy", _energy),
            DescriptionRow("Limit, enforced", "power.limit_enforced", _watts),
            DescriptionRow("Limit, configured", "power.limit_configured", _watts),
            DescriptionRow("Limit, default", "power.limit_default", _watts),
            DescriptionRow("Limit, smallest", "power.limit_min", _watts),
            DescriptionRow("Limit, largest", "power.limit_max", _watts),
        ),
    ),
    (
        "Temperature",
        (
            DescriptionRow("GPU", "temperature.gpu", _celsius),
            DescriptionRow("Memory", "temperature.memory", _celsius),
            DescriptionRow("Margin (T.Limit)", "temperature.margin", _celsius),
            DescriptionRow("Shutdown at", "temperature.threshold_shutdown", _celsius),
            DescriptionRow("Slowdown at", "temperature.threshold_slowdown", _celsius),
            DescriptionRow("Largest operating", "temperature.threshold_max_operating", _celsius),
            DescriptionRow("Memory, largest operating", "temperature.threshold_memory_max", _celsius),
            DescriptionRow("Target", "temperature.threshold_target", _celsius),
            DescriptionRow("Shutdown at T.Limit", "temperature.margin_shutdown", _celsius),
            DescriptionRow("Slowdown at T.Limit", "temperature.margin_slowdown", _celsius),
            DescriptionRow("Largest operating T.Limit", "temperature.margin_max_operating", _celsius),
            DescriptionRow("Memory, largest T.Limit", "temperature.margin_memory_max", _celsius),
            DescriptionRow("Fans", "fans", lambda _, fans: ", ".join(f"{ratio * 100:.0f} %" for ratio in fans)),
        ),
    ),
    (
        "Clocks",
        (
            _clock("graphics", "Graphics"),
            _clock("sm", "SM"),
            _clock("memory", "Memory"),
            _clock("video", "Video"),
            _clock("graphics_max", "Graphics, largest"),
            _clock("sm_max", "SM, largest"),
            _clock("memory_max", "Memory, largest"),
            _clock("video_max", "Video, largest"),
        ),
    ),
    (
        "PCIe",
        (
            DescriptionRow("Generation", "pcie.generation"),
            DescriptionRow("Generation, largest", "pcie.generation_max"),
            DescriptionRow("Width", "pcie.width", _lanes),
            DescriptionRow("Width, largest", "pcie.width_max", _lanes),
            DescriptionRow("Replays", "pcie.replays"),
            DescriptionRow("Sent", "pcie.transmit_bytes", Words.size),
            DescriptionRow("Received", "pcie.receive_bytes", Words.size),
            DescriptionRow("Sends a second", "pcie.transmit_rate", Words.size),
            DescriptionRow("Receives a second", "pcie.receive_rate", Words.size),
            DescriptionRow("Chip-to-chip links", "c2c.links"),
            DescriptionRow("Chip-to-chip state", "c2c.enabled", _on),
            DescriptionRow("Chip-to-chip, a second", "c2c.bytes_per_second", Words.size),
        ),
    ),
    (
        "Health",
        (
            DescriptionRow("Recovery action", "recovery_action", _recovery),
            DescriptionRow("Row remaps, corrected", "row_remap.corrected"),
            DescriptionRow("Row remaps, uncorrected", "row_remap.uncorrected"),
            DescriptionRow("Row remap pending", "row_remap.pending", Words.flag),
            DescriptionRow("Row remap failed", "row_remap.failure", Words.flag),
            DescriptionRow(
                "Banks by spare rows",
                "row_remap.banks",
                lambda _, banks: ", ".join(f"{name} {count}" for name, count in banks.items()),
            ),
            DescriptionRow("Retired pages, single bit", "retired_pages.single_bit"),
            DescriptionRow("Retired pages, double bit", "retired_pages.double_bit"),
            DescriptionRow("Retired pages pending", "retired_pages.pending", Words.flag),
            DescriptionRow("SRAM errors over threshold", "ecc.sram_threshold_exceeded", Words.flag),
            DescriptionRow("Channel repair pending", "ecc.channel_repair_pending", Words.flag),
            DescriptionRow("TPC repair pending", "ecc.tpc_repair_pending", Words.flag),
            DescriptionRow("Unrepairable memory", "ecc.unrepairable_memory", Words.flag),
            DescriptionRow("Fabric", "fabric.state", lambda _, state: FABRIC_STATES.get(state, str(state))),
            DescriptionRow("Fabric cluster", "fabric.cluster_uuid"),
            DescriptionRow("Fabric clique", "fabric.clique_id"),
        ),
    ),
)
