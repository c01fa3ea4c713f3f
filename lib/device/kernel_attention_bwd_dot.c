/* Attention backward in bf16, where the machine multiplies pairs of bf16 (kernel_dot.h).
 *
 * The formulas of kernel_attention_bwd.c with keys as rows, so that all but one of the factors lie
 * as the products read them; for a block of queries (outer loop) and a block of keys:
 *
 *     P^T  = exp(scale K Q^T - lse)        dV   += P^T dO
 *     dS^T = P^T (V dO^T - D)              dK   += scale dS^T Q
 *     D    = rowsum(dO O)                  dQ^T += scale K^T dS^T
 *
 * P and dS are rounded to bf16, all sums are floats: those of dK and dV stand in scratch for all keys
 * of a head, which with its packed keys and values must fit there. One task is a head of keys with
 * the query heads that read it; with relative positions, whose gradient sums over the batch, of all
 * samples.
 */
#include "kernel_dot.h"
#include "kernel_impl.h"
#include "kernel_position.h"
#include "kernel_vec.h"

enum { Q_BLOCK = 64, K_BLOCK = 128 };

#define LOG2_E 1.4426950408889634f

/* One head of queries of a sample, or of keys. */
struct queries {
    const bf16 *q, *o, *dout;
    const float *lse;
    bf16 *dq;
    float *dpositions; /* of all heads, or NULL */
};
struct keys {
    const bf16 *k, *v;
    bf16 *dk, *dv;
};

/* The scratch of one task. */
struct task {
    const struct kernel_attention *t;
    int64_t dim, pad, keys; /* of a head, and rounded up; keys that are seen, rounded up */
    bf16 *k, *v;            /* [keys, pad] */
    bf16 *kt;               /* [pad, keys] keys, turned */
    float *dk, *dv;         /* [keys, pad] */
    bf16 *rows;             /* [K_BLOCK, pad] on the way to others */
    uint32_t *q, *dout;     /* [Q_BLOCK / 2, pad] in pairs of queries */
    uint32_t *qt, *dout_t;  /* [pad / 2, Q_BLOCK] turned */
    float *dqt;             /* [pad, Q_BLOCK] */
    float *s, *dp;      /* [K_BLOCK, Q_BLOCK] products of keys and queries, values and dO */
    bf16 *p, *ds;       /* [K_BLOCK, Q_BLOCK] what becomes of them */
    uint32_t *ds_pairs; /* [K_BLOCK / 2, Q_BLOCK] in pairs of keys */
    float *lse, *row_sum;              /* [Q_BLOCK], lse in units of log 2 */
    const struct positions *positions; /* or NULL */
    float *near, *dnear;         /* what the head adds at each distance, and its gradient */
    float *diagonal, *ddiagonal; /* the same for a block: [K_BLOCK + Q_BLOCK + 16] */
};

static void *carve(char **at, int64_t bytes) {
    void *p = *at;
    *at += (bytes + 63) & ~(int64_t)63;
    return p;
}

/* Returns the bytes it takes. */
static int64_t make_task(struct task *w, const struct kernel_attention *t,
                         const struct positions *p, float *scratch) {
    char *at = (char *)scratch;
    const int64_t pad = kernel_dot_pad(t->dim), keys = kernel_dot_pad(t->kv_len);
    *w = (struct task){.t = t, .dim = t->dim, .pad = pad, .keys = keys, .positions = p};
    w->k = carve(&at, keys * pad * 2);
    w->v = carve(&at, keys * pad * 2);
    w->kt = carve(&at, keys * pad * 2);
    w->dk = carve(&at, keys * pad * 4);
    w->dv = carve(&at, keys * pad * 4);
    w->rows = carve(&at, K_BLOCK * pad * 2);
    w->q = carve(&at, Q_BLOCK / 2 * pad * 4);
    w->dout = carve(&at, Q_BLOCK / 2 * pad * 4);
    w->qt = carve(&at, Q_BLOCK * pad / 2 * 4);
    w->dout_t = carve(&at, Q_BLOCK * pad / 2 * 4);
    w->dqt = carve(&at, Q_BLOCK * pad * 4);
    w->s = carve(&at, K_BLOCK * Q_BLOCK * 4);
    w->dp = carve(&at, K_BLOCK * Q_BLOCK * 4);
    w->p = carve(&at, K_BLOCK * Q_BLOCK * 2);
    w->ds = carve(&at, K_BLOCK * Q_BLOCK * 2);
    w->ds_pairs = carve(&at, K_BLOCK / 2 * Q_BLOCK * 4);
    w->lse = carve(&at, Q_BLOCK * 4);
    w->row_sum = carve(&at, Q_BLOCK * 4);
    w->near = carve(&at, POSITION_NEAR * 4);
    w->dnear = carve(&at, POSITION_NEAR * 4);
    w->diagonal = carve(&at, (K_BLOCK + Q_BLOCK + VL) * 4);
    w->ddiagonal = carve(&at, (K_BLOCK + Q_BLOCK + VL) * 4);
    return at - (char *)scratch;
}

