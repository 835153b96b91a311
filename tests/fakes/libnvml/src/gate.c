/* The gate every exported function passes: it maps the control file, counts, misbehaves on command and refuses
 * calls to a driver, a GPU or a process that is gone. Also init, shutdown and the handle table. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct control *control;
struct nvmlDevice_st devices[MAX_GPUS][MAX_MIG + 1];

/* What this process saw at its nvmlInit: like the real library it keeps that list until it is shut down. */
static struct {
    pthread_mutex_t lock;
    char path[PATH_MAX];
    unsigned int users;
    uint32_t generation;
    char version[80];
    int count;
    int slots[MAX_GPUS];
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
uint64_t fake_monotonic_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
uint64_t fake_unix_us(void) { return clock_ns(CLOCK_REALTIME) / 1000u; }

void fake_futex_wait(const uint32_t *word, uint32_t value, int64_t timeout_ns) {
    struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &timeout, NULL, 0);
}

/* Maps the file named by the environment; with no user left, a changed name is followed. */
static void attach(void) {
    const char *path = getenv("GPUWATCH_FAKE_NVML");
    if (!path || (control && (process.users || !strcmp(path, process.path)))) return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return;
    struct control *file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (file == MAP_FAILED) return;
    if (file->magic != LAYOUT_MAGIC) {
        fprintf(stderr, "fake NVML: %s was made for another build of this library\n", path);
        munmap(file, sizeof *file);
        return;
    }
    snprintf(process.path, sizeof process.path, "%s", path);
    process.generation = file->generation;
    snprintf(process.version, sizeof process.version, "%s", file->driver_version);
    control = file;
}

/* A driver that was loaded anew is met again by a new session, if the library is of its version. */
static void meet_again(void) {
    if (control && !process.users && !strcmp(process.version, control->driver_version))
        process.generation = __atomic_load_n(&control->generation, __ATOMIC_ACQUIRE);
}

bool fake_driver_gone(void) { return __atomic_load_n(&control->generation, __ATOMIC_ACQUIRE) != process.generation; }
int fake_gpu_count(void) { return process.count; }
int fake_gpu_at(unsigned int index) { return index < (unsigned int)process.count ? process.slots[index] : NO_GPU; }

int fake_gpu_of(nvmlDevice_t device) {
    uintptr_t offset = (uintptr_t)device - (uintptr_t)devices;
    if (offset >= sizeof devices || offset % sizeof **devices) return BAD_GPU;
    return device->gpu;
}

static bool starts(int call) {
    return call == CALL_nvmlInit || call == CALL_nvmlInit_v2 || call == CALL_nvmlInitWithFlags;
}

/* Obeys one rule; true when it dictates the answer. */
static bool obey(struct rule *rule, nvmlReturn_t *result) {
    uint32_t armed = 1, hang;
    if (rule->crash && __atomic_compare_exchange_n(&rule->crash, &armed, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        raise(SIGSEGV); /* once: the process started next must live */
    if (rule->delay_us) usleep(rule->delay_us);
    while ((hang = __atomic_load_n(&rule->hang, __ATOMIC_ACQUIRE))) fake_futex_wait(&rule->hang, hang, 1000000000);
    if (!rule->error) return false;
    *result = (nvmlReturn_t)(rule->error - 1);
    return true;
}

static nvmlReturn_t refusal(int call, int gpu) {
    if (call == CALL_nvmlShutdown) return process.users ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (fake_driver_gone()) return starts(call) ? NVML_ERROR_LIB_RM_VERSION_MISMATCH : NVML_ERROR_UNINITIALIZED;
    if (!starts(call) && !process.users) return NVML_ERROR_UNINITIALIZED;
    if (gpu == BAD_GPU) return NVML_ERROR_INVALID_ARGUMENT;
    if (gpu >= 0 && (control->gpus[gpu].lost || !control->gpus[gpu].present)) return NVML_ERROR_GPU_IS_LOST;
    return NVML_SUCCESS;
}

bool fake_enter(int call, int gpu, nvmlReturn_t *result) {
    if (starts(call)) {
        pthread_mutex_lock(&process.lock);
        attach();
        meet_again();
        pthread_mutex_unlock(&process.lock);
    }
    if (!control) {
        *result = starts(call) ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_ERROR_UNINITIALIZED;
        return false;
    }
    __atomic_fetch_add(&control->calls[call].count, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&control->calls[call].in_flight, 1, __ATOMIC_RELAXED);
    int column = gpu < 0 ? 0 : gpu + 1; /* column 0 is for every GPU and for calls without one */
    struct call *every = &control->calls[0], *this = &control->calls[call];
    if (obey(&this->rules[0], result) || (column && obey(&this->rules[column], result)) ||
        obey(&every->rules[0], result) || (column && obey(&every->rules[column], result)))
        return false;
    return (*result = refusal(call, gpu)) == NVML_SUCCESS;
}

void fake_leave(int call) {
    if (control) __atomic_fetch_sub(&control->calls[call].in_flight, 1, __ATOMIC_RELAXED);
}

nvmlReturn_t fake_nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    pthread_mutex_lock(&process.lock);
    if (process.users++ == 0) {
        process.count = 0;
        for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
            if ((uint32_t)gpu < control->gpu_count && control->gpus[gpu].present) process.slots[process.count++] = gpu;
            for (int mig = 0; mig <= MAX_MIG; mig++) devices[gpu][mig] = (struct nvmlDevice_st){gpu, mig - 1};
        }
    }
    pthread_mutex_unlock(&process.lock);
    return NVML_SUCCESS;
}
nvmlReturn_t fake_nvmlInit_v2(void) { return fake_nvmlInitWithFlags(0); }

nvmlReturn_t fake_nvmlShutdown(void) {
    pthread_mutex_lock(&process.lock);
    process.users--;
    pthread_mutex_unlock(&process.lock);
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires restart", "The operating system has blocked the request.",
        "RM has detected an NVML/RM version mismatch.", "In use by another client", "Insufficient Memory", "No data",
        "The requested vgpu operation is not available on target device, because ECC is enabled"};
    return (unsigned int)result < sizeof texts / sizeof *texts ? texts[result] : "Unknown Error";
}
