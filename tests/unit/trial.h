/* trial.h - any instruction of instr.def with a random shape and random operands, to be run on two
 * devices and compared.
 *
 *     struct trial cpu, other;
 *     trial_begin(&cpu, I_layernorm, DTYPE_bf16, seed);
 *     trial_begin(&other, I_layernorm, DTYPE_bf16, seed); // the same
 *     trial_results(&cpu, -1), trial_results(&other, -1);
 *     trial_on_cpu(&cpu);
 *     ... run other.in -> other.out on the other device ...
 *     double apart = trial_distance(&other, &cpu);
 *     trial_end(&cpu), trial_end(&other);
 *
 * Operands lie in the host's memory, each of exactly its elements, so that a sanitizer sees one more.
 * Shapes are small and mostly odd; some are multiples of what vectors and blocks hold.
 */
#ifndef WEFT_TEST_TRIAL_H
#define WEFT_TEST_TRIAL_H

#include "common/rng.h"
#include "device/cpu.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIAL_PARTS = 4 };

struct trial {
    enum opcode code;
    enum dtype dtype;
    const struct instr_info *info;
    union instr_n n;
    struct instr_work work;
    struct device_args args;
    struct matrices matrices;
    struct scalars now;
    double per_target;
    int64_t size[3], from[3], to[3]; /* of a copy */
    struct halo_piece pieces[TRIAL_PARTS];
    double slower[64]; /* of rotary positions, by pair */
    struct rng rng;
    void *in[INSTR_MAX_IN + 1], *out[INSTR_MAX_OUT + 1];
    int over; /* the operand whose place the first result has, or -1 */
};

static int64_t trial_pick(struct trial *t, int64_t least, int64_t most) {
    return least + rng_below(&t->rng, most - least + 1);
}

/* A length: odd ones, short ones, and multiples of vectors and of warps. */
static int64_t trial_length(struct trial *t, int64_t most) {
    switch (rng_below(&t->rng, 4)) {
    case 0: return trial_pick(t, 1, most < 9 ? most : 9);
    case 1: return most < 32 ? most : trial_pick(t, 1, most / 32) * 32;
    default: return trial_pick(t, 1, most);
    }
}

static bool trial_is_product(enum opcode code) {
    return code == I_linear || code == I_linear_dx || code == I_linear_dw ||
           code == I_matmul || code == I_matmul_dw;
}

/* ---- shapes ------------------------------------------------------------------------------- */

/* What all opcodes with a number of this name agree on. */
static int64_t trial_number(struct trial *t, const char *name) {
    static const struct {
        const char *name;
        int64_t least, most;
    } ranges[] = {
        {"wt", 0, 1},      {"bias", 0, 1},     {"back", 0, 1},     {"normalize", 0, 1},
        {"causal", 0, 1},  {"lengths", 0, 1},  {"kh", 1, 4},       {"kw", 1, 4},
        {"kernel", 1, 3},  {"stride", 1, 3},   {"parts", 1, 4},    {"batch", 1, 4},
        {"heads", 1, 4},   {"kv_heads", 1, 2}, {"outer", 1, 3},    {"groups", 1, 3},
        {"choices", 1, 3}, {"capacity", 1, 9}, {"group", 1, 3},    {"ih", 1, 12},
        {"iw", 1, 12},     {"ph", 0, 2},       {"pw", 0, 2},       {"capped", 0, 1},
        {"sloped", 0, 1},  {"sigmoid", 0, 1},  {"biased", 0, 1},   {"few", 1, 2},
        {"best", 1, 2},    {"plain", 0, 1},    {"document", 0, 40}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!strcmp(ranges[i].name, name))
            return trial_pick(t, ranges[i].least, ranges[i].most);
    if (t->code == I_orthogonalize)
        return !strcmp(name, "inner") ? trial_pick(t, 1, 3) : trial_length(t, 40);
    if (trial_is_product(t->code)) /* the work grows with the third power */
        return trial_length(t, 70);
    if (!strcmp(name, "elems"))
        return trial_length(t, rng_below(&t->rng, 8) ? 3000 : 20000);
    if (!strcmp(name, "n") || !strcmp(name, "width") || !strcmp(name, "inner"))
        return trial_length(t, rng_below(&t->rng, 4) ? 200 : 2500);
    if (!strcmp(name, "rows") || !strcmp(name, "tokens"))
        return trial_length(t, rng_below(&t->rng, 4) ? 60 : 600);
    if (!strcmp(name, "places") || !strcmp(name, "seq") || !strcmp(name, "kv_seq"))
        return trial_length(t, 60);
    return trial_length(t, 90);
}

