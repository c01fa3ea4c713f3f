/* Attention backward: probabilities are made again from the scores and lse.
 *
 * For a block of keys (outer loop) and a block of queries (inner loop), all in scratch:
 *
 *     P  = exp(scale Q K^T - lse)          dV += P^T dO
 *     dS = P (dO V^T - D)                  dK += scale dS^T Q
 *     D  = rowsum(dO O)                    dQ += scale dS K
 *
 * Where scores are capped, dS is also multiplied by the slope of the cap.
 * K^T and V^T are packed once for each block of keys; the transposed factors P^T and dS^T
 * need no copy, because tiles read A with any strides. dK and dV are summed in scratch, dQ
 * in place over the blocks of keys in order. A head of keys, with the query heads that read it,
 * is one task; when there are fewer of them than threads, keys (for dK, dV) and then queries
 * (for dQ) are shared out instead, which computes P and dS twice but needs no sums across threads
 * and gives the same bits. With relative positions, whose gradient sums over the batch, a head
 * takes all samples.
 */
#include "kernel_impl.h"
#include "kernel_position.h"
#include "kernel_tanh.h"
#include "kernel_tile.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <assert.h>

enum {
    Q_BLOCK = 96,      /* queries at a time: a multiple of TILE_ROWS */
    K_BLOCK = 256,     /* keys at a time: a multiple of TILE_COLS */
    K_BLOCK_WIDE = 128 /* where the scratch holds no more: heads wider than 512 */
};

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

/* The tensors: of all, of a sample, or of one head of a sample. */
struct head {
    const T *q, *k, *v, *o;
    const float *lse;
    const T *dout;
    T *dq, *dk, *dv;
    float *dpositions;
};

struct task {
    const struct kernel_attention *t;
    const struct positions *positions; /* or NULL */
    int64_t b;                         /* the sample */
    int64_t dim, pad;                  /* of a head; rounded up to whole vectors */
    int64_t value, v_pad;              /* the same of its values */
    struct alibi_head slope;           /* what ALiBi has for it, in units of log 2 */
    int64_t k_block;                   /* keys at a time */
    float *kt, *vt;                    /* panels of k_block keys and values, transposed */
    float *k;                          /* [k_block, pad], times scale */
    float *dk, *dv;                    /* [k_block, pad], [k_block, v_pad] */
    float *q;                          /* [Q_BLOCK, pad], times scale log2(e) */
    float *dout, *dq;                  /* [Q_BLOCK, v_pad], [Q_BLOCK, pad] */
    float *p, *ds;                     /* [Q_BLOCK, k_block] */
    float *row_sum;                    /* [Q_BLOCK]: D */
    float *near, *dnear;         /* what the head adds at each distance, and its gradient */
    float *diagonal, *ddiagonal; /* the same for a block: [Q_BLOCK + k_block + 16] */
    bool want_q, want_kv;
};

static int64_t key_block_size(const struct kernel_attention *t) {
    return t->dim <= 512 && t->value <= 512 ? K_BLOCK : K_BLOCK_WIDE;
}

static struct task make_task(const struct kernel_attention *t, const struct positions *p,
                             float *start) {
    float *at = start;
    struct task w = {.t = t,
                     .positions = p,
                     .dim = t->dim,
                     .pad = kernel_tile_pad(t->dim),
                     .value = t->value,
                     .v_pad = kernel_tile_pad(t->value)};
    w.k_block = key_block_size(t);
    w.want_q = w.want_kv = true;
    w.kt = at, at += w.k_block * w.pad;
    w.vt = at, at += w.k_block * w.v_pad;
    w.k = at, at += w.k_block * w.pad;
    w.dk = at, at += w.k_block * w.pad;
    w.dv = at, at += w.k_block * w.v_pad;
    w.q = at, at += Q_BLOCK * w.pad;
    w.dout = at, at += Q_BLOCK * w.v_pad;
    w.dq = at, at += Q_BLOCK * w.pad;
    w.p = at, at += Q_BLOCK * w.k_block;
    w.ds = at, at += Q_BLOCK * w.k_block;
    w.row_sum = at, at += Q_BLOCK;
    w.near = at, at += POSITION_NEAR;
    w.dnear = at, at += POSITION_NEAR;
    w.diagonal = at, at += Q_BLOCK + w.k_block + VL;
    w.ddiagonal = at, at += Q_BLOCK + w.k_block + VL;
    assert((at - start) * (int64_t)sizeof *at <= KERNEL_SCRATCH_BYTES);
    return w;
}

static int64_t clamp(int64_t x, int64_t most) {
    return x < 0 ? 0 : x < most ? x : most;
}

