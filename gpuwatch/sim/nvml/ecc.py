"""Memory errors and repairs as NVML tells them."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pynvml

from gpuwatch.sim.nvml.answers import Answer, fill, refuse, struct, where

if TYPE_CHECKING:
    from gpuwatch.sim.nvml import ResolvedDevice

KINDS = {pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED: "corrected", pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED: "uncorrected"}
SCOPES = {pynvml.NVML_VOLATILE_ECC: "volatile", pynvml.NVML_AGGREGATE_ECC: "aggregate"}
LOCATIONS = {pynvml.NVML_MEMORY_LOCATION_DRAM: "dram", pynvml.NVML_MEMORY_LOCATION_SRAM: "sram"}
PAGES = {
    pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS: "single_bit",
    pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR: "double_bit",
}


def _counter(d: "ResolvedDevice", kind: int, scope: int, location: int) -> int:
    name = LOCATIONS.get(location)
    if name is None or not d.gpu.model.ecc:
        return refuse()
    return d.gpu.faults.ecc.get((KINDS[kind], SCOPES[scope], name), 0)


def _total(d: "ResolvedDevice", kind: int, scope: int) -> int:
    return sum(d.gpu.faults.ecc.get((KINDS[kind], SCOPES[scope], name), 0) for name in LOCATIONS.values())


def _sram_status(d: "ResolvedDevice", pointer: Any) -> int:
    counts = {scope: d.gpu.faults.ecc.get(("uncorrected", scope, "sram"), 0) for scope in SCOPES.values()}
    return fill(
        pointer,
        volatileUncSecDed=counts["volatile"],
        aggregateUncSecDed=counts["aggregate"],
        aggregateUncBucketL2=counts["aggregate"],
        bThresholdExceeded=int(counts["aggregate"] >= 10),
    )


def _remapped(d: "ResolvedDevice") -> tuple[int, int, int, int]:
    faults = d.gpu.faults
    return (
        faults.remaps["corrected"],
        faults.remaps["uncorrected"],
        int(faults.remap_pending),
        int(faults.remap_failure),
    )


def _histogram(d: "ResolvedDevice") -> SimpleNamespace:
    banks, faults = d.gpu.model.remap_banks or 0, d.gpu.faults
    rows = sum(faults.remaps.values())
    worn = min(banks, rows)
    none = int(faults.remap_failure)
    return struct(max=banks - worn - none, high=worn, partial=0, low=0, none=none)


def _retired(d: "ResolvedDevice", cause: int) -> list[int]:
    return [0x7FFFA8860 + (i << 16) for i in range(d.gpu.faults.retired[PAGES[cause]])]


def _has_remapping(d: "ResolvedDevice") -> bool:
    return d.gpu.model.remap_banks is not None and not d.gpu.mig_enabled


def _repairs(d: "ResolvedDevice") -> list[int]:
    return [int(d.gpu.faults.channel_repair), int(d.gpu.faults.tpc_repair)]


def _mode(d: "ResolvedDevice") -> list[int]:
    """Kept in the infoROM."""
    if d.gpu.faults.inforom_corrupt:
        return refuse(pynvml.NVML_ERROR_CORRUPTED_INFOROM)
    return [int(d.gpu.ecc_mode), int(d.gpu.ecc_pending)]


ECC: dict[str, Answer] = {
    "nvmlDeviceGetEccMode": where(lambda d: d.gpu.model.ecc, _mode),
    "nvmlDeviceGetTotalEccErrors": where(lambda d: d.gpu.model.ecc, _total),
    "nvmlDeviceGetMemoryErrorCounter": _counter,
    "nvmlDeviceGetSramEccErrorStatus": where(lambda d: d.gpu.model.sram_status, _sram_status),
    "nvmlDeviceGetRepairStatus": where(lambda d: d.gpu.model.sram_status, _repairs),
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": where(
        lambda d: d.gpu.model.gpm, lambda d: int(d.gpu.faults.unrepairable)
    ),
    "nvmlDeviceGetRemappedRows": where(_has_remapping, _remapped),
    "nvmlDeviceGetRowRemapperHistogram": where(_has_remapping, _histogram),
    "nvmlDeviceGetRetiredPages": where(lambda d: d.gpu.model.retired_pages, _retired),
    "nvmlDeviceGetRetiredPagesPendingStatus": where(
        lambda d: d.gpu.model.retired_pages, lambda d: int(d.gpu.faults.retire_pending)
    ),
}
"""Function -> answer."""