/* Windows at least one tap of which is inside. */
static int64_t trial_windows(struct trial *t, int64_t *in, int64_t *taps, int64_t stride,
                             int64_t *pad) {
    (void)t;
    *pad = *pad < *taps ? *pad : *taps - 1;
    *taps = *taps <= *in + 2 * *pad ? *taps : *in;
    *pad = *pad < *taps ? *pad : *taps - 1;
    return (*in + 2 * *pad - *taps) / stride + 1;
}

static void trial_conv(struct trial *t, struct conv2d_n *n) {
    const bool eights = rng_below(&t->rng, 2); /* as tensor cores want them */
    n->cin = eights ? 8 * trial_pick(t, 1, 10) : trial_length(t, 40);
    n->cout = eights ? 8 * trial_pick(t, 1, 10) : trial_length(t, 40);
    n->oh = trial_windows(t, &n->ih, &n->kh, n->stride, &n->ph);
    n->ow = trial_windows(t, &n->iw, &n->kw, n->stride, &n->pw);
}

static void trial_pool(struct trial *t, struct maxpool_n *n) {
    if (n->ih < n->kernel || n->iw < n->kernel)
        n->kernel = 1;
    n->oh = trial_windows(t, &n->ih, &n->kernel, n->stride, &n->ph);
    n->ow = trial_windows(t, &n->iw, &n->kernel, n->stride, &n->pw);
}

/* Groups of samples; what is here may be a part of them. */
static void trial_groups(struct trial *t, struct batchnorm_n *n) {
    int64_t all = n->groups * n->group;
    n->samples = trial_pick(t, 1, all);
    t->args.first = trial_pick(t, 0, all - n->samples);
}

static void trial_attention(struct trial *t, struct attention_n *n, bool may_pack) {
    n->group = trial_pick(t, 1, 3), n->heads = n->kv_heads * n->group;
    n->dim = trial_pick(t, 1, 5) * (rng_below(&t->rng, 2) ? 8 : 3);
    n->buckets = rng_below(&t->rng, 2) ? 9 : 0;
    n->packed = may_pack && n->group == 1 && rng_below(&t->rng, 2);
    if (n->causal || n->packed)
        n->kv_seq = n->seq;
    n->window = n->causal && rng_below(&t->rng, 2) ? trial_pick(t, 1, 40) : 0;
    n->capped = !n->buckets && rng_below(&t->rng, 2);
    n->starts = n->causal && !n->lengths && rng_below(&t->rng, 2);
    n->sloped = !n->buckets && rng_below(&t->rng, 2);
    n->value = n->packed || rng_below(&t->rng, 2) ? 0 : trial_pick(t, 1, 150);
    t->args.slope =
        (struct alibi){0.3f, (int32_t)trial_pick(t, 0, 2),
                       (int32_t)(n->heads + trial_pick(t, 2, 9)), rng_below(&t->rng, 2)};
}

/* Groups of experts, of which a token keeps some that hold its choices. */
static void trial_route(struct trial *t, struct route_n *n) {
    const int64_t each = n->choices + trial_pick(t, 1, 9);
    n->parts = rng_below(&t->rng, 2) ? n->parts + 1 : 0;
    if (n->parts)
        n->experts = n->parts * each;
    n->best = n->parts ? n->best : 0;
    n->kept = n->parts ? trial_pick(t, 1, n->parts) : 0;
}

