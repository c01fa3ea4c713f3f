/* emulate.h - CUDA kernels on the CPU: what kernels and their launches use of CUDA C++, for a
 * compiler of C++ that has never heard of it.
 *
 * Blocks run one after the other; the threads of a block are fibers that run in turn, from one barrier
 * or exchange of a warp to the next (emulate.c). So an index that is wrong, a barrier that is missing,
 * a number that is not initialized show on a machine without a GPU. Memory that several threads change
 * at once without a barrier between them may still come out right: run a kernel in several orders
 * (emu_order) and compare, or watch every access (watch.h).
 *
 *     CUDA_KERNEL void reverse(float *x) {
 *         __shared__ float t[64];
 *         t[threadIdx.x] = x[threadIdx.x];
 *         __syncthreads();
 *         x[threadIdx.x] = t[63 - threadIdx.x];
 *     }
 *     CUDA_LAUNCH(reverse, 1, 64, 0, stream, x);
 *
 * Misuse ends the program with a line that says what is wrong: threads that wait at different places,
 * or for one that has ended; a grid or block beyond the limits; more shared memory than was asked for.
 */
#ifndef WEFT_EMULATE_H
#define WEFT_EMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    EMU_WARP = 32,      /* threads of a warp */
    EMU_LANE_BYTES = 64 /* the most that a lane may show the others at once */
};

struct emu_index {
    unsigned x, y, z;
};

/* Where the thread stands that runs now. */
struct emu_position {
    struct emu_index thread, block, block_size, grid_size;
    int number; /* of the thread in its block; -1 where no kernel runs */
};
extern struct emu_position emu_position;

/* Runs body(arg) by every thread of every block. `name` is for messages. */
void emu_run(const char *name, struct emu_index grid, struct emu_index block,
             size_t shared_bytes, void (*body)(void *), void *arg);
/* The order in which blocks, warps and lanes take turns: 0 upwards, 1 downwards. */
void emu_order(int downwards);
/* The most bytes of shared memory that the next launch may ask for, beyond 48 KiB; take: it is taken
 * back. */
void emu_allow_shared(size_t bytes);
size_t emu_take_shared(void);

/* What launches and copies do with their stream: run(args), with a copy of the args, when its turn comes
 * (tests/fake/cudart.h). NULL, as it is at first: at once. */
typedef void emu_stream_fn(void *stream, void (*run)(void *args), const void *args,
                           size_t bytes);
void emu_streams(emu_stream_fn *give);
void emu_give(void *stream, void (*run)(void *args), void *args, size_t bytes);
/* A copy on the stream; of zeros where `from` is NULL. */
void emu_move(void *stream, void *to, const void *from, size_t bytes);
/* How many kernels ran since the program began. */
int64_t emu_launches(void);

/* For threads of a kernel. */
void emu_barrier(const char *file, int line); /* all threads of the block */
void emu_syncwarp(void);                      /* all lanes of the warp */
int emu_lane(void);                           /* number in the warp */
void *emu_shared(void); /* the block's dynamic shared memory; NaN at first */
/* All lanes of a warp call it with as many bytes of their own, at most EMU_LANE_BYTES. Returns those
 * of lane i at i * EMU_LANE_BYTES; valid until the next call. Lanes wait for each other, but what they
 * wrote to memory is not in order by that: shuffles, votes and products promise nothing of the kind. */
const void *emu_warp_exchange(const void *mine, size_t bytes);
/* cp.async (emulate_copy.c): writes NaN at once, and `bytes` from `from`, or zeros unless `there`, when
 * the thread waits for all its groups but the last `left`. */
void emu_copy_begin(void *to, const void *from, bool there, size_t bytes);
void emu_copy_commit(void);
void emu_copy_wait(int left);
void emu_copy_forget(void); /* of all threads, as a block begins */
/* The thread's products of wgmma are done with their operands; what it wrote may be read by them
 * (fence.proxy.async). */
void emu_product_wait(void);
void emu_product_publish(void);

/* How the thread uses memory from here on, until it says otherwise or waits. */
enum emu_use {
    EMU_PLAIN,
    EMU_ATOMIC,
    EMU_PRODUCT /* wgmma: reads that go on until emu_product_wait */
};
void emu_use(enum emu_use use);

/* Who is told of what happens, to watch accesses; each is called when all have come. */
struct emu_watcher {
    void (*launch)(const char *kernel);
    void (*block)(void); /* one begins */
    void (*barrier)(void);
    void (*exchange)(void);  /* of the warp that runs */
    void (*warp)(int first); /* __syncwarp; the number of its first thread */
    void (*use)(enum emu_use use);
    void (*moved)(void *to, size_t bytes);
    /* Returns what `copied` is told. */
    uint32_t (*copy)(void *to, const void *from, bool there, size_t bytes, const void *pc);
    void (*copied)(void *to, const void *from, bool there, size_t bytes, const void *pc,
                   uint32_t begun);
    void (*product_wait)(void);
    void (*product_publish)(void);
};
extern const struct emu_watcher *emu_watcher; /* NULL: nobody */
/* Where the emulator has what is its own, and the stacks of threads. */
struct emu_own {
    const char *state, *state_end, *stacks, *stacks_end;
};
struct emu_own emu_own(void);
/* Ends the program: a kernel does what it may not. */
void emu_die(const char *what) __attribute__((noreturn));

#ifdef __cplusplus
}

/* ---- the language ------------------------------------------------------------------------- */

#include <math.h>
#include <string.h>
#include <tuple>

#define CUDA_KERNEL static
#define CUDA_DEVICE static inline
#define CUDA_BOTH   inline /* not static: specializations cannot be */