/* ---- packing ----------------------------------------------------------------------------- */

/* Words of two elements of a column, turned, become two rows. */
static void pack_turned(const struct task *w, int64_t first, int64_t n) {
    uint32_t *words = w->ds_pairs; /* [16, n] at a time */
    for (int64_t e = 0; e < w->pad; e += 2 * VL) {
        for (int64_t i = 0; i < n; i++)
            memcpy(w->rows + i * 2 * VL, w->k + (first + i) * w->pad + e,
                   2 * VL * sizeof *w->rows);
        kernel_dot_turn(n, 2 * VL, w->rows, words, n);
        for (int64_t r = 0; r < VL; r++)
            for (int64_t i = 0; i < n; i += VL) {
                vu pair;
                memcpy(&pair, words + r * n + i, sizeof pair);
                bf16 *to = w->kt + (e + 2 * r) * w->keys + first + i;
                half_store(to, __builtin_convertvector(pair & 0xffffu, vh));
                half_store(to + w->keys, __builtin_convertvector(pair >> 16, vh));
            }
    }
}

static void pack_keys(const struct task *w, const struct keys *h, int64_t seen) {
    const int64_t stride = w->t->kv_seq;
    kernel_dot_rows(seen, w->dim, h->k, stride, w->k);
    kernel_dot_rows(seen, w->dim, h->v, stride, w->v);
    for (int64_t i = 0; i < kernel_dot_pad(seen); i += K_BLOCK) {
        const int64_t left = kernel_dot_pad(seen) - i;
        pack_turned(w, i, left < K_BLOCK ? left : K_BLOCK);
    }
    memset(w->dk, 0, (size_t)(w->keys * w->pad) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(w->keys * w->pad) * sizeof *w->dv);
}

static void pack_queries(const struct task *w, const struct queries *h, int64_t q0,
                         int64_t rows) {
    const struct kernel_attention *t = w->t;
    const int64_t all = kernel_dot_pad(rows);
    kernel_dot_rows(rows, w->dim, h->q + q0 * t->q_seq, t->q_seq, w->rows);
    kernel_dot_pairs(all, w->pad, w->rows, w->q);
    kernel_dot_turn(all, w->pad, w->rows, w->qt, Q_BLOCK);
    kernel_dot_rows(rows, w->dim, h->dout + q0 * t->o_seq, t->o_seq, w->rows);
    kernel_dot_pairs(all, w->pad, w->rows, w->dout);
    kernel_dot_turn(all, w->pad, w->rows, w->dout_t, Q_BLOCK);
    for (int64_t r = rows; r < all; r++) { /* probabilities of no query are nearly 0 */
        w->lse[r] = INFINITY;
        w->row_sum[r] = 0;
    }
    for (int64_t r = 0; r < rows; r++) {
        const bf16 *o = h->o + (q0 + r) * t->o_seq;
        vf sum = v_set(0);
        for (int64_t e = 0; e < w->dim; e += VL)
            sum = v_fma(v_load_n(o + e, w->dim - e < VL ? w->dim - e : VL),
                        v_load(w->rows + r * w->pad + e), sum);
        w->row_sum[r] = v_sum(sum);
        w->lse[r] = h->lse[q0 + r] * LOG2_E;
    }
}

/* ---- a block of keys and a block of queries ---------------------------------------------- */

/* P^T and dS^T of 16 queries and one key, which queries from lane `from` on see. diagonal: where what is
 * added to their scores stands among those of the block. */
