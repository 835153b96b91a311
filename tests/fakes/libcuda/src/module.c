/* Modules: reads as much of a PTX text as tells a driver what it must be given, and checks launches by it. */
#include "fake.h"

#include <ctype.h>
#include <stdio.h>

struct CUmod_st;

struct CUfunc_st {
    struct entry entry;
    struct CUmod_st *module;
};
struct CUmod_st {
    CUcontext context;
    int count;
    struct CUfunc_st functions[MAX_ENTRIES];
};
static struct CUmod_st modules[MAX_MODULES];

static size_t size_of(const char *type) {
    static const struct { const char *name; size_t size; } types[] = {{".u64", 8}, {".b64", 8}, {".u32", 4}, {".b32", 4}, {".f32", 4}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, type)) return types[i].size;
    return 0;
}

/* `.visible .entry NAME( .param TYPE NAME, ... )`; NULL: all were read well, else what is wrong. */
static const char *read_entries(const char *text, struct CUmod_st *module) {
    for (const char *at = text; (at = strstr(at, ".visible .entry ")); ) {
        if (module->count == MAX_ENTRIES) return "too many entries";
        struct CUfunc_st *function = &module->functions[module->count++];
        struct entry *entry = &function->entry;
        function->module = module;
        int length = 0;
        if (sscanf(at, ".visible .entry %63[A-Za-z0-9_] (%n", entry->name, &length) != 1 || !length) return "an entry without name";
        at += length;
        for (char type[16]; sscanf(at, " .param %15s %*[A-Za-z0-9_]%n", type, &length) == 1; at += length + (at[length] == ',')) {
            if (entry->count == MAX_PARAMETERS || !(entry->sizes[entry->count++] = size_of(type))) return "an unknown parameter";
        }
        const char *body = at;
        while (isspace((unsigned char)*body)) body++;
        if (*body != ')' || !strchr(body, '{') || !strstr(body, "ret;")) return "an entry without end";
    }
    return module->count ? NULL : "no entry";
}

static const char *read_ptx(const char *text, struct CUmod_st *module) {
    int major, minor, target, bits;
    while (isspace((unsigned char)*text)) text++;
    if (sscanf(text, ".version %d.%d", &major, &minor) != 2) return "Missing .version directive at start of file";
    const char *next = strstr(text, ".target sm_");
    if (!next || sscanf(next, ".target sm_%d", &target) != 1) return "no .target";
    next = strstr(text, ".address_size");
    if (!next || sscanf(next, ".address_size %d", &bits) != 1 || bits != 64) return "no .address_size 64";
    /* The kernels of the product run everywhere; loads of the hardware campaign need Ampere, one of them Hopper. */
    if ((major > 6 || target > 50) && !strstr(text, ".visible .entry load_")) return "newer than the oldest GPU and driver there are";
    return read_entries(text, module);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values) {
    ENTER();
    NEED_CONTEXT();
    NEED(module && image && (!count || (options && values)), INVALID_VALUE);
    char *log = NULL;
    size_t room = 0;
    for (unsigned int i = 0; i < count; i++) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = values[i];
        else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) room = (uintptr_t)values[i];
        else MISUSE(INVALID_VALUE, "option %d of the compiler", options[i]);
    }
    if (log && (room < 256 || room > 1 << 20 || !host_may(log, room, true))) MISUSE(INVALID_VALUE, "a log of %zu bytes", room);
    for (CUmodule free = modules; free < modules + MAX_MODULES; free++) {
        if (free->context) continue;
        memset(free, 0, sizeof *free);
        const char *wrong = script_wrong("ptx", current->device) >= 0 ? "refused by the test" : read_ptx(image, free);
        if (wrong) {
            if (log) snprintf(log, room, "ptxas fatal   : %s", wrong);
            return CUDA_ERROR_INVALID_PTX;
        }
        free->context = current;
        *module = free;
        return CUDA_SUCCESS;
    }
    MISUSE(OUT_OF_MEMORY, "more than %d modules at a time", MAX_MODULES);
}

static bool is_module(CUmodule module) { return module >= modules && module < modules + MAX_MODULES && module->context; }

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER();
    NEED_CONTEXT();
    NEED(function && name, INVALID_VALUE);
    if (!is_module(module) || module->context != current) MISUSE(INVALID_HANDLE, "a function of no module of this context");
    for (int i = 0; i < module->count; i++)
        if (!strcmp(module->functions[i].entry.name, name)) return *function = &module->functions[i], CUDA_SUCCESS;
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleUnload(CUmodule module) {
    ENTER();
    NEED_CONTEXT();
    if (!is_module(module) || module->context != current) MISUSE(INVALID_HANDLE, "cuModuleUnload of no module of this context");
    module->context = NULL;
    return CUDA_SUCCESS;
}

static bool is_function(CUfunction function) {
    for (CUmodule module = modules; module < modules + MAX_MODULES; module++)
        if (module->context == current && function >= module->functions && function < module->functions + module->count) return true;
    return false;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                        unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream, void **parameters, void **extra) {
    ENTER();
    NEED_CONTEXT();
    if (!is_function(function)) MISUSE(INVALID_HANDLE, "launch of a function of no module of this context");
    uint64_t block = (uint64_t)block_x * block_y * block_z;
    if (!block || block > 1024 || !grid_x || grid_x > INT32_MAX || grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1)
        MISUSE(INVALID_VALUE, "a grid of %u blocks of %u threads", grid_x, block_x);
    if (shared || stream || extra) MISUSE(INVALID_VALUE, "shared memory, a stream or extra parameters");
    const struct entry *entry = &function->entry;
    uint64_t arguments[MAX_PARAMETERS] = {0};
    for (int i = 0; i < entry->count; i++) {
        if (!host_may(parameters + i, sizeof *parameters, false) || !parameters[i] || !host_may(parameters[i], entry->sizes[i], false))
            MISUSE(INVALID_VALUE, "parameter %d of %s is not there", i, entry->name);
        memcpy(&arguments[i], parameters[i], entry->sizes[i]);
    }
    now_ms += 0.01;
    return kernel_run(entry, arguments, grid_x * block);
}

int modules_left(CUcontext context) {
    int count = 0;
    for (CUmodule module = modules; module < modules + MAX_MODULES; module++) count += module->context == context;
    return count;
}
