/* What the parts of the fake library share: the control file, handles, and the conventions of NVML's answers.
 *
 * library.py generates three files beside this one: control.h (the shared file's structs), calls.h (an index for
 * each function of nvml.h and a prototype fake_X for each function X) and exports.c (for each X an exported
 * wrapper that passes gate.c and then calls fake_X, and a weak fake_X that answers NOT_SUPPORTED). The other
 * sources define fake_X for the functions that do something; the compiler checks them against calls.h. */
#ifndef FAKE_H
#define FAKE_H

#define NVML_NO_UNVERSIONED_FUNC_DEFS /* declare the old names too: drivers export them */
#include <nvml.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "calls.h"
#include "control.h"

/* A handle is a pointer into the table in gate.c; mig is -1 for the GPU itself. */
struct nvmlDevice_st {
    int gpu;
    int mig;
};

enum { NO_GPU = -1, BAD_GPU = -2 };

extern struct control *control;
extern struct nvmlDevice_st devices[MAX_GPUS][MAX_MIG + 1];

/* gate.c */
bool fake_enter(int call, int gpu, nvmlReturn_t *result);
void fake_leave(int call);
int fake_gpu_of(nvmlDevice_t device);
int fake_gpu_at(unsigned int index);
int fake_gpu_count(void);
bool fake_driver_gone(void);
void fake_futex_wait(const uint32_t *word, uint32_t value, int64_t timeout_ns);
uint64_t fake_monotonic_ns(void);
uint64_t fake_unix_us(void);

/* knobs.c */
void fake_keep(int gpu, uint32_t knob, int64_t value, nvmlReturn_t result);
void fake_settle(struct gpu *gpu);
void fake_paced(const struct gpu *gpu, double *work_ns, double *cycles_ns);

/* device.c, health.c */
int64_t fake_energy_mj(const struct gpu *gpu);
int64_t fake_ecc_total(const struct gpu *gpu, int aggregate, int uncorrected);

static inline struct gpu *gpu_of(nvmlDevice_t device) { return &control->gpus[device->gpu]; }
static inline struct mig *mig_of(nvmlDevice_t device) {
    return device->mig < 0 ? NULL : &gpu_of(device)->migs[device->mig];
}

/* The head of a function whose first parameter is a device; what a call needs before it answers. */
#define DEVICE(function, ...) nvmlReturn_t fake_##function(nvmlDevice_t device, __VA_ARGS__)
#define REQUIRE(condition, error) \
    do { if (!(condition)) return NVML_ERROR_##error; } while (0)

static inline nvmlReturn_t copy_text(char *out, unsigned int length, const char *text) {
    REQUIRE(out, INVALID_ARGUMENT);
    REQUIRE(*text, NOT_SUPPORTED);
    REQUIRE(strlen(text) < length, INSUFFICIENT_SIZE);
    strcpy(out, text);
    return NVML_SUCCESS;
}

/* The rows of the tables: one number of the GPU, two, or one chosen by a second argument. A MIG device has none. */
#define GETTER(function, type, expression)                              \
    DEVICE(function, type *out) {                                       \
        struct gpu *gpu = gpu_of(device);                               \
        int64_t value = (expression);                                   \
        REQUIRE(out, INVALID_ARGUMENT);                                 \
        REQUIRE(device->mig < 0 && value != ABSENT, NOT_SUPPORTED);     \
        *out = (type)value;                                             \
        return NVML_SUCCESS;                                            \
    }
#define PAIR(function, type, expression1, expression2)                  \
    DEVICE(function, type *out1, type *out2) {                          \
        struct gpu *gpu = gpu_of(device);                               \
        int64_t value1 = (expression1), value2 = (expression2);         \
        REQUIRE(out1 && out2, INVALID_ARGUMENT);                        \
        REQUIRE(device->mig < 0 && value1 != ABSENT, NOT_SUPPORTED);    \
        *out1 = (type)value1, *out2 = (type)value2;                     \
        return NVML_SUCCESS;                                            \
    }
#define INDEXED(function, index_type, type, bound, expression)          \
    DEVICE(function, index_type i, type *out) {                         \
        struct gpu *gpu = gpu_of(device);                               \
        int64_t end = (bound);                                          \
        REQUIRE(device->mig < 0 && end != ABSENT, NOT_SUPPORTED);       \
        REQUIRE(out && (int64_t)i < end, INVALID_ARGUMENT);             \
        int64_t value = (expression);                                   \
        REQUIRE(value != ABSENT, NOT_SUPPORTED);                        \
        *out = (type)value;                                             \
        return NVML_SUCCESS;                                            \
    }
#define TEXT(function, expression)                                      \
    DEVICE(function, char *out, unsigned int length) {                  \
        struct gpu *gpu = gpu_of(device);                               \
        return copy_text(out, length, (expression));                    \
    }

#endif