VEC void slope(const struct task *w, int64_t at, int64_t c, int64_t from, int64_t diagonal,
               vf *p, vf *ds) {
    const vi lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vf shift = w->positions ? v_load(w->diagonal + diagonal) - v_load(w->lse + c)
                                  : -v_load(w->lse + c);
    const vf x = v_exp2_low(v_fma(v_load(w->s + at), v_set(w->t->scale * LOG2_E), shift));
    const vi sees = (vi)(lane >= (int32_t)from);
    *p = (vf)((vi)x & sees);
    *ds = *p * (v_load(w->dp + at) - v_load(w->row_sum + c));
    if (w->positions)
        v_store(w->ddiagonal + diagonal, v_load(w->ddiagonal + diagonal) + *ds);
}

/* The rows of two of n keys, the first seen by queries from `from` on, the second by those from
 * `next`. */
VEC void slopes(const struct task *w, int64_t key, int64_t n, int64_t queries, int64_t from,
                int64_t next) {
    for (int64_t c = 0; c < queries; c += VL) {
        const int64_t at = key * Q_BLOCK + c;
        vf p, q, ds, dt;
        slope(w, at, c, from - c, n - 1 - key + c, &p, &ds);
        slope(w, at + Q_BLOCK, c, next - c, n - 2 - key + c, &q, &dt);
        const vh low = narrow_bf16(ds), high = narrow_bf16(dt);
        const vu pair = __builtin_convertvector(low, vu) | __builtin_convertvector(high, vu)
                                                               << 16;
        v_store(w->p + at, p);
        v_store(w->p + at + Q_BLOCK, q);
        half_store(w->ds + at, low);
        half_store(w->ds + at + Q_BLOCK, high);
        memcpy(w->ds_pairs + key / 2 * Q_BLOCK + c, &pair, sizeof pair);
    }
}

/* Queries at positions from q0 on, keys k0..k0+n-1, of which `seen` are seen at all. */
static void block_pair(const struct task *w, int64_t q0, int64_t queries, int64_t k0,
                       int64_t n, int64_t seen) {
    const int64_t pad = w->pad;
    float *dv = w->dv + k0 * pad, *dk = w->dk + k0 * pad;
    kernel_dot(&(struct dot_product){n, queries, pad, w->k + k0 * pad, pad, w->qt, Q_BLOCK,
                                     w->s, Q_BLOCK, false});
    kernel_dot(&(struct dot_product){n, queries, pad, w->v + k0 * pad, pad, w->dout_t,
                                     Q_BLOCK, w->dp, Q_BLOCK, false});
    const int64_t farthest = k0 + n - 1 - q0, distances = n + queries - 1;
    if (w->positions) {
        position_diagonal(w->positions, w->near, farthest, -1, distances, w->diagonal);
        memset(w->ddiagonal, 0, (size_t)(distances + VL) * sizeof *w->ddiagonal);
    }
    for (int64_t key = 0; key < n; key += 2) {
        int64_t from = w->t->causal && k0 + key > q0 ? k0 + key - q0 : 0;
        int64_t next = w->t->causal && k0 + key + 1 > q0 ? k0 + key + 1 - q0 : 0;
        slopes(w, key, n, queries, k0 + key < seen ? from : queries,
               k0 + key + 1 < seen ? next : queries);
    }
    if (w->positions)
        position_collect(w->positions, w->ddiagonal, farthest, -1, distances, w->dnear);
    kernel_dot(
        &(struct dot_product){n, pad, queries, w->p, Q_BLOCK, w->dout, pad, dv, pad, true});
    kernel_dot(
        &(struct dot_product){n, pad, queries, w->ds, Q_BLOCK, w->q, pad, dk, pad, true});
    kernel_dot(&(struct dot_product){pad, queries, n, w->kt + k0, w->keys, w->ds_pairs,
                                     Q_BLOCK, w->dqt, Q_BLOCK, true});
}

/* dq = scale dQ, from its transpose. */
static void write_queries(const struct task *w, int64_t rows, bf16 *dq) {
    for (int64_t i = 0; i < rows; i += VL)
        for (int64_t e = 0; e < w->dim; e += VL) {
            vf r[VL];
#pragma GCC unroll 16
            for (int k = 0; k < VL; k++)
                r[k] = v_load(w->dqt + (e + k) * Q_BLOCK + i) * w->t->scale;
            transpose16(r);
            for (int64_t k = 0; k < VL && i + k < rows; k++)
                v_store_n(dq + (i + k) * w->t->q_seq + e, w->dim - e < VL ? w->dim - e : VL,
                          r[k]);
        }
}

