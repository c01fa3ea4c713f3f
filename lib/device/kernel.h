/* kernel.h - the arithmetic of every instruction on the CPU, in fp32.
 *
 * Kernels know shapes and pointers, nothing of models or plans. Tensors are dense row-major
 * blocks; `rows` is the product of all leading dimensions. Kernels allocate nothing: what
 * they need beyond their arguments is the per-thread scratch made once by kernel_init.
 * The same call with the same number of threads gives the same bits.
 *
 * Gradients of parameters are accumulated (`+=`); gradients of activations are written.
 */
#ifndef WEFT_KERNEL_H
#define WEFT_KERNEL_H

#include "program/halo.h"
#include "program/workspace.h"

#include "common/dtype.h"
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Sets the threads this process uses (its share of the cores) and makes the scratch.
 * The scratch is at most KERNEL_SCRATCH_BYTES per thread. Returns 0 or -1. */
enum { KERNEL_SCRATCH_BYTES = WORKSPACE_SCRATCH };
int kernel_init(int threads, struct err *err);
void kernel_release(void);
const char *kernel_gemm_library(void); /* "oneDNN 2.6.3", "OpenBLAS 0.3.21", "reference" */

/* C[m,n] = op(A) op(B) + beta C with row strides lda, ldb, ldc; op transposes when ta/tb. */
void kernel_gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a,
                 int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                 int64_t ldc);

/* y[m,n] = x[m,k] W + bias; W is [k,n], or [n,k] when wt; bias[n] may be NULL. */
void kernel_linear(int64_t m, int64_t n, int64_t k, const float *x, const float *w, bool wt,
                   const float *bias, float *y);
/* dx[m,k] = dy[m,n] W^T */
void kernel_linear_dx(int64_t m, int64_t n, int64_t k, const float *dy, const float *w,
                      bool wt, float *dx);
/* dW += x^T dy, in W's own layout; db[n] += column sums of dy unless NULL. */
void kernel_linear_dw(int64_t m, int64_t n, int64_t k, const float *x, const float *dy,
                      bool wt, float *dw, float *db);

/* out[i,:] = table[id[i] - first, :] where 0 <= id - first < vocab, else zeros. */
void kernel_embedding(int64_t rows, int64_t vocab, int64_t n, const int32_t *id,
                      int64_t first, const float *table, float *out);
/* dtable[id[i] - first, :] += dout[i,:]; deterministic for repeated ids. */
void kernel_embedding_dw(int64_t rows, int64_t vocab, int64_t n, const int32_t *id,
                         int64_t first, const float *dout, float *dtable);

/* y[o,i] = x[o,i] + p[i] (p broadcast over the outer dimension); y may be x. */
void kernel_add_param(int64_t outer, int64_t inner, const float *x, const float *p,
                      float *y);
/* dp[i] += sum over o of dy[o,i] */
void kernel_add_param_dw(int64_t outer, int64_t inner, const float *dy, float *dp);

/* y = a + b, elementwise; y may be a or b. y = value. */
void kernel_add(int64_t n, const float *a, const float *b, float *y);
void kernel_fill(int64_t n, float value, float *y);
/* y = alpha x; y may be x. */
void kernel_scale(int64_t n, float alpha, const float *x, float *y);

/* Activations. gelu is the tanh form of GPT-2. y may be x; dx may be dy. */
enum kernel_act { KERNEL_GELU, KERNEL_RELU, KERNEL_SILU, KERNEL_TANH };
void kernel_act(enum kernel_act act, int64_t n, const float *x, float *y);
void kernel_act_dx(enum kernel_act act, int64_t n, const float *x, const float *dy,
                   float *dx);

/* y = x sigmoid(x) z (Shazeer, GLU variants, 2020); y may be x or z. Backward dx may be dy. */
void kernel_swiglu(int64_t n, const float *x, const float *z, float *y);
void kernel_swiglu_bwd(int64_t n, const float *x, const float *z, const float *dy,
                       float *dx, float *dz);

/* Layer norm over the last dimension. stat[rows,2] = (mean, 1/std), kept for backward.
 * Split over `parts` ranks, n columns local, total = parts * n:
 * 1. moments: part[rows,2] = (local mean, local sum of squared deviations)
 * 2. all-gather of part -> moments[parts, rows, 2]
 * 3. the norm itself, which combines them (Chan, Golub, LeVeque 1979).
 * moments is NULL where rows are whole (parts = 1). */
void kernel_layernorm_moments(int64_t rows, int64_t n, const float *x, float *part);
void kernel_layernorm(int64_t rows, int64_t n, int64_t parts, const float *moments,
                      const float *x, const float *gamma, const float *beta, float eps,
                      float *y, float *stat);
/* Backward, split: sums[rows,2] = local (sum dy*gamma, sum dy*gamma*xhat), then an all-reduce, then
 * the gradients. Whole: sums is NULL, total = n. dx may be dy; dgamma +=, dbeta +=. */
void kernel_layernorm_bwd_sums(int64_t rows, int64_t n, const float *x, const float *gamma,
                               const float *stat, const float *dy, float *sums);
