/* Attention forward (Dao et al., FlashAttention, 2022): scores live only in the nearest
 * cache.
 *
 * One task is a range of queries of one head. Keys are packed transposed and values
 * densely, as many as fit the scratch; then for each block of queries and each block of
 * keys that it may see, tile by tile of six queries: scores, running maximum, exponentials,
 * and the product with the values into a packed output. Tiles stop at the diagonal of a
 * causal mask. Scores are kept in units of log 2, so that an exponential is a power of two;
 * the factor is folded into the packed queries. A query's arithmetic does not depend on the
 * ranges. Queries that are a part of a longer sequence see as many more keys as precede it.
 * To go on from the result over other keys, their log-sum-exp stands for a maximum whose sum is 1.
 * Under a window, and where documents start in between, blocks and tiles begin with the first key that one of
 * their queries sees: that of the first query.
 */
#include "kernel_impl.h"
#include "kernel_position.h"
#include "kernel_tanh.h"
#include "kernel_tile.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <assert.h>

enum {
    Q_BLOCK = 96,         /* queries at a time: a multiple of TILE_ROWS */
    K_BLOCK = 256,        /* keys at a time: a multiple of TILE_COLS */
    TASK_QUERIES = 2048,  /* most queries of a task: bounds the state kept per query */
    PACK_FLOATS = 1 << 18 /* of packed keys: 1 MiB, and as much of values */
};

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

/* The scratch of one task. */
struct task {
    const struct kernel_attention *t;
    const struct positions *positions; /* or NULL */
    int64_t b;                         /* the sample */
    int64_t dim, pad;                  /* of a head; rounded up to whole vectors */
    int64_t value, v_pad;              /* the same of its values */
    struct alibi_head slope;           /* what ALiBi has for it, in units of log 2 */
    int64_t keys_most;                 /* packed at a time */
    float *kt;                         /* keys, transposed in panels */
    float *v;                          /* [keys, v_pad] */
    float *q;                          /* [Q_BLOCK, pad], scaled */
    float *o;                          /* [Q_BLOCK, v_pad], not yet divided by the sum */
    float *s;                          /* [TILE_ROWS, K_BLOCK] scores, then probabilities */
    float *max;                        /* [TASK_QUERIES] of the scores so far */
    float *sum;      /* [TASK_QUERIES, 16] of exp2(score - max), lane by lane */
    float *near;     /* what the head adds at each distance */
    float *diagonal; /* the same for a block: [Q_BLOCK + K_BLOCK + 16] */
};

static struct task make_task(const struct kernel_attention *t, const struct positions *p,
                             float *start) {
    float *at = start;
    struct task w = {.t = t,
                     .positions = p,
                     .dim = t->dim,
                     .pad = kernel_tile_pad(t->dim),
                     .value = t->value,
                     .v_pad = kernel_tile_pad(t->value)};
    w.keys_most = PACK_FLOATS / (w.pad > w.v_pad ? w.pad : w.v_pad) / K_BLOCK * K_BLOCK;
    if (w.keys_most < K_BLOCK)
        w.keys_most = K_BLOCK;
    w.kt = at, at += w.keys_most * w.pad;
    w.v = at, at += w.keys_most * w.v_pad;
    w.q = at, at += Q_BLOCK * w.pad;
    w.o = at, at += Q_BLOCK * w.v_pad;
    w.s = at, at += TILE_ROWS * K_BLOCK;
    w.max = at, at += TASK_QUERIES;
    w.sum = at, at += TASK_QUERIES * VL;
    w.near = at, at += POSITION_NEAR;
    w.diagonal = at, at += Q_BLOCK + K_BLOCK + VL;
    assert((at - start) * (int64_t)sizeof *at <= KERNEL_SCRATCH_BYTES);
    return w;
}

/* Turns a row of scores into probabilities relative to the row's maximum, rescaling what
 * has been summed when that grows. `wide` columns are written, those from `seen` on as
 * zero. */
