/* The system, the way to a device, and what tells one device from another. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- system ---- */
nvmlReturn_t fake_nvmlSystemGetDriverVersion(char *out, unsigned int length) {
    return copy_text(out, length, control->driver_version);
}
nvmlReturn_t fake_nvmlSystemGetNVMLVersion(char *out, unsigned int length) {
    return copy_text(out, length, control->nvml_version);
}
nvmlReturn_t fake_nvmlSystemGetCudaDriverVersion(int *out) { return *out = control->cuda_version, NVML_SUCCESS; }
nvmlReturn_t fake_nvmlSystemGetCudaDriverVersion_v2(int *out) { return fake_nvmlSystemGetCudaDriverVersion(out); }
nvmlReturn_t fake_nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *out, unsigned int length) {
    (void)length;
    snprintf(out->branch, sizeof out->branch, "r%d_00", atoi(control->driver_version));
    return NVML_SUCCESS;
}

nvmlReturn_t fake_nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *out) {
    bool on = control->confidential;
    *out = (nvmlConfComputeSystemState_t){
        .environment = on ? NVML_CC_SYSTEM_ENVIRONMENT_PROD : NVML_CC_SYSTEM_ENVIRONMENT_UNAVAILABLE,
        .ccFeature = on, .devToolsMode = control->confidential == 2};
    return NVML_SUCCESS;
}

nvmlReturn_t fake_nvmlSystemGetProcessName(unsigned int pid, char *out, unsigned int length) {
    for (int g = 0; g < MAX_GPUS; g++)
        for (uint64_t p = 0; p < control->gpus[g].process_count; p++) {
            const struct process *process = &control->gpus[g].processes[p];
            if (process->pid == pid) return copy_text(out, length, process->name);
        }
    return NVML_ERROR_NOT_FOUND;
}

/* ---- handles ---- */
nvmlReturn_t fake_nvmlDeviceGetCount_v2(unsigned int *out) { return *out = fake_gpu_count(), NVML_SUCCESS; }

nvmlReturn_t fake_nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out) {
    int gpu = fake_gpu_at(index);
    REQUIRE(gpu >= 0, INVALID_ARGUMENT);
    return *out = &devices[gpu][0], NVML_SUCCESS;
}

/* The gate cannot know which GPU a search is for, so the lost one is refused here. */
static nvmlReturn_t find(const char *text, bool (*same)(const struct gpu *, const char *), nvmlDevice_t *out) {
    for (int i = 0; i < fake_gpu_count(); i++) {
        int gpu = fake_gpu_at(i);
        if (!same(&control->gpus[gpu], text)) continue;
        REQUIRE(!control->gpus[gpu].lost && control->gpus[gpu].present, GPU_IS_LOST);
        return *out = &devices[gpu][0], NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}
static bool same_serial(const struct gpu *gpu, const char *text) { return !strcmp(gpu->serial, text); }
static bool same_uuid(const struct gpu *gpu, const char *text) { return !strcmp(gpu->uuid, text); }
static bool same_address(const struct gpu *gpu, const char *text) {
    unsigned int domain, bus, slot;
    return sscanf(text, "%x:%x:%x", &domain, &bus, &slot) == 3 && domain == gpu->pci_domain && bus == gpu->pci_bus &&
           slot == gpu->pci_device;
}
nvmlReturn_t fake_nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *out) {
    return find(serial, same_serial, out);
}
nvmlReturn_t fake_nvmlDeviceGetHandleByPciBusId_v2(const char *address, nvmlDevice_t *out) {
    return find(address, same_address, out);
}
nvmlReturn_t fake_nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out) {
    for (int i = 0; i < fake_gpu_count(); i++) {
        int g = fake_gpu_at(i);
        const struct gpu *gpu = &control->gpus[g];
        for (uint64_t m = 0; gpu->mig_mode == 1 && m < gpu->mig_count; m++)
            if (!strcmp(gpu->migs[m].uuid, uuid)) return *out = &devices[g][m + 1], NVML_SUCCESS;
    }
    return find(uuid, same_uuid, out);
}
nvmlReturn_t fake_nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *out) {
    REQUIRE(uuid->type == NVML_UUID_TYPE_ASCII, NOT_SUPPORTED);
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
PAIR(nvmlDeviceGetCudaComputeCapability, int, gpu->cc_major, gpu->cc_minor)

DEVICE(nvmlDeviceGetInforomVersion, nvmlInforomObject_t object, char *out, unsigned int length) {
    return copy_text(out, length, object == NVML_INFOROM_OEM ? "2.1" : object == NVML_INFOROM_ECC ? "7.16" : "");
}
DEVICE(nvmlDeviceGetPlatformInfo, nvmlPlatformInfo_t *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && gpu->platform_slot != ABSENT, NOT_SUPPORTED);
    REQUIRE(out->version == nvmlPlatformInfo_v2, ARGUMENT_VERSION_MISMATCH);
    *out = (nvmlPlatformInfo_t){.version = out->version, .chassisSerialNumber = "1820325190001", .peerType = 1};
    out->slotNumber = gpu->platform_slot, out->trayIndex = gpu->platform_tray, out->hostId = gpu->platform_host;
    out->moduleId = gpu->module_id;
    return NVML_SUCCESS;
}

DEVICE(nvmlDeviceGetIndex, unsigned int *out) {
    for (int i = 0; i < fake_gpu_count(); i++)
        if (fake_gpu_at(i) == device->gpu) *out = device->mig < 0 ? i : device->mig;
    return NVML_SUCCESS;
}

DEVICE(nvmlDeviceGetPciInfo_v3, nvmlPciInfo_t *out) {
    const struct gpu *gpu = gpu_of(device);
    unsigned int domain = gpu->pci_domain, bus = gpu->pci_bus, slot = gpu->pci_device;
    *out = (nvmlPciInfo_t){.domain = domain, .bus = bus, .device = slot};
    out->pciDeviceId = gpu->pci_device_id, out->pciSubSystemId = gpu->pci_subsystem_id;
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff, slot & 0xff);
    snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.0", domain, bus, slot);
    return NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetPciInfo_v2, nvmlPciInfo_t *out) { return fake_nvmlDeviceGetPciInfo_v3(device, out); }
DEVICE(nvmlDeviceGetPciInfoExt, nvmlPciInfoExt_t *out) {
    nvmlPciInfo_t pci;
    fake_nvmlDeviceGetPciInfo_v3(device, &pci);
    out->domain = pci.domain, out->bus = pci.bus, out->device = pci.device;
    out->pciDeviceId = pci.pciDeviceId, out->pciSubSystemId = pci.pciSubSystemId;
    out->baseClass = 3, out->subClass = 2; /* display, 3D controller */
    memcpy(out->busId, pci.busId, sizeof out->busId);
    return NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetGspFirmwareVersion, char *out) {
    REQUIRE(gpu_of(device)->gsp_mode == 1, NOT_SUPPORTED);
    return copy_text(out, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE, control->driver_version);
}
