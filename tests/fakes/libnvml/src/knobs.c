/* What a client can set: power limit and locked clocks, checked as NVML does, each call kept for the test. And what
 * follows from it on a coupled GPU: clock, draw, clock events, and how much work is done meanwhile. */
#include "fake.h"

#include <unistd.h>

enum { STEP_MHZ = 15, IDLE = nvmlClocksEventReasonGpuIdle, POWER_CAP = nvmlClocksEventReasonSwPowerCap };

void fake_keep(int gpu, uint32_t knob, int64_t value, nvmlReturn_t result) {
    if (!control || gpu < 0) return;
    uint64_t place = __atomic_fetch_add(&control->set_head, 1, __ATOMIC_RELAXED) % MAX_SETS;
    control->sets[place] = (struct set){.knob = knob, .gpu = gpu, .result = result, .pid = getpid(), .value = value};
}

/* ---- coupling ---- */
static double pace(const struct work *work) { return work->now < 0 ? 0.0 : work->pace[work->now]; }
static double cycles(const struct work *work) { /* busy cycles for the same work are more of the fewer there are */
    return work->now < 0 ? 0.0 : pace(work) * work->mhz[0] / work->mhz[work->now];
}

void fake_paced(const struct gpu *gpu, double *work_ns, double *cycles_ns) {
    const struct work *work = &gpu->work;
    double elapsed = fake_monotonic_ns() - work->since_ns;
    *work_ns = work->work_ns + pace(work) * elapsed;
    *cycles_ns = work->cycles_ns + cycles(work) * elapsed;
}

/* Closes the accounts at what was in force, and finds what is now. coupling.py does the same for a test's changes. */
void fake_settle(struct gpu *gpu) {
    struct work *work = &gpu->work;
    if (gpu->coupled != 1) return;
    int64_t energy = fake_energy_mj(gpu);
    fake_paced(gpu, &work->work_ns, &work->cycles_ns);
    gpu->energy_since_ns = work->since_ns = fake_monotonic_ns();
    gpu->energy_mj = energy;
    int64_t low = gpu->locked_min_mhz, high = gpu->locked_max_mhz, row = 0, mhz = work->idle_mhz;
    if (work->now < 0) {
        if (low != ABSENT && mhz < low) mhz = low;
        if (high != ABSENT && mhz > high) mhz = high;
        gpu->power_mw = work->idle_mw;
        gpu->clock_events = IDLE;
    } else {
        while (row < work->count - 1 && high != ABSENT && work->mhz[row] > high) row++;
        int64_t asked = row;
        while (row < work->count - 1 && work->power_mw[row] > gpu->power_limit_mw) row++;
        mhz = work->mhz[row];
        work->now = row;
        gpu->power_mw = work->power_mw[row];
        gpu->clock_events = row > asked ? POWER_CAP : 0;
    }
    if (gpu->power_average_mw != ABSENT) gpu->power_average_mw = gpu->power_mw;
    gpu->clock_mhz[NVML_CLOCK_GRAPHICS] = gpu->clock_mhz[NVML_CLOCK_SM] = mhz;
}

/* ---- power limit ---- */
DEVICE(nvmlDeviceSetPowerManagementLimit, unsigned int limit) {
    struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && gpu->power_limit_mw != ABSENT, NOT_SUPPORTED);
    REQUIRE(limit >= gpu->power_limit_min_mw && limit <= gpu->power_limit_max_mw, INVALID_ARGUMENT);
    gpu->power_limit_mw = gpu->power_limit_enforced_mw = limit;
    fake_settle(gpu);
    return NVML_SUCCESS;
}
DEVICE(nvmlDeviceSetPowerManagementLimit_v2, nvmlPowerValue_v2_t *value) {
    return fake_nvmlDeviceSetPowerManagementLimit(device, value->powerValueMw);
}

/* ---- clocks ---- */
static nvmlReturn_t list(unsigned int *count, unsigned int *out, int64_t most, int64_t least) {
    unsigned int room = *count;
    *count = (most - least) / STEP_MHZ + 1;
    REQUIRE(room >= *count && out, INSUFFICIENT_SIZE);
    for (unsigned int i = 0; i < *count; i++) out[i] = most - STEP_MHZ * i;
    return NVML_SUCCESS;
}
DEVICE(nvmlDeviceGetSupportedMemoryClocks, unsigned int *count, unsigned int *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && gpu->clock_min_mhz != ABSENT, NOT_SUPPORTED);
    return list(count, out, gpu->clock_max_mhz[NVML_CLOCK_MEM], gpu->clock_max_mhz[NVML_CLOCK_MEM]);
}
DEVICE(nvmlDeviceGetSupportedGraphicsClocks, unsigned int memory, unsigned int *count, unsigned int *out) {
    const struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && gpu->clock_min_mhz != ABSENT, NOT_SUPPORTED);
    REQUIRE(memory == gpu->clock_max_mhz[NVML_CLOCK_MEM], NOT_FOUND);
    return list(count, out, gpu->clock_max_mhz[NVML_CLOCK_GRAPHICS], gpu->clock_min_mhz);
}
DEVICE(nvmlDeviceSetGpuLockedClocks, unsigned int min, unsigned int max) {
    struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && gpu->clock_min_mhz != ABSENT, NOT_SUPPORTED);
    REQUIRE(gpu->clock_min_mhz <= min && min <= max && max <= gpu->clock_max_mhz[NVML_CLOCK_SM], INVALID_ARGUMENT);
    gpu->locked_min_mhz = min, gpu->locked_max_mhz = max;
    fake_settle(gpu);
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device) {
    struct gpu *gpu = gpu_of(device);
    REQUIRE(device->mig < 0 && gpu->clock_min_mhz != ABSENT, NOT_SUPPORTED);
    gpu->locked_min_mhz = gpu->locked_max_mhz = ABSENT;
    fake_settle(gpu);
    return NVML_SUCCESS;
}
