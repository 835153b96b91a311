"""What the fake's GPUs are and hold at rest: numbers of real machines (idle `nvidia-smi -q`), in NVML's units."""

from collections.abc import Mapping
from typing import Any

MIB = 1 << 20
GIB = 1 << 30
XID, RECOVERY, UNAVAILABLE, SINGLE_BIT, DOUBLE_BIT = 0x8, 0x8000, 0x4000, 0x1, 0x2
CLASSIC_EVENTS = 0x1F9F  # all of nvml.h's event types before the two that driver 570 brought

Values = Mapping[str, Any]

# Every model starts from here; a value that is not named anywhere is unsupported.
COMMON: Values = {
    "present": 1, "lost": 0, "brand": 14, "pci_domain": 0, "pci_device": 0, "numa_node": 0,
    "persistence_mode": 1, "compute_mode": 0, "display_mode": 0, "display_active": 0, "accounting_mode": 0,
    "gsp_mode": 1, "ecc_mode": 1, "ecc_pending": 1, "virtualization_mode": 0, "addressing_mode": 0,
    "energy_mj": 3_600_000_000, "util_gpu": 0, "util_memory": 0, "util_encoder": 0, "util_decoder": 0,
    "util_jpeg": 0, "util_ofa": 0, "pstate": 0, "memory_used": 0, "bar1_used": MIB,
    "clock_events": 0x1, "clock_events_supported": 0x1FF, "pcie_width": 16, "pcie_width_max": 16,
    "pcie_tx_kbps": 352, "pcie_rx_kbps": 329, "pcie_replays": 0,
    "remapped_correctable": 0, "remapped_uncorrectable": 0, "remap_pending": 0, "remap_failure": 0,
    "recovery_action": 0, "reset_status": 0, "drain_and_reset_status": 0, "smoothing_profile": 2,
    "sram_parity_volatile": 0, "sram_secded_volatile": 0, "sram_corrected_volatile": 0,
    "sram_parity": 0, "sram_secded": 0, "sram_corrected": 0, "sram_bucket_l2": 0, "sram_bucket_sm": 0,
    "sram_bucket_pcie": 0, "sram_bucket_mcu": 0, "sram_bucket_other": 0, "sram_threshold_exceeded": 0,
    "channel_repair_pending": 0, "tpc_repair_pending": 0, "unrepairable_memory": 0, "gpm": 0,
    "supported_events": CLASSIC_EVENTS | RECOVERY | UNAVAILABLE,
    "event_ns": (0, 0, 0, 0, 0, 0, 0, 0, 0, None, 0, 0),
}  # fmt: skip

H100: Values = {
    "name": "NVIDIA H100 80GB HBM3", "vbios": "96.00.A5.00.01", "part_number": "692-2G520-0200-000",
    "inforom": "G520.0200.00.05", "architecture": 9, "cc_major": 9, "cc_minor": 0, "cores": 16896,
    "bus_width": 5120, "pci_device_id": 0x233010DE, "pci_subsystem_id": 0x16C110DE, "mig_mode": 0, "mig_pending": 0,
    "power_mw": 69_620, "power_average_mw": 69_850, "memory_power_mw": 43_190, "power_limit_mw": 700_000,
    "power_limit_enforced_mw": 700_000, "power_limit_default_mw": 700_000, "power_limit_min_mw": 200_000,
    "power_limit_max_mw": 700_000, "temperature": 41, "memory_temperature": 48, "margin": 46,
    "temperature_shutdown": 95, "temperature_slowdown": 89, "temperature_memory_max": 95, "temperature_gpu_max": 87,
    "shutdown_tlimit": -8, "slowdown_tlimit": -2, "memory_max_tlimit": 0, "gpu_max_tlimit": 0,
    "memory_total": 81559 * MIB, "memory_reserved": 479 * MIB, "bar1_total": 131072 * MIB,
    "clock_mhz": (345, 345, 2619, 765), "clock_max_mhz": (1980, 1980, 2619, 1545), "clock_min_mhz": 210,
    "pcie_gen": 5, "pcie_gen_max": 5,
    "remap_banks": (2560, 0, 0, 0, 0), "nvlinks": 18, "nvlink_version": 7, "nvlink_speed_mbps": 26562,
    "fabric_state": 3, "fabric_status": 0, "fabric_clique": 0, "fabric_health_mask": 0, "fabric_health_summary": 1,
    "gpm": 1,
}  # fmt: skip

