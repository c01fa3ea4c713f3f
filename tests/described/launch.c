/* Launches, as the code that nvcc makes for the host asks for them (crt/host_runtime.h). Of two static
 * kernels of one name, in different files, either is held to what the larger one takes. */
#include "described.h"

#include "common/mem.h"
#include "pointers.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A kernel that the program has. */
struct kernel {
    const void *host; /* what stands for it there */
    const char *name;
    struct described_usage takes; /* on this GPU; no name: its image has none for it */
    int64_t shared_asked;
    int64_t launches;
};

static struct {
    ARR(struct kernel *) kernels;
    struct launches n;
    struct {
        struct dim3 grid, block;
        size_t shared;
        cudaStream_t stream;
    } next;
} now;

/* ---- what the image has ------------------------------------------------------------------- */

/* Code runs on GPUs of its own major version and a minor one that is not lower; with an `a` on that GPU
 * alone. */
static bool runs(const char *arch, int gpu) {
    int of = 0, n = 0;
    return sscanf(arch, "%d%n", &of, &n) == 1 && of / 10 == gpu / 10 &&
           (arch[n] ? of == gpu : of <= gpu);
}

static int larger(int a, int b) {
    return a > b ? a : b;
}

static struct described_usage usage_of(const char *name) {
    struct described_usage u = {0};
    for (int64_t i = 0; described_usages[i].name; i++) {
        const struct described_usage *v = &described_usages[i];
        if (strcmp(v->name, name) != 0 || !runs(v->arch, fake_cuda_gpu()->arch))
            continue;
        u.arch = v->arch, u.name = v->name;
        u.registers = larger(u.registers, v->registers);
        u.shared_bytes = larger(u.shared_bytes, v->shared_bytes);
    }
    return u;
}

void **__cudaRegisterFatBinary(void *image) {
    (void)image;
    return (void **)&now;
}

void __cudaRegisterFatBinaryEnd(void **handle) {
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle) {
    (void)handle;
}

/* Called before main, and before the GPU is chosen. */
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int threads, uint3 *tid, uint3 *bid, struct dim3 *block,
                            struct dim3 *grid, int *warp) {
    (void)handle, (void)device, (void)threads, (void)tid, (void)bid;
    (void)block, (void)grid, (void)warp;
    struct kernel *k = mem_alloc(sizeof *k);
    *k = (struct kernel){.host = host, .name = name};
    arr_push(&now.kernels, k);
}

static struct kernel *kernel_of(const void *host) {
    for (int64_t i = 0; i < now.kernels.n; i++)
        if (now.kernels.p[i]->host == host) {
            struct kernel *k = now.kernels.p[i];
            if (!k->takes.name)
                k->takes = usage_of(k->name);
            return k;
        }
    return NULL;
}

