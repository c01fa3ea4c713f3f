/* Attention forward in bf16, where the machine multiplies pairs of bf16 (kernel_dot.h).
 *
 * As kernel_attention.c, in blocks instead of tiles: scores of a block of queries and a block of
 * keys, running maximum, exponentials, which are rounded to bf16, and their product with the
 * values, summed in floats. Scores are kept in units of log 2.
 */
#include "kernel_dot.h"
#include "kernel_impl.h"
#include "kernel_position.h"
#include "kernel_vec.h"

#include <assert.h>

enum {
    Q_BLOCK = 64,         /* queries at a time */
    K_BLOCK = 256,        /* keys at a time */
    TASK_QUERIES = 2048,  /* most queries of a task: bounds the state kept per query */
    PACK_WORDS = 1 << 18, /* of packed keys: 1 MiB, and as much of values */
    MOST_DIM = 512
};

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

/* The scratch of one task. */
struct task {
    const struct kernel_attention *t;
    const struct positions *positions; /* or NULL */
    int64_t dim, pad;                  /* of a head; rounded up */
    int64_t keys_most;                 /* packed at a time */
    uint32_t *kt;                      /* [pad / 2, keys_most] keys, turned */
    uint32_t *v;                       /* [keys_most / 2, pad] values, in pairs of keys */
    bf16 *rows;                        /* [K_BLOCK, pad] on the way there */
    bf16 *q;                           /* [Q_BLOCK, pad] */
    bf16 *p;                           /* [Q_BLOCK, K_BLOCK] probabilities */
    float *s;                          /* [Q_BLOCK, K_BLOCK] scores */
    float *o;                          /* [Q_BLOCK, pad], not yet divided by the sum */
    float *max;                        /* [TASK_QUERIES] of the scores so far */
    float *sum;      /* [TASK_QUERIES, 16] of exp2(score - max), lane by lane */
    float *near;     /* what the head adds at each distance */
    float *diagonal; /* the same for a block: [Q_BLOCK + K_BLOCK + 16] */
};

static void *carve(char **at, int64_t bytes) {
    void *p = *at;
    *at += (bytes + 63) & ~(int64_t)63;
    return p;
}

static struct task make_task(const struct kernel_attention *t, const struct positions *p,
                             float *scratch) {
    char *at = (char *)scratch;
    struct task w = {.t = t, .positions = p, .dim = t->dim, .pad = kernel_dot_pad(t->dim)};
    w.keys_most = 2 * PACK_WORDS / w.pad / K_BLOCK * K_BLOCK;
    w.kt = carve(&at, w.pad / 2 * w.keys_most * 4);
    w.v = carve(&at, w.pad / 2 * w.keys_most * 4);
    w.rows = carve(&at, K_BLOCK * w.pad * 2);
    w.q = carve(&at, Q_BLOCK * w.pad * 2);
    w.p = carve(&at, Q_BLOCK * K_BLOCK * 2);
    w.s = carve(&at, Q_BLOCK * K_BLOCK * 4);
    w.o = carve(&at, Q_BLOCK * w.pad * 4);
    w.max = carve(&at, TASK_QUERIES * 4);
    w.sum = carve(&at, TASK_QUERIES * VL * 4);
    w.near = carve(&at, POSITION_NEAR * 4);
    w.diagonal = carve(&at, (Q_BLOCK + K_BLOCK + VL) * 4);
    assert(at - (char *)scratch <= KERNEL_SCRATCH_BYTES);
    return w;
}

/* What is kept of a query: the largest score so far, sums lane by lane, and its part of the output. */
struct so_far {
    float *max, *sum, *o;
    int64_t pad; /* of o */
};

/* Turns a row of products into probabilities relative to the row's maximum, rescaling what has been
 * summed when that grows; those from `seen` on are zero. */
