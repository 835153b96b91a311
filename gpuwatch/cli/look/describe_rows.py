"""SECTIONS: what `describe gpu` tells, one row a value. A path is a member of GpuDescription, as FIELDS names it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gpuwatch.cli.console.words import Words

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
"""By the number of NVML_GPU_RECOVERY_ACTION_*."""

FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}


class Row(NamedTuple):
    """One line. `words` writes a value that is known."""

    label: str
    path: str
    words: Callable[[Words, Any], str] = lambda _, value: str(value)


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


def _banks(_: Words, value: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in value.items())


def _fans(_: Words, value: tuple[float, ...]) -> str:
    return ", ".join(f"{ratio * 100:.0f} %" for ratio in value)


def _utilization(name: str, label: str) -> Row:
    return Row(label, f"utilization.{name}", _percent)


def _activity(name: str, label: str) -> Row:
    return Row(label, f"activity.{name}", _percent)


def _clock(path: str, label: str) -> Row:
    return Row(label, f"clocks.{path}", Words.clock)


SECTIONS: tuple[tuple[str, tuple[Row, ...]], ...] = (
    (
        "Identity",
        (
            Row("Index", "identity.index"),
            Row("UUID", "identity.uuid"),
            Row("PCI address", "identity.pci_bus_id"),
            Row("Brand", "identity.brand"),
            Row("Architecture", "identity.architecture"),
            Row("Compute capability", "identity.compute_capability"),
            Row("Serial number", "identity.serial"),
            Row("Board part number", "identity.board_part_number"),
            Row("VBIOS", "identity.vbios"),
            Row("InfoROM image", "identity.inforom_image"),
            Row("GSP firmware", "identity.gsp_firmware"),
            Row("Device", "identity.minor", lambda _, minor: f"/dev/nvidia{minor}"),
            Row("CUDA cores", "identity.cores"),
            Row("Memory bus", "identity.memory_bus_width", lambda _, bits: f"{bits} bits"),
            Row("NUMA node", "identity.numa_node"),
        ),
    ),
    (
        "Modes",
        (
            Row("Performance state", "performance_state", lambda _, state: f"P{state}"),
            Row("Persistence mode", "persistence_mode", _on),
            Row("Compute mode", "compute_mode"),
            Row("Virtualization", "virtualization_mode"),
            Row("Display active", "display_active", Words.flag),
            Row("MIG mode", "mig_enabled", _on),
            Row("MIG mode after reset", "mig_pending", _on),
            Row("ECC mode", "ecc.enabled", _on),
            Row("ECC mode after reboot", "ecc.pending", _on),
        ),
    ),
    (
        "Utilization",
        (
            _utilization("gpu", "GPU"),
            _utilization("memory", "Memory"),
            _utilization("encoder", "Encoder"),
            _utilization("decoder", "Decoder"),
            _utilization("jpeg", "JPEG"),
            _utilization("ofa", "Optical flow"),
            _utilization("gpu_mean", "GPU, mean since last look"),
            _utilization("gpu_max", "GPU, peak since last look"),
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
            Row("Total", "memory.total", _size),
            Row("Used", "memory.used", _size),
            Row("Free", "memory.free", _size),
            Row("Reserved", "memory.reserved", _size),
            Row("BAR1 total", "bar1.total", _size),
            Row("BAR1 used", "bar1.used", _size),
            Row("BAR1 free", "bar1.free", _size),
        ),
    ),
    (
        "Power",
        (
            Row("Draw, average", "power.average", _watts),
            Row("Draw, instant", "power.instant", _watts),
            Row("Draw, mean since last look", "power.mean", _watts),
            Row("Draw, peak since last look", "power.max", _watts),
            Row("Energy", "power.energy", _energy),
            Row("Limit, enforced", "power.limit_enforced", _watts),
            Row("Limit, configured", "power.limit_configured", _watts),
            Row("Limit, default", "power.limit_default", _watts),
            Row("Limit, smallest", "power.limit_min", _watts),
            Row("Limit, largest", "power.limit_max", _watts),
        ),
    ),
    (
        "Temperature",
        (
            Row("GPU", "temperature.gpu", _celsius),
            Row("Memory", "temperature.memory", _celsius),
            Row("Margin (T.Limit)", "temperature.margin", _celsius),
            Row("Shutdown at", "temperature.threshold_shutdown", _celsius),
            Row("Slowdown at", "temperature.threshold_slowdown", _celsius),
            Row("Largest operating", "temperature.threshold_max_operating", _celsius),
            Row("Memory, largest operating", "temperature.threshold_memory_max", _celsius),
            Row("Target", "temperature.threshold_target", _celsius),
            Row("Shutdown at T.Limit", "temperature.margin_shutdown", _celsius),
            Row("Slowdown at T.Limit", "temperature.margin_slowdown", _celsius),
            Row("Largest operating T.Limit", "temperature.margin_max_operating", _celsius),
            Row("Memory, largest T.Limit", "temperature.margin_memory_max", _celsius),
            Row("Fans", "fans", _fans),
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
            Row("Generation", "pcie.generation"),
            Row("Generation, largest", "pcie.generation_max"),
            Row("Width", "pcie.width", _lanes),
            Row("Width, largest", "pcie.width_max", _lanes),
            Row("Replays", "pcie.replays"),
            Row("Sent", "pcie.transmit_bytes", Words.size),
            Row("Received", "pcie.receive_bytes", Words.size),
        ),
    ),
    (
        "Health",
        (
            Row("Recovery action", "recovery_action", _recovery),
            Row("Row remaps, corrected", "row_remap.corrected"),
            Row("Row remaps, uncorrected", "row_remap.uncorrected"),
            Row("Row remap pending", "row_remap.pending", Words.flag),
            Row("Row remap failed", "row_remap.failure", Words.flag),
            Row("Banks by spare rows", "row_remap.banks", _banks),
            Row("Retired pages, single bit", "retired_pages.single_bit"),
            Row("Retired pages, double bit", "retired_pages.double_bit"),
            Row("Retired pages pending", "retired_pages.pending", Words.flag),
            Row("SRAM errors over threshold", "ecc.sram_threshold_exceeded", Words.flag),
            Row("Channel repair pending", "ecc.channel_repair_pending", Words.flag),
            Row("TPC repair pending", "ecc.tpc_repair_pending", Words.flag),
            Row("Unrepairable memory", "ecc.unrepairable_memory", Words.flag),
            Row("Fabric", "fabric.state", lambda _, state: FABRIC_STATES.get(state, str(state))),
            Row("Fabric cluster", "fabric.cluster_uuid"),
            Row("Fabric clique", "fabric.clique_id"),
        ),
    ),
)