/* A rank's heads, some of those that have one of the `few` in common. */
static void trial_join(struct trial *t, struct join_n *n) {
    n->heads = n->heads < n->group * n->few ? n->heads : n->group * n->few;
    t->args.first_head = trial_pick(t, 0, n->group * n->few - n->heads);
}

/* Rows of blocks, the windows over them, and what one member of the group sends or gets. */
static void trial_halo(struct trial *t, struct halo_join_n *n) {
    struct halo h = {.rows = trial_pick(t, 1, 6),
                     .step = trial_pick(t, 1, 6),
                     .lead = trial_pick(t, 0, 3),
                     .parts = (int)trial_pick(t, 1, TRIAL_PARTS),
                     .back = t->code == I_halo_add,
                     .lowest = rng_below(&t->rng, 2)};
    h.window = h.step + h.lead + trial_pick(t, 0, 3);
    const int me = (int)rng_below(&t->rng, h.parts);
    const bool packs = t->code == I_halo_pack;
    const struct halo_run own = halo_run(&h, me, me);
    n->rows = h.rows, n->inner = trial_length(t, 40), n->got = 0;
    for (int peer = 0; peer < h.parts; peer++) {
        t->pieces[peer] = packs ? halo_sent(&h, me, peer) : halo_got(&h, me, peer);
        n->got += t->pieces[peer].n; /* of halo_pack, sent */
    }
    if (!packs)
        n->window = h.window;
    t->args.halo = (struct kernel_halo){.outer = n->outer,
                                        .inner = n->inner,
                                        .own = own.n ? own : (struct halo_run){0},
                                        .pieces = t->pieces,
                                        .n_pieces = h.parts,
                                        .padding = h.lowest ? -INFINITY : 0};
}

/* A box of three dims, its places in x in another order and with gaps between them. */
static void trial_copy(struct trial *t, struct copy_n *n) {
    const bool vectors = rng_below(&t->rng, 2), turned = rng_below(&t->rng, 3) == 0;
    int64_t *s = t->size;
    for (int d = 0; d < 3; d++)
        s[d] = trial_length(t, 12) * (vectors && d == 2 ? 16 : 1);
    const int64_t gap = trial_pick(t, 0, 2) * (vectors ? 16 : 1);
    t->to[2] = 1, t->to[1] = s[2], t->to[0] = s[1] * s[2];
    if (turned)
        t->from[0] = 1, t->from[2] = s[0] + gap, t->from[1] = t->from[2] * s[2];
    else
        t->from[2] = 1, t->from[1] = s[2] + gap, t->from[0] = t->from[1] * s[1];
    t->args.src_offset = trial_pick(t, 0, 1) * (vectors ? 16 : 1);
    t->args.copy = (struct device_copy){3, s, t->from, t->to};
    n->elems = s[0] * s[1] * s[2], n->inner = s[2];
}

/* What of a tensor of three dims is here. */
static void trial_box(struct trial *t, struct dropout_n *n) {
    struct kernel_box *b = &t->args.box;
    b->rank = 3;
    for (int d = 0; d < 3; d++) {
        b->size[d] = trial_length(t, 16);
        b->first[d] = trial_pick(t, 0, 5);
        b->whole[d] = b->first[d] + b->size[d] + trial_pick(t, 0, 3);
        if (rng_below(&t->rng, 2))
            b->first[d] = 0, b->whole[d] = b->size[d];
    }
    t->args.batch_dims = 1;
    t->now.first_sample = trial_pick(t, 0, 9);
    n->elems = b->size[0] * b->size[1] * b->size[2];
}

static void trial_attentions(struct trial *t) {
    union instr_n *n = &t->n;
    if (t->code == I_attention || t->code == I_attention_bwd) {
        trial_attention(t, &n->attention, true);
        return;
    }
    struct attention_n all = {.batch = n->attention_more.batch,
                              .kv_heads = n->attention_more.kv_heads,
                              .seq = n->attention_more.seq,
                              .kv_seq = n->attention_more.kv_seq,
                              .causal = n->attention_more.causal,
                              .lengths = n->attention_more.lengths};
    trial_attention(t, &all, false);
    n->attention_more.heads = all.heads, n->attention_more.group = all.group;
    n->attention_more.dim = all.dim, n->attention_more.kv_seq = all.kv_seq;
    n->attention_more.buckets = all.buckets;
    n->attention_more.window = all.window, n->attention_more.capped = all.capped;
    n->attention_more.starts = all.starts;
    n->attention_more.sloped = all.sloped, n->attention_more.value = all.value;
    if (all.causal)
        t->args.first = trial_pick(t, 0, 1) * all.kv_seq;
}