void kernel_layernorm_bwd(int64_t rows, int64_t n, int64_t total, const float *sums,
                          const float *x, const float *gamma, const float *stat,
                          const float *dy, float *dx, float *dgamma, float *dbeta);

/* Convolution of x[batch, ih, iw, cin] with w[kh, kw, cin, cout]: y[batch, oh, ow, cout],
 * with oh = (ih + 2 ph - kh) / stride + 1 rounded down, ow alike. dx is written, dw += . */
struct kernel_conv {
    int64_t batch, ih, iw, cin, oh, ow, cout, kh, kw, stride, ph, pw;
};
void kernel_conv(const struct kernel_conv *s, const float *x, const float *w, float *y);
void kernel_conv_dx(const struct kernel_conv *s, const float *dy, const float *w,
                    float *dx);
void kernel_conv_dw(const struct kernel_conv *s, const float *x, const float *dy,
                    float *dw);
/* Bytes of workspace that its three passes take at most (one at a time). */
int64_t kernel_conv_bytes(const struct kernel_conv *s);

/* y[batch, oh, ow, c] = the largest number of each window of x[batch, ih, iw, c];
 * backward the first that is as large gets dy. */
struct kernel_pool {
    int64_t batch, ih, iw, c, oh, ow, kernel, stride, ph, pw;
};
void kernel_maxpool(const struct kernel_pool *p, const float *x, float *y);
void kernel_maxpool_dx(const struct kernel_pool *p, const float *x, const float *dy,
                       float *dx);
/* y[batch, c] = scale times the sum over places of x[batch, places, c]. */
void kernel_avgpool(int64_t batch, int64_t places, int64_t c, float scale, const float *x,
                    float *y);
void kernel_avgpool_dx(int64_t batch, int64_t places, int64_t c, float scale,
                       const float *dy, float *dx);

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
void kernel_halo_pack(const struct kernel_halo *h, int64_t rows, const float *x, float *s);
void kernel_halo_join(const struct kernel_halo *h, int64_t rows, int64_t window,
                      const float *x, const float *r, float *y);
void kernel_halo_add(const struct kernel_halo *h, int64_t rows, int64_t window,
                     const float *d, const float *r, float *dx);

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
};
void kernel_batchnorm_moments(const struct kernel_batchnorm *t, const float *x, float *sums,
                              float *squares);
void kernel_batchnorm_center(const struct kernel_batchnorm *t, int64_t total,
                             const float *sums, const float *all, const float *squares,
                             float *centered);
void kernel_batchnorm_stat(int64_t c, int64_t groups, int64_t total, const float *sums,
                           const float *squares, float *stat);
void kernel_batchnorm(const struct kernel_batchnorm *t, const float *x, const float *gamma,
                      const float *beta, const float *stat, float eps, float *y);
void kernel_batchnorm_bwd_sums(const struct kernel_batchnorm *t, const float *x,
                               const float *stat, float eps, const float *dy, float *sums,
                               float *dgamma, float *dbeta);
void kernel_batchnorm_bwd(const struct kernel_batchnorm *t, int64_t total, const float *x,
                          const float *gamma, const float *stat, float eps, const float *dy,
                          const float *sums, float *dx);
/* Adds scale times the sum over groups of mean and variance; p += momentum (s - p). */
void kernel_batchnorm_running(int64_t c, int64_t groups, int64_t total, float scale,
                              const float *stat, float *dmean, float *dvariance);
void kernel_running(int64_t n, float momentum, const float *s, float *p);

/* Fused attention, never storing seq x seq (Dao et al., FlashAttention, 2022).
 * Element (b, s, h, e) of q, k, v, o stands at b*batch_stride + s*seq_stride + h*dim + e, each
 * with its own strides, so that q, k, v may be slices of one [b,s,3,h,dim] tensor. Query head h
 * reads key head (first_head + h) / group (Ainslie et al., grouped-query attention, 2023).
 * Queries and keys may be parts of longer sequences: the first query stands at position `first`,
 * counted from the first key. lse[batch, heads, q_len] is kept for backward. dim is at most 1024.
 *
 * Keys may come block by block (Liu et al., Ring Attention, 2023). With `more`, o and lse hold the
 * result over other keys and become that over these too; a query that has seen none yet has o = 0
 * and lse = -infinity. Backward takes the last o and lse; with `more` dq is added to. dk and dv are
 * those of the block. */
