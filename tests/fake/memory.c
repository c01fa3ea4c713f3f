/* Memory of the fake GPU, which is the host's. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cudart.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct block {
    char *p;
    int64_t bytes;
    int64_t before; /* bytes from where it was really allocated */
};

static ARR(struct block) blocks, pinned; /* of the device; of the host */

cudaError_t cudaMemGetInfo(size_t *left, size_t *total) {
    *total = (size_t)fake_cuda_gpu()->bytes;
    *left = *total - (size_t)fake_cuda.bytes;
    return cudaSuccess;
}

enum { SMALL = 1 << 20, CUT = 512 };

/* As CUDA cuts what is small out of larger pieces, at multiples of 512: every other one is not aligned to
 * a page. */
static int64_t cut_before(size_t bytes) {
    static int64_t calls;
    return !fake_cuda.idle && bytes < SMALL && calls++ % 2 ? CUT * (1 + calls / 2 % 7) : 0;
}

/* What was not written is not zero, where anything is. */
static char *block_of(size_t bytes) {
    if (fake_cuda.idle) { /* addresses alone, which the host cannot touch */
        void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    char *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return p ? memset(p, 0xff, bytes) : NULL;
}

static void give_back(struct block *b) {
    if (fake_cuda.idle)
        munmap(b->p, (size_t)b->bytes);
    else
        free(b->p - b->before);
}

cudaError_t cudaMalloc(void **p, size_t bytes) {
    struct block b = {.bytes = (int64_t)bytes, .before = cut_before(bytes)};
    const bool full = fake_cuda.bytes + b.bytes > fake_cuda_gpu()->bytes;
    if (full || !(b.p = block_of(bytes + (size_t)b.before)))
        return fake_cuda_error(cudaErrorMemoryAllocation);
    b.p += b.before;
    arr_push(&blocks, b);
    fake_cuda.bytes += b.bytes;
    *p = b.p;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
    int64_t i = 0;
    while (i < blocks.n && blocks.p[i].p != p)
        i++;
    if (i == blocks.n)
        return fake_cuda_error(p ? cudaErrorInvalidValue : cudaSuccess);
    fake_cuda_finish();
    fake_cuda.bytes -= blocks.p[i].bytes;
    give_back(&blocks.p[i]);
    blocks.p[i] = blocks.p[--blocks.n];
    return cudaSuccess;
}

static bool is_in(const struct block *list, int64_t n, const void *p, int64_t bytes) {
    for (int64_t i = 0; i < n; i++)
        if ((const char *)p >= list[i].p &&
            (const char *)p + bytes <= list[i].p + list[i].bytes)
            return true;
    return false;
}

bool fake_cuda_is_device(const void *p, int64_t bytes) {
    return is_in(blocks.p, blocks.n, p, bytes);
}

bool fake_cuda_reaches(const void *p) {
    return is_in(blocks.p, blocks.n, p, 1) || is_in(pinned.p, pinned.n, p, 1);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags) {
    (void)flags;
    *p = malloc(bytes);
    if (*p)
        arr_push(&pinned, (struct block){.p = *p, .bytes = (int64_t)bytes});
    return fake_cuda_error(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *p) {
    for (int64_t i = 0; i < pinned.n; i++)
        if (pinned.p[i].p == p)
            pinned.p[i--] = pinned.p[--pinned.n];
    free(p);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *p, int value, size_t bytes) {
    if (!fake_cuda_is_device(p, (int64_t)bytes))
        return fake_cuda_error(cudaErrorInvalidValue);
    if (!fake_cuda.idle)
        memset(p, value, bytes);
    return cudaSuccess;
}

struct filling {
    void *p;
    int value;
    size_t bytes;
};

static void run_filling(void *args) {
    const struct filling *f = args;
    memset(f->p, f->value, f->bytes);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s) {
    if (!fake_cuda_is_device(p, (int64_t)bytes) || !fake_cuda_is_stream(s))
        return fake_cuda_error(cudaErrorInvalidValue);
    fake_cuda_launch(s, run_filling, &(struct filling){p, value, bytes},
                     sizeof(struct filling));
    return cudaSuccess;
}

struct copy {
    void *dst;
    const void *src;
    size_t bytes;
};

static void run_copy(void *args) {
    const struct copy *c = args;
    memcpy(c->dst, c->src, c->bytes);
}

/* The sides must be what they are said to be. */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t s) {
    bool from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    bool to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    if (fake_cuda_is_device(src, (int64_t)bytes) != from ||
        fake_cuda_is_device(dst, (int64_t)bytes) != to)
        return fake_cuda_error(cudaErrorInvalidValue);
    if (!fake_cuda_is_stream(s))
        return fake_cuda_error(cudaErrorInvalidResourceHandle);
    const struct copy copy = {dst, src, bytes};
    if (!to && fake_cuda.idle) /* the host gets zeros */
        fake_cuda_give(s, run_filling, &(struct filling){dst, 0, bytes},
                       sizeof(struct filling));
    else
        fake_cuda_launch(s, run_copy, &copy, sizeof copy);
    return cudaSuccess;
}
