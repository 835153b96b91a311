/* Memory of devices and of the host, copies between them, and the clock by which they are timed. */
#define _GNU_SOURCE
#include "fake.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

double now_ms; /* the devices' clock; copies take as long as scripted, whatever they take here */

static struct block blocks[MAX_BLOCKS];
static uint64_t next_address = 0x300000000000; /* nothing of the host is there: whoever follows it dies */

struct CUevent_st {
    CUcontext context;
    double at;
    bool recorded, awaited;
};
static struct CUevent_st events[MAX_EVENTS];

struct block *block_at(uint64_t at, size_t size, bool of_host) {
    for (struct block *block = blocks; block < blocks + MAX_BLOCKS; block++)
        if (block->store && block->of_host == of_host && at >= block->at && at + size <= block->at + block->size) return block;
    return NULL;
}

size_t memory_left(CUcontext context, size_t *allocated) {
    size_t count = 0;
    *allocated = 0;
    for (const struct block *block = blocks; block < blocks + MAX_BLOCKS; block++)
        if (block->store && block->context == context) count++, *allocated += block->size;
    return count;
}

static size_t taken(void) {
    size_t sum = 0;
    for (const struct block *block = blocks; block < blocks + MAX_BLOCKS; block++)
        if (block->store && block->context == current && !block->of_host) sum += block->size;
    return sum;
}

static CUresult allocate(size_t size, bool of_host, uint64_t *at) {
    for (struct block *block = blocks; block < blocks + MAX_BLOCKS; block++) {
        if (block->store) continue;
        void *store = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        NEED(store != MAP_FAILED, OUT_OF_MEMORY);
        memset(store, 0xA5, size); /* what is there before is not zero on a GPU either */
        *block = (struct block){of_host ? (uintptr_t)store : next_address, size, store, current, of_host};
        if (!of_host) next_address += (size + 0x1FFFFF) & ~(size_t)0x1FFFFF;
        *at = block->at;
        return CUDA_SUCCESS;
    }
    MISUSE(OUT_OF_MEMORY, "more than %d allocations at a time", MAX_BLOCKS);
}

static CUresult give_back(uint64_t at, bool of_host, const char *function) {
    struct block *block = block_at(at, 1, of_host);
    if (!block || block->at != at) MISUSE(INVALID_VALUE, "%s of what was not allocated", function);
    if (block->context != current) journal("misuse", "%s with another context current", function);
    munmap(block->store, block->size);
    block->store = NULL;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER();
    NEED_CONTEXT();
    NEED(free && total, INVALID_VALUE);
    *total = current->device->free;
    *free = *total - taken();
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t size) {
    ENTER();
    NEED_CONTEXT();
    NEED(at && size, INVALID_VALUE);
    NEED(taken() + size <= current->device->free, OUT_OF_MEMORY);
    uint64_t address;
    CUresult result = allocate(size, false, &address);
    if (result == CUDA_SUCCESS) *at = address;
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr at) {
    ENTER();
    NEED_CONTEXT();
    return give_back(at, false, "cuMemFree");
}

CUresult cuMemAllocHost_v2(void **at, size_t size) {
    ENTER();
    NEED_CONTEXT();
    NEED(at && size, INVALID_VALUE);
    uint64_t address;
    CUresult result = allocate(size, true, &address);
    if (result == CUDA_SUCCESS) *at = (void *)address;
    return result;
}

CUresult cuMemFreeHost(void *at) {
    ENTER();
    NEED_CONTEXT();
    return give_back((uintptr_t)at, true, "cuMemFreeHost");
}

/* Whether this process has memory there; asked of the kernel, which does not die of the answer. */
bool host_may(const void *at, size_t size, bool write) {
    unsigned char byte;
    const unsigned char *ends[] = {at, (const unsigned char *)at + size - 1};
    for (int i = 0; i < 2; i++) {
        struct iovec here = {&byte, 1}, there = {(void *)ends[i], 1};
        if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1) return false;
        if (write && process_vm_writev(getpid(), &here, 1, &there, 1, 0) != 1) return false;
    }
    return true;
}

