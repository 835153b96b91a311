/* The system, the way to a device, and a device's plain numbers: one row a function. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* ---- system ---- */
nvmlReturn_t fake_nvmlSystemGetDriverVersion(char *out, unsigned int length) {
    return copy_text(out, length, control->driver_version);
}
nvmlReturn_t fake_nvmlSystemGetNVMLVersion(char *out, unsigned int length) {
    return copy_text(out, length, control->nvml_version);
}
nvmlReturn_t fake_nvmlSystemGetCudaDriverVersion(int *out) { return *out = (int)control->cuda_version, NVML_SUCCESS; }
nvmlReturn_t fake_nvmlSystemGetCudaDriverVersion_v2(int *out) { return fake_nvmlSystemGetCudaDriverVersion(out); }
nvmlReturn_t fake_nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *out, unsigned int length) {
    (void)length;
    snprintf(out->branch, sizeof out->branch, "r%d_00", atoi(control->driver_version));
    return NVML_SUCCESS;
}

nvmlReturn_t fake_nvmlSystemGetProcessName(unsigned int pid, char *out, unsigned int length) {
    for (int g = 0; g < MAX_GPUS; g++)
        for (uint64_t p = 0; p < control->gpus[g].process_count; p++)
            if (control->gpus[g].processes[p].pid == pid) return copy_text(out, length, control->gpus[g].processes[p].name);
    return NVML_ERROR_NOT_FOUND;
}

/* ---- handles ---- */
nvmlReturn_t fake_nvmlDeviceGetCount_v2(unsigned int *out) { return *out = (unsigned int)fake_gpu_count(), NVML_SUCCESS; }

nvmlReturn_t fake_nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out) {
    int gpu = fake_gpu_at(index);
    if (gpu < 0) return NVML_ERROR_INVALID_ARGUMENT;
    *out = &devices[gpu][0];
    return NVML_SUCCESS;
}

/* What a search for `text` finds: the getter compares, the gate's rule about lost GPUs holds here too. */
static nvmlReturn_t find(const char *text, bool (*same)(const struct gpu *, const char *), nvmlDevice_t *out) {
    for (int i = 0; i < fake_gpu_count(); i++) {
        int gpu = fake_gpu_at((unsigned int)i);
        if (!same(&control->gpus[gpu], text)) continue;
        if (control->gpus[gpu].lost || !control->gpus[gpu].present) return NVML_ERROR_GPU_IS_LOST;
        *out = &devices[gpu][0];
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}
static bool same_serial(const struct gpu *gpu, const char *text) { return !strcmp(gpu->serial, text); }
static bool same_uuid(const struct gpu *gpu, const char *text) { return !strcmp(gpu->uuid, text); }
static bool same_address(const struct gpu *gpu, const char *text) {
    unsigned int domain, bus, device;
    return sscanf(text, "%x:%x:%x", &domain, &bus, &device) == 3 && domain == gpu->pci_domain &&
           bus == gpu->pci_bus && device == gpu->pci_device;
}
nvmlReturn_t fake_nvmlDeviceGetHandleBySerial(const char *text, nvmlDevice_t *out) { return find(text, same_serial, out); }
nvmlReturn_t fake_nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *out) {
    return find(text, same_address, out);
}
nvmlReturn_t fake_nvmlDeviceGetHandleByUUID(const char *text, nvmlDevice_t *out) {
    for (int i = 0; i < fake_gpu_count(); i++) {
        int gpu = fake_gpu_at((unsigned int)i);
        for (uint64_t m = 0; control->gpus[gpu].mig_mode == 1 && m < control->gpus[gpu].mig_count; m++)
            if (!strcmp(control->gpus[gpu].migs[m].uuid, text)) return *out = &devices[gpu][m + 1], NVML_SUCCESS;
    }
    return find(text, same_uuid, out);
}
nvmlReturn_t fake_nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *out) {
    if (uuid->type != NVML_UUID_TYPE_ASCII) return NVML_ERROR_NOT_SUPPORTED;
    return fake_nvmlDeviceGetHandleByUUID(uuid->value.str, out);
}

