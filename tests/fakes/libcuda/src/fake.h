/* What the parts of the fake CUDA driver share. It does what it is told in memory of the host, and is stricter than
 * hardware: whatever a driver would let pass by luck is written to the journal as misuse.
 *
 * script.c reads what a test wants to happen and writes the journal; device.c has devices, contexts and peers;
 * memory.c memory, copies and events; module.c reads PTX and checks launches; kernels.c does the kernels' work. */
#ifndef FAKE_H
#define FAKE_H

#define __CUDA_API_VERSION_INTERNAL /* declares the names that drivers export, not those that programs write */
#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { MAX_DEVICES = 16, MAX_RULES = 64, MAX_BLOCKS = 64, MAX_EVENTS = 64, MAX_MODULES = 8, MAX_ENTRIES = 8, MAX_PARAMETERS = 8 };

struct device {
    char uuid[64]; /* GPU-... or MIG-... */
    size_t free;
};

/* A primary context; a CUcontext points at one. */
struct CUctx_st {
    struct device *device;
    int retained;
    CUresult broken; /* every later call answers so, as after a fault of a kernel */
    bool reaches[MAX_DEVICES];
};

/* Memory of a device (`at` is no address of the host) or of the host (`at` is one). */
struct block {
    uint64_t at;
    size_t size;
    unsigned char *store;
    struct CUctx_st *context;
    bool of_host;
};

struct entry {
    char name[64];
    int count;
    size_t sizes[MAX_PARAMETERS];
};

/* script.c */
extern struct device machine[MAX_DEVICES];
extern int machine_count;
bool script_read(void);
CUresult script_obey(const char *function);
long script_wrong(const char *what, const struct device *device);
double script_speed(const char *way, const struct device *device);
bool script_joined(const struct device *one, const struct device *other);
bool script_is_about(const char *uuid);
void journal(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* device.c */
extern struct CUctx_st contexts[MAX_DEVICES];
extern __thread CUcontext current;
CUresult enter(const char *function);
bool is_context(CUcontext context);
int ordinal_of(CUcontext context);

/* memory.c */
extern double now_ms;
struct block *block_at(uint64_t at, size_t size, bool of_host);
size_t memory_left(CUcontext context, size_t *allocated);
int events_left(CUcontext context);
bool host_may(const void *at, size_t size, bool write);

/* module.c */
int modules_left(CUcontext context);

/* kernels.c */
CUresult kernel_run(const struct entry *entry, const uint64_t *arguments, uint64_t threads);

/* The head of every function: what is scripted, order of calls, a current context. */
#define ENTER()                                          \
    do {                                                 \
        CUresult entered = enter(__func__);              \
        if (entered != CUDA_SUCCESS) return entered;     \
    } while (0)
#define NEED(condition, error) \
    do { if (!(condition)) return CUDA_ERROR_##error; } while (0)
#define NEED_CONTEXT()                                              \
    do {                                                            \
        NEED(current, INVALID_CONTEXT);                             \
        if (current->broken != CUDA_SUCCESS) return current->broken; \
    } while (0)
#define MISUSE(error, ...) \
    do { journal("misuse", __VA_ARGS__); return CUDA_ERROR_##error; } while (0)

#endif