/* What the numbers of an opcode have to do with each other. */
static void trial_shape(struct trial *t) {
    union instr_n *n = &t->n;
    for (int k = 0; k < t->info->n_shape; k++)
        n->v[k] = trial_number(t, t->info->shape[k]);
    switch (t->code) {
    case I_bias:
    case I_bias_dw: n->bias.elems = n->bias.inner * trial_length(t, 100); break;
    case I_layernorm_bwd: /* rows that shared memory holds, and others */
    case I_rmsnorm_bwd:
        if (rng_below(&t->rng, 4) == 0)
            n->rmsnorm.rows = trial_pick(t, 1, 5),
            n->rmsnorm.n = trial_pick(t, 5000, 12000);
        /* fall through */
    case I_rmsnorm: n->rmsnorm.total = n->rmsnorm.n * trial_pick(t, 1, 2); break;
    case I_rows:
    case I_rows_dw: t->args.first = trial_pick(t, 0, n->rows.extra); break;
    case I_select:
    case I_select_dx: t->args.first = trial_pick(t, 0, n->select.rows - 1); break;
    case I_rotary: n->rotary.dim = 2 * trial_pick(t, 1, 40); break;
    case I_conv2d:
    case I_conv2d_dx:
    case I_conv2d_dw: trial_conv(t, &n->conv2d); break;
    case I_maxpool:
    case I_maxpool_dx: trial_pool(t, &n->maxpool); break;
    case I_halo_pack:
    case I_halo_join:
    case I_halo_add: trial_halo(t, &n->halo_join); break;
    case I_batchnorm_moments:
    case I_batchnorm_center:
    case I_batchnorm:
    case I_batchnorm_bwd_sums:
    case I_batchnorm_bwd: trial_groups(t, &n->batchnorm); break;
    case I_route:
    case I_route_dx: /* the gate of one choice that is divided by itself has no gradient */
        n->route.choices += n->route.normalize;
        n->route.experts = n->route.choices + trial_pick(t, 0, 70);
        if (t->code == I_route)
            trial_route(t, &n->route);
        break;
    case I_join:
    case I_join_bwd: trial_join(t, &n->join); break;
    case I_expert_load: n->expert_load.choices = trial_pick(t, 1, 2); break;
    case I_dispatch:
    case I_dispatch_dx:
    case I_combine:
    case I_combine_bwd:
        n->dispatch.total = n->dispatch.choices + trial_pick(t, 0, 9);
        n->dispatch.experts = trial_pick(t, 1, n->dispatch.total);
        t->args.first = trial_pick(t, 0, n->dispatch.total - n->dispatch.experts);
        break;
    case I_dropped: n->dropped.limit = trial_pick(t, 1, n->dropped.elems); break;
    case I_embedding_dw: /* rows that are sorted in one go, and more, which no dtype changes */
        if (rng_below(&t->rng, 8) == 0 && t->dtype == DTYPE_f32)
            n->embedding.rows = 8200, n->embedding.width = trial_pick(t, 1, 4);
        /* fall through */
    case I_embedding: t->args.first = trial_pick(t, 0, 2); break;
    case I_cross_entropy_part:
    case I_cross_entropy_dx:
        t->args.first = trial_pick(t, 0, 2) * n->cross_entropy_dx.n / 3;
        break;
    case I_copy: trial_copy(t, &n->copy); break;
    case I_dropout: trial_box(t, &n->dropout); break;
    case I_attention:
    case I_attention_bwd:
    case I_attention_more:
    case I_attention_more_bwd: trial_attentions(t); break;
    default: break;
    }
    if (t->code == I_expert_load)
        n->expert_load.experts += n->expert_load.choices;
    instr_work(t->code, n, &t->work);
    if (t->code == I_copy)
        t->work.in[0] = t->args.src_offset + 1 + (t->size[0] - 1) * t->from[0] +
                        (t->size[1] - 1) * t->from[1] + (t->size[2] - 1) * t->from[2];
}