static void head_of_queries(const struct task *w, const struct queries *h, int64_t head,
                            int64_t seen) {
    const struct kernel_attention *t = w->t;
    if (w->positions) {
        position_near(w->positions, DTYPE_bf16, t->positions, head, LOG2_E, w->near);
        memset(w->dnear, 0, POSITION_NEAR * sizeof *w->dnear);
    }
    for (int64_t i = 0; i < t->q_len; i += Q_BLOCK) {
        const int64_t rows = t->q_len - i < Q_BLOCK ? t->q_len - i : Q_BLOCK;
        const int64_t end = t->first + i + rows,
                      last = t->causal && end < seen ? end : seen;
        const int64_t all = kernel_dot_pad(last);
        pack_queries(w, h, i, rows);
        memset(w->dqt, 0, (size_t)(w->pad * Q_BLOCK) * sizeof *w->dqt);
        for (int64_t k = 0; k < all; k += K_BLOCK)
            block_pair(w, t->first + i, kernel_dot_pad(rows), k,
                       all - k < K_BLOCK ? all - k : K_BLOCK, seen);
        write_queries(w, rows, h->dq + i * t->q_seq);
    }
    if (w->positions)
        position_gather(w->positions, w->dnear, head, h->dpositions);
}

static void write_keys(const struct task *w, float scale, const float *sums, bf16 *to) {
    for (int64_t i = 0; i < w->t->kv_len; i++)
        for (int64_t e = 0; e < w->dim; e += VL)
            v_store_n(to + i * w->t->kv_seq + e, w->dim - e < VL ? w->dim - e : VL,
                      v_load(sums + i * w->pad + e) * scale);
}

/* A head of keys of a sample, with the heads of queries that read it: none, where the rank has
 * others. Keys that no query sees have gradients too: zeros. */
static void head_of_keys(const struct task *w, const struct queries *q,
                         const struct keys *k, int64_t b, int64_t kv_head) {
    const struct kernel_attention *t = w->t;
    const int64_t seen = kernel_attention_keys(t, b), group = kv_head * t->group;
    const int64_t kv_at = b * t->kv_batch + kv_head * t->dim;
    const struct keys own = {k->k + kv_at, k->v + kv_at, k->dk + kv_at, k->dv + kv_at};
    pack_keys(w, &own, seen);
    for (int64_t g = group; g < group + t->group; g++) {
        const int64_t head = g - t->first_head;
        if (head < 0 || head >= t->heads)
            continue;
        const int64_t q_at = b * t->q_batch + head * t->dim;
        const int64_t o_at = b * t->o_batch + head * t->dim;
        head_of_queries(w,
                        &(struct queries){q->q + q_at, q->o + o_at, q->dout + o_at,
                                          q->lse + (b * t->heads + head) * t->q_len,
                                          q->dq + q_at, q->dpositions},
                        head, seen);
    }
    write_keys(w, t->scale, w->dk, own.dk);
    write_keys(w, 1, w->dv, own.dv);
}

/* Unit `i`: a head of keys of a sample, or of all samples. */
static void do_unit(const struct kernel_attention *t, const struct positions *p,
                    const struct queries *q, const struct keys *k, int64_t i, int thread) {
    struct task w;
    make_task(&w, t, p, kernel_scratch(thread));
    kernel_dot_open();
    if (p)
        for (int64_t b = 0; b < t->batch; b++)
            head_of_keys(&w, q, k, b, i);
    else
        head_of_keys(&w, q, k, i / t->kv_heads, i % t->kv_heads);
    kernel_dot_close();
}

bool kernel_attention_bwd_dot(const struct kernel_attention *t,
                              const struct kernel_attention_bwd *of) {
    const int64_t units = t->positions ? t->kv_heads : t->batch * t->kv_heads;
    const int share = kernel_share(t->batch * t->heads * t->q_len * t->kv_len);
    struct positions positions, *p = t->positions ? &positions : NULL;
    struct task w;
    if (!kernel_dot_known() || t->more || (!p && units < share) ||
        make_task(&w, t, p, kernel_scratch(0)) > KERNEL_SCRATCH_BYTES)
        return false;
    if (p)
        position_init(p, t);
    const struct queries all = {of->q, of->o, of->dout, of->lse, of->dq, of->dpositions};
    const struct keys keys = {of->k, of->v, of->dk, of->dv};
    KERNEL_TASKS(units, share, do_unit(t, p, &all, &keys, task, thread));
    return true;
}
