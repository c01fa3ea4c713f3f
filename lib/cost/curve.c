/* The forms of curves: see curve.h. */
#include "cost/curve.h"

#include "model/seen.h"

#include <math.h>
#include <stddef.h>

static const char *const form_names[] = {
#define FORM_NAME(id, name, params) name,
    CURVE_FORMS(FORM_NAME, CURVE_NO_PARAM, CURVE_NO_PARAM)
        CURVE_LINK_FORM(FORM_NAME, CURVE_NO_PARAM, CURVE_NO_PARAM)};

#define PARAM(name, guess, least, most) {name, guess, least, most, 1, false},
#define SHEET(name, guess, least, most) {name, guess, least, most, 3, true},
#define FIRM(name, guess, least, most)  {name, guess, least, most, 10, false},
#define FORM_PARAMS(id, name, params)   {params{NULL, 0, 0, 0, 0, false}},
static const struct curve_param form_params[][CURVE_MAX_PARAMS + 1] = {
    CURVE_FORMS(FORM_PARAMS, PARAM, SHEET) CURVE_LINK_FORM(FORM_PARAMS, PARAM, FIRM)};

/* Indices of parameters, in the order of curve.h. */
enum { LAUNCH = CURVE_LAUNCH };
enum { MOVE_MEMORY = 1, MOVE_CACHE, MOVE_ROW };
enum {
    PRODUCT_PEAK = 1,
    PRODUCT_FILL,
    PRODUCT_BALANCE,
    PRODUCT_MEMORY,
    PRODUCT_QUANTUM,
    PRODUCT_CACHE,
    PRODUCT_UNITS
};
enum {
    ATTENTION_PEAK = 1,
    ATTENTION_WIDTH,
    ATTENTION_FILL,
    ATTENTION_POSITIONS,
    ATTENTION_LENGTHS
};

enum { LINK_ROUND = 1, LINK_BULK, LINK_BULK_ROUND, LINK_SLOW, LINK_REACHED };

const char *curve_form_name(enum curve_form f) {
    return form_names[f];
}

const struct curve_param *curve_params(enum curve_form f) {
    return form_params[f];
}

enum curve_form curve_form_of(enum opcode code) {
    switch (code) {
    case I_linear:
    case I_linear_dx:
    case I_linear_dw:
    case I_matmul:
    case I_matmul_dw:
    case I_conv2d:
    case I_conv2d_dx:
    case I_conv2d_dw: return CURVE_PRODUCT;
    case I_attention:
    case I_attention_bwd:
    case I_attention_more:
    case I_attention_more_bwd: return CURVE_ATTENTION;
    default: return CURVE_MOVE;
    }
}

struct curve curve_default(enum curve_form f) {
    struct curve c = {.form = f, .within = 1};
    for (int i = 0; form_params[f][i].name; i++)
        c.p[i] = form_params[f][i].guess;
    return c;
}

/* ---- shapes ------------------------------------------------------------------------ */

static void set_product(struct curve_shape *s, int64_t batch, int64_t m, int64_t n,
                        int64_t k) {
    s->batch = (double)batch;
    s->m = (double)m;
    s->n = (double)n;
    s->k = (double)k;
}

/* A convolution is the product of its windows and its taps. */
static void set_windows(struct curve_shape *s, const struct conv2d_n *c) {
    set_product(s, 1, c->batch * c->oh * c->ow, c->cout, c->cin * c->kh * c->kw);
}

static void set_attention(struct curve_shape *s, enum opcode code, const union instr_n *n) {
    /* Over other ranks' keys there is no `packed`, so `lengths` and what follows move. */
    const struct attention_n *a = &n->attention;
    bool more = code == I_attention_more || code == I_attention_more_bwd;
    set_product(s, a->batch * a->heads, a->seq, a->dim, a->kv_seq);
    s->causal = a->causal && !more;
    int64_t window = more ? n->attention_more.window : a->window;
    int64_t document = more ? n->attention_more.document : a->document;
    int64_t sees = keys_most(a->kv_seq, window, document);
    if (sees < a->kv_seq) { /* as unmasked attention over the keys that are seen */
        s->k =
            more ? (double)sees : keys_seen(a->seq, a->kv_seq, a->causal, window, document);
        s->causal = false;
    }
    s->positions = a->buckets > 0;
    s->lengths = more ? n->attention_more.lengths > 0 : a->lengths > 0;
}

