/* Who shares a GPU: MIG devices, processes, and the sample ring. */
#include "fake.h"

/* ---- MIG ---- */
DEVICE(nvmlDeviceIsMigDeviceHandle, unsigned int *out) { return *out = device->mig >= 0, NVML_SUCCESS; }
GETTER(nvmlDeviceGetMaxMigDeviceCount, unsigned int, gpu->mig_mode == 1 ? 7 : 0)

DEVICE(nvmlDeviceGetMigDeviceHandleByIndex, unsigned int index, nvmlDevice_t *out) {
    REQUIRE(gpu_of(device)->mig_mode == 1, NOT_SUPPORTED);
    REQUIRE(index < gpu_of(device)->mig_count, NOT_FOUND);
    return *out = &devices[device->gpu][index + 1], NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t *out) {
    REQUIRE(device->mig >= 0, INVALID_ARGUMENT);
    return *out = &devices[device->gpu][0], NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetGpuInstanceId, unsigned int *out) {
    REQUIRE(device->mig >= 0, NOT_SUPPORTED);
    return *out = mig_of(device)->gi, NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetComputeInstanceId, unsigned int *out) {
    REQUIRE(device->mig >= 0, NOT_SUPPORTED);
    return *out = mig_of(device)->ci, NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetAttributes_v2, nvmlDeviceAttributes_t *out) {
    const struct mig *mig = mig_of(device);
    REQUIRE(mig, NOT_SUPPORTED);
    /* No more than its eighths of the GPU: clients round the share up to the next eighth. */
    unsigned long long total = gpu_of(device)->memory_total >> 20, own = mig->memory_total >> 20;
    unsigned long long eighths = (own * 8 + total / 2) / total;
    *out = (nvmlDeviceAttributes_t){
        .multiprocessorCount = mig->multiprocessors,
        .sharedCopyEngineCount = mig->copy_engines,
        .sharedDecoderCount = mig->decoders,
        .sharedEncoderCount = mig->encoders,
        .sharedJpegCount = mig->jpegs,
        .sharedOfaCount = mig->ofas,
        .gpuInstanceSliceCount = mig->slices,
        .computeInstanceSliceCount = mig->ci_slices,
        .memorySizeMB = own < total * eighths / 8 ? own : total * eighths / 8,
    };
    return NVML_SUCCESS;
}

/* Where instances of a profile may begin, as `nvidia-smi mig -lgipp` prints it on A100 and H100. */
static const struct places {
    unsigned int profile, size, starts; /* starts: a bit for each memory slice */
    unsigned int number, slices;        /* number: NVML_GPU_INSTANCE_PROFILE_..., by which a client asks */
} PLACES[] = {{19, 1, 0x7F, 0, 1}, {20, 1, 0x7F, 7, 1}, {15, 2, 0x55, 9, 1}, {14, 2, 0x15, 1, 2},
              {9, 4, 0x11, 2, 3},  {5, 4, 0x01, 3, 4},  {0, 8, 0x01, 4, 7}};
static const struct places *places_of(unsigned int profile) {
    for (unsigned int i = 0; i < sizeof PLACES / sizeof *PLACES; i++)
        if (PLACES[i].profile == profile) return &PLACES[i];
    return NULL;
}

