/* Kernels with a fault each, for who watches (watch.h): `right`, it is not there. */
#include "faults.h"

#include "cuda/cuda_wgmma.h"

enum { N = FAULT_NUMBERS };

/* Every thread puts a number and takes another's. */
CUDA_KERNEL void hand_on(bool first, bool second, int from, int *x) {
    __shared__ int t[N];
    const int i = (int)threadIdx.x;
    t[i] = x[i];
    if (first)
        __syncthreads();
    const int got = t[(i + from) % N];
    if (second)
        __syncthreads();
    t[i] = got;
    x[i] = t[i];
}

CUDA_KERNEL void hand_in_warp(bool right, int *x) {
    __shared__ int t[N];
    const int i = (int)threadIdx.x;
    t[i] = x[i];
    if (right)
        __syncwarp();
    const int lane = __shfl_xor_sync(ALL_LANES, i, 1); /* orders nothing */
    x[i] = t[lane];
}

CUDA_KERNEL void blocks_write(bool right, int *x) {
    if (threadIdx.x == 0)
        x[right ? blockIdx.x : 0] = 1;
}

CUDA_KERNEL void blocks_read(bool right, int *x, int *y) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = 1;
    y[i] = x[right ? i : i ^ blockDim.x];
}

CUDA_KERNEL void count(bool right, int *x) {
    __shared__ int n;
    if (threadIdx.x == 0)
        n = 0;
    __syncthreads();
    atomicAdd(&n, 1);
    if (right)
        __syncthreads();
    x[threadIdx.x] = n;
}

CUDA_KERNEL void copies(bool waits, bool barrier, int from, int *x, int *y) {
    __shared__ float t[N];
    const int i = (int)threadIdx.x;
    copy_float(t + i, (const float *)x + i, true);
    copy_commit();
    if (waits)
        copy_wait<0>();
    if (barrier)
        __syncthreads();
    y[i] = (int)float_bits(t[(i + from) % N]);
    copy_wait<0>();
}

CUDA_KERNEL void copies_over(bool right, int *x, int *y) {
    __shared__ float t[N];
    const int i = (int)threadIdx.x;
    t[i] = 1;
    __syncthreads();
    y[i] = (int)t[(i + 64) % N];
    if (right)
        __syncthreads();
    copy_float(t + i, (const float *)x + i, true);
    copy_wait<0>();
}

CUDA_KERNEL void copies_changed(bool right, int *x, int *y) {
    __shared__ float t[N];
    const int i = (int)threadIdx.x;
    copy_float(t + i, (const float *)x + i, true);
    copy_commit();
    if (right)
        copy_wait<0>();
    __syncthreads();
    x[(i + 64) % N] = 3;
    copy_wait<0>();
    y[i] = (int)float_bits(t[i]);
}

/* A B^T of tiles of ones, by four warps. */
CUDA_KERNEL void products(bool waits, bool publishes, int *y) {
    CUDA_DYNAMIC(char, shared);
    typedef panels_of<bf16, 64, 64> tile;
    struct room {
        tile a, b;
    } &t = *room_in<room>(shared);
    float s[1][8][4] = {};
    for (int i = (int)threadIdx.x; i < 64 * 64; i += N)
        put(&t.a.at[i], 1), put(&t.b.at[i], 1);
    if (publishes)
        wgmma_publish();
    __syncthreads();
    product(0, t.a, (int)threadIdx.x / 32 * 16, t.b, s);
    if (waits)
        product_wait(t.a, s);
    __syncthreads();
    put(&t.b.at[threadIdx.x], 0);
    product_wait(t.a, s);
    y[threadIdx.x] = (int)s[0][0][0];
}

CUDA_KERNEL void garbage_shared(bool right, int *x) {
    __shared__ int t[N];
    if (right || threadIdx.x != 5)
        t[threadIdx.x] = 1;
    __syncthreads();
    x[threadIdx.x] = t[threadIdx.x];
}

CUDA_KERNEL void garbage_global(bool right, int *x, int *y) {
    if (right || threadIdx.x != 5)
        y[threadIdx.x] = 1;
    x[threadIdx.x] = y[threadIdx.x];
}

#define RUN(kernel, blocks, ...)                                                           \
    CUDA_LAUNCH(kernel, blocks, N / (blocks), 0, (cudaStream_t)NULL, __VA_ARGS__)

void fault_run(enum fault fault, bool right, int *x, int *y) {
    const size_t tiles = 3 << 13;
    switch (fault) {
    case NO_SYNCTHREADS: RUN(hand_on, 1, right, true, 64, x); break;
    case LATE_WRITE: RUN(hand_on, 1, true, right, 64, x); break;
    case NO_SYNCWARP: RUN(hand_in_warp, 1, right, x); break;
    case TWO_BLOCKS: RUN(blocks_write, 2, right, x); break;
    case BLOCK_READS: RUN(blocks_read, 2, right, x, y); break;
    case PLAIN_READ: RUN(count, 1, right, x); break;
    case NO_WAIT: RUN(copies, 1, right, false, 0, x, y); break;
    case NO_BARRIER: RUN(copies, 1, true, right, 64, x, y); break;
    case EARLY_COPY: RUN(copies_over, 1, right, x, y); break;
    case CHANGED_SOURCE: RUN(copies_changed, 1, right, x, y); break;
    case NO_PRODUCT_WAIT:
        CUDA_LAUNCH(products, 1, N, tiles, (cudaStream_t)NULL, right, true, y);
        break;
    case NO_PUBLISH:
        CUDA_LAUNCH(products, 1, N, tiles, (cudaStream_t)NULL, true, right, y);
        break;
    case SHARED_GARBAGE: RUN(garbage_shared, 1, right, x); break;
    case GLOBAL_GARBAGE: RUN(garbage_global, 1, right, x, y); break;
    default: break;
    }
}

CUDA_KERNEL void strides(int stride, const int *x) {
    CUDA_DYNAMIC(int, t);
    t[threadIdx.x * stride] = x[threadIdx.x * stride];
}

void strides_run(int stride, const int *x) {
    CUDA_LAUNCH(strides, 1, 32, N * sizeof(int), (cudaStream_t)NULL, stride, x);
}