static void pass(size_t size, const char *way, const struct device *device) {
    now_ms += (double)size / script_speed(way, device) * 1e3;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    ENTER();
    NEED_CONTEXT();
    struct block *target = block_at(to, size, false);
    if (!target || !size) MISUSE(INVALID_VALUE, "copy to memory of no device");
    if (target->context != current) MISUSE(INVALID_VALUE, "copy to another device than the current one");
    if (!host_may(from, size, false)) MISUSE(INVALID_VALUE, "copy from memory that is not there");
    memcpy(target->store + (to - target->at), from, size);
    pass(size, "down", current->device);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    ENTER();
    NEED_CONTEXT();
    struct block *source = block_at(from, size, false);
    if (!source || !size) MISUSE(INVALID_VALUE, "copy from memory of no device");
    if (source->context != current) MISUSE(INVALID_VALUE, "copy from another device than the current one");
    if (!host_may(to, size, true)) MISUSE(INVALID_VALUE, "copy to memory that is not there");
    memcpy(to, source->store + (from - source->at), size);
    long wrong = script_wrong("up", current->device);
    if (wrong >= 0 && (size_t)wrong < size) ((unsigned char *)to)[wrong] ^= 1;
    pass(size, "up", current->device);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t size) {
    ENTER();
    NEED_CONTEXT();
    NEED(is_context(to_context) && is_context(from_context), INVALID_CONTEXT);
    struct block *target = block_at(to, size, false), *source = block_at(from, size, false);
    if (!target || !source || !size) MISUSE(INVALID_VALUE, "copy between devices without memory there");
    if (target->context != to_context || source->context != from_context) MISUSE(INVALID_VALUE, "memory of other devices");
    memcpy(target->store + (to - target->at), source->store + (from - source->at), size);
    long wrong = script_wrong("peer", to_context->device);
    if (wrong >= 0 && (size_t)wrong < size) target->store[(to - target->at) + (size_t)wrong] ^= 1;
    /* Without access it goes through the host. */
    pass(size, current->reaches[ordinal_of(to_context)] ? "peer" : "up", current->device);
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    ENTER();
    NEED_CONTEXT();
    NEED(event && flags == CU_EVENT_DEFAULT, INVALID_VALUE);
    for (CUevent free = events; free < events + MAX_EVENTS; free++)
        if (!free->context) return *free = (struct CUevent_st){.context = current}, *event = free, CUDA_SUCCESS;
    MISUSE(OUT_OF_MEMORY, "more than %d events at a time", MAX_EVENTS);
}

static bool is_event(CUevent event) {
    return event >= events && event < events + MAX_EVENTS && event->context == current;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    ENTER();
    NEED_CONTEXT();
    if (!is_event(event) || stream) MISUSE(INVALID_HANDLE, "cuEventRecord of another context's event or stream");
    *event = (struct CUevent_st){.context = current, .at = now_ms, .recorded = true};
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
    ENTER();
    NEED_CONTEXT();
    if (!is_event(event)) MISUSE(INVALID_HANDLE, "cuEventSynchronize of another context's event");
    for (CUevent earlier = events; earlier < events + MAX_EVENTS; earlier++)
        if (earlier->context == current && earlier->recorded && earlier->at <= event->at) earlier->awaited = true;
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    ENTER();
    NEED_CONTEXT();
    NEED(milliseconds, INVALID_VALUE);
    if (!is_event(start) || !is_event(end) || !start->recorded || !end->recorded)
        MISUSE(INVALID_HANDLE, "cuEventElapsedTime of events that were not recorded");
    if (!start->awaited || !end->awaited) MISUSE(NOT_READY, "cuEventElapsedTime before the end was awaited");
    *milliseconds = (float)(end->at - start->at);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
    ENTER();
    NEED_CONTEXT();
    if (!is_event(event)) MISUSE(INVALID_HANDLE, "cuEventDestroy of another context's event");
    event->context = NULL;
    return CUDA_SUCCESS;
}

int events_left(CUcontext context) {
    int count = 0;
    for (CUevent event = events; event < events + MAX_EVENTS; event++) count += event->context == context;
    return count;
}