/* Asked by the number of a profile, not by the id that GetInfo answers with. */
DEVICE(nvmlDeviceGetGpuInstanceProfileInfo, unsigned int number, nvmlGpuInstanceProfileInfo_t *out) {
    REQUIRE(gpu_of(device)->mig_mode == 1, NOT_SUPPORTED);
    for (unsigned int i = 0; i < sizeof PLACES / sizeof *PLACES; i++)
        if (PLACES[i].number == number) {
            *out = (nvmlGpuInstanceProfileInfo_t){.id = PLACES[i].profile, .sliceCount = PLACES[i].slices,
                .instanceCount = __builtin_popcount(PLACES[i].starts), .multiprocessorCount = 16 * PLACES[i].slices,
                .memorySizeMB = (gpu_of(device)->memory_total >> 20) * PLACES[i].size / 8};
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_SUPPORTED;
}

/* A GPU instance's handle is that of its first MIG device. */
DEVICE(nvmlDeviceGetGpuInstanceById, unsigned int id, nvmlGpuInstance_t *out) {
    const struct gpu *gpu = gpu_of(device);
    for (uint64_t m = 0; m < gpu->mig_count; m++)
        if (gpu->migs[m].gi == id) return *out = (nvmlGpuInstance_t)&devices[device->gpu][m + 1], NVML_SUCCESS;
    return NVML_ERROR_NOT_FOUND;
}
nvmlReturn_t fake_nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *out) {
    nvmlDevice_t device = (nvmlDevice_t)instance;
    REQUIRE(fake_gpu_of(device) >= 0 && device->mig >= 0, INVALID_ARGUMENT);
    const struct mig *mig = mig_of(device), *all = gpu_of(device)->migs;
    unsigned int end = 0, size = 0; /* they lie one behind the other, each at a multiple of its size */
    for (int m = 0; m <= device->mig; m++) {
        if (m > 0 && all[m].gi == all[m - 1].gi) continue;
        size = places_of(all[m].profile)->size;
        end = (end + size - 1) / size * size + size;
    }
    *out = (nvmlGpuInstanceInfo_t){&devices[device->gpu][0], mig->gi, mig->profile, {end - size, size}};
    return NVML_SUCCESS;
}

/* A compute instance's handle is that of its MIG device. */
nvmlReturn_t fake_nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
                                                        nvmlComputeInstance_t *out) {
    nvmlDevice_t first = (nvmlDevice_t)instance;
    REQUIRE(fake_gpu_of(first) >= 0 && first->mig >= 0, INVALID_ARGUMENT);
    const struct gpu *gpu = gpu_of(first);
    for (uint64_t m = 0; m < gpu->mig_count; m++)
        if (gpu->migs[m].gi == mig_of(first)->gi && gpu->migs[m].ci == id)
            return *out = (nvmlComputeInstance_t)&devices[first->gpu][m + 1], NVML_SUCCESS;
    return NVML_ERROR_NOT_FOUND;
}
static const unsigned int COMPUTE_SLICES[] = {1, 2, 3, 4, 7, 8, 6}; /* by NVML_COMPUTE_INSTANCE_PROFILE_... */
nvmlReturn_t fake_nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int number,
                                                               unsigned int engine,
                                                               nvmlComputeInstanceProfileInfo_t *out) {
    nvmlDevice_t device = (nvmlDevice_t)instance;
    REQUIRE(fake_gpu_of(device) >= 0 && device->mig >= 0, INVALID_ARGUMENT);
    REQUIRE(engine == 0 && number < sizeof COMPUTE_SLICES / sizeof *COMPUTE_SLICES, NOT_SUPPORTED);
    unsigned int slices = COMPUTE_SLICES[number], whole = mig_of(device)->slices;
    REQUIRE(slices <= whole, NOT_SUPPORTED);
    *out = (nvmlComputeInstanceProfileInfo_t){
        .id = number, .sliceCount = slices, .instanceCount = whole / slices, .multiprocessorCount = 16 * slices};
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *out) {
    nvmlDevice_t device = (nvmlDevice_t)instance;
    REQUIRE(fake_gpu_of(device) >= 0 && device->mig >= 0, INVALID_ARGUMENT);
    const struct mig *mig = mig_of(device);
    nvmlGpuInstance_t parent;
    nvmlReturn_t result = fake_nvmlDeviceGetGpuInstanceById(&devices[device->gpu][0], mig->gi, &parent);
    if (result == NVML_SUCCESS)
        *out = (nvmlComputeInstanceInfo_t){&devices[device->gpu][0], parent, mig->ci,
                                           mig->ci_slices == 7 ? 4 : mig->ci_slices - 1, {0, mig->ci_slices}};
    return result;
}

