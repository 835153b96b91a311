"""Memory errors and repairs as NVML answers them."""

from types import SimpleNamespace
from typing import Any

import pynvml

from gpuwatch.sim.nvml.driver import Answer, ResolvedDevice, answers, fill, only_where, refuse, struct

KINDS = {pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED: "corrected", pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED: "uncorrected"}
SCOPES = {pynvml.NVML_VOLATILE_ECC: "volatile", pynvml.NVML_AGGREGATE_ECC: "aggregate"}
LOCATIONS = {pynvml.NVML_MEMORY_LOCATION_DRAM: "dram", pynvml.NVML_MEMORY_LOCATION_SRAM: "sram"}
PAGES = {
    pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS: "single_bit",
    pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR: "double_bit",
}


def _has_remapping(d: ResolvedDevice) -> bool:
    return d.gpu.model.remap_banks is not None and not d.gpu.mig_enabled


ECC: dict[str, Answer] = {
    "nvmlDeviceGetTotalEccErrors": only_where(
        lambda d: d.gpu.model.ecc,
        lambda d, kind, scope: sum(
            d.gpu.faults.ecc.get((KINDS[kind], SCOPES[scope], name), 0) for name in LOCATIONS.values()
        ),
    ),
    "nvmlDeviceGetRepairStatus": only_where(
        lambda d: d.gpu.model.sram_status, lambda d: [int(d.gpu.faults.channel_repair), int(d.gpu.faults.tpc_repair)]
    ),
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": only_where(
        lambda d: d.gpu.model.gpm, lambda d: int(d.gpu.faults.unrepairable)
    ),
    "nvmlDeviceGetRetiredPages": only_where(
        lambda d: d.gpu.model.retired_pages,
        lambda d, cause: [0x7FFFA8860 + (i << 16) for i in range(d.gpu.faults.retired[PAGES[cause]])],
    ),
    "nvmlDeviceGetRetiredPagesPendingStatus": only_where(
        lambda d: d.gpu.model.retired_pages, lambda d: int(d.gpu.faults.retire_pending)
    ),
}
"""Function -> answer; the decorators below add theirs."""


@answers(ECC, "nvmlDeviceGetEccMode", where=lambda d: d.gpu.model.ecc)
def _mode(d: ResolvedDevice) -> list[int]:
    """The mode is stored in the infoROM."""
    if d.gpu.faults.inforom_corrupt:
        return refuse(pynvml.NVML_ERROR_CORRUPTED_INFOROM)
    return [int(d.gpu.ecc_mode), int(d.gpu.ecc_pending)]


@answers(ECC, "nvmlDeviceGetMemoryErrorCounter")
def _counter(d: ResolvedDevice, kind: int, scope: int, location: int) -> int:
    name = LOCATIONS.get(location)
    if name is None or not d.gpu.model.ecc:
        return refuse()
    return d.gpu.faults.ecc.get((KINDS[kind], SCOPES[scope], name), 0)


@answers(ECC, "nvmlDeviceGetSramEccErrorStatus", where=lambda d: d.gpu.model.sram_status)
def _sram_status(d: ResolvedDevice, pointer: Any) -> int:
    counts = {scope: d.gpu.faults.ecc.get(("uncorrected", scope, "sram"), 0) for scope in SCOPES.values()}
    return fill(
        pointer,
        volatileUncSecDed=counts["volatile"],
        aggregateUncSecDed=counts["aggregate"],
        aggregateUncBucketL2=counts["aggregate"],
        bThresholdExceeded=int(counts["aggregate"] >= 10),
    )


@answers(ECC, "nvmlDeviceGetRemappedRows", where=_has_remapping)
def _remapped(d: ResolvedDevice) -> tuple[int, int, int, int]:
    faults = d.gpu.faults
    corrected, uncorrected = faults.remaps["corrected"], faults.remaps["uncorrected"]
    return corrected, uncorrected, int(faults.remap_pending), int(faults.remap_failure)


@answers(ECC, "nvmlDeviceGetRowRemapperHistogram", where=_has_remapping)
def _histogram(d: ResolvedDevice) -> SimpleNamespace:
    banks, faults = d.gpu.model.remap_banks or 0, d.gpu.faults
    worn, none = min(banks, sum(faults.remaps.values())), int(faults.remap_failure)
    return struct(max=banks - worn - none, high=worn, partial=0, low=0, none=none)
