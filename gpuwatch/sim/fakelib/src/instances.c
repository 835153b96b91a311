/* Who shares a GPU: MIG devices, processes, and the sample ring. */
#include "fake.h"

/* ---- MIG ---- */
nvmlReturn_t fake_nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *out) {
    return *out = device->mig >= 0, NVML_SUCCESS;
}
GETTER(nvmlDeviceGetMaxMigDeviceCount, unsigned int, gpu->mig_mode == ABSENT ? 0 : 7)

nvmlReturn_t fake_nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *out) {
    if (gpu_of(device)->mig_mode != 1) return NVML_ERROR_NOT_SUPPORTED;
    if (index >= gpu_of(device)->mig_count) return NVML_ERROR_NOT_FOUND;
    return *out = &devices[device->gpu][index + 1], NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *out) {
    if (device->mig < 0) return NVML_ERROR_INVALID_ARGUMENT;
    return *out = &devices[device->gpu][0], NVML_SUCCESS;
}
#define OF_MIG(function, member)                                              \
    nvmlReturn_t fake_##function(nvmlDevice_t device, unsigned int *out) {    \
        if (device->mig < 0) return NVML_ERROR_NOT_SUPPORTED;                 \
        return *out = mig_of(device)->member, NVML_SUCCESS;                   \
    }
OF_MIG(nvmlDeviceGetGpuInstanceId, gi)
OF_MIG(nvmlDeviceGetComputeInstanceId, ci)

nvmlReturn_t fake_nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out) {
    const struct mig *mig = mig_of(device);
    if (!mig) return NVML_ERROR_NOT_SUPPORTED;
    *out = (nvmlDeviceAttributes_t){mig->multiprocessors, mig->copy_engines, mig->decoders, mig->encoders, mig->jpegs,
                                    mig->ofas, mig->slices, mig->ci_slices, (uint64_t)mig->memory_total >> 20};
    return NVML_SUCCESS;
}

/* A GPU instance's handle is that of its first MIG device. */
nvmlReturn_t fake_nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out) {
    for (uint64_t m = 0; m < gpu_of(device)->mig_count; m++)
        if (gpu_of(device)->migs[m].gi == id) return *out = (nvmlGpuInstance_t)&devices[device->gpu][m + 1], NVML_SUCCESS;
    return NVML_ERROR_NOT_FOUND;
}
nvmlReturn_t fake_nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *out) {
    nvmlDevice_t device = (nvmlDevice_t)instance;
    if (fake_gpu_of(device) < 0 || device->mig < 0) return NVML_ERROR_INVALID_ARGUMENT;
    const struct mig *mig = mig_of(device);
    *out = (nvmlGpuInstanceInfo_t){&devices[device->gpu][0], mig->gi, mig->profile, {(unsigned int)device->mig, mig->slices}};
    return NVML_SUCCESS;
}

/* ---- processes ---- */
enum { COMPUTE = 1, GRAPHICS = 2, MPS = 4 };

/* A MIG device lists its own processes, a GPU all of them. */
static bool listed(nvmlDevice_t device, const struct process *process) {
    const struct mig *mig = mig_of(device);
    return !mig || (process->gi == mig->gi && process->ci == mig->ci);
}

static nvmlReturn_t running(nvmlDevice_t device, uint32_t kind, unsigned int *count, nvmlProcessInfo_t *out) {
    const struct gpu *gpu = gpu_of(device);
    unsigned int room = *count, found = 0;
    for (uint64_t p = 0; p < gpu->process_count; p++) {
        const struct process *process = &gpu->processes[p];
        if (!(process->kind & kind) || !listed(device, process)) continue;
        if (out && found < room) {
            uint64_t memory = process->memory == ABSENT ? (uint64_t)NVML_VALUE_NOT_AVAILABLE : (uint64_t)process->memory;
            out[found] = (nvmlProcessInfo_t){process->pid, memory, process->gi, process->ci};
        }
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
#define RUNNING(function, kind)                                                                                    \
    nvmlReturn_t fake_##function##_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *out) {            \
        return running(device, kind, count, out);                                                                  \
    }                                                                                                              \
    nvmlReturn_t fake_##function##_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *out) {         \
        return running(device, kind, count, out);                                                                  \
    }
RUNNING(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses, MPS)