DEVICE(nvmlDeviceGetGpuInstancePossiblePlacements_v2, unsigned int profile, nvmlGpuInstancePlacement_t *out,
       unsigned int *count) {
    REQUIRE(gpu_of(device)->mig_mode == 1, NOT_SUPPORTED);
    const struct places *places = places_of(profile);
    REQUIRE(places, NOT_SUPPORTED);
    unsigned int room = *count, found = 0;
    for (unsigned int start = 0; start < 8; start++) {
        if (!(places->starts >> start & 1)) continue;
        if (out && found < room) out[found] = (nvmlGpuInstancePlacement_t){start, places->size};
        found++;
    }
    *count = found;
    return out && found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
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
        unsigned long long memory = process->memory == ABSENT ? NVML_VALUE_NOT_AVAILABLE : process->memory;
        if (out && found < room) out[found] = (nvmlProcessInfo_t){process->pid, memory, process->gi, process->ci};
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
#define RUNNING(function, kind)                                                                                   \
    DEVICE(function##_v3, unsigned int *count, nvmlProcessInfo_t *out) { return running(device, kind, count, out); } \
    DEVICE(function##_v2, unsigned int *count, nvmlProcessInfo_v2_t *out) { return running(device, kind, count, out); }
RUNNING(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses, MPS)

/* The utilization samples newer than `since`; count comes in as the room there is and goes out as the samples. */
static nvmlReturn_t utilization(nvmlDevice_t device, uint64_t since, unsigned int *count,
                                nvmlProcessUtilizationInfo_v1_t *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && gpu->mig_mode != 1, NOT_SUPPORTED);
    unsigned int room = *count, found = 0;
    for (uint64_t p = 0; p < gpu->process_count; p++) {
        const struct process *q = &gpu->processes[p];
        uint64_t seen = q->seen_us ? q->seen_us : fake_unix_us();
        if (q->sm == ABSENT || seen <= since) continue;
        if (out && found < room)
            out[found] = (nvmlProcessUtilizationInfo_v1_t){seen, q->pid, q->sm, q->mem, q->enc, q->dec, q->jpg, q->ofa};
        found++;
    }
    *count = found;
    REQUIRE(found, NOT_FOUND);
    return !out || found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetProcessUtilization, nvmlProcessUtilizationSample_t *out, unsigned int *count,
       unsigned long long since) {
    nvmlProcessUtilizationInfo_v1_t all[MAX_PROCESSES];
    if (out && *count > MAX_PROCESSES) *count = MAX_PROCESSES;
    nvmlReturn_t result = utilization(device, since, count, out ? all : NULL);
    for (unsigned int i = 0; result == NVML_SUCCESS && i < *count; i++) {
        const nvmlProcessUtilizationInfo_v1_t *s = &all[i];
        out[i] = (nvmlProcessUtilizationSample_t){s->pid, s->timeStamp, s->smUtil, s->memUtil, s->encUtil, s->decUtil};
    }
    return result;
}
DEVICE(nvmlDeviceGetProcessesUtilizationInfo, nvmlProcessesUtilizationInfo_t *out) {
    REQUIRE(out->version == nvmlProcessesUtilizationInfo_v1, ARGUMENT_VERSION_MISMATCH);
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
DEVICE(nvmlDeviceGetSamples, nvmlSamplingType_t type, unsigned long long since, nvmlValueType_t *value_type,
       unsigned int *count, nvmlSample_t *out) {
    const struct gpu *gpu = gpu_of(device);
    int64_t now = sampled_now(gpu, type);
    REQUIRE(device->mig < 0 && now != ABSENT, NOT_SUPPORTED);
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (!out) return *count = MAX_SAMPLES + 1, NVML_SUCCESS;
    unsigned int room = *count, found = 0;
    uint64_t pushed = __atomic_load_n(&gpu->sample_count, __ATOMIC_ACQUIRE);
    for (uint64_t s = pushed > MAX_SAMPLES ? pushed - MAX_SAMPLES : 0; s < pushed && found < room; s++) {
        const struct sample *sample = &gpu->samples[s % MAX_SAMPLES];
        if (sample->type != type || sample->timestamp_us <= since) continue;
        out[found++] = (nvmlSample_t){sample->timestamp_us, {.ullVal = sample->value}};
    }
    if (found < room) out[found++] = (nvmlSample_t){fake_unix_us(), {.ullVal = now}};
    *count = found;
    return NVML_SUCCESS;
}