static int tile_cols(int64_t left) {
    return (int)(left < TILE_COLS ? left : TILE_COLS);
}

static int tile_rows(int64_t left) {
    return (int)(left < TILE_ROWS ? left : TILE_ROWS);
}

/* P and dS of one query in place of its scores and dO V^T: `seen` keys, zeros to `wide`. */
VEC void slope_row(float *p, float *ds, int64_t seen, int64_t wide, float lse,
                   float row_sum) {
    const vf shift = v_set(lse * LOG2_E), sum = v_set(row_sum);
    int64_t j = 0;
    for (; j + VL <= seen; j += VL) {
        vf x = v_exp2_low(v_load(p + j) - shift);
        v_store(p + j, x);
        v_store(ds + j, x * (v_load(ds + j) - sum));
    }
    if (j < seen) {
        vf x = v_keep_or(v_exp2_low(v_load(p + j) - shift), seen - j, 0);
        v_store(p + j, x);
        v_store(ds + j, v_keep_or(x * (v_load(ds + j) - sum), seen - j, 0));
        j += VL;
    }
    for (; j < wide; j += VL) {
        v_store(p + j, v_set(0));
        v_store(ds + j, v_set(0));
    }
}

/* Caps a row of scores in units of log 2; slope: that of each. */
VEC void cap_row(float *p, float *slope, int64_t seen, float cap) {
    const vf most = v_set(LOG2_E * cap), over = v_set(1.0f / (LOG2_E * cap));
    for (int64_t j = 0; j < seen; j += VL) {
        const vf x = v_load(p + j) * over;
        v_store(slope + j, tanh_slope(x));
        v_store(p + j, most * tanh_of(x));
    }
}

/* x[0 .. wide-1] *= y, whole vectors. */
VEC void scale_vectors(float *x, const float *y, int64_t wide) {
    for (int64_t c = 0; c < wide; c += VL)
        v_store(x + c, v_load(x + c) * v_load(y + c));
}

/* x[0 .. wide-1] += y, whole vectors. */
VEC void add_vectors(float *x, const float *y, int64_t wide) {
    for (int64_t c = 0; c < wide; c += VL)
        v_store(x + c, v_load(x + c) + v_load(y + c));
}

/* P and dS of up to six queries, of `seen` keys from k0; at: as for query_tile. */
static void slope_tile(const struct task *w, int rows, int64_t r, int64_t q0, int64_t k0,
                       int64_t seen, int64_t at, const float *lse) {
    float *p = w->p + r * w->k_block, *ds = w->ds + r * w->k_block;
    float slope[K_BLOCK];
    /* Tiles of keys begin anywhere: they read up to five columns past a query's last key.
     */
    int64_t wide = kernel_tile_pad(seen + TILE_ROWS);
    wide = wide < w->k_block ? wide : w->k_block;
    for (int i = 0; i < rows; i++, p += w->k_block, ds += w->k_block) {
        const int64_t own = w->t->causal && q0 + i + 1 - k0 < seen ? q0 + i + 1 - k0 : seen;
        const int64_t from = clamp(kernel_attention_from(w->t, w->b, q0 + i) - k0, wide);
        if (w->t->cap > 0)
            cap_row(p, slope, seen, w->t->cap);
        if (w->slope.slope != 0)
            position_slope(p, seen, &w->slope, w->t->first_key + k0,
                           w->t->first_key + q0 + i);
        if (w->positions)
            add_vectors(p, w->diagonal + at - i, seen);
        slope_row(p, ds, own > 0 ? own : 0, wide, lse[i], w->row_sum[r + i]);
        memset(p, 0, (size_t)from * sizeof *p);
        memset(ds, 0, (size_t)from * sizeof *ds);
        if (w->positions)
            add_vectors(w->ddiagonal + at - i, ds, seen);
        if (w->t->cap > 0)
            scale_vectors(ds, slope, seen);
    }
}

/* P and dS of up to six queries from position q0, rows r.. of the block, and their dQ. at: where
 * the first query's distances stand in the diagonals, those of the next one entry before. */
