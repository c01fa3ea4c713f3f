/* The dynamic program over a source's chain, from its end: an op in a stage with so many others
 * behind it, in one of its layouts, computed again or not. See source_bound.h. */
#include "search/source/source.h"
#include "search/source/source_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_LAYOUTS = 16,
    MOST_WAYS = 2 * MOST_LAYOUTS, /* layout, and is it marked? */
    END = 255,                    /* the stage ends behind the op */
};

/* A kind of op on stages of one size. Between: from the op before it. */
struct floor {
    int n;
    double us[MOST_LAYOUTS], recompute_us[MOST_LAYOUTS];
    double fixed[MOST_LAYOUTS], reserved[MOST_LAYOUTS]; /* bytes, whatever is in flight, */
    double kept[MOST_LAYOUTS], dropped[MOST_LAYOUTS];   /* and of a micro-batch in flight */
    double between[MOST_LAYOUTS][MOST_LAYOUTS];
    double in_us, out_us; /* messages at a cut in front of it and behind it, at least */
    struct source_least least;
    struct layout layouts[MOST_LAYOUTS];
};

/* A stage that begins with some op. */
struct start {
    double value;
    int stage, strategy;
};

struct source_floors {
    const struct space *sp;
    double micro_batches;
    int n_ops, n_kinds, *kind, *op_of; /* [n_ops] with neighbours; [n_kinds] an op of it */
    struct floor **sizes;              /* [devices + 1]: [n_kinds], or NULL */
    int most;                          /* stages that there is room for, and then */
    double *values;     /* of an op and of the one behind it: [2][stage][way] */
    uint8_t *from;      /* [op][stage][way]: the way of the next op, or END */
    struct start *best; /* [op][stages behind]: the best of those that begin with it */
};

/* ---- what ops take ---------------------------------------------------------------------- */

static int node_at(const struct space *sp, int op) {
    return op < 0 || op >= sp->p.model->n_ops ? -1 : sp->blocks.x.of[op];
}

/* Ops of one kind are the same and stand between the same ones. */
static void find_kinds(struct source_floors *f) {
    const struct space *sp = f->sp;
    struct memo seen = {0};
    f->kind = mem_array((size_t)f->n_ops, sizeof *f->kind);
    f->op_of = mem_array((size_t)f->n_ops, sizeof *f->op_of);
    for (int i = 0; i < f->n_ops; i++) {
        uint64_t key = 1;
        for (int k = -1; k <= 1; k++)
            key = memo_mix(key, (uint64_t)(node_at(sp, i + k) + 2));
        void **slot = memo_slot(&seen, key);
        if (!*slot) {
            f->op_of[f->n_kinds++] = i;
            *slot = &f->op_of[f->n_kinds - 1];
        }
        f->kind[i] = (int)((int *)*slot - f->op_of);
    }
    memo_release(&seen, NULL);
}

/* False where the op cannot be in such a stage. */
static bool fill_op_bound(struct source_floors *f, const struct source_ask *ask,
                          const struct mesh *mesh, int op, struct floor *to) {
    const struct space *sp = f->sp;
    struct source *src = sp->p.source;
    struct layout all[MOST_LAYOUTS];
    int n =
        source_layouts(&sp->p.model->ops[op], mesh, sp->p.model->batch, all, MOST_LAYOUTS);
    to->least = (struct source_least){INFINITY, INFINITY, INFINITY, INFINITY};
    for (int i = 0; i < n; i++) {
        struct source_op cost;
        if (!src->op(src, ask, op, &all[i], &cost))
            continue;
        to->us[to->n] = cost.us;
        to->recompute_us[to->n] = cost.recompute_us;
        to->fixed[to->n] = cost.fixed_bytes;
        to->reserved[to->n] = cost.reserved_bytes;
        to->kept[to->n] = cost.kept_bytes;
        to->dropped[to->n] = cost.recompute_bytes;
        to->least.us = fmin(to->least.us, cost.us);
        to->least.reserved_bytes = fmin(to->least.reserved_bytes, cost.reserved_bytes);
        to->least.forward_bytes = fmin(to->least.forward_bytes, cost.forward_bytes);
        to->least.backward_bytes = fmin(to->least.backward_bytes, cost.backward_bytes);
        to->layouts[to->n++] = all[i];
    }
    src->ends(src, ask, op, &to->in_us, &to->out_us);
    return to->n > 0;
}