VEC void softmax_row(float *s, int64_t seen, int64_t wide, float *max, float *sum, float *o,
                     int64_t pad) {
    vf top = v_set(-INFINITY);
    int64_t j = 0;
    for (; j + VL <= seen; j += VL)
        top = v_max(top, v_load(s + j));
    if (j < seen)
        top = v_max(top, v_load_or(s + j, seen - j, -INFINITY));
    vf total = v_load(sum);
    const float new_max = v_top(top);
    if (new_max > *max && *max > -INFINITY) {
        const vf fade = v_exp2_low(v_set(*max - new_max));
        total *= fade;
        for (int64_t e = 0; e < pad; e += VL)
            v_store(o + e, v_load(o + e) * fade);
    }
    *max = new_max > *max ? new_max : *max;
    const vf shift = v_set(*max);
    for (j = 0; j + VL <= seen; j += VL) {
        vf p = v_exp2_low(v_load(s + j) - shift);
        total += p;
        v_store(s + j, p);
    }
    for (; j < wide; j += VL) {
        int64_t lanes = seen - j > 0 ? seen - j : 0;
        vf p = v_keep_or(v_exp2_low(v_load(s + j) - shift), lanes, 0);
        total += p;
        v_store(s + j, p);
    }
    v_store(sum, total);
}

/* Scores in units of log 2 that stay below a cap. */
VEC void cap_row(float *s, int64_t seen, float cap) {
    const vf most = v_set(LOG2_E * cap), over = v_set(1.0f / (LOG2_E * cap));
    for (int64_t j = 0; j < seen; j += VL)
        v_store(s + j, most * tanh_of(v_load(s + j) * over));
}

/* Up to six queries, the first at position q0, against `keys` keys from k0. */
struct tile {
    int rows;
    int64_t q0, k0, keys;
    const float *kt, *v, *q;
    const float *
        diagonal; /* added to the first query's scores; that of the next begins one before */
    float *o, *max, *sum;
};

/* Rows of scores become probabilities. */
static void softmax_tile(const struct task *w, const struct tile *x, int64_t seen) {
    for (int r = 0; r < x->rows; r++) {
        float *s = w->s + r * K_BLOCK;
        const int64_t last = x->q0 + r + 1 - x->k0;
        const int64_t own = w->t->causal && last < seen ? last : seen;
        const int64_t from = kernel_attention_from(w->t, w->b, x->q0 + r) - x->k0;
        for (int64_t j = 0; j < from && j < own; j++)
            s[j] = -INFINITY;
        softmax_row(s, own > 0 && from < own ? own : 0, kernel_tile_pad(seen), x->max + r,
                    x->sum + r * VL, x->o + r * w->v_pad, w->v_pad);
    }
}

static void forward_tile(const struct task *w, struct tile x) {
    const int64_t dim = w->dim, pad = w->pad, v_pad = w->v_pad;
    const int64_t from = kernel_attention_from(w->t, w->b, x.q0) - x.k0;
    if (from >= TILE_COLS) { /* whole panels that nobody sees */
        const int64_t c = from / TILE_COLS * TILE_COLS;
        x.k0 += c, x.keys -= c, x.kt += c * dim, x.v += c * v_pad, x.diagonal += c;
    }
    const int64_t last = x.q0 + x.rows - x.k0; /* keys that the tile's last query sees */
    const int64_t seen = w->t->causal && last < x.keys ? last : x.keys;
    if (seen <= 0 || kernel_attention_from(w->t, w->b, x.q0) - x.k0 >= seen)
        return;
    for (int64_t c = 0; c < seen; c += TILE_COLS)
        kernel_tile(&(struct tile_product){
            x.rows, (int)(seen - c < TILE_COLS ? seen - c : TILE_COLS), dim, x.q, pad, 1,
            x.kt + c * dim, TILE_COLS, w->s + c, K_BLOCK, false});
    for (int r = 0; w->t->cap > 0 && r < x.rows; r++)
        cap_row(w->s + r * K_BLOCK, seen, w->t->cap);
    for (int r = 0; w->slope.slope != 0 && r < x.rows; r++)
        position_slope(w->s + r * K_BLOCK, seen, &w->slope, w->t->first_key + x.k0,
                       w->t->first_key + x.q0 + r);
    for (int r = 0; w->positions && r < x.rows; r++)
        for (int64_t c = 0; c < seen; c += VL)
            v_store(w->s + r * K_BLOCK + c,
                    v_load(w->s + r * K_BLOCK + c) + v_load(x.diagonal - r + c));
    softmax_tile(w, &x, seen);
    for (int64_t e = 0; e < v_pad; e += TILE_COLS)
        kernel_tile(&(struct tile_product){
            x.rows, (int)(v_pad - e < TILE_COLS ? v_pad - e : TILE_COLS), seen, w->s,
            K_BLOCK, 1, x.v + e, v_pad, x.o + e, v_pad, true});
}

