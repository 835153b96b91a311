/* A device's modes, power, temperature, load, memory, clocks and bus: mostly one row a function. */
#include "fake.h"

#include <time.h>

/* ---- modes ---- */
GETTER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, gpu->persistence_mode)
GETTER(nvmlDeviceGetComputeMode, nvmlComputeMode_t, gpu->compute_mode)
GETTER(nvmlDeviceGetDisplayMode, nvmlEnableState_t, gpu->display_mode)
GETTER(nvmlDeviceGetDisplayActive, nvmlEnableState_t, gpu->display_active)
GETTER(nvmlDeviceGetAccountingMode, nvmlEnableState_t, gpu->accounting_mode)
GETTER(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t, gpu->virtualization_mode)
GETTER(nvmlDeviceGetDefaultEccMode, nvmlEnableState_t, gpu->ecc_mode == ABSENT ? ABSENT : 1)
PAIR(nvmlDeviceGetGspFirmwareMode, unsigned int, gpu->gsp_mode, gpu->gsp_mode)
PAIR(nvmlDeviceGetEccMode, nvmlEnableState_t, gpu->ecc_mode, gpu->ecc_pending)
PAIR(nvmlDeviceGetMigMode, unsigned int, gpu->mig_mode, gpu->mig_pending)
DEVICE(nvmlDeviceGetAddressingMode, nvmlDeviceAddressingMode_t *out) {
    REQUIRE(gpu_of(device)->addressing_mode != ABSENT, NOT_SUPPORTED);
    return out->value = gpu_of(device)->addressing_mode, NVML_SUCCESS;
}

/* ---- power ---- */
int64_t fake_energy_mj(const struct gpu *gpu) { /* mW x s = mJ */
    if (gpu->energy_mj == ABSENT || gpu->power_mw == ABSENT) return gpu->energy_mj;
    return gpu->energy_mj + gpu->power_mw * ((int64_t)(fake_monotonic_ns() - gpu->energy_since_ns) / 1000) / 1000000;
}
GETTER(nvmlDeviceGetPowerUsage, unsigned int, gpu->power_average_mw == ABSENT ? gpu->power_mw : gpu->power_average_mw)
GETTER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, fake_energy_mj(gpu))
GETTER(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, gpu->power_limit_mw == ABSENT ? ABSENT : 1)
GETTER(nvmlDeviceGetPowerManagementLimit, unsigned int, gpu->power_limit_mw)
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, gpu->power_limit_enforced_mw)
GETTER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, gpu->power_limit_default_mw)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, unsigned int, gpu->power_limit_min_mw, gpu->power_limit_max_mw)

/* ---- temperature, fans ---- */
static int64_t threshold(const struct gpu *gpu, nvmlTemperatureThresholds_t which) {
    switch (which) {
    case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN: return gpu->temperature_shutdown;
    case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: return gpu->temperature_slowdown;
    case NVML_TEMPERATURE_THRESHOLD_MEM_MAX: return gpu->temperature_memory_max;
    case NVML_TEMPERATURE_THRESHOLD_GPU_MAX: return gpu->temperature_gpu_max;
    default: return ABSENT;
    }
}
GETTER(nvmlDeviceGetFanSpeed, unsigned int, gpu->fans == ABSENT ? ABSENT : gpu->fan_percent)
GETTER(nvmlDeviceGetNumFans, unsigned int, gpu->fans == ABSENT ? 0 : gpu->fans)
INDEXED(nvmlDeviceGetFanSpeed_v2, unsigned int, unsigned int, gpu->fans, gpu->fan_percent)
INDEXED(nvmlDeviceGetTemperature, nvmlTemperatureSensors_t, unsigned int, NVML_TEMPERATURE_COUNT, gpu->temperature)
INDEXED(nvmlDeviceGetTemperatureThreshold, nvmlTemperatureThresholds_t, unsigned int, NVML_TEMPERATURE_THRESHOLD_COUNT,
        threshold(gpu, i))
DEVICE(nvmlDeviceGetTemperatureV, nvmlTemperature_t *out) {
    REQUIRE(out->version == nvmlTemperature_v1, ARGUMENT_VERSION_MISMATCH);
    REQUIRE(device->mig < 0 && gpu_of(device)->temperature != ABSENT, NOT_SUPPORTED);
    return out->temperature = gpu_of(device)->temperature, NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetMarginTemperature, nvmlMarginTemperature_t *out) {
    REQUIRE(out->version == nvmlMarginTemperature_v1, ARGUMENT_VERSION_MISMATCH);
    REQUIRE(device->mig < 0 && gpu_of(device)->margin != ABSENT, NOT_SUPPORTED);
    return out->marginTemperature = gpu_of(device)->margin, NVML_SUCCESS;
}

/* ---- load and memory ---- */
#define UNLESS_MIG(value) (gpu->mig_mode == 1 ? ABSENT : (value)) /* a partitioned GPU has no utilization of its own */
enum { PERIOD_US = 166666 };
PAIR(nvmlDeviceGetEncoderUtilization, unsigned int, UNLESS_MIG(gpu->util_encoder), PERIOD_US)
PAIR(nvmlDeviceGetDecoderUtilization, unsigned int, UNLESS_MIG(gpu->util_decoder), PERIOD_US)
PAIR(nvmlDeviceGetJpgUtilization, unsigned int, UNLESS_MIG(gpu->util_jpeg), PERIOD_US)
PAIR(nvmlDeviceGetOfaUtilization, unsigned int, UNLESS_MIG(gpu->util_ofa), PERIOD_US)
GETTER(nvmlDeviceGetPerformanceState, nvmlPstates_t, gpu->pstate)
GETTER(nvmlDeviceGetPowerState, nvmlPstates_t, gpu->pstate)

