/* What wears out or breaks: ECC, row remapping, retired pages, repair, NVLink and the fabric. */
#include "fake.h"

#include <stdio.h>

/* ---- ECC ---- */
int64_t fake_ecc_total(const struct gpu *gpu, int aggregate, int uncorrected) {
    int64_t total = ABSENT;
    for (int i = 0; i < NVML_MEMORY_LOCATION_COUNT; i++) {
        int64_t errors = gpu->ecc[aggregate][uncorrected][i];
        if (errors != ABSENT) total = (total == ABSENT ? 0 : total) + errors;
    }
    return gpu->ecc_mode == 1 ? total : ABSENT;
}
DEVICE(nvmlDeviceGetTotalEccErrors, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long *out) {
    REQUIRE(type < NVML_MEMORY_ERROR_TYPE_COUNT && counter < NVML_ECC_COUNTER_TYPE_COUNT, INVALID_ARGUMENT);
    int64_t total = fake_ecc_total(gpu_of(device), counter, type);
    REQUIRE(device->mig < 0 && total != ABSENT, NOT_SUPPORTED);
    return *out = total, NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetMemoryErrorCounter, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
       nvmlMemoryLocation_t location, unsigned long long *out) {
    REQUIRE(type < NVML_MEMORY_ERROR_TYPE_COUNT && counter < NVML_ECC_COUNTER_TYPE_COUNT, INVALID_ARGUMENT);
    REQUIRE(location < NVML_MEMORY_LOCATION_COUNT, INVALID_ARGUMENT);
    int64_t errors = gpu_of(device)->ecc[counter][type][location];
    REQUIRE(errors != ABSENT && gpu_of(device)->ecc_mode == 1, NOT_SUPPORTED);
    return *out = errors, NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetSramEccErrorStatus, nvmlEccSramErrorStatus_t *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(out->version == nvmlEccSramErrorStatus_v1, ARGUMENT_VERSION_MISMATCH);
    REQUIRE(device->mig < 0 && gpu->sram_parity != ABSENT && gpu->ecc_mode == 1, NOT_SUPPORTED);
    *out = (nvmlEccSramErrorStatus_t){
        .version = out->version,
        .aggregateUncParity = gpu->sram_parity,
        .aggregateUncSecDed = gpu->sram_secded,
        .aggregateCor = gpu->sram_corrected,
        .volatileUncParity = gpu->sram_parity_volatile,
        .volatileUncSecDed = gpu->sram_secded_volatile,
        .volatileCor = gpu->sram_corrected_volatile,
        .aggregateUncBucketL2 = gpu->sram_bucket_l2,
        .aggregateUncBucketSm = gpu->sram_bucket_sm,
        .aggregateUncBucketPcie = gpu->sram_bucket_pcie,
        .aggregateUncBucketMcu = gpu->sram_bucket_mcu,
        .aggregateUncBucketOther = gpu->sram_bucket_other,
        .bThresholdExceeded = gpu->sram_threshold_exceeded,
    };
    return NVML_SUCCESS;
}

/* ---- rows, pages, repair ---- */
DEVICE(nvmlDeviceGetRemappedRows, unsigned int *correctable, unsigned int *uncorrectable, unsigned int *pending,
       unsigned int *failure) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && gpu->remapped_correctable != ABSENT, NOT_SUPPORTED);
    *correctable = gpu->remapped_correctable, *uncorrectable = gpu->remapped_uncorrectable;
    *pending = gpu->remap_pending, *failure = gpu->remap_failure;
    return NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetRemappedRows_v2, nvmlRemappedRowsInfo_v2_t *out) {
    memset(out, 0, sizeof *out);
    return fake_nvmlDeviceGetRemappedRows(device, &out->corrActiveRemaps, &out->uncActiveRemaps, &out->bPending,
                                          &out->bFailureOccurred);
}
DEVICE(nvmlDeviceGetRowRemapperHistogram, nvmlRowRemapperHistogramValues_t *out) {
    const int64_t *banks = gpu_of(device)->remap_banks;
    REQUIRE(device->mig < 0 && banks[0] != ABSENT, NOT_SUPPORTED);
    *out = (nvmlRowRemapperHistogramValues_t){banks[0], banks[1], banks[2], banks[3], banks[4]};
    return NVML_SUCCESS;
}
GETTER(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t, gpu->retired_pending)
DEVICE(nvmlDeviceGetRetiredPages, nvmlPageRetirementCause_t cause, unsigned int *count, unsigned long long *addresses) {
    const struct gpu *gpu = gpu_of(device);
    int64_t pages = cause == NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR ? gpu->retired_dbe : gpu->retired_sbe;
    unsigned int room = *count;
    REQUIRE(device->mig < 0 && pages != ABSENT, NOT_SUPPORTED);
    *count = pages;
    REQUIRE(room >= *count, INSUFFICIENT_SIZE);
    for (unsigned int i = 0; addresses && i < *count; i++) addresses[i] = 0x10000ull * (i + 1);
    return NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetRepairStatus, nvmlRepairStatus_t *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && gpu->channel_repair_pending != ABSENT, NOT_SUPPORTED);
    out->bChannelRepairPending = gpu->channel_repair_pending, out->bTpcRepairPending = gpu->tpc_repair_pending;
    return NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetUnrepairableMemoryFlag_v1, nvmlUnrepairableMemoryStatus_v1_t *out) {
    REQUIRE(device->mig < 0 && gpu_of(device)->unrepairable_memory != ABSENT, NOT_SUPPORTED);
    return out->bUnrepairableMemory = gpu_of(device)->unrepairable_memory, NVML_SUCCESS;
}