VEC void softmax_row(const float *s, bf16 *p, float factor, int64_t seen, int64_t wide,
                     const struct so_far *of) {
    const vf unit = v_set(factor);
    vf top = v_set(-INFINITY);
    int64_t j = 0;
    for (; j + VL <= seen; j += VL)
        top = v_max(top, v_load(s + j) * unit);
    if (j < seen)
        top = v_max(top, v_keep_or(v_load(s + j) * unit, seen - j, -INFINITY));
    vf total = v_load(of->sum);
    const float old_max = *of->max, new_max = v_top(top);
    if (new_max > old_max && old_max > -INFINITY) {
        const vf fade = v_exp2_low(v_set(old_max - new_max));
        total *= fade;
        for (int64_t e = 0; e < of->pad; e += VL)
            v_store(of->o + e, v_load(of->o + e) * fade);
    }
    *of->max = new_max > old_max ? new_max : old_max;
    const vf shift = v_set(-*of->max);
    for (j = 0; j + VL <= seen; j += VL) {
        vf x = v_exp2_low(v_fma(v_load(s + j), unit, shift));
        total += x;
        v_store(p + j, x);
    }
    for (; j < wide; j += VL) {
        int64_t lanes = seen - j > 0 ? seen - j : 0;
        vf x = v_keep_or(v_exp2_low(v_fma(v_load(s + j), unit, shift)), lanes, 0);
        total += x;
        v_store(p + j, x);
    }
    v_store(of->sum, total);
}

/* The products of a row as scores, with what lies on the row's diagonals. */
VEC void add_positions(float *s, float factor, const float *diagonal, int64_t seen) {
    for (int64_t j = 0; j < seen; j += VL)
        v_store(s + j, v_fma(v_load(s + j), v_set(factor), v_load(diagonal + j)));
}

/* The block of queries at positions q0..q1-1 against the packed keys k0..k1-1. */
static void forward_block(const struct task *w, int64_t q0, int64_t q1, int64_t k0,
                          int64_t k1, float *max, float *sum) {
    const int64_t rows = q1 - q0, all = kernel_dot_pad(rows), pad = w->pad;
    const bool causal = w->t->causal;
    const float factor = w->t->scale * LOG2_E;
    for (int64_t k = k0; k < k1; k += K_BLOCK) {
        const int64_t last = causal && q1 < k1 ? q1 : k1;
        const int64_t keys = last - k < K_BLOCK ? last - k : K_BLOCK;
        const int64_t wide = kernel_dot_pad(keys);
        if (keys <= 0)
            return;
        kernel_dot(&(struct dot_product){all, wide, pad, w->q, pad, w->kt + (k - k0),
                                         w->keys_most, w->s, K_BLOCK, false});
        if (w->positions)
            position_diagonal(w->positions, w->near, k - (q1 - 1), 1, keys + rows - 1,
                              w->diagonal);
        for (int64_t r = 0; r < rows; r++) {
            const int64_t own = causal && q0 + r + 1 - k < keys ? q0 + r + 1 - k : keys;
            float *s = w->s + r * K_BLOCK;
            if (w->positions)
                add_positions(s, factor, w->diagonal + rows - 1 - r, own);
            softmax_row(s, w->p + r * K_BLOCK, w->positions ? 1 : factor, own > 0 ? own : 0,
                        wide, &(struct so_far){max + r, sum + r * VL, w->o + r * pad, pad});
        }
        kernel_dot(&(struct dot_product){all, pad, wide, w->p, K_BLOCK,
                                         w->v + (k - k0) / 2 * pad, pad, w->o, pad, true});
    }
}

/* Divides by the sums and keeps log(sum(exp(scores))). */
static void finish_block(const struct task *w, int64_t rows, const float *max,
                         const float *sum, float *lse) {
    for (int64_t r = 0; r < rows; r++) {
        const float total = v_sum(v_load(sum + r * VL));
        const float inverse = 1.0f / total;
        for (int64_t e = 0; e < w->pad; e += VL)
            v_store(w->o + r * w->pad + e, v_load(w->o + r * w->pad + e) * inverse);
        lse[r] = LN_2 * (max[r] + log2f(total));
    }
}

/* A block of the output: from the tensor and back. */
static void load_block(const struct task *w, int64_t rows, const bf16 *o) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = 0; e < w->dim; e += VL)
            v_store(w->o + r * w->pad + e,
                    v_load_n(o + r * w->t->o_seq + e, w->dim - e < VL ? w->dim - e : VL));
}

static void store_block(const struct task *w, int64_t rows, bf16 *o) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = 0; e < w->dim; e += VL)
            v_store_n(o + r * w->t->o_seq + e, w->dim - e < VL ? w->dim - e : VL,
                      v_load(w->o + r * w->pad + e));
}

