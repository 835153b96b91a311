"""Which numbers make sense as settings: a wrong unit or a slip of the hand is told at once, not when it matters."""

from typing import Any

import msgspec

from gpuwatch.config.errors import Wrong

RANGES: dict[tuple[str, ...], tuple[float, float]] = {
    ("agent", "interval"): (0.1, 3600),
    ("agent", "max_connections"): (8, 100_000),
    ("agent", "max_scrapes"): (1, 10_000),
    ("metrics", "max_series"): (100, 10_000_000),
    ("sources", "pod_resources_interval"): (1, 3600),
    ("checks", "boot_grace"): (0, 86400),
    ("checks", "unresponsive_after"): (0, 3600),
    ("checks", "xid_clear_after"): (1, 30 * 86400),
    ("checks", "xid_expire"): (1, 30 * 86400),
    ("checks", "repeat_pods"): (2, 64),
    ("checks", "repeat_window"): (60, 30 * 86400),
    ("checks", "ecc_corrected_per_hour"): (1, 1_000_000_000),
    ("checks", "retired_pages"): (1, 64),
    ("checks", "thermal_margin"): (-50, 50),
    ("checks", "nvlink_errors_per_hour"): (1, 1_000_000_000),
    ("checks", "pcie_utilization"): (0.01, 1),
    ("checks", "stuck_utilization"): (0.01, 1),
    ("checks", "stuck_clock"): (0.01, 1),
    ("checks", "zombie_memory"): (1, 1 << 50),
    ("remediation", "fault_hold"): (0, 86400),
    ("remediation", "recovery_hold"): (1, 30 * 86400),
    ("remediation", "min_quarantine"): (0, 30 * 86400),
    ("remediation", "heartbeat"): (0, 86400),
    ("remediation", "repeats"): (1, 1000),
    ("remediation", "repeat_window"): (60, 90 * 86400),
    ("remediation", "max_quarantines_per_day"): (0, 10_000),
    ("remediation", "budget", "slot_seconds"): (10, 86400),
    ("remediation", "drain", "deadline"): (1, 30 * 86400),
    ("remediation", "drain", "retry"): (1, 300),
    ("tuning", "max_slowdown"): (0.005, 0.5),
    ("tuning", "min_clock_fraction"): (0.35, 1),
    ("tuning", "node_budget_watts"): (10, 1_000_000),
    ("tuning", "max_actions_per_hour"): (1, 1000),
    ("rightsizing", "top"): (0, 1000),
    ("rightsizing", "max_workloads"): (10, 1_000_000),
    ("rightsizing", "min_history"): (600, 30 * 86400),
    ("rightsizing", "min_coverage"): (0.1, 1),
    ("rightsizing", "idle_after"): (300, 30 * 86400),
    ("rightsizing", "lull"): (0, 60 * 86400),
    ("rightsizing", "grace"): (0, 86400),
    ("rightsizing", "memory_margin"): (0, 1),
    ("rightsizing", "max_mig_slowdown"): (0, 10),
    ("rightsizing", "expire"): (3600, 90 * 86400),
    ("rightsizing", "prices"): (0, 1_000_000),
    ("rightsizing", "electricity_price"): (0, 1000),
}
"""Path of a key -> smallest and largest value that make sense; of a mapping, for each of its values."""


def out_of_range(config: msgspec.Struct) -> Wrong | None:
    """The first number in a whole configuration that makes no sense, as NaN never does; None: there is none."""
    for path, (low, high) in RANGES.items():
        value: Any = config
        for name in path:
            value = getattr(value, name)
        for key, number in value.items() if isinstance(value, dict) else [("", value)]:
            if number is not None and not low <= number <= high:
                where = ".".join(path) + (f".{key}" if key else "")
                return Wrong(where, f"{number} makes no sense", f"use {low} to {high}")
    return None
