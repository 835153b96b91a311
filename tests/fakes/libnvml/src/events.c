/* Event sets: each is a cursor into the control file's ring, and sleeps on its head. */
#include "fake.h"

#include <stdlib.h>

struct nvmlEventSet_st {
    uint32_t cursor;
    uint64_t types[MAX_GPUS];
};

GETTER(nvmlDeviceGetSupportedEventTypes, unsigned long long, gpu->supported_events)

nvmlReturn_t fake_nvmlEventSetCreate(nvmlEventSet_t *out) {
    struct nvmlEventSet_st *set = calloc(1, sizeof *set);
    REQUIRE(set, MEMORY);
    set->cursor = __atomic_load_n(&control->event_head, __ATOMIC_ACQUIRE);
    *out = set;
    return NVML_SUCCESS;
}

DEVICE(nvmlDeviceRegisterEvents, unsigned long long types, nvmlEventSet_t set) {
    REQUIRE(set, INVALID_ARGUMENT);
    REQUIRE(!(types & ~gpu_of(device)->supported_events), NOT_SUPPORTED);
    set->types[device->gpu] |= types;
    return NVML_SUCCESS;
}

/* The next event the set asked for; false when the ring holds no more. */
static bool next(nvmlEventSet_t set, uint32_t head, nvmlEventData_t *out) {
    if (head - set->cursor > MAX_EVENTS) set->cursor = head - MAX_EVENTS; /* the ring went round: the oldest are gone */
    while (set->cursor != head) {
        const struct event *event = &control->events[set->cursor++ % MAX_EVENTS];
        if (event->gpu >= MAX_GPUS || !(set->types[event->gpu] & event->type)) continue;
        *out = (nvmlEventData_t){&devices[event->gpu][0], event->type, event->data, event->gi, event->ci};
        return true;
    }
    return false;
}

nvmlReturn_t fake_nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned int timeout_ms) {
    REQUIRE(set && out, INVALID_ARGUMENT);
    uint64_t deadline = fake_monotonic_ns() + timeout_ms * 1000000ull;
    for (;;) {
        uint32_t head = __atomic_load_n(&control->event_head, __ATOMIC_ACQUIRE);
        REQUIRE(!fake_driver_gone(), UNINITIALIZED);
        if (next(set, head, out)) return NVML_SUCCESS;
        int64_t left = deadline - fake_monotonic_ns();
        REQUIRE(left > 0, TIMEOUT);
        fake_futex_wait(&control->event_head, head, left);
    }
}

nvmlReturn_t fake_nvmlEventSetFree(nvmlEventSet_t set) { return free(set), NVML_SUCCESS; }