static void query_tile(const struct task *w, int rows, int64_t r, int64_t q0, int64_t k0,
                       int64_t keys, int64_t at, const float *lse) {
    const int64_t dim = w->dim, pad = w->pad;
    const bool causal = w->t->causal;
    const int64_t last = q0 + rows - k0; /* keys that the tile's last query sees */
    const int64_t seen = causal && last < keys ? last : keys;
    float *p = w->p + r * w->k_block, *ds = w->ds + r * w->k_block;
    if (seen <= 0)
        return;
    for (int64_t c = 0; c < seen; c += TILE_COLS) {
        kernel_tile(&(struct tile_product){rows, tile_cols(seen - c), dim, w->q + r * pad,
                                           pad, 1, w->kt + c * dim, TILE_COLS, p + c,
                                           w->k_block, false});
        kernel_tile(&(struct tile_product){
            rows, tile_cols(seen - c), w->value, w->dout + r * w->v_pad, w->v_pad, 1,
            w->vt + c * w->value, TILE_COLS, ds + c, w->k_block, false});
    }
    slope_tile(w, rows, r, q0, k0, seen, at, lse);
    for (int64_t e = 0; w->want_q && e < pad; e += TILE_COLS)
        kernel_tile(&(struct tile_product){rows, tile_cols(pad - e), seen, ds, w->k_block,
                                           1, w->k + e, pad, w->dq + r * pad + e, pad,
                                           true});
}

/* The end of the block's queries, from position q0 on, that see the key or one before it. */
static int64_t end_query(const struct task *w, int64_t q0, int64_t queries, int64_t key) {
    int64_t end = w->t->window ? clamp(key + w->t->window - q0, queries) : queries;
    while (w->t->starts && end > 0 && kernel_attention_from(w->t, w->b, q0 + end - 1) > key)
        end--;
    return end;
}

/* dV += P^T dO and dK += dS^T Q of the block at position q0, from the first query that sees each
 * key. */
static void key_tiles(const struct task *w, int64_t q0, int64_t queries, int64_t k0,
                      int64_t keys) {
    const int64_t pad = w->pad, v_pad = w->v_pad;
    for (int64_t c = 0; c < keys; c += TILE_ROWS) {
        const int rows = tile_rows(keys - c);
        const int64_t r = w->t->causal && k0 + c > q0 ? k0 + c - q0 : 0;
        if (r >= queries)
            return;
        const int64_t end = end_query(w, q0, queries, k0 + c + rows - 1);
        if (r >= end)
            continue;
        for (int64_t e = 0; e < v_pad; e += TILE_COLS)
            kernel_tile(&(struct tile_product){rows, tile_cols(v_pad - e), end - r,
                                               w->p + r * w->k_block + c, 1, w->k_block,
                                               w->dout + r * v_pad + e, v_pad,
                                               w->dv + c * v_pad + e, v_pad, true});
        for (int64_t e = 0; e < pad; e += TILE_COLS)
            kernel_tile(&(struct tile_product){
                rows, tile_cols(pad - e), end - r, w->ds + r * w->k_block + c, 1,
                w->k_block, w->q + r * pad + e, pad, w->dk + c * pad + e, pad, true});
    }
}

/* D = rowsum(dO O), from the packed dO. */
static void row_sums(const struct task *w, int64_t rows, const T *o) {
    for (int64_t r = 0; r < rows; r++, o += w->t->o_seq) {
        vf sum = v_set(0);
        for (int64_t e = 0; e < w->value; e += VL) {
            int64_t lanes = w->value - e < VL ? w->value - e : VL;
            sum = v_fma(v_load_n(o + e, lanes), v_load(w->dout + r * w->v_pad + e), sum);
        }
        w->row_sum[r] = v_sum(sum);
    }
}

/* Queries q0..q0+rows-1 of a head against the packed keys k0..k0+keys-1. */
static void block_pair(const struct task *w, const struct head *h, int64_t q0, int64_t rows,
                       int64_t k0, int64_t keys) {
    const struct kernel_attention *t = w->t;
    const int64_t dim = w->dim, pad = w->pad, position = t->first + q0;
    const int64_t nearest = k0 - (position + rows - 1), distances = keys + rows - 1;
    kernel_tile_pack(rows, dim, t->scale * LOG2_E, h->q + q0 * t->q_seq, t->q_seq, w->q);
    kernel_tile_pack(rows, w->value, 1.0f, h->dout + q0 * t->o_seq, t->o_seq, w->dout);
    row_sums(w, rows, h->o + q0 * t->o_seq);
    if (w->want_q && k0 <= kernel_attention_from(t, w->b, position) && !t->more)
        memset(w->dq, 0, (size_t)(rows * pad) * sizeof *w->dq);
    else if (w->want_q)
        kernel_tile_pack(rows, dim, 1.0f, h->dq + q0 * t->q_seq, t->q_seq, w->dq);
    if (w->positions) {
        position_diagonal(w->positions, w->near, nearest, 1, distances, w->diagonal);
        memset(w->ddiagonal, 0, (size_t)(distances + VL) * sizeof *w->ddiagonal);
    }
    for (int64_t r = 0; r < rows; r += TILE_ROWS)
        query_tile(w, tile_rows(rows - r), r, position + r, k0, keys, rows - 1 - r,
                   h->lse + q0 + r);
    if (w->positions)
        position_collect(w->positions, w->ddiagonal, nearest, 1, distances, w->dnear);
    if (w->want_q)
        kernel_tile_unpack(rows, dim, 1.0f, w->dq, h->dq + q0 * t->q_seq, t->q_seq);
    if (w->want_kv)
        key_tiles(w, position, rows, k0, keys);
}

