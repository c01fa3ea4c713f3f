/* kernel_impl.h - what the kernel_*.c files share: threads, scratch and the matrix product.
 *
 * A kernel is written as a plain loop over a range; KERNEL_SPLIT runs it over slices of the
 * range, one per thread, and calls it directly when one thread is enough: with one thread
 * no OpenMP call is made at all.
 *
 *     KERNEL_SPLIT(n, 16, n, add_range(end - first, a + first, b + first, y + first));
 */
#ifndef WEFT_KERNEL_IMPL_H
#define WEFT_KERNEL_IMPL_H

#include "device/kernel.h"
#include "kernel_type.h"

#include <omp.h>
#include <stddef.h>

/* Waking a second thread costs 1-2 us: less work than this many elements stays on one. */
enum { KERNEL_GRAIN = 16384 };

/* Sums that become one double are made of this many slices whatever the threads, so that
 * the number does not depend on them. */
enum { KERNEL_SLICES = 64 };

int kernel_threads(void);
/* Threads worth using for `work` elements. */
int kernel_share(int64_t work);
/* The calling thread's KERNEL_SCRATCH_BYTES, aligned to 64; 0 is the master. */
float *kernel_scratch(int thread);

/* Slice `part` of `parts` of 0..n-1, beginning at a multiple of `unit`. */
static inline int64_t kernel_cut(int64_t n, int64_t unit, int part, int parts) {
    int64_t blocks = (n + unit - 1) / unit;
    int64_t at = blocks * part / parts * unit;
    return at < n ? at : n;
}

/* Runs the call with `first` and `end` set to each thread's slice of 0..n-1, `thread` to
 * its number. Slices begin at multiples of `unit`; `work` decides how many threads are
 * used. */
#define KERNEL_SPLIT(n, unit, work, ...)                                                   \
    do {                                                                                   \
        const int64_t split_n = (n), split_unit = (unit);                                  \
        const int split_share = kernel_share(work);                                        \
        if (split_share <= 1) {                                                            \
            const int64_t first = 0, end = split_n;                                        \
            const int thread = 0;                                                          \
            (void)thread;                                                                  \
            __VA_ARGS__;                                                                   \
        } else {                                                                           \
            _Pragma("omp parallel num_threads(split_share)") {                             \
                const int thread = omp_get_thread_num();                                   \
                const int split_by = omp_get_num_threads();                                \
                const int64_t first = kernel_cut(split_n, split_unit, thread, split_by);   \
                const int64_t end = kernel_cut(split_n, split_unit, thread + 1, split_by); \
                if (first < end) {                                                         \
                    __VA_ARGS__;                                                           \
                }                                                                          \
            }                                                                              \
        }                                                                                  \
    } while (0)

/* Runs the call for each `task` of 0..n-1 on `share` threads, `thread` set to the number of the one that
 * takes it. Any thread may take any task, so tasks share no sums. */
#define KERNEL_TASKS(n, share, ...)                                                        \
    do {                                                                                   \
        const int64_t tasks_n = (n);                                                       \
        const int tasks_share = (share);                                                   \
        if (tasks_share <= 1 || tasks_n <= 1) {                                            \
            const int thread = 0;                                                          \
            for (int64_t task = 0; task < tasks_n; task++)                                 \
                __VA_ARGS__;                                                               \
        } else {                                                                           \
            _Pragma("omp parallel for schedule(dynamic) num_threads(tasks_share)") for (   \
                int64_t task = 0; task < tasks_n; task++) {                                \
                const int thread = omp_get_thread_num();                                   \
                __VA_ARGS__;                                                               \
            }                                                                              \
        }                                                                                  \
    } while (0)

/* dst[j] += sum over rows of x[row, j], j in 0..n-1, threads over the columns. */
void kernel_column_sums(int64_t rows, int64_t n, const T *x, float *dst);

/* A product of matrices: C[m, n] = A[m, k] B[k, n] + beta C, plus bias[n] in every row. */
struct kernel_operand {
    const void *p;
    int64_t ld;  /* elements from one row that lies in memory to the next */
    bool turned; /* what lies there is the transpose */
};
struct kernel_product {
    int64_t m, n, k;
    enum dtype type; /* of the elements of A, B and the bias */
    struct kernel_operand a, b;
    const void *bias;  /* NULL: none */
    float beta;        /* 0: C is not read */
    enum dtype type_c; /* that of A and B, or f32 */
    void *c;
    int64_t ldc;
};
/* Without a bias, beta 0 or 1. */
void kernel_product(const struct kernel_product *p);

/* ---- the matrix product's library: one of kernel_gemm_{dnnl,openblas,reference}.c */

/* Called by kernel_init after the number of threads is set. */
void kernel_blas_init(int threads);
void kernel_blas_release(void);
/* May this process use AMX's tiles of bf16? The library asks the system for them. */
bool kernel_blas_tiles(void);

/* The forward pass as tasks: queries q0..q1-1 of head h of sample b, which is head `head` of all, and where
 * its keys and its values begin. */
struct kernel_attention_task {
    int64_t b, h, head, q0, q1, kv_at, v_at;
};
/* Task `i` of those that take `most` queries of a head each. */
static inline struct kernel_attention_task
kernel_attention_task(const struct kernel_attention *t, int64_t most, int64_t i) {
    const int64_t chunks = (t->q_len + most - 1) / most;
    const int64_t head = i / chunks, b = head / t->heads, h = head % t->heads;
    const int64_t q0 = i % chunks * most;
    const int64_t q1 = t->q_len - q0 < most ? t->q_len : q0 + most;
    const int64_t kv_head = (t->first_head + h) / t->group;
    return (struct kernel_attention_task){b,
                                          h,
                                          head,
                                          q0,
                                          q1,
                                          b * t->kv_batch + kv_head * t->dim,
                                          b * t->v_batch + kv_head * t->value};
}
/* Queries of a task, in blocks: whole heads, up to `most` queries, while these keep the threads busy. */
static inline int64_t kernel_attention_queries(const struct kernel_attention *t,
                                               int64_t block, int64_t most) {
    const int64_t heads = t->batch * t->heads, threads = kernel_threads();
    if (heads >= 2 * threads || threads <= 1)
        return most;
    const int64_t even = (t->q_len * heads / (4 * threads) + block) / block * block;
    return even < most ? even : most;
}

/* kernel_attention and kernel_attention_bwd of bf16 by products of pairs (kernel_dot.h); false where
 * the machine has none, or this attention does not fit. */
bool kernel_attention_dot(const struct kernel_attention *t, const void *q, const void *k,
                          const void *v, void *o, float *lse);
bool kernel_attention_bwd_dot(const struct kernel_attention *t,
                              const struct kernel_attention_bwd *of);

/* A pass of a convolution by the library, as kernel_conv, kernel_conv_dx or kernel_conv_dw: x, w and y
 * are the operands of the forward pass, one of which it writes or adds to. False if the library has
 * none for this type of elements. */
bool kernel_conv_library(enum kernel_pass pass, const struct kernel_conv *s,
                         enum dtype type, const void *x, const void *w, const void *y);
void kernel_conv_release(void); /* what it keeps */
const char *kernel_blas_name(void);
/* A product of floats without a bias, with m, n, k > 0. */
void kernel_blas_gemm(const struct kernel_product *p);
/* The same of matrices with elements of 16 bits, and with a bias; false if the library has no product
 * of them that is faster than that of floats. */
bool kernel_blas_half(const struct kernel_product *p);

#endif