/* Gradients of weights are sums over rows, so rows are their inner dim. */
struct curve_shape curve_shape(const struct instr_key *key) {
    const union instr_n *n = &key->n;
    struct instr_work w;
    instr_work(key->code, n, &w);
    struct curve_shape s = {
        .dtype = key->dtype, .flops = w.flops, .bytes = instr_bytes(&w, key->dtype)};
    switch (key->code) {
    case I_linear: set_product(&s, 1, n->linear.m, n->linear.n, n->linear.k); break;
    case I_linear_dx: set_product(&s, 1, n->linear.m, n->linear.k, n->linear.n); break;
    case I_linear_dw: set_product(&s, 1, n->linear.k, n->linear.n, n->linear.m); break;
    case I_matmul:
    case I_matmul_dw:
        set_product(&s, n->matmul.outer * n->matmul.inner, n->matmul.m, n->matmul.n,
                    n->matmul.k);
        break;
    case I_conv2d: set_windows(&s, &n->conv2d); break;
    case I_conv2d_dx:
        set_windows(&s, &n->conv2d);
        s.n = (double)n->conv2d.cin;
        s.m = (double)(n->conv2d.batch * n->conv2d.ih * n->conv2d.iw);
        s.k = s.flops / (2 * s.m * s.n);
        break;
    case I_conv2d_dw:
        set_windows(&s, &n->conv2d);
        set_product(&s, 1, n->conv2d.cin * n->conv2d.kh * n->conv2d.kw, n->conv2d.cout,
                    n->conv2d.batch * n->conv2d.oh * n->conv2d.ow);
        break;
    case I_attention:
    case I_attention_bwd:
    case I_attention_more:
    case I_attention_more_bwd: set_attention(&s, key->code, n); break;
    default:
        if (opcode_key(key->code) == KEY_SHAPE)
            s.rows = (double)n->v[0];
    }
    return s;
}

/* ---- forms ------------------------------------------------------------------------- */

static double least(double a, double b) {
    return a < b ? a : b;
}

static double most(double a, double b) {
    return a > b ? a : b;
}

/* Two things at once take a little longer than the longer of them. */
static double together(double a, double b) {
    double a2 = a * a, b2 = b * b;
    return sqrt(sqrt(a2 * a2 + b2 * b2));
}

/* Bytes that fit the cache move at its pace, the others at that of the memory. */
static double moving_us(const struct chip *chip, double bytes, double memory,
                        double cache) {
    double near = least(bytes, chip->cache_bytes), far = bytes - near;
    return 1e6 *
           (near / (cache * chip->cache_bandwidth) + far / (memory * chip->bandwidth));
}

static double move_us(const struct chip *chip, const double *p,
                      const struct curve_shape *s) {
    double rows = s->rows / chip->multiprocessors;
    return p[LAUNCH] + moving_us(chip, s->bytes, p[MOVE_MEMORY], p[MOVE_CACHE]) +
           rows * p[MOVE_ROW];
}

/* How many turns the multiprocessors take; at quantum 1 the last counts as a full one. */
static double turns(double tiles, double multiprocessors, double quantum) {
    double x = tiles / multiprocessors;
    return quantum * ceil(x) + (1 - quantum) * most(1, x);
}

/* A tile loads a + b operands per a * b products, so small ones reach less of the peak. */
static const struct tile {
    double a, b;
} tiles[] = {{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}};
enum { TILES = sizeof tiles / sizeof *tiles, MOST_SPLITS = 16 };