/* Walks the utilization samples newer than `since`; count goes in as room and comes out as the number there are. */
static nvmlReturn_t utilization(nvmlDevice_t device, uint64_t since, unsigned int *count, nvmlProcessUtilizationInfo_v1_t *out) {
    const struct gpu *gpu = gpu_of(device);
    if (device->mig >= 0 || gpu->mig_mode == 1) return NVML_ERROR_NOT_SUPPORTED;
    unsigned int room = *count, found = 0;
    for (uint64_t p = 0; p < gpu->process_count; p++) {
        const struct process *process = &gpu->processes[p];
        uint64_t seen = process->seen_us ? process->seen_us : fake_unix_us();
        if (process->sm == ABSENT || seen <= since) continue;
        if (out && found < room)
            out[found] = (nvmlProcessUtilizationInfo_v1_t){seen, process->pid, (unsigned int)process->sm,
                (unsigned int)process->mem, (unsigned int)process->enc, (unsigned int)process->dec,
                (unsigned int)process->jpg, (unsigned int)process->ofa};
        found++;
    }
    *count = found;
    if (!found) return NVML_ERROR_NOT_FOUND;
    return !out || found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out,
                                                  unsigned int *count, unsigned long long since) {
    nvmlProcessUtilizationInfo_v1_t all[MAX_PROCESSES];
    if (out && *count > MAX_PROCESSES) *count = MAX_PROCESSES;
    nvmlReturn_t result = utilization(device, since, count, out ? all : NULL);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < *count; i++)
        out[i] = (nvmlProcessUtilizationSample_t){all[i].pid, all[i].timeStamp, all[i].smUtil, all[i].memUtil,
                                                  all[i].encUtil, all[i].decUtil};
    return result;
}
nvmlReturn_t fake_nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *out) {
    if (out->version != nvmlProcessesUtilizationInfo_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return utilization(device, out->lastSeenTimeStamp, &out->processSamplesCount, out->procUtilArray);
}

/* ---- samples ---- */
static int64_t sampled_now(const struct gpu *gpu, nvmlSamplingType_t type) {
    switch (type) {
    case NVML_TOTAL_POWER_SAMPLES: return gpu->power_mw;
    case NVML_GPU_UTILIZATION_SAMPLES: return gpu->util_gpu;
    case NVML_MEMORY_UTILIZATION_SAMPLES: return gpu->util_memory;
    case NVML_ENC_UTILIZATION_SAMPLES: return gpu->util_encoder;
    case NVML_DEC_UTILIZATION_SAMPLES: return gpu->util_decoder;
    case NVML_JPG_UTILIZATION_SAMPLES: return gpu->util_jpeg;
    case NVML_OFA_UTILIZATION_SAMPLES: return gpu->util_ofa;
    case NVML_PROCESSOR_CLK_SAMPLES: return gpu->clock_mhz[NVML_CLOCK_SM];
    case NVML_MEMORY_CLK_SAMPLES: return gpu->clock_mhz[NVML_CLOCK_MEM];
    default: return ABSENT;
    }
}

/* The samples a test pushed and, last, the present value: what a driver's ring holds for a steady GPU. */
nvmlReturn_t fake_nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long since,
                                       nvmlValueType_t *value_type, unsigned int *count, nvmlSample_t *out) {
    const struct gpu *gpu = gpu_of(device);
    int64_t now = sampled_now(gpu, type);
    if (device->mig >= 0 || now == ABSENT) return NVML_ERROR_NOT_SUPPORTED;
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    unsigned int room = *count, found = 0;
    uint64_t pushed = __atomic_load_n(&gpu->sample_count, __ATOMIC_ACQUIRE);
    if (!out) return *count = MAX_SAMPLES + 1, NVML_SUCCESS;
    for (uint64_t s = pushed > MAX_SAMPLES ? pushed - MAX_SAMPLES : 0; s < pushed; s++) {
        const struct sample *sample = &gpu->samples[s % MAX_SAMPLES];
        if (sample->type != (uint32_t)type || sample->timestamp_us <= since || found >= room) continue;
        out[found++] = (nvmlSample_t){sample->timestamp_us, {.ullVal = sample->value}};
    }
    if (found < room) out[found++] = (nvmlSample_t){fake_unix_us(), {.ullVal = (uint64_t)now}};
    *count = found;
    return NVML_SUCCESS;
}