/* ---- identity ---- */
TEXT(nvmlDeviceGetName, device->mig < 0 ? gpu->name : mig_of(device)->name)
TEXT(nvmlDeviceGetUUID, device->mig < 0 ? gpu->uuid : mig_of(device)->uuid)
TEXT(nvmlDeviceGetSerial, gpu->serial)
TEXT(nvmlDeviceGetVbiosVersion, gpu->vbios)
TEXT(nvmlDeviceGetBoardPartNumber, gpu->part_number)
TEXT(nvmlDeviceGetInforomImageVersion, gpu->inforom)
GETTER(nvmlDeviceGetMinorNumber, unsigned int, gpu->minor_number)
GETTER(nvmlDeviceGetBoardId, unsigned int, gpu->board_id)
GETTER(nvmlDeviceGetModuleId, unsigned int, gpu->module_id)
GETTER(nvmlDeviceGetBrand, nvmlBrandType_t, gpu->brand)
GETTER(nvmlDeviceGetArchitecture, nvmlDeviceArchitecture_t, gpu->architecture)
GETTER(nvmlDeviceGetNumGpuCores, unsigned int, gpu->cores)
GETTER(nvmlDeviceGetMemoryBusWidth, unsigned int, gpu->bus_width)
GETTER(nvmlDeviceGetNumaNodeId, unsigned int, gpu->numa_node)
GETTER(nvmlDeviceGetBusType, nvmlBusType_t, gpu->pci_bus == ABSENT ? ABSENT : NVML_BUS_TYPE_PCIE)
PAIR(nvmlDeviceGetCudaComputeCapability, int, gpu->cc_major, int, gpu->cc_minor)

nvmlReturn_t fake_nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *out) {
    for (int i = 0; i < fake_gpu_count(); i++)
        if (fake_gpu_at((unsigned int)i) == device->gpu) *out = (unsigned int)(device->mig < 0 ? i : device->mig);
    return NVML_SUCCESS;
}

nvmlReturn_t fake_nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out) {
    struct gpu *gpu = gpu_of(device);
    unsigned int domain = (unsigned int)gpu->pci_domain, bus = (unsigned int)gpu->pci_bus, slot = (unsigned int)gpu->pci_device;
    *out = (nvmlPciInfo_t){.domain = domain, .bus = bus, .device = slot,
                           .pciDeviceId = (unsigned int)gpu->pci_device_id,
                           .pciSubSystemId = (unsigned int)gpu->pci_subsystem_id};
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff, slot & 0xff);
    snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.0", domain, bus, slot);
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *out) {
    return fake_nvmlDeviceGetPciInfo_v3(device, out);
}
nvmlReturn_t fake_nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *out) {
    nvmlPciInfo_t pci;
    fake_nvmlDeviceGetPciInfo_v3(device, &pci);
    *out = (nvmlPciInfoExt_t){out->version, pci.domain, pci.bus, pci.device, pci.pciDeviceId, pci.pciSubSystemId, 3, 2, ""};
    memcpy(out->busId, pci.busId, sizeof out->busId);
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out) {
    if (gpu_of(device)->gsp_mode != 1) return NVML_ERROR_NOT_SUPPORTED;
    return copy_text(out, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE, control->driver_version);
}

