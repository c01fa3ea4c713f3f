/* cuda_kernel.h - what .cu files write kernels with.
 *
 * nvcc compiles them for GPUs; a compiler of C++ compiles the same text against tests/emulate, which
 * runs the threads of a block in turn on the CPU (WEFT_EMULATE). So kernels use only what is there too:
 * blocks, threads, __syncthreads, shared memory, shuffles and votes of a warp, integer atomics.
 *
 *     CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments ...);
 *
 * Whether a kernel could be launched is asked once for all instructions, in cuda_launch.c.
 */
#ifndef WEFT_CUDA_KERNEL_H
#define WEFT_CUDA_KERNEL_H

#include "cuda/cuda_impl.h"

#ifdef WEFT_EMULATE
#include "emulate.h"
#else
#include <cuda_runtime.h>

#define CUDA_KERNEL static __global__
#define CUDA_DEVICE __device__ __forceinline__
#define CUDA_BOTH   __host__ __device__ __forceinline__

/* Kernels that are templates with several parameters stand in parentheses. */
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                        \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)

/* Before a launch that wants more than 48 KB of shared memory in a block. */
#define CUDA_SHARED(kernel, bytes)                                                         \
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes))
#endif

#endif
