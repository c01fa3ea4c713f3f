/* Kernels that try the emulator itself: what each should do is known without it. */
#include "self.h"

#include "cuda/cuda_block.h"

/* ---- barriers ----------------------------------------------------------------------------- */

CUDA_KERNEL void reverse(bool waits, int n, int *x) {
    __shared__ int t[256];
    const int i = (int)threadIdx.x;
    t[i] = x[i];
    if (waits)
        __syncthreads();
    x[i] = t[n - 1 - i];
    if (waits)
        __syncthreads();
    t[i] = -1; /* what no thread may see that has waited */
}

void self_reverse(bool waits, int n, int *x) {
    CUDA_LAUNCH(reverse, 1, (unsigned)n, 0, (cudaStream_t)NULL, waits, n, x);
}

/* ---- warps -------------------------------------------------------------------------------- */

CUDA_KERNEL void exchange(struct self_lane *to) {
    const int i = (int)threadIdx.x;
    to[i].from = __shfl_sync(ALL_LANES, i, 5);
    to[i].other = __shfl_xor_sync(ALL_LANES, i, 3);
    to[i].below = __shfl_down_sync(ALL_LANES, i, 4);
    to[i].above = __shfl_up_sync(ALL_LANES, i, 4);
    to[i].half = __shfl_down_sync(ALL_LANES, i, 4, 16);
    to[i].votes = __ballot_sync(ALL_LANES, i % 3 == 0);
    to[i].any = __any_sync(ALL_LANES, i == 40);
    to[i].all = __all_sync(ALL_LANES, i < 32);
}

void self_exchange(struct self_lane *to, unsigned threads) {
    CUDA_LAUNCH(exchange, 1, threads, 0, (cudaStream_t)NULL, to);
}

/* ---- blocks and sums ---------------------------------------------------------------------- */

CUDA_KERNEL void places(int *count, unsigned long long *sum) {
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread =
        (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    atomicAdd(&count[block * blockDim.x * blockDim.y * blockDim.z + thread], 1);
    atomicAdd(sum, (unsigned long long)thread);
}

void self_places(int *count, unsigned long long *sum) {
    CUDA_LAUNCH(places, dim3(3, 2, 4), dim3(5, 2, 3), 0, (cudaStream_t)NULL, count, sum);
}

CUDA_KERNEL void sums(const float *x, float *y) {
    CUDA_DYNAMIC(float, shared);
    const bool unset = shared[threadIdx.x] != shared[threadIdx.x];
    __syncthreads();
    shared[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float v[2] = {x[threadIdx.x], shared[blockDim.x - 1 - threadIdx.x]};
    block_sums<2>(v);
    const float top = block_max(x[threadIdx.x]);
    y[threadIdx.x] = unset ? v[0] + v[1] + top : 0;
}

void self_sums(const float *x, unsigned threads, float *y) {
    CUDA_LAUNCH(sums, 1, threads, threads * sizeof(float), (cudaStream_t)NULL, x, y);
}

/* ---- what kernels may not do -------------------------------------------------------------- */

CUDA_KERNEL void wrong(enum self_wrong what) {
    if (what == SELF_ELSEWHERE && threadIdx.x < 32)
        __syncthreads();
    else if (what == SELF_ELSEWHERE)
        __syncthreads();
    if (what == SELF_ENDED && threadIdx.x == 7)
        return;
    if (what == SELF_LANES && threadIdx.x % 2)
        (void)__ballot_sync(ALL_LANES, 1);
    if (what == SELF_MASK)
        (void)__ballot_sync(0xffff, 1);
    __syncthreads();
}

void self_wrong(enum self_wrong what) {
    const unsigned threads = what == SELF_THREADS ? 1025 : 64,
                   blocks = what == SELF_GRID ? 0 : 1;
    const size_t bytes = what == SELF_SHARED ? 49 << 10 : 0;
    CUDA_LAUNCH(wrong, blocks, threads, bytes, (cudaStream_t)NULL, what);
}
