/* Attention backward: probabilities are made again from the scores and lse.
 *
 * For a block of keys (outer loop) and a block of queries (inner loop), all in scratch:
 *
 *     P  = exp(scale Q K^T - lse)          dV += P^T dO
 *     dS = P (dO V^T - D)                  dK += scale dS^T Q
 *     D  = rowsum(dO O)                    dQ += scale dS K
 *
 * K^T and V^T are packed once for each block of keys; the transposed factors P^T and dS^T
 * need no copy, because tiles read A with any strides. dK and dV are summed in scratch, dQ
 * in place over the blocks of keys in order. A head is one task; when there are fewer heads
 * than threads, keys (for dK, dV) and then queries (for dQ) are shared out instead, which
 * computes P and dS twice but needs no sums across threads and gives the same bits.
 */
#include "kernel_impl.h"
#include "kernel_tile.h"
#include "kernel_vec.h"

#include <assert.h>

enum {
    Q_BLOCK = 96,      /* queries at a time: a multiple of TILE_ROWS */
    K_BLOCK = 256,     /* keys at a time: a multiple of TILE_COLS */
    K_BLOCK_WIDE = 128 /* where the scratch holds no more: heads wider than 512 */
};

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

/* One head: the pointers are the head's. */
struct head {
    const float *q, *k, *v, *o, *lse, *dout;
    float *dq, *dk, *dv;
};

struct task {
    const struct kernel_attention *t;
    int64_t dim, pad; /* of a head; rounded up to whole vectors */
    int64_t k_block;  /* keys at a time */
    float *kt, *vt;   /* panels of k_block keys and values, transposed */
    float *k;         /* [k_block, pad], times scale */
    float *dk, *dv;   /* [k_block, pad] */
    float *q;         /* [Q_BLOCK, pad], times scale log2(e) */
    float *dout, *dq; /* [Q_BLOCK, pad] */
    float *p, *ds;    /* [Q_BLOCK, k_block] */
    float *row_sum;   /* [Q_BLOCK]: D */
    bool want_q, want_kv;
};

static int64_t key_block_size(const struct kernel_attention *t) {
    return t->dim <= 512 ? K_BLOCK : K_BLOCK_WIDE;
}

