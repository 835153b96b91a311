"""The names of all checks: values of taints, labels of metrics and keys of the configuration; so they never change.

What each of them looks for is in `rules.checks`; a test holds the two together.
"""

from typing import Literal, get_args

CheckName = Literal[
    "recovery_action", "recovery_advised", "gpu_lost", "gpu_unresponsive", "gpu_missing", "driver_wedged",
    "xid_fatal", "xid_contained", "xid_warning", "xid_application", "xid_application_repeated", "xid_unknown",
    "sxid_fatal", "sxid_warning",
    "row_remap_failure", "row_remap_pending", "memory_unrepairable", "repair_pending",
    "ecc_uncorrected", "ecc_sram_threshold", "ecc_correctable_rate", "retired_pages_pending", "retired_pages_limit",
    "hw_thermal_slowdown", "hw_power_brake", "thermal_margin", "clocks_stuck",
    "nvlink_down", "nvlink_errors", "pcie_degraded", "fabric_state",
    "inforom", "mig_pending", "zombie_memory", "monitoring_degraded",
]  # fmt: skip

CHECK_NAMES: tuple[str, ...] = get_args(CheckName)

XidClass = Literal["fatal", "contained", "warning", "application", "ignore"]
"""What an XID means for the GPU: it is out of order; it needs a reset when its work is done; it is worth knowing; the
application is to blame; nothing."""
