/* GPU performance monitoring (Hopper and newer): a sample is a copy of the GPU's metrics, and a metric of two
 * samples the mean of both, as a counter read at a steadily changing load would give. */
#include "fake.h"

#include <math.h>
#include <stdlib.h>

struct nvmlGpmSample_st {
    uint64_t taken_ns;
    double values[MAX_GPM];
};

nvmlReturn_t fake_nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out) {
    return out->isSupportedDevice = gpu_of(device)->gpm == 1, NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlGpmSampleAlloc(nvmlGpmSample_t *out) {
    *out = calloc(1, sizeof **out);
    return *out ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}
nvmlReturn_t fake_nvmlGpmSampleFree(nvmlGpmSample_t sample) { return free(sample), NVML_SUCCESS; }

static nvmlReturn_t take(const double *values, nvmlGpmSample_t sample) {
    if (!sample) return NVML_ERROR_INVALID_ARGUMENT;
    sample->taken_ns = fake_monotonic_ns();
    memcpy(sample->values, values, sizeof sample->values);
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    const struct gpu *gpu = gpu_of(device);
    if (gpu->gpm != 1 || device->mig >= 0) return NVML_ERROR_NOT_SUPPORTED;
    return take(gpu->gpm_values, sample);
}
nvmlReturn_t fake_nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int gi, nvmlGpmSample_t sample) {
    const struct gpu *gpu = gpu_of(device);
    if (gpu->gpm != 1) return NVML_ERROR_NOT_SUPPORTED;
    for (uint64_t m = 0; gpu->mig_mode == 1 && m < gpu->mig_count; m++)
        if (gpu->migs[m].gi == gi) return take(gpu->migs[m].gpm, sample);
    return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t fake_nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *request) {
    if (request->version != NVML_GPM_METRICS_GET_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!request->sample1 || !request->sample2 || request->numMetrics > NVML_GPM_METRIC_MAX) return NVML_ERROR_INVALID_ARGUMENT;
    if (request->sample2->taken_ns <= request->sample1->taken_ns) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i < request->numMetrics; i++) {
        nvmlGpmMetric_t *metric = &request->metrics[i];
        bool known = metric->metricId < MAX_GPM;
        double value = known ? (request->sample1->values[metric->metricId] + request->sample2->values[metric->metricId]) / 2 : NAN;
        metric->nvmlReturn = isnan(value) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
        metric->value = value;
    }
    return NVML_SUCCESS;
}