static struct task make_task(const struct kernel_attention *t, float *start) {
    float *at = start;
    struct task w = {.t = t, .dim = t->dim, .pad = kernel_tile_pad(t->dim)};
    w.k_block = key_block_size(t);
    w.want_q = w.want_kv = true;
    w.kt = at, at += w.k_block * w.pad;
    w.vt = at, at += w.k_block * w.pad;
    w.k = at, at += w.k_block * w.pad;
    w.dk = at, at += w.k_block * w.pad;
    w.dv = at, at += w.k_block * w.pad;
    w.q = at, at += Q_BLOCK * w.pad;
    w.dout = at, at += Q_BLOCK * w.pad;
    w.dq = at, at += Q_BLOCK * w.pad;
    w.p = at, at += Q_BLOCK * w.k_block;
    w.ds = at, at += Q_BLOCK * w.k_block;
    w.row_sum = at, at += Q_BLOCK;
    assert((at - start) * (int64_t)sizeof *at <= KERNEL_SCRATCH_BYTES);
    return w;
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

/* P and dS of up to six queries from position q0, rows r.. of the block, and their dQ. */
static void query_tile(const struct task *w, int rows, int64_t r, int64_t q0, int64_t k0,
                       int64_t keys, const float *lse) {
    const int64_t dim = w->dim, pad = w->pad;
    const bool causal = w->t->causal;
    const int64_t last = q0 + rows - k0; /* keys that the tile's last query sees */
    const int64_t seen = causal && last < keys ? last : keys;
    float *p = w->p + r * w->k_block, *ds = w->ds + r * w->k_block;
    if (seen <= 0)
        return;
    for (int64_t c = 0; c < seen; c += TILE_COLS) {
        kernel_tile(rows, tile_cols(seen - c), dim, w->q + r * pad, pad, 1, w->kt + c * dim,
                    TILE_COLS, p + c, w->k_block, false);
        kernel_tile(rows, tile_cols(seen - c), dim, w->dout + r * pad, pad, 1,
                    w->vt + c * dim, TILE_COLS, ds + c, w->k_block, false);
    }
    /* Tiles of keys begin anywhere: they read up to five columns past a query's last key.
     */
    int64_t wide = kernel_tile_pad(seen + TILE_ROWS);
    wide = wide < w->k_block ? wide : w->k_block;
    for (int i = 0; i < rows; i++) {
        const int64_t own = causal && q0 + i + 1 - k0 < seen ? q0 + i + 1 - k0 : seen;
        slope_row(p + i * w->k_block, ds + i * w->k_block, own > 0 ? own : 0, wide, lse[i],
                  w->row_sum[r + i]);
    }
    for (int64_t e = 0; w->want_q && e < pad; e += TILE_COLS)
        kernel_tile(rows, tile_cols(pad - e), seen, ds, w->k_block, 1, w->k + e, pad,
                    w->dq + r * pad + e, pad, true);
}

/* dV += P^T dO and dK += dS^T Q of the block, from the first query that sees each key. */
static void key_tiles(const struct task *w, int64_t q0, int64_t queries, int64_t k0,
                      int64_t keys) {
    const int64_t pad = w->pad;
    for (int64_t c = 0; c < keys; c += TILE_ROWS) {
        const int rows = tile_rows(keys - c);
        const int64_t r = w->t->causal && k0 + c > q0 ? k0 + c - q0 : 0;
        if (r >= queries)
            return;
        for (int64_t e = 0; e < pad; e += TILE_COLS) {
            kernel_tile(rows, tile_cols(pad - e), queries - r, w->p + r * w->k_block + c, 1,
                        w->k_block, w->dout + r * pad + e, pad, w->dv + c * pad + e, pad,
                        true);
            kernel_tile(rows, tile_cols(pad - e), queries - r, w->ds + r * w->k_block + c,
                        1, w->k_block, w->q + r * pad + e, pad, w->dk + c * pad + e, pad,
                        true);
        }
    }
}

/* D = rowsum(dO O), from the packed dO. */
static void row_sums(const struct task *w, int64_t rows, const float *o) {
    for (int64_t r = 0; r < rows; r++, o += w->t->o_seq) {
        vf sum = v_set(0);
        for (int64_t e = 0; e < w->dim; e += VL) {
            int64_t lanes = w->dim - e < VL ? w->dim - e : VL;
            sum = v_fma(v_load_n(o + e, lanes), v_load(w->dout + r * w->pad + e), sum);
        }
        w->row_sum[r] = v_sum(sum);
    }
}

/* Queries q0..q0+rows-1 against the packed keys k0..k0+keys-1. */
static void block_pair(const struct task *w, const struct head *h, int64_t q0, int64_t rows,
                       int64_t k0, int64_t keys) {
    const struct kernel_attention *t = w->t;
    const int64_t dim = w->dim, pad = w->pad;
    kernel_tile_pack(rows, dim, t->scale * LOG2_E, h->q + q0 * t->q_seq, t->q_seq, w->q);
    kernel_tile_pack(rows, dim, 1.0f, h->dout + q0 * t->o_seq, t->o_seq, w->dout);
    row_sums(w, rows, h->o + q0 * t->o_seq);
    if (w->want_q && k0 == 0)
        memset(w->dq, 0, (size_t)(rows * pad) * sizeof *w->dq);
    else if (w->want_q)
        kernel_tile_pack(rows, dim, 1.0f, h->dq + q0 * t->q_seq, t->q_seq, w->dq);
    for (int64_t r = 0; r < rows; r += TILE_ROWS)
        query_tile(w, tile_rows(rows - r), r, q0 + r, k0, keys, h->lse + q0 + r);
    if (w->want_q)
        kernel_tile_unpack(rows, dim, 1.0f, w->dq, h->dq + q0 * t->q_seq, t->q_seq);
    if (w->want_kv)
        key_tiles(w, q0, rows, k0, keys);
}

/* One block of keys against queries q0..q1-1. */
static void key_block(const struct task *w, const struct head *h, int64_t k0, int64_t q0,
                      int64_t q1) {
    const struct kernel_attention *t = w->t;
    const int64_t dim = w->dim;
    const int64_t keys = t->kv_len - k0 < w->k_block ? t->kv_len - k0 : w->k_block;
    kernel_tile_pack_transposed(keys, dim, h->k + k0 * t->kv_seq, t->kv_seq, w->kt);
    kernel_tile_pack_transposed(keys, dim, h->v + k0 * t->kv_seq, t->kv_seq, w->vt);
    kernel_tile_pack(keys, dim, t->scale, h->k + k0 * t->kv_seq, t->kv_seq, w->k);
    memset(w->dk, 0, (size_t)(keys * w->pad) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(keys * w->pad) * sizeof *w->dv);
    for (int64_t i = q0; i < q1; i += Q_BLOCK) {
        const int64_t rows = q1 - i < Q_BLOCK ? q1 - i : Q_BLOCK;
        if (!t->causal || i + rows > k0)
            block_pair(w, h, i, rows, k0, keys);
    }
    if (!w->want_kv)
        return;
    /* The packed queries carry scale * log2(e); scale belongs to dK, log2(e) does not. */
    kernel_tile_unpack(keys, dim, LN_2, w->dk, h->dk + k0 * t->kv_seq, t->kv_seq);
    kernel_tile_unpack(keys, dim, 1.0f, w->dv, h->dv + k0 * t->kv_seq, t->kv_seq);
}

static void all_keys(const struct task *w, const struct head *h, int64_t q0, int64_t q1) {
    const bool causal = w->t->causal;
    for (int64_t k0 = 0; k0 < w->t->kv_len && !(causal && k0 >= q1); k0 += w->k_block)
        key_block(w, h, k0, q0, q1);
}

/* Work is shared out as whole heads, as blocks of keys, or as blocks of queries. */
enum unit { HEADS, KEYS, QUERIES };

static int64_t count_units(const struct kernel_attention *t, enum unit unit) {
    const int64_t heads = t->batch * t->heads;
    if (unit == HEADS)
        return heads;
    if (unit == KEYS)
        return heads * ((t->kv_len + key_block_size(t) - 1) / key_block_size(t));
    return heads * ((t->q_len + Q_BLOCK - 1) / Q_BLOCK);
}

static void do_unit(const struct kernel_attention *t, const struct head *all,
                    enum unit unit, int64_t i, int thread) {
    const int64_t per_head = count_units(t, unit) / (t->batch * t->heads);
    const int64_t head = i / per_head, part = i % per_head;
    const int64_t b = head / t->heads, at = head % t->heads * t->dim;
    const int64_t q_at = b * t->q_batch + at, kv_at = b * t->kv_batch + at;
    const int64_t o_at = b * t->o_batch + at;
    struct head h = {all->q + q_at,
                     all->k + kv_at,
                     all->v + kv_at,
                     all->o + o_at,
                     all->lse + head * t->q_len,
                     all->dout + o_at,
                     all->dq + q_at,
                     all->dk + kv_at,
                     all->dv + kv_at};
    struct task w = make_task(t, kernel_scratch(thread));
    w.want_q = unit != KEYS;
    w.want_kv = unit != QUERIES;
    if (unit == HEADS)
        all_keys(&w, &h, 0, t->q_len);
    else if (unit == KEYS)
        key_block(&w, &h, part * w.k_block, 0, t->q_len);
    else if (part * Q_BLOCK + Q_BLOCK < t->q_len)
        all_keys(&w, &h, part * Q_BLOCK, part * Q_BLOCK + Q_BLOCK);
    else
        all_keys(&w, &h, part * Q_BLOCK, t->q_len);
}

/* Any thread may take any unit: units share no sums. */
static void do_units(const struct kernel_attention *t, const struct head *all,
                     enum unit unit, int share) {
    const int64_t units = count_units(t, unit);
    if (share == 1) {
        for (int64_t i = 0; i < units; i++)
            do_unit(t, all, unit, i, 0);
        return;
    }
#pragma omp parallel for schedule(dynamic) num_threads(share)
    for (int64_t i = 0; i < units; i++)
        do_unit(t, all, unit, i, omp_get_thread_num());
}

void kernel_attention_bwd(const struct kernel_attention *t, const float *q, const float *k,
                          const float *v, const float *o, const float *lse,
                          const float *dout, float *dq, float *dk, float *dv) {
    assert(t->dim <= 1024 && "a head this wide does not fit the scratch");
    const struct head all = {q, k, v, o, lse, dout, dq, dk, dv};
    const int share = kernel_share(t->batch * t->heads * t->q_len * t->kv_len);
    if (t->batch * t->heads >= share) {
        do_units(t, &all, HEADS, share);
    } else {
        do_units(t, &all, KEYS, share);
        do_units(t, &all, QUERIES, share);
    }
}