A100: Values = {
    **H100, "name": "NVIDIA A100-SXM4-80GB", "vbios": "92.00.45.00.03", "part_number": "692-2G506-0210-002",
    "inforom": "G506.0210.00.04", "architecture": 7, "cc_major": 8, "cores": 6912, "pci_device_id": 0x20B210DE,
    "pci_subsystem_id": 0x146310DE, "power_mw": 62_000, "power_average_mw": None, "memory_power_mw": None,
    "power_limit_mw": 400_000, "power_limit_enforced_mw": 400_000, "power_limit_default_mw": 400_000,
    "power_limit_min_mw": 100_000, "power_limit_max_mw": 400_000, "margin": None, "temperature_shutdown": 92,
    "shutdown_tlimit": None, "slowdown_tlimit": None, "memory_max_tlimit": None, "gpu_max_tlimit": None,
    "memory_total": 81920 * MIB, "memory_reserved": 554 * MIB, "clock_mhz": (210, 210, 1593, 585),
    "clock_max_mhz": (1410, 1410, 1593, 1290), "pcie_gen": 4, "pcie_gen_max": 4, "remap_banks": (640, 0, 0, 0, 0),
    "nvlinks": 12, "nvlink_version": 5, "nvlink_speed_mbps": 25781, "fabric_state": None, "gpm": 0,
}  # fmt: skip

T4: Values = {
    "name": "Tesla T4", "vbios": "90.04.A7.00.01", "part_number": "900-2G183-0000-001", "inforom": "G183.0200.00.02",
    "brand": 2, "architecture": 6, "cc_major": 7, "cc_minor": 5, "cores": 2560, "bus_width": 256,
    "pci_device_id": 0x1EB810DE, "pci_subsystem_id": 0x12A210DE, "power_mw": 9_500, "power_limit_mw": 70_000,
    "power_limit_enforced_mw": 70_000, "power_limit_default_mw": 70_000, "power_limit_min_mw": 60_000,
    "power_limit_max_mw": 70_000, "temperature": 32, "temperature_shutdown": 96, "temperature_slowdown": 93,
    "temperature_gpu_max": 85, "memory_total": 15360 * MIB, "memory_reserved": 442 * MIB, "bar1_total": 256 * MIB,
    "clock_min_mhz": 300,
    "clock_mhz": (300, 300, 405, 540), "clock_max_mhz": (1590, 1590, 5001, 1470), "pcie_gen": 1, "pcie_gen_max": 3,
    "pstate": 8, "retired_sbe": 0, "retired_dbe": 0, "retired_pending": 0,
    "util_jpeg": None, "util_ofa": None, "remapped_correctable": None, "remapped_uncorrectable": None,
    "remap_pending": None, "remap_failure": None, "sram_parity": None, "channel_repair_pending": None,
    "unrepairable_memory": None,
}  # fmt: skip

MODELS: Mapping[str, Values] = {"H100": H100, "A100": A100, "T4": T4}

# What older drivers do not know, whatever the GPU.
DRIVER_LACKS: Mapping[str, Values] = {
    "535": {"supported_events": CLASSIC_EVENTS},
    "550": {"supported_events": CLASSIC_EVENTS},
}

# nvmlDriver, CUDA (as NVML codes it) of each profile.
VERSIONS: Mapping[str, tuple[str, int]] = {
    "535": ("535.216.03", 12020),
    "550": ("550.163.01", 12040),
    "570": ("570.195.03", 12080),
    "575": ("575.57.08", 12090),
    "580": ("580.95.05", 13000),
    "590": ("590.48.01", 13010),
    "all": ("615.36.01", 13050),
}
GPM_AT_REST: Mapping[int, float] = dict.fromkeys((1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 20, 21, 60, 61), 0.0)
PCIE_BYTES_A_SECOND: Mapping[int, float] = {197: 352_000.0, 198: 329_000.0}  # field: sent, received; Hopper and newer
ECC_LOCATIONS = (None, None, 0, None, None, None, None, 0)  # DRAM and SRAM count, the caches are not told apart


def identity(gpu: int) -> Values:
    """What tells the GPU in one slot from the others of its model."""
    return {
        "minor_number": gpu,
        "module_id": gpu,
        "pci_bus": 0x0F * (gpu + 1),
        "board_id": 0x0F00 * (gpu + 1),
        "serial": f"165122{gpu:07d}",
        "uuid": f"GPU-{gpu:08x}-5e4d-4c3b-2a19-{gpu:012x}",
    }