/* The block of queries at positions q0..q1-1 against the packed keys k0..k1-1. */
static void forward_block(const struct task *w, int64_t q0, int64_t q1, int64_t k0,
                          int64_t k1, float *max, float *sum) {
    for (int64_t k = k0; k < k1; k += K_BLOCK) {
        if (w->t->causal && k >= q1)
            return;
        if (k + K_BLOCK <= kernel_attention_from(w->t, w->b, q0))
            continue;
        const int64_t keys = k1 - k < K_BLOCK ? k1 - k : K_BLOCK;
        if (w->positions)
            position_diagonal(w->positions, w->near, k - (q1 - 1), 1, keys + q1 - q0 - 1,
                              w->diagonal);
        for (int64_t r = 0; r < q1 - q0; r += TILE_ROWS) {
            const int64_t rows = q1 - q0 - r < TILE_ROWS ? q1 - q0 - r : TILE_ROWS;
            forward_tile(w, (struct tile){(int)rows, q0 + r, k, keys,
                                          w->kt + (k - k0) * w->dim,
                                          w->v + (k - k0) * w->v_pad, w->q + r * w->pad,
                                          w->diagonal + (q1 - 1 - q0 - r),
                                          w->o + r * w->v_pad, max + r, sum + r * VL});
        }
    }
}

/* Divides by the sums and keeps log(sum(exp(scores))). */
static void finish_block(const struct task *w, int64_t rows, const float *max,
                         const float *sum, float *lse) {
    for (int64_t r = 0; r < rows; r++) {
        const float total = v_sum(v_load(sum + r * VL));
        const float inverse = total > 0 ? 1.0f / total : 0;
        for (int64_t e = 0; e < w->v_pad; e += VL)
            v_store(w->o + r * w->v_pad + e, v_load(w->o + r * w->v_pad + e) * inverse);
        lse[r] = LN_2 * (max[r] + log2f(total));
    }
}

/* Maxima and sums of so many queries: of no key, or of those that lse is of. */
static void begin_queries(const struct task *w, int64_t n, const float *lse) {
    const bool more = w->t->more;
    memset(w->sum, 0, (size_t)(n * VL) * sizeof *w->sum);
    for (int64_t i = 0; i < n; i++) {
        w->max[i] = more ? LOG2_E * lse[i] : -INFINITY;
        w->sum[i * VL] = w->max[i] > -INFINITY ? 1.0f : 0.0f;
    }
}

/* The tensors: of all, or of one head of a sample. */
struct head {
    const T *q, *k, *v;
    T *o;
    float *lse;
};