/* ---- refusals ----------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static cudaError_t
refuse(const struct kernel *k, cudaError_t rc, const char *why, ...) {
    va_list ap;
    now.n.refused++;
    fprintf(stderr, "# refused: %s: ", k->name);
    va_start(ap, why);
    vfprintf(stderr, why, ap);
    va_end(ap);
    fputc('\n', stderr);
    return fake_cuda_error(rc);
}

static cudaError_t exceeds(const struct kernel *k, cudaError_t rc, const char *what,
                           int64_t asked, int64_t most) {
    return refuse(k, rc, "%s: %lld, of %lld", what, (long long)asked, (long long)most);
}

static cudaError_t check_shape(const struct kernel *k, struct dim3 grid,
                               struct dim3 block) {
    const struct {
        const char *what;
        int64_t n, most;
    } counts[] = {
        {"blocks along x", grid.x, INT32_MAX},
        {"blocks along y", grid.y, GRID_DEPTH},
        {"blocks along z", grid.z, GRID_DEPTH},
        {"threads along x", block.x, BLOCK_THREADS},
        {"threads along y", block.y, BLOCK_THREADS},
        {"threads along z", block.z, BLOCK_DEPTH},
        {"threads of a block", (int64_t)block.x * block.y * block.z, BLOCK_THREADS},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].n < 1 || counts[i].n > counts[i].most)
            return exceeds(k, cudaErrorInvalidConfiguration, counts[i].what, counts[i].n,
                           counts[i].most);
    return cudaSuccess;
}

static cudaError_t check_room(const struct kernel *k, struct dim3 block, int64_t shared) {
    const int64_t all = shared + k->takes.shared_bytes;
    const int64_t dynamic =
        larger((int)k->shared_asked, SHARED_UNASKED - k->takes.shared_bytes);
    const int64_t warps =
        ((int64_t)block.x * block.y * block.z + WARP_THREADS - 1) / WARP_THREADS;
    const int64_t of_warp =
        ((int64_t)k->takes.registers * WARP_THREADS + REGISTER_UNIT - 1) / REGISTER_UNIT *
        REGISTER_UNIT;
    if (shared > dynamic)
        return exceeds(k, cudaErrorInvalidValue, "bytes of shared memory, asked for",
                       shared, dynamic);
    if (all > fake_cuda_gpu()->shared_bytes)
        return exceeds(k, cudaErrorInvalidValue, "bytes of shared memory", all,
                       fake_cuda_gpu()->shared_bytes);
    if (warps * of_warp > REGISTERS)
        return exceeds(k, cudaErrorLaunchOutOfResources, "registers of a block",
                       warps * of_warp, REGISTERS);
    return cudaSuccess;
}

/* Not CUDA's: it would take them, and the kernel would fail, or compute something else. */
static cudaError_t check_arguments(const struct kernel *k, void **args, cudaStream_t s) {
    if (!fake_cuda_is_stream(s))
        return refuse(k, cudaErrorInvalidResourceHandle, "on no stream that there is");
    for (int64_t i = 0; args; i++) {
        const void *p = NULL;
        const int is = pointer_argument(k->name, i);
        if (is < 0)
            break;
        if (is)
            memcpy(&p, args[i], sizeof p);
        if (p && !fake_cuda_reaches(p))
            return refuse(k, cudaErrorIllegalAddress,
                          "argument %lld is no address of the GPU", (long long)i + 1);
    }
    return cudaSuccess;
}

/* ---- launches ----------------------------------------------------------------------------- */

cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute what, int value) {
    struct kernel *k = kernel_of(host);
    if (!k || !k->takes.name)
        return fake_cuda_error(cudaErrorInvalidDeviceFunction);
    if (what != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return fake_cuda_error(cudaErrorNotSupported);
    if (value < 0 || value + k->takes.shared_bytes > fake_cuda_gpu()->shared_bytes)
        return exceeds(k, cudaErrorInvalidValue, "bytes of shared memory are asked for",
                       value, fake_cuda_gpu()->shared_bytes - k->takes.shared_bytes);
    k->shared_asked = value;
    return cudaSuccess;
}

unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared,
                                     struct CUstream_st *stream) {
    now.next.grid = grid, now.next.block = block;
    now.next.shared = shared, now.next.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block,
                                       size_t *shared, void *stream) {
    *grid = now.next.grid, *block = now.next.block;
    *shared = now.next.shared;
    memcpy(stream, &now.next.stream, sizeof now.next.stream);
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    *kernel = (cudaKernel_t)(void *)kernel_of(host);
    return *kernel ? cudaSuccess : fake_cuda_error(cudaErrorInvalidDeviceFunction);
}

static void nothing(void *args) {
    (void)args;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, struct dim3 grid, struct dim3 block,
                               void **args, size_t shared, cudaStream_t stream) {
    struct kernel *k = (struct kernel *)(void *)kernel;
    now.n.all++;
    if (!k->takes.name)
        return refuse(k, cudaErrorNoKernelImageForDevice, "not compiled for this GPU");
    cudaError_t rc = check_shape(k, grid, block);
    if (rc == cudaSuccess)
        rc = check_room(k, block, (int64_t)shared);
    if (rc == cudaSuccess)
        rc = check_arguments(k, args, stream);
    if (rc != cudaSuccess)
        return rc;
    now.n.kernels += k->launches++ == 0;
    fake_cuda_load(k);
    fake_cuda_launch(stream, nothing, "", 1);
    return cudaSuccess;
}

struct launches described_launches(void) {
    return now.n;
}

bool described_list(const char *file) {
    FILE *f = fopen(file, "a");
    for (int64_t i = 0; f && i < now.kernels.n; i++)
        fprintf(f, "%s %s\n", now.kernels.p[i]->launches ? "launched" : "not",
                now.kernels.p[i]->name);
    return f && fclose(f) == 0;
}
