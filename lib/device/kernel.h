/* kernel.h - the arithmetic of every instruction on the CPU.
 *
 * Kernels know shapes and pointers, nothing of models or plans. Tensors are dense row-major
 * blocks; `rows` is the product of all leading dimensions. Kernels allocate nothing: what
 * they need beyond their arguments is the per-thread scratch made once by kernel_init.
 * The same call with the same number of threads gives the same bits.
 *
 * Each is there for three types of elements: kernel_add adds floats, kernel_add_bf16 and
 * kernel_add_f16 tensors of 16 bits, which they widen as they load and round as they store
 * (kernel_typed.h). Statistics, gradients of parameters and optimizer state are floats in each.
 * Gradients of parameters are accumulated (`+=`); gradients of activations are written.
 */
#ifndef WEFT_KERNEL_H
#define WEFT_KERNEL_H

#include "common/alibi.h"
#include "device/cpu_workspace.h"
#include "device/rotary.h"
#include "program/halo.h"

#include "common/dtype.h"
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Sets the threads this process uses (its share of the cores) and makes the scratch.
 * The scratch is at most KERNEL_SCRATCH_BYTES per thread. Returns 0 or -1. */
enum { KERNEL_SCRATCH_BYTES = CPU_WORKSPACE_SCRATCH };
int kernel_init(int threads, struct err *err);
void kernel_release(void);
const char *kernel_gemm_library(void); /* "oneDNN 2.6.3", "OpenBLAS 0.3.21", "reference" */

/* Activations. gelu is the tanh form of GPT-2, gelu_erf the exact one, relu2 the square of relu. */
enum kernel_act {
    KERNEL_GELU,
    KERNEL_RELU,
    KERNEL_SILU,
    KERNEL_TANH,
    KERNEL_GELU_ERF,
    KERNEL_RELU2,
    KERNEL_SIGMOID
};

/* Convolution of x[batch, ih, iw, cin] with w[kh, kw, cin, cout]: y[batch, oh, ow, cout],
 * with oh = (ih + 2 ph - kh) / stride + 1 rounded down, ow alike. dx is written, dw += . */
struct kernel_conv {
    int64_t batch, ih, iw, cin, oh, ow, cout, kh, kw, stride, ph, pw;
};

/* Its passes: y; dx; dw. */
enum kernel_pass { KERNEL_FORWARD, KERNEL_DATA, KERNEL_WEIGHTS };
/* Bytes of workspace that its three passes take at most (one at a time). */
int64_t kernel_conv_bytes(const struct kernel_conv *s, enum dtype type);

/* Rotary positions of x[batch, seq, heads, dim], which begins at position `origin`; back: the other way
 * round, for gradients. */
struct kernel_rotary {
    int64_t batch, seq, heads, dim, origin;
    struct rotary_angles angles;
    bool back;
};

/* y[batch, oh, ow, c] = the largest number of each window of x[batch, ih, iw, c];
 * backward the first that is as large gets dy. */
struct kernel_pool {
    int64_t batch, ih, iw, c, oh, ow, kernel, stride, ph, pw;
};

/* Rows of a block [outer, rows, inner] for others' windows, and the windows made of
 * blocks (program/halo.h). Messages hold the pieces one after the other, each [outer, n,
 * inner]. */
struct kernel_halo {
    int64_t outer, inner;
    struct halo_run own;             /* what of its own block the rank's window has */
    const struct halo_piece *pieces; /* to others, or from them */
    int n_pieces;
    float padding; /* of what no rank has */
};

/* Batch norm of x[samples, places, c] by groups of samples; what is here begins with
 * sample `first` of group 0. sums and squares [groups, c]; stat and sums of the backward
 * pass [groups, 2, c]: mean and variance; of dy, of dy xhat. total: places of a group,
 * those of other ranks too.
 * 1. moments: local sums and squared deviations from the local mean
 * 2. where others have places of the groups: all-reduce of sums; center; all-reduce of
 * squares
 * 3. stat; then y. Backward: bwd_sums (dgamma and dbeta += ), all-reduce of sums, dx (may
 * be dy). */
struct kernel_batchnorm {
    int64_t samples, places, c, groups, group, first;
    float eps;
};

/* Layer norm of rows of which n of `total` columns are here. */
struct kernel_layernorm {
    int64_t rows, n, total;
    float eps;
    float offset; /* added to gamma */
};

/* What the rows of a cross-entropy are to be: the vocabulary's entry, of which this rank holds those from
 * `first` on. Targets below 0, and those that are `ignore`, do not count. */