DEVICE(nvmlDeviceGetUtilizationRates, nvmlUtilization_t *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && UNLESS_MIG(gpu->util_gpu) != ABSENT, NOT_SUPPORTED);
    *out = (nvmlUtilization_t){gpu->util_gpu, gpu->util_memory};
    return NVML_SUCCESS;
}

DEVICE(nvmlDeviceGetMemoryInfo_v2, nvmlMemory_v2_t *out) {
    const struct gpu *gpu = gpu_of(device);
    const struct mig *mig = mig_of(device);
    REQUIRE(out->version == nvmlMemory_v2, ARGUMENT_VERSION_MISMATCH);
    REQUIRE(mig || gpu->memory_total != ABSENT, NOT_SUPPORTED);
    out->total = mig ? mig->memory_total : gpu->memory_total;
    out->used = mig ? mig->memory_used : gpu->memory_used;
    out->reserved = mig ? mig->memory_reserved : gpu->memory_reserved;
    out->free = out->total - out->used - out->reserved;
    return NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetMemoryInfo, nvmlMemory_t *out) { /* the first version counts what is reserved as used */
    nvmlMemory_v2_t v2 = {.version = nvmlMemory_v2};
    nvmlReturn_t result = fake_nvmlDeviceGetMemoryInfo_v2(device, &v2);
    if (result == NVML_SUCCESS) *out = (nvmlMemory_t){v2.total, v2.free, v2.used + v2.reserved};
    return result;
}
DEVICE(nvmlDeviceGetBAR1MemoryInfo, nvmlBAR1Memory_t *out) {
    const struct gpu *gpu = gpu_of(device);
    const struct mig *mig = mig_of(device);
    REQUIRE(gpu->bar1_total != ABSENT, NOT_SUPPORTED);
    out->bar1Total = mig ? gpu->bar1_total / 8 * mig->slices : gpu->bar1_total;
    out->bar1Used = mig ? 0 : gpu->bar1_used;
    out->bar1Free = out->bar1Total - out->bar1Used;
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

DEVICE(nvmlDeviceGetClock, nvmlClockType_t type, nvmlClockId_t id, unsigned int *out) {
    return id == NVML_CLOCK_ID_CURRENT ? fake_nvmlDeviceGetClockInfo(device, type, out)
                                       : fake_nvmlDeviceGetMaxClockInfo(device, type, out);
}
DEVICE(nvmlDeviceGetViolationStatus, nvmlPerfPolicyType_t policy, nvmlViolationTime_t *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(policy < NVML_PERF_POLICY_COUNT, INVALID_ARGUMENT);
    REQUIRE(device->mig < 0 && gpu->event_ns[policy] != ABSENT, NOT_SUPPORTED);
    *out = (nvmlViolationTime_t){fake_unix_us(), gpu->event_ns[policy]};
    return NVML_SUCCESS;
}

DEVICE(nvmlDeviceGetEncoderStats, unsigned int *sessions, unsigned int *frames, unsigned int *microseconds) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && gpu->encoder_sessions != ABSENT, NOT_SUPPORTED);
    *sessions = gpu->encoder_sessions, *frames = gpu->encoder_fps, *microseconds = gpu->encoder_latency_us;
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

/* ---- topology ---- */
/* Four GPUs to a NUMA node, each behind a host bridge of its own, as on an HGX board. */
DEVICE(nvmlDeviceGetTopologyCommonAncestor, nvmlDevice_t other, nvmlGpuTopologyLevel_t *out) {
    REQUIRE(fake_gpu_of(other) >= 0 && out, INVALID_ARGUMENT);
    *out = device->gpu == other->gpu ? NVML_TOPOLOGY_INTERNAL
         : device->gpu / 4 == other->gpu / 4 ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
}

/* ---- licence, confidential computing ---- */
DEVICE(nvmlDeviceGetGridLicensableFeatures_v4, nvmlGridLicensableFeatures_t *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0, NOT_SUPPORTED);
    memset(out, 0, sizeof *out);
    if (gpu->licensed == ABSENT) return NVML_SUCCESS; /* no vGPU: no licence is needed */
    nvmlGridLicensableFeature_t *feature = &out->gridLicensableFeatures[0];
    out->isGridLicenseSupported = 1, out->licensableFeaturesCount = 1;
    feature->featureState = gpu->licensed, feature->featureEnabled = 1;
    strcpy(feature->productName, "NVIDIA Virtual Compute Server");
    if (gpu->license_expires == ABSENT) return feature->licenseExpiry.status = 4, NVML_SUCCESS; /* permanent */
    time_t expires = gpu->license_expires;
    struct tm utc;
    gmtime_r(&expires, &utc);
    feature->licenseExpiry = (nvmlGridLicenseExpiry_t){
        .year = utc.tm_year + 1900, .month = utc.tm_mon + 1, .day = utc.tm_mday,
        .hour = utc.tm_hour, .min = utc.tm_min, .sec = utc.tm_sec, .status = 2};
    return NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetConfComputeProtectedMemoryUsage, nvmlMemory_t *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && gpu->protected_total != ABSENT, NOT_SUPPORTED);
    out->total = gpu->protected_total, out->used = gpu->protected_used, out->free = out->total - out->used;
    return NVML_SUCCESS;
}
