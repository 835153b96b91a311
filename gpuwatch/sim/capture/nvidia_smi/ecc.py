"""Dump rows of ECC errors, repairs, remapped rows and retired pages, in the layouts of all driver generations."""

from collections.abc import Callable

from gpuwatch.collect.nvml.decode import SRAM_STATUS
from gpuwatch.sim.capture.data import Answer
from gpuwatch.sim.capture.nvidia_smi.row import DumpRow, Source, at, call, either, known, pair, struct, total
from gpuwatch.sim.capture.nvidia_smi.values import count, flag

_KINDS = {
    "NVML_MEMORY_ERROR_TYPE_CORRECTED": ("correctable", "single_bit"),
    "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": ("uncorrectable", "double_bit"),
}
_SCOPES = {"NVML_VOLATILE_ECC": "volatile", "NVML_AGGREGATE_ECC": "aggregate"}
_OLD_LOCATIONS = {
    "L1_CACHE": ("l1_cache",),
    "L2_CACHE": ("l2_cache",),
    "REGISTER_FILE": ("register_file",),
    "TEXTURE_MEMORY": ("texture_memory",),
    "TEXTURE_SHM": ("texture_shared", "texture_shm"),
    "CBU": ("cbu",),
}
"""Volta and older print one counter per location."""


def _ecc_counters(kind: str, scope: str) -> list[DumpRow]:
    word, bit = _KINDS[kind]
    section = f"ecc_errors/{_SCOPES[scope]}"
    parts = (
        at(count, f"{section}/sram_uncorrectable_parity"),
        at(count, f"{section}/sram_uncorrectable_sec_ded", f"{section}/sram_uncorrectable_secded"),
    )
    plain_sram = at(count, f"{section}/sram_{word}")
    sram = either(plain_sram, total(*parts)) if word == "uncorrectable" else plain_sram
    dram = at(count, f"{section}/dram_{word}", f"{section}/{bit}/device_memory")
    counter = "nvmlDeviceGetMemoryErrorCounter"
    return [
        call(counter, sram, kind, scope, "NVML_MEMORY_LOCATION_SRAM"),
        call(counter, dram, kind, scope, "NVML_MEMORY_LOCATION_DRAM"),
        *(
            call(counter, at(count, *(f"{section}/{bit}/{label}" for label in labels)), kind, scope, constant)
            for location, labels in _OLD_LOCATIONS.items()
            for constant in ["NVML_MEMORY_LOCATION_" + location]
        ),
        call(
            "nvmlDeviceGetTotalEccErrors", either(at(count, f"{section}/{bit}/total"), known(sram, dram)), kind, scope
        ),
    ]


_SRAM = {
    "volatileUncParity": ("volatile/sram_uncorrectable_parity",),
    "volatileUncSecDed": ("volatile/sram_uncorrectable_sec_ded", "volatile/sram_uncorrectable_secded"),
    "aggregateUncParity": ("aggregate/sram_uncorrectable_parity",),
    "aggregateUncSecDed": ("aggregate/sram_uncorrectable_sec_ded", "aggregate/sram_uncorrectable_secded"),
    "aggregateUncBucketL2": ("aggregate_uncorrectable_sram_sources/sram_l2",),
    "aggregateUncBucketSm": ("aggregate_uncorrectable_sram_sources/sram_sm",),
    "aggregateUncBucketPcie": ("aggregate_uncorrectable_sram_sources/sram_pcie",),
    "aggregateUncBucketMcu": ("aggregate_uncorrectable_sram_sources/sram_microcontroller",),
    "aggregateUncBucketOther": ("aggregate_uncorrectable_sram_sources/sram_other",),
    "bThresholdExceeded": ("aggregate/sram_threshold_exceeded",),
}