static void pack_keys(const struct task *w, int64_t n, const bf16 *k, const bf16 *v) {
    for (int64_t i = 0; i < n; i += K_BLOCK) {
        const int64_t keys = n - i < K_BLOCK ? n - i : K_BLOCK, all = kernel_dot_pad(keys);
        kernel_dot_rows(keys, w->dim, k + i * w->t->kv_seq, w->t->kv_seq, w->rows);
        kernel_dot_turn(all, w->pad, w->rows, w->kt + i, w->keys_most);
        kernel_dot_rows(keys, w->dim, v + i * w->t->kv_seq, w->t->kv_seq, w->rows);
        kernel_dot_pairs(all, w->pad, w->rows, w->v + i / 2 * w->pad);
    }
}

/* The tensors: of all, or of one head of a sample. */
struct head {
    const bf16 *q, *k, *v;
    bf16 *o;
    float *lse;
};

/* Queries q0..q1-1 of one head, which see no more than `most` keys. */
static void forward_task(const struct task *w, const struct head *h, int64_t q0, int64_t q1,
                         int64_t most) {
    const struct kernel_attention *t = w->t;
    const int64_t last = t->first + q1; /* keys that the last query sees */
    const int64_t keys = t->causal && last < most ? last : most;
    for (int64_t i = 0; i < q1 - q0; i++)
        w->max[i] = -INFINITY;
    memset(w->sum, 0, (size_t)((q1 - q0) * VL) * sizeof *w->sum);
    for (int64_t k0 = 0; k0 < keys; k0 += w->keys_most) {
        const int64_t k1 = keys - k0 < w->keys_most ? keys : k0 + w->keys_most;
        pack_keys(w, k1 - k0, h->k + k0 * t->kv_seq, h->v + k0 * t->kv_seq);
        for (int64_t i = q0; i < q1; i += Q_BLOCK) {
            const int64_t rows = q1 - i < Q_BLOCK ? q1 - i : Q_BLOCK;
            float *max = w->max + (i - q0), *sum = w->sum + (i - q0) * VL;
            const int64_t end = t->first + i + rows;
            if (t->causal && k0 >= end)
                continue;
            kernel_dot_rows(rows, w->dim, h->q + i * t->q_seq, t->q_seq, w->q);
            memset(w->o, 0, (size_t)(Q_BLOCK * w->pad) * sizeof *w->o);
            if (k0 > 0)
                load_block(w, rows, h->o + i * t->o_seq);
            forward_block(w, end - rows, end, k0, k1, max, sum);
            if (k1 == keys || (t->causal && k1 >= end))
                finish_block(w, rows, max, sum, h->lse + i);
            store_block(w, rows, h->o + i * t->o_seq);
        }
    }
}

/* Task `i` of those that take `most` queries of a head each. */
static void forward_one(const struct kernel_attention *t, const struct positions *p,
                        const struct head *all, int64_t most, int64_t i, int thread) {
    const struct kernel_attention_task x = kernel_attention_task(t, most, i);
    const struct task w = make_task(t, p, kernel_scratch(thread));
    if (p)
        position_near(p, DTYPE_bf16, t->positions, x.h, LOG2_E, w.near);
    kernel_dot_open();
    const struct head own = {all->q + x.b * t->q_batch + x.h * t->dim, all->k + x.kv_at,
                             all->v + x.kv_at, all->o + x.b * t->o_batch + x.h * t->dim,
                             all->lse + x.head * t->q_len};
    forward_task(&w, &own, x.q0, x.q1, kernel_attention_keys(t, x.b));
    kernel_dot_close();
}

bool kernel_attention_dot(const struct kernel_attention *t, const void *q, const void *k,
                          const void *v, void *o, float *lse) {
    if (!kernel_dot_known() || t->more || t->dim > MOST_DIM)
        return false;
    const int64_t most = kernel_attention_queries(t, Q_BLOCK, TASK_QUERIES);
    const int64_t tasks = t->batch * t->heads * ((t->q_len + most - 1) / most);
    const int share = kernel_share(t->batch * t->heads * t->q_len * t->kv_len);
    struct positions positions, *p = t->positions ? &positions : NULL;
    if (p)
        position_init(p, t);
    const struct head all = {q, k, v, o, lse};
    KERNEL_TASKS(tasks, share, forward_one(t, p, &all, most, task, thread));
    return true;
}
