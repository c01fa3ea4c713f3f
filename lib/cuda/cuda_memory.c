/* Memory of a GPU, and of its host that it reaches by itself. */
#include "cuda/cuda_check.h"
#include "cuda/cuda_state.h"

#include <stdio.h>
#include <string.h>

/* What was wanted, what is free, of which GPU, and whose it was to be. */
static void say_full(const struct cuda_state *s, int64_t bytes, struct err *err) {
    size_t left = 0, total = 0;
    cudaGetLastError(); /* the failure is not the next call's */
    cudaMemGetInfo(&left, &total);
    char who[32] = "this process";
    if (s->options->program)
        snprintf(who, sizeof who, "rank %d", s->options->rank);
    err_system(err,
               "GPU %d: out of memory: %.3f GB more are planned; %.3f of %.3f GB are free, "
               "%s has %.3f GB",
               s->dev.index, 1e-9 * (double)bytes, 1e-9 * (double)left,
               1e-9 * (double)total, who, 1e-9 * (double)s->report->own_bytes);
    err_hint(err, "weft-predict says what a plan takes; ranks that share a GPU share its "
                  "memory");
}

static int64_t granted(int64_t bytes) {
    return bytes > 0 ? bytes : 1;
}

/* cudaMalloc aligns by less where little is asked for: then some more is, and the rest is left. That is a
 * part of the 2 MiB out of which CUDA serves what is small, so it counts as CUDA's: `bytes` are those that
 * were planned. */
enum { ALIGN = 4096 };

static cudaError_t take(int64_t bytes, struct cuda_block *out) {
    *out = (struct cuda_block){.bytes = granted(bytes)};
    cudaError_t rc = cudaMalloc(&out->base, (size_t)out->bytes);
    if (rc != cudaSuccess || (uintptr_t)out->base % ALIGN == 0) {
        out->p = out->base;
        return rc;
    }
    cudaFree(out->base);
    rc = cudaMalloc(&out->base, (size_t)out->bytes + ALIGN);
    out->p = (char *)out->base + (ALIGN - (uintptr_t)out->base % ALIGN) % ALIGN;
    return rc;
}

void *cuda_alloc(struct device *dev, int64_t bytes, struct err *err) {
    struct cuda_state *s = cuda_state_of(dev);
    struct cuda_block b;
    cudaError_t rc = take(bytes, &b);
    if (rc == cudaErrorMemoryAllocation) {
        say_full(s, bytes, err);
        return NULL;
    }
    if (cuda_check(rc, "memory of the device", err) < 0)
        return NULL;
    if (cuda_check(cudaMemset(b.p, 0, (size_t)b.bytes), "clearing memory", err) < 0 ||
        cuda_check(cudaDeviceSynchronize(), "clearing memory", err) < 0) {
        cudaFree(b.base);
        return NULL;
    }
    arr_push(&s->blocks, b);
    s->report->own_bytes += b.bytes;
    return b.p;
}

void cuda_free(struct device *dev, void *p) {
    struct cuda_state *s = cuda_state_of(dev);
    int64_t i = 0;
    while (s->blocks.p[i].p != p)
        i++;
    cudaFree(s->blocks.p[i].base);
    s->report->own_bytes -= s->blocks.p[i].bytes;
    s->blocks.p[i] = s->blocks.p[--s->blocks.n];
}

void *cuda_alloc_host(struct device *dev, int64_t bytes, struct err *err) {
    (void)dev;
    void *p = NULL;
    if (cuda_check(cudaHostAlloc(&p, (size_t)granted(bytes), cudaHostAllocPortable),
                   "pinned memory of the host", err) < 0)
        return NULL;
    return memset(p, 0, (size_t)granted(bytes));
}

void cuda_free_host(struct device *dev, void *p) {
    (void)dev;
    cudaFreeHost(p);
}
