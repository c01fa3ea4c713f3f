/* cuda_block.h - what kernels share: vectors of 16 bytes, sums over warps and blocks, launches.
 *
 * Memory is read and written 16 bytes a thread where addresses allow it. A loop over n elements takes
 * a function of (where, how many lanes): it is called with whole vectors, and with single elements for
 * what stands before the first one and behind the last:
 *
 *     each<T>(n, head, threadIdx.x, blockDim.x, [&](int64_t j, auto lanes) {
 *         float v[decltype(lanes)::N];
 *         load(x + j, lanes, v);
 *         for (int i = 0; i < decltype(lanes)::N; i++)
 *             sum += v[i];
 *     });
 *     sum = block_sum(sum); // the same in every thread
 *
 * Sums are made in an order that follows from the sizes alone.
 */
#ifndef WEFT_CUDA_BLOCK_H
#define WEFT_CUDA_BLOCK_H

#include "cuda/cuda_type.h"
#include "cuda/cuda_workspace.h"

#ifdef WEFT_EMULATE
#define CUDA_MEMBER              inline
#define CUDA_DYNAMIC(type, name) type *name = (type *)emu_shared()
#else
/* A function of a struct that a kernel calls. */
#define CUDA_MEMBER __device__ __forceinline__
/* The dynamic shared memory of the block, aligned for vectors. */
#define CUDA_DYNAMIC(type, name)                                                           \
    extern __shared__ uint4 cuda_dynamic[];                                                \
    type *name = (type *)cuda_dynamic
/* Bytes from here to there, either on the device or in pinned memory; zeros. */
#define CUDA_MOVE(stream, to, from, bytes)                                                 \
    cudaMemcpyAsync(to, from, (size_t)(bytes), cudaMemcpyDefault, stream)
#define CUDA_CLEAR(stream, to, bytes) cudaMemsetAsync(to, 0, (size_t)(bytes), stream)
#endif

enum {
    WARP = 32,
    BLOCK = 256, /* threads, where nothing speaks for another number */
    BLOCKS =
        1024, /* that share a long range: some on every multiprocessor, on each device as many */
    VECTOR = 16 /* bytes that a thread moves at once */
};
#define ALL_LANES 0xffffffffu

/* ---- vectors ------------------------------------------------------------------------------ */

template <int COUNT> struct lanes_of {
    enum { N = COUNT };
};
/* Elements of T in a vector. */
template <typename T> struct vector_of {
    enum { N = VECTOR / (int)sizeof(T) };
};

CUDA_DEVICE float float_of(uint32_t word, int, float) {
    return bits_float(word);
}
template <typename T> CUDA_DEVICE float float_of(uint32_t word, int half, T) {
    T x = {(uint16_t)(word >> 16 * half)};
    return widen(x);
}

template <typename T> CUDA_DEVICE void load_vector(const T *p, float *v) {
    const uint4 raw = *(const uint4 *)p;
    const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
    const int each = 4 / (int)sizeof(T);
#pragma unroll
    for (int i = 0; i < vector_of<T>::N; i++)
        v[i] = float_of(word[i / each], i % each, T());
}

CUDA_DEVICE uint32_t word_of(const float *v, float) {
    return float_bits(*v);
}
template <typename T> CUDA_DEVICE uint32_t word_of(const float *v, T) {
    return narrow<T>(v[0]).bits | (uint32_t)narrow<T>(v[1]).bits << 16;
}
#ifdef __CUDA_ARCH__
/* One instruction for both. */
CUDA_DEVICE uint32_t word_of(const float *v, bf16) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(v[1]), "f"(v[0]));
    return pair;
}
#endif

template <typename T> CUDA_DEVICE void store_vector(T *p, const float *v) {
    const int each = 4 / (int)sizeof(T);
    uint4 raw;
    raw.x = word_of(v, T());
    raw.y = word_of(v + each, T());
    raw.z = word_of(v + 2 * each, T());
    raw.w = word_of(v + 3 * each, T());
    *(uint4 *)p = raw;
}

/* Half a vector, as of 16 bits beside a vector of floats: so that lanes which stand side by side fill
 * whole sectors of both. */
template <typename T> CUDA_DEVICE void load_half(const T *p, float *v) {
    const uint2 raw = *(const uint2 *)p;
    const uint32_t word[2] = {raw.x, raw.y};
    const int each = 4 / (int)sizeof(T);
#pragma unroll
    for (int i = 0; i < vector_of<T>::N / 2; i++)
        v[i] = float_of(word[i / each], i % each, T());
}
template <typename T> CUDA_DEVICE void store_half(T *p, const float *v) {
    uint2 raw;
    raw.x = word_of(v, T());
    raw.y = word_of(v + 4 / (int)sizeof(T), T());
    *(uint2 *)p = raw;
}

/* v[0..N-1] = p[0..N-1] and back; N is 1, half a vector or a number of whole ones. */
template <typename T, int N> CUDA_DEVICE void load(const T *p, lanes_of<N>, float *v) {
    if constexpr (N == 1) {
        v[0] = get(p);
    } else if constexpr (N == vector_of<T>::N / 2) {
        load_half(p, v);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += vector_of<T>::N)
            load_vector(p + i, v + i);
    }
}
template <typename T, int N> CUDA_DEVICE void store(T *p, lanes_of<N>, const float *v) {
    if constexpr (N == 1) {
        put(p, v[0]);
    } else if constexpr (N == vector_of<T>::N / 2) {
        store_half(p, v);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += vector_of<T>::N)
            store_vector(p + i, v + i);
    }
}

