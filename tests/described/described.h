/* described.h - GPUs that are described: lib/cuda as it is, with the kernels that nvcc compiled, on the
 * fake runtime (fake/cudart.h), which computes nothing here.
 *
 * What a launch asks for is held against what the GPU has and what ptxas says that the kernel takes, and
 * is refused where CUDA refuses it: with CUDA's error, and a line on stderr. DESCRIBED_GPU names the GPU
 * (h100, which is the default, a100 or a40); names of the kernels that were launched are added to the
 * file that DESCRIBED_LIST names.
 *
 *     DESCRIBED_GPU=a100 build/gcc/tests/described/weft-run --device cuda -n 2 plan.json
 *     # a100: 212 launches of 31 kernels, 0 refused
 */
#ifndef WEFT_TESTS_DESCRIBED_H
#define WEFT_TESTS_DESCRIBED_H

#include "fake/cudart.h"

/* Of all GPUs with compute capabilities 8.x and 9.0 (CUDA C++ Programming Guide, technical
 * specifications per compute capability). */
enum {
    BLOCK_THREADS = 1024,
    BLOCK_DEPTH = 64,   /* threads along z */
    GRID_DEPTH = 65535, /* blocks along y and z */
    WARP_THREADS = 32,
    REGISTERS = 65536,   /* of a block and of a multiprocessor */
    REGISTER_UNIT = 256, /* a warp gets a multiple */
    SHARED_UNASKED =
        48 << 10 /* bytes of a block, unless the kernel's attribute says more */
};

/* What a kernel takes when it is compiled for an architecture ("80", "90a"), as ptxas says. */
struct described_usage {
    const char *arch, *name;
    int registers;    /* of a thread */
    int shared_bytes; /* of a block, that the kernel declares */
};

/* Those of all kernels; one without a name ends them. */
extern const struct described_usage described_usages[];

/* What the code calls that nvcc makes for the host; headers of C++ alone declare it. */
void **__cudaRegisterFatBinary(void *image);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int threads, uint3 *tid, uint3 *bid, struct dim3 *block,
                            struct dim3 *grid, int *warp);
unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared,
                                     struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block,
                                       size_t *shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, struct dim3 grid, struct dim3 block,
                               void **args, size_t shared, cudaStream_t stream);

struct launches {
    int64_t all, refused;
    int64_t kernels; /* different ones */
};

/* What was launched so far. */
struct launches described_launches(void);
/* Adds the names of kernels that were launched to the file; false with errno. */
bool described_list(const char *file);

#endif