struct kernel_targets {
    const int32_t *id;
    int32_t ignore;
    int64_t first;
};

/* Fused attention, never storing seq x seq (Dao et al., FlashAttention, 2022).
 * Element (b, s, h, e) of q, k, v, o stands at b*batch_stride + s*seq_stride + h*dim + e, each
 * with its own strides, so that q, k, v may be slices of one [b,s,3,h,dim] tensor. Query head h
 * reads key head (first_head + h) / group (Ainslie et al., grouped-query attention, 2023). Heads of v and o
 * have `value` columns, those of q and k `dim`.
 * Queries and keys may be parts of longer sequences: the first query stands at position `first`,
 * counted from the first key. lse[batch, heads, q_len] is kept for backward. dim is at most 1024.
 *
 * Keys may come block by block (Liu et al., Ring Attention, 2023). With `more`, o and lse hold the
 * result over other keys and become that over these too; a query that has seen none yet has o = 0
 * and lse = -infinity. Backward takes the last o and lse; with `more` dq is added to. dk and dv are
 * those of the block. */
struct kernel_attention {
    int64_t batch, heads, q_len, kv_len, dim, value;
    int64_t kv_heads, group, first_head;
    int64_t q_batch, q_seq;   /* strides of q and dq, in elements */
    int64_t kv_batch, kv_seq; /* strides of k and dk */
    int64_t v_batch, v_seq;   /* strides of v and dv */
    int64_t o_batch, o_seq;   /* strides of o and do */
    int64_t first;            /* position of the first query; may be before the keys */
    int64_t first_key;        /* keys of the sequence before those that are here */
    bool more;                /* o and lse, or dq, are of other keys already */
    bool causal;              /* position i sees 0..i */
    float scale;              /* of the scores */
    /* [batch]: keys of a sample that are seen, at least 1; or NULL: all */
    const int32_t *lengths;
    const void *positions; /* [buckets, heads]: added to scores by distance; or NULL */
    int64_t buckets;
    int distance; /* from 1; positions farther apart count as this far apart */
    /* causal: keys that a query sees, its own the last; 0: all up to it */
    int64_t window;
    /* [batch, q_len], causal: the first key of the sequence that a query sees, which is its own or one before it,
     * and none before that of the query in front: of documents in one sequence; or NULL: all */
    const int32_t *starts;
    float
        cap; /* a score becomes cap tanh(score / cap), before positions are added; 0: stays */
    /* slope.by times what ALiBi adds is added to scores, after the cap; 0: nothing */
    struct alibi slope;
};
/* Its operands backward, of one type of elements but lse and dpositions: dq, dk and dv are written,
 * dpositions is added to where there are positions. dout is the gradient of o. */
struct kernel_attention_bwd {
    const void *q, *k, *v, *o;
    const float *lse;
    const void *dout;
    void *dq, *dk, *dv;
    float *dpositions;
};
/* The first key that a query of sample b at this position may see; one of its queries is there. */
static inline int64_t kernel_attention_from(const struct kernel_attention *t, int64_t b,
                                            int64_t position) {
    const int64_t near = t->window && position >= t->window ? position + 1 - t->window : 0;
    if (!t->starts)
        return near;
    const int64_t start = t->starts[b * t->q_len + position - t->first] - t->first_key;
    return start > near ? start : near;
}
/* Keys of a sample that may be seen, of those that are here. */
static inline int64_t kernel_attention_keys(const struct kernel_attention *t, int64_t b) {
    if (!t->lengths)
        return t->kv_len;
    const int64_t n = (t->lengths[b] < 1 ? 1 : t->lengths[b]) - t->first_key;
    return n < 0 ? 0 : n < t->kv_len ? n : t->kv_len;
}
/* May some queries see none of the keys? */
static inline bool kernel_attention_blind(const struct kernel_attention *t) {
    if ((t->lengths && (t->first_key > 0 || t->window || t->starts)) ||
        (t->causal && t->first < 0))
        return true;
    for (int64_t b = 0; b < (t->starts ? t->batch : 1); b++)
        if (kernel_attention_from(t, b, t->first + t->q_len - 1) >= t->kv_len)
            return true;
    return false;
}

/* A block of a larger tensor: what a rank holds of it. */
enum { KERNEL_MAX_RANK = 8 };
struct kernel_box {
    int32_t rank;
    int64_t size[KERNEL_MAX_RANK];  /* of this block */
    int64_t first[KERNEL_MAX_RANK]; /* where it begins in the whole */
    int64_t whole[KERNEL_MAX_RANK]; /* sizes of the whole tensor */
};