/* Calls f for thread `thread` of `threads`: vectors of V elements from `head` on, single elements
 * before and behind. head = n: single elements only. */
template <int V, typename F>
CUDA_DEVICE void each_of(int64_t n, int64_t head, int64_t thread, int64_t threads, F f) {
    for (int64_t j = head + thread * V; j + V <= n; j += threads * V)
        f(j, lanes_of<V>());
    const int64_t tail = head + (n - head) / V * V, single = head + n - tail;
    for (int64_t j = thread; j < single; j += threads)
        f(j < head ? j : tail + j - head, lanes_of<1>());
}
template <typename T, typename F>
CUDA_DEVICE void each(int64_t n, int64_t head, int64_t thread, int64_t threads, F f) {
    each_of<vector_of<T>::N>(n, head, thread, threads, f);
}
CUDA_DEVICE int64_t grid_thread() {
    return blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
}
CUDA_DEVICE int64_t grid_threads() {
    return gridDim.x * (int64_t)blockDim.x;
}

/* Of n elements, those before the first address that a vector may have. */
template <typename T> CUDA_BOTH int64_t head_of(int64_t n, const T *p) {
    int64_t before = (int64_t)(-(uintptr_t)p % VECTOR / sizeof(T));
    return before < n ? before : n;
}
/* May vectors begin at all of them? Those that are absent do not matter. */
static inline bool aligned(const void *a, const void *b = NULL, const void *c = NULL,
                           const void *d = NULL, const void *e = NULL) {
    return ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d | (uintptr_t)e) %
               VECTOR ==
           0;
}
/* The head of rows of n elements that begin at aligned addresses, or not. */
template <typename T> static inline int64_t row_head(int64_t n, bool aligned) {
    return aligned && n % vector_of<T>::N == 0 ? 0 : n;
}

/* a / b of numbers from 0 on: by 32 bits, which takes a fifth of the time, where they fit. */
CUDA_BOTH int64_t quotient(int64_t a, int64_t b) {
    return (uint64_t)(a | b) >> 32 ? a / b : (int64_t)((uint32_t)a / (uint32_t)b);
}

/* A number as digits, (high * n + middle) * m + low: where element i of [.., n, m] stands. */
struct digits {
    int64_t high, middle, low;
};
CUDA_DEVICE struct digits digits_of(int64_t i, int64_t n, int64_t m) {
    struct digits d;
    const int64_t rest = quotient(i, m);
    d.low = i - rest * m;
    d.high = quotient(rest, n);
    d.middle = rest - d.high * n;
    return d;
}

/* ---- sums over threads -------------------------------------------------------------------- */

template <typename T> CUDA_DEVICE T warp_sum(T v) {
#pragma unroll
    for (int by = WARP / 2; by > 0; by /= 2)
        v += __shfl_xor_sync(ALL_LANES, v, by);
    return v;
}
CUDA_DEVICE float warp_max(float v) {
#pragma unroll
    for (int by = WARP / 2; by > 0; by /= 2)
        v = fmaxf(v, __shfl_xor_sync(ALL_LANES, v, by));
    return v;
}

/* v[0..N-1] become the sums over the block, in every thread of it. Blocks have one dimension and
 * whole warps, here and below. */
template <int N, typename T> CUDA_DEVICE void block_sums(T *v) {
    __shared__ T part[N][WARP];
    const unsigned lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
#pragma unroll
    for (int k = 0; k < N; k++)
        v[k] = warp_sum(v[k]);
    if (warps == 1)
        return;
    __syncthreads(); /* the sums before have been read */
    if (lane == 0)
#pragma unroll
        for (int k = 0; k < N; k++)
            part[k][threadIdx.x / WARP] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++)
        v[k] = warp_sum(lane < warps ? part[k][lane] : (T)0);
}
template <typename T> CUDA_DEVICE T block_sum(T v) {
    block_sums<1>(&v);
    return v;
}
CUDA_DEVICE float block_max(float v) {
    __shared__ float part[WARP];
    const unsigned lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    v = warp_max(v);
    if (warps == 1)
        return v;
    __syncthreads();
    if (lane == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    return warp_max(lane < warps ? part[lane] : -INFINITY);
}

/* ---- launches ----------------------------------------------------------------------------- */

/* Blocks of `each` that n are: at least one, for n > 0. */
static inline unsigned blocks_of(int64_t n, int64_t each) {
    return (unsigned)((n + each - 1) / each);
}
/* At most so many, that then go over the range in turns. */
static inline unsigned blocks_up_to(int64_t n, int64_t each, int64_t most) {
    const int64_t blocks = (n + each - 1) / each;
    return (unsigned)(blocks < most ? blocks : most);
}
/* Threads of a block for a row of n elements of T: whole warps, one vector a thread at first. */
template <typename T> static inline unsigned row_threads(int64_t n, unsigned most) {
    const int64_t warps = (n / vector_of<T>::N + WARP - 1) / WARP;
    return warps < 1             ? (unsigned)WARP
           : warps * WARP < most ? (unsigned)(warps * WARP)
                                 : most;
}

/* An instruction asks for so much of the workspace. 0, or -1 where there is less. */
static inline int workspace_holds(const struct cuda_call *c, int64_t bytes) {
    if (bytes <= c->workspace_bytes)
        return 0;
    return err_system(c->err, "a workspace of %lld bytes, where %lld are needed",
                      (long long)c->workspace_bytes, (long long)bytes);
}

#endif