/* ---- NVLink, fabric ---- */
INDEXED(nvmlDeviceGetNvLinkState, unsigned int, nvmlEnableState_t, gpu->nvlinks, gpu->links[i].active)
INDEXED(nvmlDeviceGetNvLinkVersion, unsigned int, unsigned int, gpu->nvlinks, gpu->nvlink_version)
INDEXED(nvmlDeviceGetNvLinkRemoteDeviceType, unsigned int, nvmlIntNvLinkDeviceType_t, gpu->nvlinks,
        NVML_NVLINK_DEVICE_TYPE_SWITCH)
DEVICE(nvmlDeviceGetNvLinkErrorCounter, unsigned int link, nvmlNvLinkErrorCounter_t counter, unsigned long long *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(link < gpu->nvlinks && counter < NVML_NVLINK_ERROR_COUNT, INVALID_ARGUMENT);
    REQUIRE(gpu->links[link].errors[counter] != ABSENT, NOT_SUPPORTED);
    return *out = gpu->links[link].errors[counter], NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetNvLinkRemotePciInfo_v2, unsigned int link, nvmlPciInfo_t *out) {
    REQUIRE(link < gpu_of(device)->nvlinks, INVALID_ARGUMENT);
    if (gpu_of(device)->platform_slot != ABSENT) { /* the switches of a rack are on no bus of this machine */
        memset(out, 0, sizeof *out);
        strcpy(out->busIdLegacy, "FFFF:FF:FF.0"), strcpy(out->busId, "FFFFFFFF:FF:FF.0");
        return NVML_SUCCESS;
    }
    *out = (nvmlPciInfo_t){.bus = 0xc0 + link % 4, .pciDeviceId = 0x22a310de}; /* one of four NVSwitches */
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "0000:%02X:00.0", out->bus);
    snprintf(out->busId, sizeof out->busId, "00000000:%02X:00.0", out->bus);
    return NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetGpuFabricInfo, nvmlGpuFabricInfo_t *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(gpu->fabric_state != ABSENT, NOT_SUPPORTED);
    memset(out, 0, sizeof *out);
    out->status = gpu->fabric_status, out->cliqueId = gpu->fabric_clique, out->state = gpu->fabric_state;
    return NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetGpuFabricInfoV, nvmlGpuFabricInfoV_t *out) {
    const struct gpu *gpu = gpu_of(device);
    bool v3 = out->version == nvmlGpuFabricInfo_v3;
    REQUIRE(v3 || out->version == nvmlGpuFabricInfo_v2, ARGUMENT_VERSION_MISMATCH);
    REQUIRE(gpu->fabric_state != ABSENT, NOT_SUPPORTED);
    memset(out->clusterUuid, 0, sizeof out->clusterUuid);
    out->status = gpu->fabric_status, out->cliqueId = gpu->fabric_clique, out->state = gpu->fabric_state;
    out->healthMask = gpu->fabric_health_mask;
    if (v3) out->healthSummary = gpu->fabric_health_summary; /* the shorter struct ends before it */
    return NVML_SUCCESS;
}