/* One head's queries q0..q1-1 against the packed keys k0..k0+keys-1. */
static void head_pairs(struct task *w, const struct head *s, int64_t head, int64_t k0,
                       int64_t keys, int64_t q0, int64_t q1) {
    const struct kernel_attention *t = w->t;
    const int64_t at = head * t->dim, o_at = head * t->value;
    const struct head h = {.q = s->q + at,
                           .o = s->o + o_at,
                           .lse = s->lse + head * t->q_len,
                           .dout = s->dout + o_at,
                           .dq = s->dq + at};
    w->slope = alibi_head(&t->slope, head, LOG2_E);
    if (w->positions) {
        position_near(w->positions, TYPE, t->positions, head, LOG2_E, w->near);
        memset(w->dnear, 0, POSITION_NEAR * sizeof *w->dnear);
    }
    for (int64_t i = q0; i < q1; i += Q_BLOCK) {
        const int64_t rows = q1 - i < Q_BLOCK ? q1 - i : Q_BLOCK;
        if ((!t->causal || t->first + i + rows > k0) &&
            kernel_attention_from(t, w->b, t->first + i) < k0 + keys)
            block_pair(w, &h, i, rows, k0, keys);
    }
    if (w->positions)
        position_gather(w->positions, w->dnear, head, s->dpositions);
}

/* Query heads, some of those that read one key head, queries of them, and how many keys of the
 * sample they may see. */
struct part {
    int64_t kv_head, head, end_head, q0, q1, seen;
};

/* One block of keys of a sample. */
static void key_block(struct task *w, const struct head *s, const struct part *x,
                      int64_t k0) {
    const struct kernel_attention *t = w->t;
    const int64_t dim = w->dim, at = x->kv_head * dim + k0 * t->kv_seq;
    const int64_t value = w->value, v_at = x->kv_head * value + k0 * t->v_seq;
    const int64_t keys = t->kv_len - k0 < w->k_block ? t->kv_len - k0 : w->k_block;
    const int64_t seen = clamp(x->seen - k0, keys);
    kernel_tile_pack_transposed(keys, dim, s->k + at, t->kv_seq, w->kt);
    kernel_tile_pack_transposed(keys, value, s->v + v_at, t->v_seq, w->vt);
    kernel_tile_pack(keys, dim, t->scale, s->k + at, t->kv_seq, w->k);
    memset(w->dk, 0, (size_t)(keys * w->pad) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(keys * w->v_pad) * sizeof *w->dv);
    for (int64_t h = x->head; seen && h < x->end_head; h++)
        head_pairs(w, s, h, k0, seen, x->q0, x->q1);
    if (!w->want_kv)
        return;
    /* The packed queries carry scale * log2(e); scale belongs to dK, log2(e) does not. */
    kernel_tile_unpack(keys, dim, LN_2, w->dk, s->dk + at, t->kv_seq);
    kernel_tile_unpack(keys, value, 1.0f, w->dv, s->dv + v_at, t->v_seq);
}

/* Keys that no query sees have gradients too: zeros. */
static void all_keys(struct task *w, const struct head *s, const struct part *x) {
    const struct kernel_attention *t = w->t;
    const int64_t last = t->first + x->q1; /* keys that the last query sees, if any */
    const int64_t keys = t->causal && !w->want_kv && last < t->kv_len ? last : t->kv_len;
    for (int64_t k0 = 0; k0 < keys; k0 += w->k_block)
        key_block(w, s, x, k0);
}

/* Work is shared out as heads of keys, with all samples or one, as blocks of keys, or as blocks of
 * queries. */
enum unit { ALL_SAMPLES, HEADS, KEYS, QUERIES };

static int64_t count_units(const struct kernel_attention *t, enum unit unit) {
    switch (unit) {
    case ALL_SAMPLES: return t->kv_heads;
    case HEADS: return t->batch * t->kv_heads;
    case KEYS:
        return t->batch * t->kv_heads *
               ((t->kv_len + key_block_size(t) - 1) / key_block_size(t));
    case QUERIES: break;
    }
    return t->batch * t->heads * ((t->q_len + Q_BLOCK - 1) / Q_BLOCK);
}

