/* GPU performance monitoring (Hopper and newer): a sample is a copy of the GPU's metrics, and a metric of two
 * samples the mean of both, as a counter read at a steadily changing load would give. On a coupled GPU the copy is of
 * full speed; the work done between the two samples says how much of it there was. */
#include "fake.h"

#include <math.h>
#include <stdlib.h>

struct nvmlGpmSample_st {
    uint64_t taken_ns;
    bool coupled;
    double work_ns, cycles_ns;
    double values[MAX_GPM];
};

DEVICE(nvmlGpmQueryDeviceSupport, nvmlGpmSupport_t *out) {
    return out->isSupportedDevice = gpu_of(device)->gpm == 1, NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlGpmSampleAlloc(nvmlGpmSample_t *out) {
    *out = calloc(1, sizeof **out);
    return *out ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}
nvmlReturn_t fake_nvmlGpmSampleFree(nvmlGpmSample_t sample) { return free(sample), NVML_SUCCESS; }

static nvmlReturn_t take(const double *values, nvmlGpmSample_t sample) {
    REQUIRE(sample, INVALID_ARGUMENT);
    sample->taken_ns = fake_monotonic_ns();
    memcpy(sample->values, values, sizeof sample->values);
    return NVML_SUCCESS;
}
DEVICE(nvmlGpmSampleGet, nvmlGpmSample_t sample) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && gpu->gpm == 1, NOT_SUPPORTED);
    REQUIRE(sample, INVALID_ARGUMENT);
    sample->coupled = gpu->coupled == 1;
    fake_paced(gpu, &sample->work_ns, &sample->cycles_ns);
    return take(gpu->gpm_values, sample);
}
DEVICE(nvmlGpmMigSampleGet, unsigned int gi, nvmlGpmSample_t sample) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(gpu->gpm == 1, NOT_SUPPORTED);
    for (uint64_t m = 0; gpu->mig_mode == 1 && m < gpu->mig_count; m++)
        if (gpu->migs[m].gi == gi) return take(gpu->migs[m].gpm, sample);
    return NVML_ERROR_INVALID_ARGUMENT;
}

/* How much of a metric at full speed there was: traffic follows the work, pipes their busy share of fewer cycles. */
static double share(const struct nvmlGpmSample_st *older, const struct nvmlGpmSample_st *newer, unsigned int metric) {
    double elapsed = newer->taken_ns - older->taken_ns;
    bool is_pipe = metric >= NVML_GPM_METRIC_INTEGER_UTIL && metric <= NVML_GPM_METRIC_FP16_UTIL;
    if (!older->coupled || !newer->coupled || metric < NVML_GPM_METRIC_INTEGER_UTIL) return 1;
    if (is_pipe && metric != NVML_GPM_METRIC_DRAM_BW_UTIL) return (newer->cycles_ns - older->cycles_ns) / elapsed;
    return (newer->work_ns - older->work_ns) / elapsed;
}

nvmlReturn_t fake_nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *request) {
    const struct nvmlGpmSample_st *older = request->sample1, *newer = request->sample2;
    REQUIRE(request->version == NVML_GPM_METRICS_GET_VERSION, ARGUMENT_VERSION_MISMATCH);
    REQUIRE(older && newer && request->numMetrics <= NVML_GPM_METRIC_MAX, INVALID_ARGUMENT);
    REQUIRE(newer->taken_ns > older->taken_ns, INVALID_ARGUMENT);
    for (unsigned int i = 0; i < request->numMetrics; i++) {
        nvmlGpmMetric_t *metric = &request->metrics[i];
        unsigned int id = metric->metricId;
        metric->value = id < MAX_GPM ? (older->values[id] + newer->values[id]) / 2 * share(older, newer, id) : NAN;
        metric->nvmlReturn = isnan(metric->value) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
    }
    return NVML_SUCCESS;
}
