/* What the kernels do, by their names, and the errors' names. */
#include "fake.h"

#include <unistd.h>

enum { WIDE = 8, WORD = 4 };

/* The memory behind a parameter; a kernel that leaves it breaks the context, as on hardware. */
static void *at_device(uint64_t at, size_t size) {
    struct block *block = block_at(at, size, false);
    if (!block || at % WORD || (block->context != current && !current->reaches[ordinal_of(block->context)])) {
        current->broken = at % WORD ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS;
        journal("misuse", "a kernel leaves its memory at %#lx", (unsigned long)at);
        return NULL;
    }
    return block->store + (at - block->at);
}

static void vector_add(const uint64_t *a, size_t n) {
    float *one = at_device(a[0], n * WORD), *other = at_device(a[1], n * WORD), *sum = at_device(a[2], n * WORD);
    for (size_t i = 0; one && other && sum && i < n; i++) sum[i] = one[i] + other[i];
    long wrong = script_wrong("vector_add", current->device);
    if (sum && wrong >= 0 && (size_t)wrong < n) sum[wrong] += 1;
}

static uint32_t pattern(size_t i, const uint64_t *a) { return ((uint32_t)i * 0x9E3779B1u + (uint32_t)a[2]) ^ (uint32_t)a[3]; }

static void pattern_write(const uint64_t *a, size_t n) {
    uint32_t *words = at_device(a[0], n * WORD);
    for (size_t i = 0; words && i < n; i++) words[i] = pattern(i, a);
    long wrong = script_wrong("memory", current->device); /* a cell that cannot hold a 1 */
    if (words && wrong >= 0 && (size_t)wrong < n) words[wrong] &= ~0x10u;
}

static void pattern_verify(const uint64_t *a, size_t n) {
    uint32_t *words = at_device(a[0], n * WORD), *found = at_device(a[4], 2 * WORD);
    for (size_t i = 0; words && found && i < n; i++) {
        if (words[i] == pattern(i, a)) continue;
        found[0]++;
        if (i < found[1]) found[1] = (uint32_t)i;
    }
}

/* A load of the hardware campaign computes nothing of use: here it takes the time that an H100 needs for so much work. */
static void load(const uint64_t *a, size_t n, double work, double rate) {
    if (!at_device(a[1], n * WORD)) return;
    double seconds = (double)n * (double)a[3] * work / rate;
    usleep((useconds_t)(seconds * 1e6));
    now_ms += seconds * 1e3;
    journal("load", "%f", seconds);
}
static void load_fp32(const uint64_t *a, size_t n) { load(a, n, 256, 55e12 / 132 * (n < 132 * 256 ? (double)n / 256 : 132)); }
static void load_tensor(const uint64_t *a, size_t n) { load(a, n, 1024, 590e12); }
static void load_wgmma(const uint64_t *a, size_t n) { load(a, n, 16384, 850e12); }
static void load_copy(const uint64_t *a, size_t n) { load(a, n, 128 * (double)a[4], 2.9e12); }

static const struct {
    const char *name;
    void (*work)(const uint64_t *, size_t);
    int count, elements; /* which parameter says how many elements there are */
    size_t sizes[MAX_PARAMETERS];
} kernels[] = {
    {"vector_add", vector_add, 4, 3, {WIDE, WIDE, WIDE, WORD}},
    {"pattern_write", pattern_write, 4, 1, {WIDE, WORD, WORD, WORD}},
    {"pattern_verify", pattern_verify, 5, 1, {WIDE, WORD, WORD, WORD, WIDE}},
    {"load_fp32", load_fp32, 5, 2, {WIDE, WIDE, WORD, WORD, WORD}},
    {"load_tensor", load_tensor, 5, 2, {WIDE, WIDE, WORD, WORD, WORD}},
    {"load_wgmma", load_wgmma, 5, 2, {WIDE, WIDE, WORD, WORD, WORD}},
    {"load_copy", load_copy, 5, 2, {WIDE, WIDE, WORD, WORD, WORD}},
};

CUresult kernel_run(const struct entry *entry, const uint64_t *arguments, uint64_t threads) {
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        if (strcmp(kernels[k].name, entry->name)) continue;
        if (kernels[k].count != entry->count || memcmp(kernels[k].sizes, entry->sizes, (size_t)entry->count * sizeof *entry->sizes))
            MISUSE(INVALID_VALUE, "%s has other parameters than the kernel", entry->name);
        uint64_t elements = arguments[kernels[k].elements];
        if (!elements || elements > threads || threads - elements >= 1024)
            MISUSE(INVALID_VALUE, "%lu threads for %lu elements", (unsigned long)threads, (unsigned long)elements);
        kernels[k].work(arguments, elements);
        return CUDA_SUCCESS; /* what went wrong inside shows at the next call */
    }
    MISUSE(INVALID_VALUE, "nobody knows what %s does", entry->name);
}

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX JIT compiler library not found"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility was attempted on non supported HW"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult word(CUresult error, const char **out, bool name) {
    NEED(out, INVALID_VALUE);
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error) return *out = name ? errors[i].name : errors[i].text, CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **out) {
    ENTER();
    return word(error, out, true);
}

CUresult cuGetErrorString(CUresult error, const char **out) {
    ENTER();
    return word(error, out, false);
}