struct kernel_attention {
    int64_t batch, heads, q_len, kv_len, dim;
    int64_t kv_heads, group, first_head;
    int64_t q_batch, q_seq;   /* strides of q and dq, in floats */
    int64_t kv_batch, kv_seq; /* strides of k, v and dk, dv */
    int64_t o_batch, o_seq;   /* strides of o and do */
    int64_t first;            /* position of the first query; may be before the keys */
    int64_t first_key;        /* keys of the sequence before those that are here */
    bool more;                /* o and lse, or dq, are of other keys already */
    bool causal;              /* position i sees 0..i */
    float scale;              /* of the scores */
    const int32_t
        *lengths; /* [batch]: keys of a sample that are seen, at least 1; or NULL: all */
    const float *positions; /* [buckets, heads]: added to scores by distance; or NULL */
    int64_t buckets;
    int distance; /* from 1; positions farther apart count as this far apart */
};
/* Keys of a sample that may be seen, of those that are here. */
static inline int64_t kernel_attention_keys(const struct kernel_attention *t, int64_t b) {
    if (!t->lengths)
        return t->kv_len;
    const int64_t n = (t->lengths[b] < 1 ? 1 : t->lengths[b]) - t->first_key;
    return n < 0 ? 0 : n < t->kv_len ? n : t->kv_len;
}
/* May some queries see none of the keys? */
static inline bool kernel_attention_blind(const struct kernel_attention *t) {
    return (t->lengths && t->first_key > 0) || (t->causal && t->first < 0);
}
void kernel_attention(const struct kernel_attention *t, const float *q, const float *k,
                      const float *v, float *o, float *lse);
/* dpositions += where there are positions. */
void kernel_attention_bwd(const struct kernel_attention *t, const float *q, const float *k,
                          const float *v, const float *o, const float *lse,
                          const float *dout, float *dq, float *dk, float *dv,
                          float *dpositions);

/* Rotary positions (Su et al., RoFormer, 2021): in every x[b, s, h, :] the pair (i, i + dim/2) turns
 * by the angle (origin + s) base^(-2i/dim), or back by it. y may be x; dim is even and at most
 * 1024. */
void kernel_rotary(int64_t batch, int64_t seq, int64_t heads, int64_t dim, int64_t origin,
                   float base, bool back, const float *x, float *y);

/* Cross-entropy of logits[rows, n] against target[rows]; this rank holds the vocabulary
 * first..first+n-1. Targets below 0, and those that are `ignore`, do not count. lse[rows] is kept.
 * Returns the sum of losses over the rows that count. */
double kernel_cross_entropy(int64_t rows, int64_t n, const float *logits,
                            const int32_t *target, int32_t ignore, float *lse);
/* Vocabulary split over ranks: part[rows,3] = (max, sum exp(x - max), target logit or 0);
 * all-gather -> parts[parts, rows, 3]; finish writes lse and returns the sum of losses. */
void kernel_cross_entropy_part(int64_t rows, int64_t n, int64_t first, const float *logits,
                               const int32_t *target, int32_t ignore, float *part);
double kernel_cross_entropy_finish(int64_t rows, int64_t parts, const float *part,
                                   float *lse);
/* dlogits = (exp(logits - lse) - onehot(target)) * scale, 0 in rows that do not count; dlogits may
 * be logits. */
void kernel_cross_entropy_dx(int64_t rows, int64_t n, int64_t first, const float *logits,
                             const int32_t *target, int32_t ignore, const float *lse,
                             float scale, float *dlogits);

/* A block of a larger tensor: what a rank holds of it. */
enum { KERNEL_MAX_RANK = 8 };
struct kernel_box {
    int32_t rank;
    int64_t size[KERNEL_MAX_RANK];  /* of this block */
    int64_t first[KERNEL_MAX_RANK]; /* where it begins in the whole */
    int64_t whole[KERNEL_MAX_RANK]; /* sizes of the whole tensor */
};
/* y = x kept with probability 1 - p and scaled by 1/(1-p); the draw for an element depends on
 * (seed, stream, its index in the whole tensor) alone (common/rng.h). y may be x. Backward is
 * the same call on the gradient. */
void kernel_dropout(const struct kernel_box *box, float p, uint64_t seed, uint64_t stream,
                    const float *x, float *y);
/* Initial parameter: y = std * normal(seed, stream, index in the whole tensor). */
void kernel_normal(const struct kernel_box *box, float std, uint64_t seed, uint64_t stream,
                   float *y);

/* y = x in 32 bits, and x rounded to nearest, ties to even, to f32, bf16 or f16. */
void kernel_widen(int64_t n, enum dtype from, const void *x, float *y);
void kernel_narrow(int64_t n, enum dtype to, const float *x, void *y);

/* dst = src, bytes that do not overlap. */
void kernel_move(int64_t bytes, const void *src, void *dst);
/* Strided block copy of elements of 2 or 4 bytes: dst[...] = src[...] over `size`, with strides in
 * elements for each dimension. The innermost strides are usually 1. */
void kernel_copy(int32_t rank, const int64_t *size, int64_t bytes, const void *src,
                 const int64_t *src_stride, void *dst, const int64_t *dst_stride);

/* Optimizers; g is multiplied by grad_scale (clipping) as it is read. t = step from 1.
 * AdamW (Loshchilov and Hutter 2019): p -= lr (mhat/(sqrt(vhat)+eps) + decay p).
 * SGD with momentum as PyTorch's: b = momentum b + (g + decay p); p -= lr b. */
void kernel_adamw(int64_t n, float *p, const float *g, float *m, float *v, float grad_scale,
                  float lr, float beta1, float beta2, float eps, float decay, int64_t t);
void kernel_sgd(int64_t n, float *p, const float *g, float *b, float grad_scale, float lr,
                float momentum, float decay);
/* Sum of squares in double, deterministic. */
double kernel_sum_squares(int64_t n, const float *x);

#endif
