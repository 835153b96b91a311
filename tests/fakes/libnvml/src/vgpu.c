/* vGPUs that run on a GPU: an instance is a number of its own, so each call looks for its GPU first. */
#include "fake.h"

DEVICE(nvmlDeviceGetActiveVgpus, unsigned int *count, nvmlVgpuInstance_t *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(gpu->virtualization_mode == NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU, NOT_SUPPORTED);
    unsigned int room = *count;
    *count = gpu->vgpu_count;
    REQUIRE(!*count || (out && room >= *count), INSUFFICIENT_SIZE);
    for (unsigned int v = 0; v < *count; v++) out[v] = gpu->vgpus[v].instance;
    return NVML_SUCCESS;
}

DEVICE(nvmlDeviceGetVgpuUtilization, unsigned long long since, nvmlValueType_t *type, unsigned int *count,
       nvmlVgpuInstanceUtilizationSample_t *out) {
    const struct gpu *gpu = gpu_of(device);
    uint64_t now = fake_unix_us();
    REQUIRE(gpu->virtualization_mode == NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU, NOT_SUPPORTED);
    REQUIRE(since < now, NOT_FOUND);
    unsigned int room = *count;
    *count = gpu->vgpu_count, *type = NVML_VALUE_TYPE_UNSIGNED_INT;
    REQUIRE(!*count || (out && room >= *count), INSUFFICIENT_SIZE);
    for (unsigned int v = 0; v < *count; v++)
        out[v] = (nvmlVgpuInstanceUtilizationSample_t){
            .vgpuInstance = gpu->vgpus[v].instance, .timeStamp = now, .smUtil.uiVal = gpu->vgpus[v].utilization};
    return NVML_SUCCESS;
}

static nvmlReturn_t find(nvmlVgpuInstance_t instance, const struct vgpu **out) {
    for (int g = 0; g < MAX_GPUS; g++)
        for (uint64_t v = 0; v < control->gpus[g].vgpu_count; v++)
            if (control->gpus[g].vgpus[v].instance == instance)
                return *out = &control->gpus[g].vgpus[v], control->gpus[g].lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
    return NVML_ERROR_NOT_FOUND;
}
#define OF_VGPU(function, parameters, answer)                              \
    nvmlReturn_t fake_##function parameters {                              \
        const struct vgpu *vgpu;                                           \
        nvmlReturn_t result = find(instance, &vgpu);                       \
        if (result != NVML_SUCCESS) return result;                         \
        return answer;                                                     \
    }
OF_VGPU(nvmlVgpuInstanceGetUUID, (nvmlVgpuInstance_t instance, char *out, unsigned int size),
        copy_text(out, size, vgpu->uuid))
OF_VGPU(nvmlVgpuInstanceGetVmID, (nvmlVgpuInstance_t instance, char *out, unsigned int size, nvmlVgpuVmIdType_t *type),
        (*type = NVML_VGPU_VM_ID_UUID, copy_text(out, size, vgpu->vm)))
OF_VGPU(nvmlVgpuInstanceGetFbUsage, (nvmlVgpuInstance_t instance, unsigned long long *out),
        (*out = vgpu->memory_used, NVML_SUCCESS))
OF_VGPU(nvmlVgpuInstanceGetType, (nvmlVgpuInstance_t instance, nvmlVgpuTypeId_t *out),
        (*out = vgpu->type, NVML_SUCCESS))
OF_VGPU(nvmlVgpuInstanceGetLicenseInfo_v2, (nvmlVgpuInstance_t instance, nvmlVgpuLicenseInfo_t *out),
        (memset(out, 0, sizeof *out), out->isLicensed = vgpu->licensed, NVML_SUCCESS))

nvmlReturn_t fake_nvmlVgpuTypeGetName(nvmlVgpuTypeId_t type, char *out, unsigned int *size) {
    for (int g = 0; g < MAX_GPUS; g++)
        for (uint64_t v = 0; v < control->gpus[g].vgpu_count; v++)
            if (control->gpus[g].vgpus[v].type == type) return copy_text(out, *size, control->gpus[g].vgpus[v].name);
    return NVML_ERROR_NOT_FOUND;
}