static void fill_between(struct source_floors *f, const struct source_ask *ask, int kind,
                         struct floor *all) {
    struct source *src = f->sp->p.source;
    int op = f->op_of[kind];
    if (!op)
        return;
    const struct floor *before = &all[f->kind[op - 1]];
    struct floor *to = &all[kind];
    for (int b = 0; b < before->n; b++)
        for (int i = 0; i < to->n; i++)
            to->between[b][i] =
                src->between(src, ask, op, &before->layouts[b], &to->layouts[i]);
}

static struct floor *fill_size(struct source_floors *f, int devices) {
    struct floor *all = mem_array((size_t)f->n_kinds, sizeof *all);
    struct mesh mesh;
    /* With nothing behind it one micro-batch is in flight. */
    struct source_ask ask = {.graph = &f->sp->blocks,
                             .devices = devices,
                             .devices_per_node = (int)f->sp->p.cluster.groups[0].devices,
                             .micro_batch = f->sp->p.batch / (int64_t)f->micro_batches};
    stage_mesh(devices, NULL, &mesh);
    for (int k = 0; k < f->n_kinds; k++)
        if (!fill_op_bound(f, &ask, &mesh, f->op_of[k], &all[k])) {
            free(all);
            return NULL;
        }
    for (int k = 0; k < f->n_kinds; k++)
        fill_between(f, &ask, k, all);
    return all;
}

struct source_floors *source_floors_make(const struct space *sp, int64_t micro_batch) {
    struct source_floors *f = mem_alloc(sizeof *f);
    *f = (struct source_floors){.sp = sp,
                                .micro_batches = (double)(sp->p.batch / micro_batch),
                                .n_ops = sp->p.model->n_ops};
    find_kinds(f);
    f->sizes = mem_array((size_t)sp->p.devices + 1, sizeof *f->sizes);
    for (int d = 1; d <= sp->p.devices; d++)
        f->sizes[d] = fill_size(f, d);
    return f;
}

bool source_floors_have(const struct source_floors *f, int devices) {
    return f->sizes[devices] != NULL;
}

struct source_least source_floors_least(const struct source_floors *f, int devices,
                                        int op) {
    return f->sizes[devices][f->kind[op]].least;
}

static void free_room(struct source_floors *f) {
    free(f->values);
    free(f->from);
    free(f->best);
}

void source_floors_free(struct source_floors *f) {
    for (int d = 1; d <= f->sp->p.devices; d++)
        free(f->sizes[d]);
    free_room(f);
    free(f->sizes);
    free(f->kind);
    free(f->op_of);
    free(f);
}

/* ---- the walk ------------------------------------------------------------------------------ */

static void make_room(struct source_floors *f, int n) {
    if (n <= f->most)
        return;
    free_room(f);
    f->most = n;
    size_t strategies = (size_t)n * MOST_WAYS, ops = (size_t)f->n_ops;
    f->values = mem_array(2 * strategies, sizeof *f->values);
    f->from = mem_array(ops * strategies, sizeof *f->from);
    f->best = mem_array(ops * (size_t)f->sp->p.devices, sizeof *f->best);
}

static struct start *starts_at(const struct source_floors *f, int op) {
    return f->best + (size_t)op * (size_t)f->sp->p.devices;
}

/* Ops i .. end, with op i in one stage. */
struct step {
    const struct floor *op, *next;
    double share; /* of an objective's microsecond in one of the stage */
    double price; /* of a byte */
    double in_flight;
    double reserves; /* 1, or 0 where the stage has its own */
    double ends;     /* if the stage ends behind it */
};

/* Of one layout: not marked and marked. */
static void step_layout(const struct step *x, int c, const double *next, double *value,
                        uint8_t *from) {
    const struct floor *op = x->op;
    double best[2] = {x->ends, x->ends};
    uint8_t at[2] = {END, END};
    double drop = x->price * op->dropped[c] * x->in_flight;
    for (int k = 0; x->next && k < x->next->n; k++) {
        double us = x->share * x->next->between[c][k];
        double plain = next[2 * k] + us, marked = next[2 * k + 1] + us;
        for (int m = 0; m < 2; m++) {
            double v = marked - (m ? drop : 0);
            bool better = v < plain;
            v = better ? v : plain;
            if (v < best[m]) {
                best[m] = v;
                at[m] = (uint8_t)(2 * k + better);
            }
        }
    }
    double own =
        x->share * op->us[c] + x->price * (op->fixed[c] + op->kept[c] * x->in_flight);
    value[2 * c] = best[0] + own;
    value[2 * c + 1] = best[1] + own + x->share * op->recompute_us[c];
    from[2 * c] = at[0];
    from[2 * c + 1] = at[1];
}

static double share_of(const struct source_floors *f, const struct source_stage_price *st) {
    return 1 + (f->micro_batches - 1) * st->weight;
}