ECC = [
    DumpRow(
        "nvmlDeviceGetEccMode",
        (),
        (
            at(flag, "ecc_mode/current", "ecc_mode/current_ecc"),
            either(
                at(flag, "ecc_mode/pending", "ecc_mode/pending_ecc"),
                at(flag, "ecc_mode/current", "ecc_mode/current_ecc"),
            ),
        ),
        pair,
    ),
    *(row for kind in _KINDS for scope in _SCOPES for row in _ecc_counters(kind, scope)),
    DumpRow(
        "nvmlDeviceGetSramEccErrorStatus",
        (),
        tuple(
            at(flag if member == "bThresholdExceeded" else count, *(f"ecc_errors/{path}" for path in _SRAM[member]))
            for member in SRAM_STATUS.values()
        ),
        lambda *values: {"fills": [dict(zip(SRAM_STATUS.values(), values, strict=True))]},
    ),
    DumpRow(
        "nvmlDeviceGetRepairStatus",
        (),
        (at(flag, "ecc_errors/channel_repair_pending"), at(flag, "ecc_errors/tpc_repair_pending")),
        pair,
    ),
    call("nvmlDeviceGetUnrepairableMemoryFlag_v1", at(flag, "ecc_errors/unrepairable_memory")),
]


def _remapped(convert: Callable[[str], int], text: str, xml: str) -> Source:
    return at(convert, f"remapped_rows/{text}", f"remapped_rows/remapped_row_{xml}")


_REMAPS_V2 = {
    "corrActiveRemaps": _remapped(count, "correctable_error", "corr"),
    "corrInactiveRemaps": _remapped(count, "inactive_correctable_error", "inactive_corr"),
    "uncActiveRemaps": _remapped(count, "uncorrectable_error", "unc"),
    "uncInactiveRemaps": _remapped(count, "inactive_uncorrectable_error", "inactive_unc"),
    "bPending": _remapped(flag, "pending", "pending"),
    "bfailureOccurred": _remapped(flag, "remapping_failure_occurred", "failure"),
}
"""Members of nvmlRemappedRowsInfo_v2_t, printed by drivers from 595 on."""

MAX_RETIRED = 4096
"""No GPU retires more pages than some dozens."""


def _pages(number: int) -> Answer:
    """Zeros as addresses: the dump prints the number of pages, but not their addresses."""
    return [0] * min(number, MAX_RETIRED)


REPAIRS = [
    DumpRow(
        "nvmlDeviceGetRemappedRows",
        (),
        (
            _remapped(count, "correctable_error", "corr"),
            _remapped(count, "uncorrectable_error", "unc"),
            _remapped(flag, "pending", "pending"),
            _remapped(flag, "remapping_failure_occurred", "failure"),
        ),
        pair,
    ),
    DumpRow(
        "nvmlDeviceGetRemappedRows_v2",
        (),
        tuple(_REMAPS_V2.values()),
        lambda *values: {"fills": [dict(zip(_REMAPS_V2, values, strict=True))]},
    ),
    DumpRow(
        "nvmlDeviceGetRowRemapperHistogram",
        (),
        tuple(
            at(
                count,
                f"remapped_rows/bank_remap_availability_histogram/{name}",
                f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{name}",
            )
            for name in ("max", "high", "partial", "low", "none")
        ),
        struct("c_nvmlRowRemapperHistogramValues", "max", "high", "partial", "low", "none"),
    ),
    DumpRow(
        "nvmlDeviceGetRetiredPages",
        ("NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS",),
        (at(count, "retired_pages/single_bit_ecc", "retired_pages/multiple_single_bit_retirement/retired_count"),),
        _pages,
    ),
    DumpRow(
        "nvmlDeviceGetRetiredPages",
        ("NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR",),
        (at(count, "retired_pages/double_bit_ecc", "retired_pages/double_bit_retirement/retired_count"),),
        _pages,
    ),
    call(
        "nvmlDeviceGetRetiredPagesPendingStatus",
        at(
            flag,
            "retired_pages/pending_page_blacklist",
            "retired_pages/pending",
            "retired_pages/pending_blacklist",
            "retired_pages/pending_retirement",
        ),
    ),
]