/* ---- modes ---- */
GETTER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, gpu->persistence_mode)
GETTER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, gpu->compute_mode)
GETTER(nvmlDeviceGetDisplayMode, nvmlEnableState_t, gpu->display_mode)
GETTER(nvmlDeviceGetDisplayActive, nvmlEnableState_t, gpu->display_active)
GETTER(nvmlDeviceGetAccountingMode, nvmlEnableState_t, gpu->accounting_mode)
GETTER(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, gpu->virtualization_mode)
GETTER(nvmlDeviceGetDefaultEccMode, nvmlEnableState_t, gpu->ecc_mode == ABSENT ? ABSENT : 1)
PAIR(nvmlDeviceGetGspFirmwareMode, unsigned int, gpu->gsp_mode, unsigned int, gpu->gsp_mode)
PAIR(nvmlDeviceGetEccMode, nvmlEnableState_t, gpu->ecc_mode, nvmlEnableState_t, gpu->ecc_pending)
PAIR(nvmlDeviceGetMigMode, unsigned int, gpu->mig_mode, unsigned int, gpu->mig_pending)
nvmlReturn_t fake_nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_t *out) {
    if (gpu_of(device)->addressing_mode == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    return out->value = (unsigned int)gpu_of(device)->addressing_mode, NVML_SUCCESS;
}

/* ---- power ---- */
int64_t fake_energy_mj(const struct gpu *gpu) { /* mW x s = mJ */
    if (gpu->energy_mj == ABSENT || gpu->power_mw == ABSENT) return gpu->energy_mj;
    double seconds = (double)(int64_t)(fake_monotonic_ns() - (uint64_t)gpu->energy_since_ns) / 1e9;
    return gpu->energy_mj + (int64_t)((double)gpu->power_mw * seconds);
}
GETTER(nvmlDeviceGetPowerUsage, unsigned int, gpu->power_average_mw == ABSENT ? gpu->power_mw : gpu->power_average_mw)
GETTER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, fake_energy_mj(gpu))
GETTER(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, gpu->power_limit_mw == ABSENT ? ABSENT : 1)
GETTER(nvmlDeviceGetPowerManagementLimit, unsigned int, gpu->power_limit_mw)
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, gpu->power_limit_enforced_mw)
GETTER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, gpu->power_limit_default_mw)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, unsigned int, gpu->power_limit_min_mw, unsigned int, gpu->power_limit_max_mw)