#define __shared__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx       emu_position.thread
#define blockIdx        emu_position.block
#define blockDim        emu_position.block_size
#define gridDim         emu_position.grid_size
#define __syncthreads() emu_barrier(__FILE__, __LINE__)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz) {
    }
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};

/* A launch with its arguments, which have the kernel's types. */
template <typename... P> struct emu_task {
    const char *name;
    void (*kernel)(P...);
    struct emu_index grid, block;
    size_t shared_bytes, allowed;
    std::tuple<P...> args;

    static void thread(void *task) {
        alignas(emu_task) char own[sizeof(emu_task)]; /* as arguments are a thread's */
        memcpy(own, task, sizeof own);
        const emu_task *t = (const emu_task *)own;
        std::apply(t->kernel, t->args);
    }
    static void run(void *task) {
        emu_task *t = (emu_task *)task;
        emu_allow_shared(t->allowed);
        emu_run(t->name, t->grid, t->block, t->shared_bytes, thread, task);
    }
};

template <typename... P, typename... A>
void emu_launch(const char *name, dim3 grid, dim3 block, size_t shared_bytes, void *stream,
                void (*kernel)(P...), A... args) {
    emu_task<P...> t = {name,
                        kernel,
                        {grid.x, grid.y, grid.z},
                        {block.x, block.y, block.z},
                        shared_bytes,
                        emu_take_shared(),
                        std::tuple<P...>(args...)};
    emu_give(stream, emu_task<P...>::run, &t, sizeof t);
}

#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                        \
    emu_launch(#kernel, grid, block, shared_bytes, (void *)(stream), kernel, __VA_ARGS__)
#define CUDA_SHARED(kernel, bytes)         emu_allow_shared((size_t)(bytes))
#define CUDA_MOVE(stream, to, from, bytes) emu_move(stream, to, from, (size_t)(bytes))
#define CUDA_CLEAR(stream, to, bytes)      emu_move(stream, to, NULL, (size_t)(bytes))

/* ---- warps -------------------------------------------------------------------------------- */

template <typename T> static inline T emu_from_lane(T mine, int from) {
    static_assert(sizeof(T) <= EMU_LANE_BYTES, "more than a lane may show");
    const char *all = (const char *)emu_warp_exchange(&mine, sizeof mine);
    T got;
    memcpy(&got, all + (size_t)from * EMU_LANE_BYTES, sizeof got);
    return got;
}

/* All lanes take part: other masks are not there. */
static inline void emu_check_mask(unsigned mask) {
    if (mask != 0xffffffffu)
        emu_die("only all lanes of a warp exchange");
}

template <typename T>
static inline T __shfl_sync(unsigned mask, T mine, int from, int width = EMU_WARP) {
    emu_check_mask(mask);
    int first = emu_lane() / width * width;
    return emu_from_lane(mine, first + (from & (width - 1)));
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T mine, int by, int width = EMU_WARP) {
    emu_check_mask(mask);
    int lane = emu_lane(), from = lane ^ by;
    return emu_from_lane(mine, from / width > lane / width ? lane : from);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T mine, int by, int width = EMU_WARP) {
    emu_check_mask(mask);
    int lane = emu_lane(), from = lane + by;
    return emu_from_lane(mine, from / width == lane / width ? from : lane);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T mine, int by, int width = EMU_WARP) {
    emu_check_mask(mask);
    int lane = emu_lane();
    return emu_from_lane(mine, lane % width >= by ? lane - by : lane);
}
static inline unsigned __ballot_sync(unsigned mask, int vote) {
    emu_check_mask(mask);
    char mine = vote != 0;
    const char *all = (const char *)emu_warp_exchange(&mine, sizeof mine);
    unsigned bits = 0;
    for (unsigned i = 0; i < EMU_WARP; i++)
        bits |= (unsigned)all[i * EMU_LANE_BYTES] << i;
    return bits;
}
static inline int __any_sync(unsigned mask, int vote) {
    return __ballot_sync(mask, vote) != 0;
}
static inline int __all_sync(unsigned mask, int vote) {
    return __ballot_sync(mask, !vote) == 0;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
    emu_check_mask(mask);
    emu_syncwarp();
}

/* ---- whole numbers ------------------------------------------------------------------------ */

static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}

/* Only of whole numbers, whose sum does not depend on the order: an atomic of floats does not
 * compile. */
/* What `becomes` of `old`, in one go. */
#define EMU_ATOMIC_AS(type, name, becomes, ...)                                            \
    static inline type name(type *p, __VA_ARGS__) {                                        \
        emu_use(EMU_ATOMIC);                                                               \
        const type old = *p;                                                               \
        *p = becomes;                                                                      \
        emu_use(EMU_PLAIN);                                                                \
        return old;                                                                        \
    }
#define EMU_ATOMIC(type)                                                                   \
    EMU_ATOMIC_AS(type, atomicAdd, old + x, type x)                                        \
    EMU_ATOMIC_AS(type, atomicMax, old > x ? old : x, type x)                              \
    EMU_ATOMIC_AS(type, atomicMin, old < x ? old : x, type x)                              \
    EMU_ATOMIC_AS(type, atomicExch, x, type x)                                             \
    EMU_ATOMIC_AS(type, atomicCAS, old == was ? x : old, type was, type x)
EMU_ATOMIC(int)
EMU_ATOMIC(unsigned)
EMU_ATOMIC(unsigned long long)
#undef EMU_ATOMIC
#undef EMU_ATOMIC_AS
float atomicAdd(float *p, float x) = delete;
double atomicAdd(double *p, double x) = delete;

static inline float rsqrtf(float x) {
    return 1 / sqrtf(x);
}
/* Of x half turns. */
static inline float cospif(float x) {
    return (float)cos(3.141592653589793 * x);
}
static inline float sinpif(float x) {
    return (float)sin(3.141592653589793 * x);
}

#endif
#endif