/* Where replicas' gradients are not trusted (kernel_aggregate.c). */
enum kernel_aggregate { KERNEL_MEDIAN, KERNEL_TRIMMED, KERNEL_FAIR };
enum {
    KERNEL_MOST_ROWS = 1024,
    KERNEL_REWEIGHTINGS = 3, /* of rows, under KERNEL_FAIR */
    KERNEL_FAR = 3, /* a row is suspected that is so many times the median distance away */
};
/* Columns over which distances of so many rows are taken: together they stay in a core's cache. */
static inline int64_t kernel_aggregate_columns(int parts) {
    const int64_t elems = 1 << 17, most = 1 << 14, unit = 64;
    const int64_t columns = elems / parts / unit * unit;
    return columns > most ? most : columns;
}

/* y = x in 32 bits, and x rounded to nearest, ties to even, to f32, bf16 or f16. */
void kernel_widen(int64_t n, enum dtype from, const void *x, float *y);
void kernel_narrow(int64_t n, enum dtype to, const float *x, void *y);
/* Data as it is read, to what instructions take: see device_unpack. */
void kernel_unpack(int64_t n, enum dtype from, const void *x, enum dtype to, void *y);

/* dst = src, bytes that do not overlap. */
void kernel_move(int64_t bytes, const void *src, void *dst);
/* Strided block copy of elements of 2 or 4 bytes: dst[...] = src[...] over `size`, with strides in
 * elements for each dimension. The innermost strides are usually 1. */
void kernel_copy(int32_t rank, const int64_t *size, int64_t bytes, const void *src,
                 const int64_t *src_stride, void *dst, const int64_t *dst_stride);

/* Optimizers; g is multiplied by grad_scale (clipping) as it is read. t = step from 1.
 * AdamW (Loshchilov and Hutter 2019): p -= lr (mhat/(sqrt(vhat)+eps) + decay p).
 * SGD with momentum as PyTorch's: b = momentum b + (g + decay p); p -= lr b. */
struct kernel_adamw {
    float grad_scale, lr, beta1, beta2, eps, decay;
    int64_t t;
};
void kernel_adamw(const struct kernel_adamw *how, int64_t n, float *p, const float *g,
                  float *m, float *v);
void kernel_sgd(int64_t n, float *p, const float *g, float *b, float grad_scale, float lr,
                float momentum, float decay);
/* Lion (Chen et al., Symbolic Discovery of Optimization Algorithms, 2023): p -= lr (sign(beta1 m + (1 -
 * beta1) g) + decay p), then m = beta2 m + (1 - beta2) g. The sign of 0 is 0. eps and t do not count. */
void kernel_lion(const struct kernel_adamw *how, int64_t n, float *p, const float *g,
                 float *m);
/* Muon (Jordan et al., Muon: an optimizer for hidden layers in neural networks, 2024): first m = momentum m +
 * grad_scale g and u = grad_scale g + momentum m, which may be g. */
void kernel_momentum(int64_t n, float *u, const float *g, float *m, float grad_scale,
                     float momentum);
/* Then matrices are made orthogonal, about: outer x inner of them, elements [outer][rows][inner][columns] of u
 * and o, which may be u. Each is divided by its norm, and five steps of Newton and Schulz lead its
 * singular values to 0.68..1.14; o is that times 0.2 root of the longer side, so that a step is about as long as
 * one of adamw (Liu et al., Muon is scalable for LLM training, 2025). scratch: rows * columns + 2 times the
 * square of the shorter side. Products of floats; the bits depend on one matrix and the number of threads
 * alone. */
struct kernel_matrices {
    int64_t outer, rows, inner, columns;
};
void kernel_orthogonalize(const struct kernel_matrices *x, const float *u, float *o,
                          float *scratch);
/* p -= lr (o + decay p) */
void kernel_muon(int64_t n, float *p, const float *o, float lr, float decay);
/* Sum of squares in double, deterministic. */
double kernel_sum_squares(int64_t n, const float *x);

/* ---- one of each for every type of elements ------------------------------------------------- */

/* The upper half of a float; IEEE's binary16. */
typedef struct {
    uint16_t bits;
} bf16;
typedef struct {
    uint16_t bits;
} f16;

#include "device/kernel_names.h"

#define T           bf16
#define TYPED(name) name##_bf16
#include "device/kernel_typed.h"
#undef T
#undef TYPED
#define T           f16
#define TYPED(name) name##_f16
#include "device/kernel_typed.h"
#undef T
#undef TYPED
#define T           float
#define TYPED(name) name
#include "device/kernel_typed.h"
#undef T

#endif