/* Queries q0..q1-1 of one head, which see no more than `most` keys. */
static void forward_task(const struct task *w, const struct head *h, int64_t q0, int64_t q1,
                         int64_t most) {
    const struct kernel_attention *t = w->t;
    const int64_t dim = w->dim, value = w->value, v_pad = w->v_pad;
    const int64_t last = t->first + q1; /* keys that the last query sees */
    const int64_t keys = t->causal && last < most ? last : most;
    const int64_t begin = kernel_attention_from(t, w->b, t->first + q0) / K_BLOCK * K_BLOCK;
    begin_queries(w, q1 - q0, h->lse + q0);
    for (int64_t k0 = begin; k0 < keys; k0 += w->keys_most) {
        const int64_t k1 = keys - k0 < w->keys_most ? keys : k0 + w->keys_most;
        kernel_tile_pack_transposed(k1 - k0, dim, h->k + k0 * t->kv_seq, t->kv_seq, w->kt);
        kernel_tile_pack(k1 - k0, value, 1.0f, h->v + k0 * t->v_seq, t->v_seq, w->v);
        for (int64_t i = q0; i < q1; i += Q_BLOCK) {
            const int64_t rows = q1 - i < Q_BLOCK ? q1 - i : Q_BLOCK;
            float *max = w->max + (i - q0), *sum = w->sum + (i - q0) * VL;
            const int64_t end = t->first + i + rows;
            const int64_t from = kernel_attention_from(t, w->b, end - rows);
            if ((t->causal && k0 >= end) || k1 <= from)
                continue;
            kernel_tile_pack(rows, dim, t->scale * LOG2_E, h->q + i * t->q_seq, t->q_seq,
                             w->q);
            if (k0 <= from && !t->more) /* its first keys */
                memset(w->o, 0, (size_t)(rows * v_pad) * sizeof *w->o);
            else
                kernel_tile_pack(rows, value, 1.0f, h->o + i * t->o_seq, t->o_seq, w->o);
            forward_block(w, end - rows, end, k0, k1, max, sum);
            if (k1 == keys || (t->causal && k1 >= end))
                finish_block(w, rows, max, sum, h->lse + i);
            kernel_tile_unpack(rows, value, 1.0f, w->o, h->o + i * t->o_seq, t->o_seq);
        }
    }
}

/* Task `i` of those that take `most` queries of a head each. */
static void forward_one(const struct kernel_attention *t, const struct positions *p,
                        const struct head *all, int64_t most, int64_t i, int thread) {
    const struct kernel_attention_task x = kernel_attention_task(t, most, i);
    struct task w = make_task(t, p, kernel_scratch(thread));
    w.b = x.b;
    w.slope = alibi_head(&t->slope, x.h, LOG2_E);
    if (p)
        position_near(p, TYPE, t->positions, x.h, LOG2_E, w.near);
    const struct head own = {all->q + x.b * t->q_batch + x.h * t->dim, all->k + x.kv_at,
                             all->v + x.v_at, all->o + x.b * t->o_batch + x.h * t->value,
                             all->lse + x.head * t->q_len};
    forward_task(&w, &own, x.q0, x.q1, kernel_attention_keys(t, x.b));
}

/* The result over no keys. */
static void see_nothing(const struct kernel_attention *t, T *o, float *lse) {
    const int64_t width = t->heads * t->value, rows = t->batch * t->q_len;
    for (int64_t i = 0; i < rows; i++)
        memset(o + i / t->q_len * t->o_batch + i % t->q_len * t->o_seq, 0,
               (size_t)width * sizeof *o);
    for (int64_t i = 0; i < rows * t->heads; i++)
        lse[i] = -INFINITY;
}

void kernel_attention(const struct kernel_attention *t, const T *q, const T *k, const T *v,
                      T *o, float *lse) {
    assert(t->dim <= 1024 && t->value <= 1024 &&
           "a head this wide does not fit the scratch");
    if (!t->more && kernel_attention_blind(t)) {
        struct kernel_attention from = *t;
        from.more = true;
        see_nothing(t, o, lse);
        kernel_attention(&from, q, k, v, o, lse);
        return;
    }
    if (TYPE == DTYPE_bf16 && !t->window && !t->starts && t->cap == 0 && t->slope.by == 0 &&
        t->value == t->dim && kernel_attention_dot(t, q, k, v, o, lse))
        return;
    const int64_t most =
        kernel_attention_queries(t, Q_BLOCK, TASK_QUERIES / Q_BLOCK * Q_BLOCK);
    const int64_t tasks = t->batch * t->heads * ((t->q_len + most - 1) / most);
    const int share = kernel_share(t->batch * t->heads * t->q_len * t->kv_len);
    struct positions positions, *p = t->positions ? &positions : NULL;
    if (p)
        position_init(p, t);
    const struct head all = {q, k, v, o, lse};
    KERNEL_TASKS(tasks, share, forward_one(t, p, &all, most, task, thread));
}