nvmlReturn_t fake_nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int milliwatts) {
    struct gpu *gpu = gpu_of(device);
    if (gpu->power_limit_mw == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    if (milliwatts < gpu->power_limit_min_mw || milliwatts > gpu->power_limit_max_mw) return NVML_ERROR_INVALID_ARGUMENT;
    gpu->power_limit_mw = gpu->power_limit_enforced_mw = milliwatts;
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device, nvmlPowerValue_v2_t *value) {
    return fake_nvmlDeviceSetPowerManagementLimit(device, value->powerValueMw);
}

/* ---- temperature, fans ---- */
GETTER(nvmlDeviceGetFanSpeed, unsigned int, gpu->fans == ABSENT ? ABSENT : gpu->fan_percent)
GETTER(nvmlDeviceGetNumFans, unsigned int, gpu->fans == ABSENT ? 0 : gpu->fans)
INDEXED(nvmlDeviceGetFanSpeed_v2, unsigned int, unsigned int, gpu->fans, gpu->fan_percent)
INDEXED(nvmlDeviceGetTemperature, nvmlTemperatureSensors_t, unsigned int, NVML_TEMPERATURE_COUNT, gpu->temperature)
INDEXED(nvmlDeviceGetTemperatureThreshold, nvmlTemperatureThresholds_t, unsigned int, NVML_TEMPERATURE_THRESHOLD_COUNT,
        i == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN   ? gpu->temperature_shutdown
        : i == NVML_TEMPERATURE_THRESHOLD_SLOWDOWN ? gpu->temperature_slowdown
        : i == NVML_TEMPERATURE_THRESHOLD_MEM_MAX  ? gpu->temperature_memory_max
        : i == NVML_TEMPERATURE_THRESHOLD_GPU_MAX  ? gpu->temperature_gpu_max
                                                   : ABSENT)
nvmlReturn_t fake_nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out) {
    if (out->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (device->mig >= 0 || gpu_of(device)->temperature == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    return out->temperature = (int)gpu_of(device)->temperature, NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetMarginTemperature(nvmlDevice_t device, nvmlMarginTemperature_t *out) {
    if (out->version != nvmlMarginTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (device->mig >= 0 || gpu_of(device)->margin == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    return out->marginTemperature = (int)gpu_of(device)->margin, NVML_SUCCESS;
}

/* ---- load and memory ---- */
#define UNLESS_MIG(value) (gpu->mig_mode == 1 ? ABSENT : (value)) /* a partitioned GPU has no utilization of its own */
#define PERIOD_US 166666
PAIR(nvmlDeviceGetEncoderUtilization, unsigned int, UNLESS_MIG(gpu->util_encoder), unsigned int, PERIOD_US)
PAIR(nvmlDeviceGetDecoderUtilization, unsigned int, UNLESS_MIG(gpu->util_decoder), unsigned int, PERIOD_US)
PAIR(nvmlDeviceGetJpgUtilization, unsigned int, UNLESS_MIG(gpu->util_jpeg), unsigned int, PERIOD_US)
PAIR(nvmlDeviceGetOfaUtilization, unsigned int, UNLESS_MIG(gpu->util_ofa), unsigned int, PERIOD_US)
GETTER(nvmlDeviceGetPerformanceState, nvmlPstates_t, gpu->pstate)
GETTER(nvmlDeviceGetPowerState, nvmlPstates_t, gpu->pstate)

nvmlReturn_t fake_nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out) {
    struct gpu *gpu = gpu_of(device);
    if (device->mig >= 0 || UNLESS_MIG(gpu->util_gpu) == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    *out = (nvmlUtilization_t){(unsigned int)gpu->util_gpu, (unsigned int)gpu->util_memory};
    return NVML_SUCCESS;
}

nvmlReturn_t fake_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
    if (out->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    struct gpu *gpu = gpu_of(device);
    struct mig *mig = mig_of(device);
    int64_t total = mig ? mig->memory_total : gpu->memory_total, used = mig ? mig->memory_used : gpu->memory_used;
    int64_t reserved = mig ? mig->memory_reserved : gpu->memory_reserved;
    if (total == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    out->total = (uint64_t)total, out->used = (uint64_t)used, out->reserved = (uint64_t)reserved;
    out->free = (uint64_t)(total - used - reserved);
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) { /* v1 counts reserved as used */
    nvmlMemory_v2_t v2 = {.version = nvmlMemory_v2};
    nvmlReturn_t result = fake_nvmlDeviceGetMemoryInfo_v2(device, &v2);
    if (result == NVML_SUCCESS) *out = (nvmlMemory_t){v2.total, v2.free, v2.used + v2.reserved};
    return result;
}
nvmlReturn_t fake_nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out) {
    struct gpu *gpu = gpu_of(device);
    if (gpu->bar1_total == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    uint64_t total = (uint64_t)gpu->bar1_total, used = (uint64_t)gpu->bar1_used;
    if (device->mig >= 0) total = total / 8 * mig_of(device)->slices, used = 0;
    *out = (nvmlBAR1Memory_t){total, total - used, used};
    return NVML_SUCCESS;
}

/* ---- clocks ---- */
INDEXED(nvmlDeviceGetClockInfo, nvmlClockType_t, unsigned int, NVML_CLOCK_COUNT, gpu->clock_mhz[i])
INDEXED(nvmlDeviceGetMaxClockInfo, nvmlClockType_t, unsigned int, NVML_CLOCK_COUNT, gpu->clock_max_mhz[i])
INDEXED(nvmlDeviceGetMaxCustomerBoostClock, nvmlClockType_t, unsigned int, NVML_CLOCK_COUNT, gpu->clock_max_mhz[i])
INDEXED(nvmlDeviceGetApplicationsClock, nvmlClockType_t, unsigned int, NVML_CLOCK_COUNT, gpu->clock_max_mhz[i])
INDEXED(nvmlDeviceGetDefaultApplicationsClock, nvmlClockType_t, unsigned int, NVML_CLOCK_COUNT, gpu->clock_max_mhz[i])
GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, gpu->clock_events)
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, gpu->clock_events)
GETTER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, gpu->clock_events_supported)
GETTER(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, gpu->clock_events_supported)

nvmlReturn_t fake_nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id, unsigned int *out) {
    return id == NVML_CLOCK_ID_CURRENT ? fake_nvmlDeviceGetClockInfo(device, type, out)
                                       : fake_nvmlDeviceGetMaxClockInfo(device, type, out);
}
nvmlReturn_t fake_nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t policy, nvmlViolationTime_t *out) {
    struct gpu *gpu = gpu_of(device);
    if ((unsigned int)policy >= NVML_PERF_POLICY_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu->event_ns[policy] == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    *out = (nvmlViolationTime_t){fake_unix_us(), (uint64_t)gpu->event_ns[policy]};
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int min, unsigned int max) {
    struct gpu *gpu = gpu_of(device);
    if (min > max) return NVML_ERROR_INVALID_ARGUMENT;
    gpu->locked_min_mhz = min, gpu->locked_max_mhz = max;
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device) {
    gpu_of(device)->locked_min_mhz = gpu_of(device)->locked_max_mhz = ABSENT;
    return NVML_SUCCESS;
}

/* ---- PCIe ---- */
GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, gpu->pcie_gen)
GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, gpu->pcie_gen_max)
GETTER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, gpu->pcie_gen_max)
GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, gpu->pcie_width)
GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, gpu->pcie_width_max)
GETTER(nvmlDeviceGetPcieReplayCounter, unsigned int, gpu->pcie_replays)
INDEXED(nvmlDeviceGetPcieThroughput, nvmlPcieUtilCounter_t, unsigned int, NVML_PCIE_UTIL_COUNT,
        i == NVML_PCIE_UTIL_TX_BYTES ? gpu->pcie_tx_kbps : gpu->pcie_rx_kbps)

