/* Start of the driver, devices, primary contexts, and which device reaches which. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct CUctx_st contexts[MAX_DEVICES];
__thread CUcontext current;

static int visible;      /* contexts[0..visible) are the devices that CUDA_VISIBLE_DEVICES names, in its order */
static pid_t started_by; /* a driver is of no use after a fork */

CUresult enter(const char *function) {
    static const char *always[] = {"cuInit", "cuGetErrorName", "cuGetErrorString"};
    if (!script_read()) return CUDA_ERROR_NO_DEVICE;
    journal("call", "%s", function);
    CUresult scripted = script_obey(function);
    if (scripted != CUDA_SUCCESS) return scripted;
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (!strcmp(function, always[i])) return CUDA_SUCCESS;
    if (started_by != getpid()) MISUSE(NOT_INITIALIZED, "%s before cuInit in this process", function);
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags) {
    ENTER();
    NEED(flags == 0, INVALID_VALUE);
    char names[2048];
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    if (!wanted) MISUSE(NO_DEVICE, "CUDA_VISIBLE_DEVICES is not set");
    snprintf(names, sizeof names, "%s", wanted);
    visible = 0;
    char *rest = names;
    for (char *name; (name = strsep(&rest, ","));) {
        struct device *device = NULL;
        for (int i = 0; i < machine_count; i++)
            if (!strcmp(machine[i].uuid, name)) device = &machine[i];
        if (!device) break; /* as CUDA does: what follows an unknown device is not seen either */
        contexts[visible++] = (struct CUctx_st){.device = device};
    }
    NEED(visible, NO_DEVICE);
    started_by = getpid();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    ENTER();
    NEED(count, INVALID_VALUE);
    *count = visible;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER();
    NEED(device, INVALID_VALUE);
    NEED(ordinal >= 0 && ordinal < visible, INVALID_DEVICE);
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    ENTER();
    NEED(value, INVALID_VALUE);
    NEED(device >= 0 && device < visible, INVALID_DEVICE);
    if (attribute != CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) MISUSE(INVALID_VALUE, "attribute %d of a device", attribute);
    *value = 132; /* of an H100 */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    ENTER();
    NEED(uuid, INVALID_VALUE);
    NEED(device >= 0 && device < visible, INVALID_DEVICE);
    const char *digits = contexts[device].device->uuid + 4; /* GPU- or MIG- */
    for (int i = 0; i < 16; i++) {
        unsigned int byte;
        digits += *digits == '-';
        if (sscanf(digits, "%2x", &byte) != 1) return CUDA_ERROR_UNKNOWN;
        uuid->bytes[i] = (char)byte;
        digits += 2;
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER();
    NEED(context, INVALID_VALUE);
    NEED(device >= 0 && device < visible, INVALID_DEVICE);
    *context = &contexts[device];
    (*context)->retained++;
    return CUDA_SUCCESS;
}

/* What is still there when a context goes is lost to the program; hardware would not tell. */
static void tell_leaks(CUcontext context) {
    size_t bytes, blocks = memory_left(context, &bytes);
    int events = events_left(context), modules = modules_left(context);
    if (blocks || events || modules)
        journal("leak", "%s: %zu allocations of %zu bytes, %d events, %d modules", context->device->uuid, blocks, bytes, events, modules);
    for (int i = 0; i < MAX_DEVICES; i++)
        if (context->reaches[i]) journal("leak", "%s: access to device %d", context->device->uuid, i);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER();
    NEED(device >= 0 && device < visible, INVALID_DEVICE);
    if (!contexts[device].retained) MISUSE(INVALID_CONTEXT, "a context is released that nobody has");
    if (--contexts[device].retained) return CUDA_SUCCESS;
    if (current == &contexts[device]) MISUSE(INVALID_CONTEXT, "a context is released that is current");
    tell_leaks(&contexts[device]);
    contexts[device].broken = CUDA_SUCCESS;
    return CUDA_SUCCESS;
}

bool is_context(CUcontext context) {
    return context >= contexts && context < contexts + visible && context->retained;
}

int ordinal_of(CUcontext context) { return (int)(context - contexts); }

CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER();
    if (context && !is_context(context)) MISUSE(INVALID_CONTEXT, "no such context is made current");
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    ENTER();
    NEED_CONTEXT();
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice other) {
    ENTER();
    NEED(can, INVALID_VALUE);
    NEED(device >= 0 && device < visible && other >= 0 && other < visible, INVALID_DEVICE);
    *can = device != other && script_joined(contexts[device].device, contexts[other].device);
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned int flags) {
    ENTER();
    NEED_CONTEXT();
    NEED(flags == 0, INVALID_VALUE);
    if (!is_context(other) || other == current) MISUSE(INVALID_CONTEXT, "peer access to no other context");
    NEED(script_joined(current->device, other->device), PEER_ACCESS_UNSUPPORTED);
    NEED(!current->reaches[ordinal_of(other)], PEER_ACCESS_ALREADY_ENABLED);
    current->reaches[ordinal_of(other)] = true;
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext other) {
    ENTER();
    NEED(current && is_context(other), INVALID_CONTEXT);
    NEED(current->reaches[ordinal_of(other)], PEER_ACCESS_NOT_ENABLED);
    current->reaches[ordinal_of(other)] = false;
    return CUDA_SUCCESS;
}

__attribute__((destructor)) static void tell_end(void) {
    for (int i = 0; i < visible; i++)
        if (contexts[i].retained) journal("leak", "%s: its context", contexts[i].device->uuid);
    if (started_by == getpid()) journal("end", "after all calls");
}