/* One tiling, with the inner dim cut into `splits` parts that are added up afterwards. */
static double tiling_us(const struct chip *chip, const double *p,
                        const struct curve_shape *s, const struct tile *t, int splits,
                        double flops) {
    double n = s->batch * ceil(s->m / t->a) * ceil(s->n / t->b) * splits;
    double side = 2 * t->a * t->b / (t->a + t->b);
    double units = most(1, chip->multiprocessors * p[PRODUCT_UNITS]);
    double pace = flops / units * p[PRODUCT_PEAK] * side / (side + p[PRODUCT_BALANCE]);
    double one = 2 * t->a * t->b * (s->k / splits + p[PRODUCT_FILL]) / pace;
    double us = 1e6 * one * turns(n, units, p[PRODUCT_QUANTUM]);
    if (splits > 1)
        us += p[LAUNCH] / 2 + 1e6 * 4 * s->batch * s->m * s->n * splits /
                                  (p[PRODUCT_CACHE] * chip->cache_bandwidth);
    return us;
}

static double product_us(const struct chip *chip, const double *p,
                         const struct curve_shape *s, double flops) {
    double best = INFINITY;
    for (int t = 0; t < TILES; t++) {
        double n = s->batch * ceil(s->m / tiles[t].a) * ceil(s->n / tiles[t].b);
        for (int splits = 1; splits <= MOST_SPLITS; splits *= 2) {
            if (splits > 1 && n * splits > 2 * chip->multiprocessors)
                break;
            best = least(best, tiling_us(chip, p, s, &tiles[t], splits, flops));
        }
    }
    double moving = moving_us(chip, s->bytes, p[PRODUCT_MEMORY], p[PRODUCT_CACHE]);
    return p[LAUNCH] + together(best, moving);
}

/* Tiles of 128 queries; under a causal mask the last ones walk over all keys. */
static double attention_us(const struct chip *chip, const double *p,
                           const struct curve_shape *s, double flops) {
    double n = s->batch * ceil(s->m / 128), all = s->flops;
    double pace = flops * p[ATTENTION_PEAK] * s->n / (s->n + p[ATTENTION_WIDTH]) /
                  chip->multiprocessors;
    double per_key = s->batch * s->m * s->k > 0 ? s->flops / (s->batch * s->m * s->k) : 0;
    if (s->causal && s->k > 0) { /* flops leave out what the mask hides */
        double part = (s->k - 0.5 * (s->m - 1)) / s->k;
        per_key /= part > 0 ? part : 1;
    }
    double rows = least(s->m, 128), longest = rows * per_key * (s->k + p[ATTENTION_FILL]);
    double filling = n * rows * per_key * p[ATTENTION_FILL];
    double us = 1e6 * most(longest, (all + filling) / chip->multiprocessors) / pace;
    us *= s->positions ? p[ATTENTION_POSITIONS] : 1;
    us *= s->lengths ? p[ATTENTION_LENGTHS] : 1;
    us = pace > 0 ? us : 0;
    return p[LAUNCH] + together(us, moving_us(chip, s->bytes, 0.9, 0.9));
}

/* Small messages go by a protocol that waits little but takes longer for each byte (NCCL's
 * LL), larger ones by one that does not, round a ring or up and down a tree. The fastest
 * counts. */
static double link_us(const double *p, const struct curve_shape *s) {
    double waits[] = {s->rounds, s->levels}, bytes[] = {s->ring_us, s->tree_us};
    double best = INFINITY;
    for (int way = 0; way < 2 && (way == 0 || s->levels > 0); way++) {
        double us = bytes[way] / p[LINK_REACHED];
        double small = p[LAUNCH] + waits[way] * p[LINK_ROUND];
        double bulk = p[LINK_BULK] + waits[way] * p[LINK_BULK_ROUND];
        best = least(best, small + least(us * p[LINK_SLOW], us + bulk));
    }
    return best;
}

double curve_us(const struct chip *chip, const struct curve *c,
                const struct curve_shape *s) {
    if (c->form == CURVE_LINK)
        return link_us(c->p, s);
    double flops = (int)s->dtype < (int)CLUSTER_DTYPES ? chip->flops[s->dtype] : 0;
    if (c->form == CURVE_MOVE)
        return move_us(chip, c->p, s);
    if (flops <= 0)
        return -1;
    return c->form == CURVE_PRODUCT ? product_us(chip, c->p, s, flops)
                                    : attention_us(chip, c->p, s, flops);
}