/* ---- reliability ---- */
int64_t fake_ecc_total(const struct gpu *gpu, int aggregate, int uncorrected) {
    int64_t total = ABSENT;
    for (int i = 0; i < NVML_MEMORY_LOCATION_COUNT; i++) {
        int64_t errors = gpu->ecc[aggregate][uncorrected][i];
        if (errors != ABSENT) total = (total == ABSENT ? 0 : total) + errors;
    }
    return gpu->ecc_mode == 1 ? total : ABSENT;
}
nvmlReturn_t fake_nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter,
                                              unsigned long long *out) {
    if ((unsigned int)type > 1 || (unsigned int)counter > 1) return NVML_ERROR_INVALID_ARGUMENT;
    int64_t total = fake_ecc_total(gpu_of(device), (int)counter, (int)type);
    if (total == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    return *out = (uint64_t)total, NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                                  nvmlEccCounterType_t counter, nvmlMemoryLocation_t location,
                                                  unsigned long long *out) {
    if ((unsigned int)type > 1 || (unsigned int)counter > 1 || (unsigned int)location >= NVML_MEMORY_LOCATION_COUNT)
        return NVML_ERROR_INVALID_ARGUMENT;
    struct gpu *gpu = gpu_of(device);
    int64_t errors = gpu->ecc[counter][type][location];
    if (errors == ABSENT || gpu->ecc_mode != 1) return NVML_ERROR_NOT_SUPPORTED;
    return *out = (uint64_t)errors, NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *out) {
    struct gpu *gpu = gpu_of(device);
    if (out->version != nvmlEccSramErrorStatus_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (gpu->sram_parity == ABSENT || gpu->ecc_mode != 1) return NVML_ERROR_NOT_SUPPORTED;
    *out = (nvmlEccSramErrorStatus_t){out->version, (uint64_t)gpu->sram_parity, (uint64_t)gpu->sram_secded,
        (uint64_t)gpu->sram_corrected, (uint64_t)gpu->sram_parity_volatile, (uint64_t)gpu->sram_secded_volatile,
        (uint64_t)gpu->sram_corrected_volatile, (uint64_t)gpu->sram_bucket_l2, (uint64_t)gpu->sram_bucket_sm,
        (uint64_t)gpu->sram_bucket_pcie, (uint64_t)gpu->sram_bucket_mcu, (uint64_t)gpu->sram_bucket_other,
        (unsigned int)gpu->sram_threshold_exceeded};
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
                                            unsigned int *pending, unsigned int *failure) {
    struct gpu *gpu = gpu_of(device);
    if (gpu->remapped_correctable == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    *correctable = (unsigned int)gpu->remapped_correctable, *uncorrectable = (unsigned int)gpu->remapped_uncorrectable;
    *pending = (unsigned int)gpu->remap_pending, *failure = (unsigned int)gpu->remap_failure;
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetRemappedRows_v2(nvmlDevice_t device, nvmlRemappedRowsInfo_v2_t *out) {
    memset(out, 0, sizeof *out);
    return fake_nvmlDeviceGetRemappedRows(device, &out->corrActiveRemaps, &out->uncActiveRemaps, &out->bPending,
                                          &out->bFailureOccurred);
}
nvmlReturn_t fake_nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *out) {
    const int64_t *banks = gpu_of(device)->remap_banks;
    if (banks[0] == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    *out = (nvmlRowRemapperHistogramValues_t){(unsigned int)banks[0], (unsigned int)banks[1], (unsigned int)banks[2],
                                              (unsigned int)banks[3], (unsigned int)banks[4]};
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t *out) {
    struct gpu *gpu = gpu_of(device);
    if (gpu->channel_repair_pending == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    out->bChannelRepairPending = (unsigned int)gpu->channel_repair_pending;
    out->bTpcRepairPending = (unsigned int)gpu->tpc_repair_pending;
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device, nvmlUnrepairableMemoryStatus_v1_t *out) {
    if (gpu_of(device)->unrepairable_memory == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    return out->bUnrepairableMemory = (unsigned int)gpu_of(device)->unrepairable_memory, NVML_SUCCESS;
}
GETTER(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t, gpu->retired_pending)
nvmlReturn_t fake_nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
                                            unsigned long long *addresses) {
    struct gpu *gpu = gpu_of(device);
    int64_t pages = cause == NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR ? gpu->retired_dbe : gpu->retired_sbe;
    if (pages == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    unsigned int room = *count;
    *count = (unsigned int)pages;
    if (room < *count) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; addresses && i < *count; i++) addresses[i] = 0x10000ull * (i + 1);
    return NVML_SUCCESS;
}

/* ---- NVLink, fabric ---- */
INDEXED(nvmlDeviceGetNvLinkState, unsigned int, nvmlEnableState_t, gpu->nvlinks, gpu->links[i].active)
INDEXED(nvmlDeviceGetNvLinkVersion, unsigned int, unsigned int, gpu->nvlinks, gpu->nvlink_version)
INDEXED(nvmlDeviceGetNvLinkRemoteDeviceType, unsigned int, nvmlIntNvLinkDeviceType_t, gpu->nvlinks,
        NVML_NVLINK_DEVICE_TYPE_SWITCH)
nvmlReturn_t fake_nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter,
                                                  unsigned long long *out) {
    struct gpu *gpu = gpu_of(device);
    if ((int64_t)link >= gpu->nvlinks || (unsigned int)counter >= NVML_NVLINK_ERROR_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu->links[link].errors[counter] == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    return *out = (uint64_t)gpu->links[link].errors[counter], NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *out) {
    struct gpu *gpu = gpu_of(device); /* every link ends at one of four NVSwitches */
    if ((int64_t)link >= gpu->nvlinks) return NVML_ERROR_INVALID_ARGUMENT;
    *out = (nvmlPciInfo_t){.bus = 0xc0 + link % 4, .pciDeviceId = 0x22a310de};
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "0000:%02X:00.0", out->bus);
    snprintf(out->busId, sizeof out->busId, "00000000:%02X:00.0", out->bus);
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *out) {
    struct gpu *gpu = gpu_of(device);
    if (gpu->fabric_state == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->status = (nvmlReturn_t)gpu->fabric_status, out->cliqueId = (unsigned int)gpu->fabric_clique;
    out->state = (nvmlGpuFabricState_t)gpu->fabric_state;
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out) {
    struct gpu *gpu = gpu_of(device);
    if (out->version != nvmlGpuFabricInfo_v2 && out->version != nvmlGpuFabricInfo_v3) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (gpu->fabric_state == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    memset(out->clusterUuid, 0, sizeof out->clusterUuid);
    out->status = (nvmlReturn_t)gpu->fabric_status, out->cliqueId = (unsigned int)gpu->fabric_clique;
    out->state = (nvmlGpuFabricState_t)gpu->fabric_state, out->healthMask = (unsigned int)gpu->fabric_health_mask;
    if (out->version == nvmlGpuFabricInfo_v3) out->healthSummary = (unsigned char)gpu->fabric_health_summary;
    return NVML_SUCCESS;
}