/* ---- operands ----------------------------------------------------------------------------- */

/* Exactly so many bytes, aligned as in an arena; NULL for none. */
static void *trial_bytes(int64_t bytes) {
    void *p = NULL;
    if (bytes && posix_memalign(&p, 64, (size_t)bytes))
        abort();
    return p;
}

static int64_t trial_in_bytes(const struct trial *t, int k) {
    return t->work.in[k] * dtype_size(operand_dtype(&t->info->in[k], t->dtype));
}

static int64_t trial_out_bytes(const struct trial *t, int k) {
    return t->work.out[k] * dtype_size(operand_dtype(&t->info->out[k], t->dtype));
}

/* A number of an operand or result, whatever its type. */
static void trial_set(const struct trial *t, const struct operand_info *o, void *p,
                      int64_t i, float x) {
    const enum dtype dtype = operand_dtype(o, t->dtype);
    kernel_narrow(1, dtype, &x, (char *)p + i * dtype_size(dtype));
}

static double trial_get(const struct trial *t, const struct operand_info *o, const void *p,
                        int64_t i) {
    const enum dtype dtype = operand_dtype(o, t->dtype);
    float x;
    kernel_widen(1, dtype, (const char *)p + i * dtype_size(dtype), &x);
    return x;
}

/* Variances, second moments, sums of squares and of exponentials are positive; loads too. */
static bool trial_positive(const char *name) {
    static const char *const names[] = {"stat", "squares", "variance", "moments",
                                        "part", "v",       "load",     "centered"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

static float trial_value(struct trial *t, const struct operand_info *o) {
    float x = rng_normal(7, 0, rng_next(&t->rng));
    return trial_positive(o->name) ? 0.5f + fabsf(x) : x;
}

/* As a router fills them: each token's choices are different experts, and an expert's positions are
 * given out in turn. */
static void trial_slots(struct trial *t, int32_t *slots) {
    const bool routes = t->code == I_route_dx;
    const int64_t groups = t->n.v[0], tokens = t->n.v[1];
    const int64_t choices = routes ? t->n.route_dx.choices : t->n.dispatch.choices;
    const int64_t experts = routes ? t->n.route_dx.experts : t->n.dispatch.total;
    int32_t *taken = trial_bytes(experts * 4);
    for (int64_t g = 0; g < groups; g++) {
        memset(taken, 0, (size_t)experts * sizeof *taken);
        for (int64_t i = 0; i < tokens; i++) {
            int64_t first = rng_below(&t->rng, experts);
            for (int64_t c = 0; c < choices; c++) {
                int64_t e = (first + c) % experts;
                *slots++ = (int32_t)(taken[e]++ * experts + e);
            }
        }
    }
    free(taken);
}

/* Of the queries of an attention: documents of one length. */
static void trial_starts(struct trial *t, int64_t n, int32_t *starts) {
    const int64_t seq = t->n.attention.seq, length = trial_pick(t, 1, 50);
    for (int64_t i = 0; i < n; i++)
        starts[i] = (int32_t)((t->args.first + i % seq) / length * length);
}

static void trial_fill(struct trial *t, int k) {
    const struct operand_info *o = &t->info->in[k];
    int32_t *whole = t->in[k];
    if (o->flags & OPERAND_STARTS) {
        trial_starts(t, t->work.in[k], whole);
        return;
    }
    if (o->flags & OPERAND_SLOTS) {
        trial_slots(t, whole);
        return;
    }
    for (int64_t i = 0; i < t->work.in[k]; i++)
        if (o->flags & OPERAND_IDS)
            whole[i] = (int32_t)rng_below(&t->rng, t->work.below[k]) -
                       (rng_below(&t->rng, 8) == 0);
        else
            trial_set(t, o, whole, i, trial_value(t, o));
}

/* Some dims of a head or, of a shape that was asked for, all; some positions, some way to turn slower. */
static void trial_angles(struct trial *t, bool all) {
    const int64_t pairs = t->n.rotary.dim / 2;
    all |= rng_below(&t->rng, 2) > 0;
    t->args.first = trial_pick(t, 0, 3000);
    t->args.angles =
        (struct rotary_angles){.log2_base = log2(1e4),
                               .turned = 2 * (all ? pairs : trial_pick(t, 0, pairs)),
                               .factor = rng_below(&t->rng, 2) ? 1 : 8,
                               .original = rng_below(&t->rng, 3) ? 512 : 0,
                               .low = 1,
                               .high = 4,
                               .by_pair = rng_below(&t->rng, 2),
                               .gain = rng_below(&t->rng, 2) ? 1 : 1.2f};
    if (pairs > (int64_t)(sizeof t->slower / sizeof *t->slower) || rng_below(&t->rng, 3))
        return;
    for (int64_t i = 0; i < pairs; i++)
        t->slower[i] = 1 + (double)trial_pick(t, 0, 90) / 8;
    t->args.angles.slower = t->slower;
}

/* With the numbers of the shape, or random ones where it is NULL. */
static void trial_begin_shape(struct trial *t, enum opcode code, enum dtype dtype,
                              uint64_t seed, const int64_t *shape) {
    /* By name, so that new opcodes do not change the draws of the others. */
    const uint64_t named = hash_bytes(opcode_name(code), strlen(opcode_name(code)), seed);
    *t = (struct trial){.code = code,
                        .dtype = dtype,
                        .info = instr_info(code),
                        .rng = {.seed = rng_mix(named)},
                        .over = -1};
    t->now = (struct scalars){.lr = 0.1f,
                              .grad_scale = 0.7f,
                              .loss_scale = 2,
                              .updates = trial_pick(t, 1, 9),
                              .step = trial_pick(t, 0, 9),
                              .seed = seed,
                              .evaluating = rng_below(&t->rng, 5) == 0};
    t->per_target = 0.3;
    t->args = (struct device_args){.dtype = dtype,
                                   .scalars = &t->now,
                                   .matrices = &t->matrices,
                                   .counts = rng_below(&t->rng, 5) > 0 || shape,
                                   .per_target = &t->per_target,
                                   .weight = 0.6,
                                   .ignore = 1,
                                   .eps = 1e-5f,
                                   .scale = 0.1f,
                                   .distance = 16,
                                   .cap = 0.7f,
                                   .rate = 0.4f,
                                   .op = (int)trial_pick(t, 0, 5),
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .opt_eps = 1e-8f,
                                   .decay = 0.1f,
                                   .momentum = 0.9f};
    trial_shape(t);
    if (shape) {
        memcpy(t->n.v, shape, (size_t)t->info->n_shape * sizeof *shape);
        instr_work(code, &t->n, &t->work);
    }
    if (code == I_median || code == I_trimmed || code == I_fair)
        t->args.faulty = (int)(t->n.median.parts - 1) / 2;
    if (code == I_rotary)
        trial_angles(t, shape != NULL);
    if (code == I_rmsnorm || code == I_rmsnorm_bwd || code == I_rmsnorm_bwd_sums ||
        code == I_layernorm || code == I_layernorm_bwd || code == I_layernorm_bwd_sums)
        t->args.offset = (float)rng_below(&t->rng, 2);
    t->matrices = matrices_dense(&t->n.matmul);
    for (int k = 0; k < t->info->n_out && !t->args.fresh; k++)
        if (t->info->out[k].flags & OPERAND_FRESH)
            t->args.fresh = rng_below(&t->rng, 2);
    for (int k = 0; k < t->info->n_in; k++)
        if ((t->in[k] = trial_bytes(trial_in_bytes(t, k))))
            trial_fill(t, k);
}

__attribute__((unused)) static void trial_begin(struct trial *t, enum opcode code,
                                                enum dtype dtype, uint64_t seed) {
    trial_begin_shape(t, code, dtype, seed, NULL);
}

/* Is this result added to, and not written as in the first micro-batch of a step? */
static bool trial_adds(const struct trial *t, const struct operand_info *o) {
    return o->flags & OPERAND_ADD && !(t->args.fresh && o->flags & OPERAND_FRESH);
}

/* Room for results. What is added to begins with numbers, all else with NaN. With `over` the first
 * result has the place of that operand. */
__attribute__((unused)) static void trial_results(struct trial *t, int over) {
    t->over = over;
    for (int k = 0; k < t->info->n_out; k++) {
        const struct operand_info *o = &t->info->out[k];
        if (k == 0 && over >= 0) {
            t->out[k] = t->in[over];
            continue;
        }
        t->out[k] = trial_bytes(trial_out_bytes(t, k));
        for (int64_t i = 0; i < t->work.out[k]; i++)
            trial_set(t, o, t->out[k], i, trial_adds(t, o) ? trial_value(t, o) : NAN);
    }
}

__attribute__((unused)) static void trial_end(struct trial *t) {
    for (int k = 0; k < t->info->n_in; k++)
        free(t->in[k]);
    for (int k = t->over >= 0; k < t->info->n_out; k++)
        free(t->out[k]);
}

/* "layernorm bf16 5,7,1" */
__attribute__((unused)) static const char *trial_name(const struct trial *t, char *buf,
                                                      size_t size) {
    char shape[160];
    snprintf(buf, size, "%s %s %s", t->info->name, dtype_name(t->dtype),
             instr_shape_format(t->code, &t->n, shape, sizeof shape));
    return buf;
}

/* ---- running ------------------------------------------------------------------------------ */

__attribute__((unused)) static void trial_on_cpu(const struct trial *t) {
    union instr_src src = {{NULL}};
    union instr_dst dst = {{NULL}};
    memcpy(src.v, t->in, sizeof src.v);
    memcpy(dst.v, t->out, sizeof dst.v);
    cpu_exec(t->code, &t->n, &src, &dst, &t->args);
}

/* ---- comparing ---------------------------------------------------------------------------- */

static double trial_apart(double got, double want, double scale) {
    if (got == want || (isnan(got) && isnan(want)))
        return 0;
    const double apart = fabs(got - want) / (fabs(want) + scale);
    return isnan(apart) ? INFINITY : apart;
}

/* The largest distance of a number from what it should be, in units of it and the root of the mean
 * square of all of the result; of whole numbers none is small enough. Sums that go to the scalars are
 * numbers, too. */
__attribute__((unused)) static double trial_distance(const struct trial *got,
                                                     const struct trial *want) {
    double most = 0;
    for (int k = 0; k < want->info->n_out; k++) {
        const struct operand_info *o = &want->info->out[k];
        double squares = 0;
        int64_t finite = 0;
        if (o->flags & (OPERAND_IDS | OPERAND_SLOTS)) {
            if (want->work.out[k] &&
                memcmp(got->out[k], want->out[k], (size_t)want->work.out[k] * 4))
                return INFINITY;
            continue;
        }
        for (int64_t i = 0; i < want->work.out[k]; i++) {
            double x = trial_get(want, o, want->out[k], i);
            squares += isfinite(x) ? x * x : 0, finite += isfinite(x);
        }
        const double scale = sqrt(squares / (double)(finite ? finite : 1)) + 1e-30;
        for (int64_t i = 0; i < want->work.out[k]; i++)
            most = fmax(most, trial_apart(trial_get(got, o, got->out[k], i),
                                          trial_get(want, o, want->out[k], i), scale));
    }
    const struct scalars *a = &got->now, *b = &want->now;
    most = fmax(most, trial_apart(a->loss_sum, b->loss_sum, 1e-3));
    most = fmax(most, trial_apart(a->norm_squared, b->norm_squared, 1e-3));
    for (int k = 0; k < METRIC_COUNT; k++)
        most = fmax(most, trial_apart(a->metrics[k], b->metrics[k], 1e-3));
    return most;
}

#endif