static struct head sample(const struct kernel_attention *t, const struct head *all,
                          int64_t b) {
    return (struct head){all->q + b * t->q_batch,
                         all->k + b * t->kv_batch,
                         all->v + b * t->v_batch,
                         all->o + b * t->o_batch,
                         all->lse + b * t->heads * t->q_len,
                         all->dout + b * t->o_batch,
                         all->dq + b * t->q_batch,
                         all->dk + b * t->kv_batch,
                         all->dv + b * t->v_batch,
                         all->dpositions};
}

/* A key head with all that reads it: none, where the rank has other query heads. */
static struct part whole_group(const struct kernel_attention *t, int64_t b,
                               int64_t kv_head) {
    const int64_t head = kv_head * t->group - t->first_head;
    return (struct part){.kv_head = kv_head,
                         .head = clamp(head, t->heads),
                         .end_head = clamp(head + t->group, t->heads),
                         .q1 = t->q_len,
                         .seen = kernel_attention_keys(t, b)};
}

/* Unit `i` of them; those of one head are neighbours. */
static void do_unit(const struct kernel_attention *t, const struct positions *p,
                    const struct head *all, enum unit unit, int64_t i, int thread) {
    struct task w = make_task(t, p, kernel_scratch(thread));
    w.want_q = unit != KEYS;
    w.want_kv = unit != QUERIES;
    const int64_t samples = unit == ALL_SAMPLES ? 1 : t->batch;
    const int64_t heads = unit == QUERIES ? t->heads : t->kv_heads;
    const int64_t per_head = count_units(t, unit) / (samples * heads);
    const int64_t head = i / per_head % heads, b = i / per_head / heads;
    const int64_t part = i % per_head;
    w.b = b;
    struct head s = sample(t, all, b);
    struct part x =
        whole_group(t, b, unit == QUERIES ? (t->first_head + head) / t->group : head);
    if (unit == KEYS) {
        key_block(&w, &s, &x, part * w.k_block);
        return;
    }
    if (unit == QUERIES) {
        x.head = head, x.end_head = head + 1;
        x.q0 = part * Q_BLOCK, x.q1 = clamp(x.q0 + Q_BLOCK, t->q_len);
    }
    all_keys(&w, &s, &x);
    for (int64_t more = 1; unit == ALL_SAMPLES && more < t->batch; more++) {
        w.b = more;
        s = sample(t, all, more);
        x.seen = kernel_attention_keys(t, more);
        all_keys(&w, &s, &x);
    }
}

static void do_units(const struct kernel_attention *t, const struct positions *p,
                     const struct head *all, enum unit unit, int share) {
    KERNEL_TASKS(count_units(t, unit), share, do_unit(t, p, all, unit, task, thread));
}

/* dq of queries that see nothing. */
static void clear_queries(const struct kernel_attention *t, T *dq) {
    for (int64_t i = 0; i < t->batch * t->q_len; i++)
        memset(dq + i / t->q_len * t->q_batch + i % t->q_len * t->q_seq, 0,
               (size_t)(t->heads * t->dim) * sizeof *dq);
}

void kernel_attention_bwd(const struct kernel_attention *t,
                          const struct kernel_attention_bwd *of) {
    assert(t->dim <= 1024 && t->value <= 1024 &&
           "a head this wide does not fit the scratch");
    if (!t->more && kernel_attention_blind(t)) {
        struct kernel_attention from = *t;
        from.more = true;
        clear_queries(t, of->dq);
        kernel_attention_bwd(&from, of);
        return;
    }
    if (TYPE == DTYPE_bf16 && !t->window && !t->starts && t->cap == 0 && t->slope.by == 0 &&
        t->value == t->dim && kernel_attention_bwd_dot(t, of))
        return;
    const struct head all = {of->q,    of->k,  of->v,  of->o,  of->lse,
                             of->dout, of->dq, of->dk, of->dv, of->dpositions};
    const int share = kernel_share(t->batch * t->heads * t->q_len * t->kv_len);
    struct positions positions;
    if (t->positions) {
        position_init(&positions, t);
        do_units(t, &positions, &all, ALL_SAMPLES, share);
    } else if (t->batch * t->kv_heads >= share) {
        do_units(t, NULL, &all, HEADS, share);
    } else {
        do_units(t, NULL, &all, KEYS, share);
        do_units(t, NULL, &all, QUERIES, share);
    }
}