/* Is it the best of its kind that begins with op i? */
static void offer_start(struct source_floors *f, const struct source_stage_price *st, int t,
                        int i, const struct floor *op, const double *value) {
    struct start *best = &starts_at(f, i)[st->behind];
    if (i < st->least || i > st->most)
        return;
    double memory = (double)f->sp->p.memory_bytes, more = st->fixed_us;
    more +=
        (i ? share_of(f, st) * op->in_us : 0) - st->us_per_byte * (memory - st->own_bytes);
    for (int w = 0; w < 2 * op->n; w++)
        if (value[w] + more < best->value)
            *best = (struct start){value[w] + more, t, w};
}

static void step_op(struct source_floors *f, const struct source_stage_price *stages, int n,
                    int i, int64_t *steps) {
    size_t room = (size_t)f->most * MOST_WAYS;
    bool last = i == f->n_ops - 1;
    for (int k = 0; k < f->sp->p.devices; k++)
        starts_at(f, i)[k].value = INFINITY;
    for (int t = 0; t < n; t++) {
        const struct source_stage_price *st = &stages[t];
        const struct floor *all = f->sizes[st->devices];
        size_t at = (size_t)t * MOST_WAYS;
        double *value = f->values + (size_t)(i & 1) * room + at;
        const double *next = f->values + (size_t)(~i & 1) * room + at;
        uint8_t *from = f->from + (size_t)i * room + at;
        if (i < st->least || i >= st->end) {
            for (int w = 0; w < MOST_WAYS; w++)
                value[w] = INFINITY;
            continue;
        }
        struct step x = {.op = &all[f->kind[i]],
                         .next = last ? NULL : &all[f->kind[i + 1]],
                         .share = share_of(f, st),
                         .price = st->us_per_byte,
                         .in_flight = st->behind + 1,
                         .reserves = st->own_bytes > 0 ? 0 : 1,
                         .ends = last && !st->behind ? 0 : INFINITY};
        if (!last && st->behind)
            x.ends = starts_at(f, i + 1)[st->behind - 1].value + x.share * x.op->out_us;
        for (int c = 0; c < x.op->n; c++)
            step_layout(&x, c, next, value, from);
        offer_start(f, st, t, i, x.op, value);
        *steps += last ? 0 : 2 * x.op->n * x.next->n;
    }
}

/* Adds up what the stages of the cheapest way have. */
static void trace(const struct source_floors *f, struct source_stage_price *stages,
                  const struct start *first) {
    size_t room = (size_t)f->most * MOST_WAYS;
    int t = first->stage, strategy = first->strategy;
    for (int i = 0; i < f->n_ops; i++) {
        struct source_stage_price *st = &stages[t];
        const struct floor *all = f->sizes[st->devices], *op = &all[f->kind[i]];
        int c = strategy / 2, marked = strategy % 2, flight = st->behind + 1;
        int from = f->from[(size_t)i * room + (size_t)t * MOST_WAYS + (size_t)strategy];
        st->us += op->us[c] + (marked ? op->recompute_us[c] : 0);
        st->bytes += op->fixed[c] + op->kept[c] * flight;
        st->bytes += st->own_bytes > 0 ? 0 : op->reserved[c];
        if (from != END) {
            st->us += all[f->kind[i + 1]].between[c][from / 2];
            st->bytes -= marked && from % 2 ? op->dropped[c] * flight : 0;
            strategy = from;
        } else if (i < f->n_ops - 1) {
            const struct start *next = &starts_at(f, i + 1)[st->behind - 1];
            st->us += op->out_us;
            t = next->stage;
            strategy = next->strategy;
            stages[t].us += f->sizes[stages[t].devices][f->kind[i + 1]].in_us;
        }
    }
}

double source_floors_walk(struct source_floors *f, struct source_stage_price *stages, int n,
                          bool whole, int64_t *steps) {
    const struct start *best = NULL;
    int most = 0;
    make_room(f, n);
    for (int t = 0; t < n; t++) {
        stages[t].us = 0;
        stages[t].bytes = stages[t].own_bytes;
        most = stages[t].behind > most ? stages[t].behind : most;
    }
    for (int i = f->n_ops - 1; i >= 0; i--)
        step_op(f, stages, n, i, steps);
    for (int k = whole ? most : 0; k <= most; k++)
        if (!best || starts_at(f, 0)[k].value < best->value)
            best = &starts_at(f, 0)[k];
    if (!best || !isfinite(best->value))
        return INFINITY;
    trace(f, stages, best);
    return best->value;
}
