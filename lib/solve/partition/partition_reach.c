/* partition_reach.c - how far so many devices get when messages cost nothing.
 *
 * Without communication a larger down-set is never worse: whatever completes a smaller one,
 * less what the larger one has done already, completes the larger one. So for every number of
 * accelerators and CPUs used only the largest reachable down-sets are kept (none inside another),
 * and only largest stages are made: such that nothing left out would still fit. That is exact
 * for order, times and memory of whole items, which sums see only as a total: where memory
 * binds, or items are large, this is the bound that counts. If everything is reached, the way
 * there is a partition, which with its messages may be a better one than is known.
 */
#include "solve/partition/partition_core.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITEMS = 2000, MAX_SETS = 100000, MAX_STEPS = 3000000 };

struct reached {
    int32_t parent; /* -1: nothing placed yet */
    bool is_cpu;    /* the last stage */
};

typedef ARR(int32_t) list;

struct reach {
    const struct partition_core *c;
    struct partition_watch *w;
    double limit, max_size;
    uint64_t *bits; /* [sets * words] */
    ARR(struct reached) sets;
    list *at;     /* [accels * (cpus + 1) + cpus] the sets reached with so many */
    int32_t done; /* the set of everything, -1 = not reached */
    int64_t steps;
    bool gave_up;
    /* the stage that grows */
    int32_t from;
    int accels, cpus; /* used with it */
    bool is_cpu;
    double flight, time, size;
    double open_time, open_size;                         /* of what it can still take */
    double left[PARTITION_RATES], room[PARTITION_RATES]; /* given up; what comes can hold */
    uint64_t *now, *closed;
    int32_t *need; /* predecessors that are not placed */
    list cand, closed_stack;
    bool *left_out; /* [of cand] and it would have fitted then */
};

static uint64_t *bits_of(const struct reach *g, int64_t set) {
    return g->bits + (size_t)set * (size_t)g->c->words;
}

static double item_time(const struct reach *g, int32_t v) {
    return g->is_cpu ? g->c->cpu[v] : g->c->accel[v];
}

static double item_size(const struct reach *g, int32_t v) {
    return g->is_cpu ? 0 : g->c->size[v] + g->flight * g->c->act[v];
}

static bool fits(const struct reach *g, int32_t v) {
    return (g->is_cpu || g->c->supported[v]) && g->time + item_time(g, v) <= g->limit &&
           g->size + item_size(g, v) <= g->max_size;
}

static bool inside(const uint64_t *a, const uint64_t *b, int32_t words) {
    for (int32_t i = 0; i < words; i++)
        if (a[i] & ~b[i])
            return false;
    return true;
}

/* Stores I + S unless another set reached with as many devices contains it. */
static void store(struct reach *g) {
    const struct partition_core *c = g->c;
    list *l = &g->at[g->accels * (c->cpus + 1) + g->cpus];
    int64_t kept = 0;
    g->steps += l->n / 8;
    for (int64_t i = 0; i < l->n; i++)
        if (inside(g->now, bits_of(g, l->p[i]), c->words))
            return;
    for (int64_t i = 0; i < l->n; i++)
        if (!inside(bits_of(g, l->p[i]), g->now, c->words))
            l->p[kept++] = l->p[i];
    l->n = kept;
    int64_t set = g->sets.n;
    if (set == MAX_SETS) {
        g->gave_up = true;
        return;
    }
    if ((set & (set - 1)) == 0) /* room for twice as many */
        g->bits =
            mem_grow(g->bits, 2 * (size_t)(set + 1) * (size_t)c->words, sizeof *g->bits);
    memcpy(bits_of(g, set), g->now, (size_t)c->words * sizeof *g->now);
    arr_push(&g->sets, (struct reached){g->from, g->is_cpu});
    arr_push(l, (int32_t)set);
    bool all = true;
    for (int32_t v = 0; v < c->n && all; v++)
        all = partition_set_has(g->now, v);
    if (all)
        g->done = (int32_t)set;
}

static bool over(struct reach *g) {
    return g->gave_up || g->done >= 0 || partition_watch_stop(g->w);
}

/* Keeps the stage, of which everything is decided, if nothing left out still fits. */
static void complete(struct reach *g) {
    for (int64_t i = 0; i < g->cand.n; i++)
        if (g->left_out[i] && fits(g, g->cand.p[i]))
            return;
    store(g);
}

/* Gives up v and everything behind it. Returns how many were on the stack before. */
static int64_t close_behind(struct reach *g, int32_t v) {
    const struct partition_core *c = g->c;
    int64_t before = g->closed_stack.n;
    const uint64_t *desc = c->desc + (size_t)v * (size_t)c->words;
    for (int32_t i = v >> 6; i < c->words; i++)
        for (uint64_t fresh = desc[i] & ~g->closed[i]; fresh; fresh &= fresh - 1) {
            int32_t x = i * 64 + __builtin_ctzll(fresh);
            partition_set_add(g->closed, x);
            arr_push(&g->closed_stack, x);
            g->open_time -= item_time(g, x), g->open_size -= item_size(g, x);
            for (int r = 0; r < c->rates; r++)
                g->left[r] += c->rate[r].worth[x];
        }
    return before;
}

/* Returns whether the remaining devices can hold what is given up. */
static bool held(const struct reach *g) {
    for (int r = 0; r < g->c->rates; r++)
        if (g->left[r] > g->room[r] + 2 * g->c->rate[r].slack)
            return false;
    return true;
}

static void branch(struct reach *g, int64_t at);

static void leave(struct reach *g, int64_t at, bool fitted) {
    int32_t v = g->cand.p[at];
    double time = g->open_time, size = g->open_size, left[PARTITION_RATES];
    memcpy(left, g->left, sizeof left);
    int64_t before = close_behind(g, v);
    /* If v fits beside everything that can still come, no largest stage is without it. */
    bool room = fitted && g->time + g->open_time + item_time(g, v) <= g->limit &&
                g->size + g->open_size + item_size(g, v) <= g->max_size;
    g->left_out[at] = fitted;
    if (!room && held(g))
        branch(g, at + 1);
    g->left_out[at] = false;
    while (g->closed_stack.n > before)
        partition_set_drop(g->closed, g->closed_stack.p[--g->closed_stack.n]);
    g->open_time = time, g->open_size = size;
    memcpy(g->left, left, sizeof left);
}

/* Decides the free item at this place of cand and all that follow. */
static void branch(struct reach *g, int64_t at) {
    const struct partition_core *c = g->c;
    g->gave_up = g->gave_up || ++g->steps > MAX_STEPS;
    if (over(g))
        return;
    if (at == g->cand.n) {
        complete(g);
        return;
    }
    int32_t v = g->cand.p[at];
    bool fitted = fits(g, v);
    if (fitted) {
        double time = g->time, size = g->size;
        double open_time = g->open_time, open_size = g->open_size;
        int64_t end = g->cand.n;
        g->time += item_time(g, v), g->size += item_size(g, v);
        g->open_time -= item_time(g, v), g->open_size -= item_size(g, v);
        partition_set_add(g->now, v);
        for (int32_t e = c->succ.at[v]; e < c->succ.at[v + 1]; e++)
            if (!--g->need[c->succ.v[e]])
                arr_push(&g->cand, c->succ.v[e]);
        branch(g, at + 1);
        for (int32_t e = c->succ.at[v]; e < c->succ.at[v + 1]; e++)
            g->need[c->succ.v[e]]++;
        partition_set_drop(g->now, v);
        g->cand.n = end;
        g->time = time, g->size = size;
        g->open_time = open_time, g->open_size = open_size;
    }
    leave(g, at, fitted);
}

/* Makes all largest stages of one kind behind a set. */
static void extend(struct reach *g, int32_t set, int accels, int cpus, bool is_cpu) {
    const struct partition_core *c = g->c;
    size_t words = (size_t)c->words * sizeof *g->now;
    g->from = set, g->is_cpu = is_cpu;
    g->accels = accels + !is_cpu, g->cpus = cpus + is_cpu;
    if (g->accels > c->accels || g->cpus > c->cpus)
        return;
    g->flight = fmin((double)c->micro_batches, accels + cpus + 1);
    g->time = g->size = g->open_time = g->open_size = 0;
    memcpy(g->now, bits_of(g, set), words), memcpy(g->closed, g->now, words);
    memset(g->left, 0, sizeof g->left);
    for (int r = 0; r < c->rates; r++)
        g->room[r] =
            partition_rates_room(c, r, g->limit, c->accels - g->accels, c->cpus - g->cpus);
    g->cand.n = g->closed_stack.n = 0;
    for (int32_t v = 0; v < c->n; v++) {
        if (partition_set_has(g->now, v))
            continue;
        g->open_time += item_time(g, v), g->open_size += item_size(g, v);
        g->need[v] = 0;
        for (int32_t e = c->pred.at[v]; e < c->pred.at[v + 1]; e++)
            g->need[v] += !partition_set_has(g->now, c->pred.v[e]);
        if (!g->need[v])
            arr_push(&g->cand, v);
    }
    branch(g, 0);
}

static void take_chain(const struct reach *g, struct partition_chain *ch) {
    const struct partition_core *c = g->c;
    ch->stages = 0;
    for (int32_t s = g->done; g->sets.p[s].parent >= 0; s = g->sets.p[s].parent)
        ch->stages++;
    for (int32_t s = g->done, k = ch->stages; --k >= 0; s = g->sets.p[s].parent) {
        ch->is_cpu[k] = g->sets.p[s].is_cpu;
        for (int32_t v = 0; v < c->n; v++)
            if (partition_set_has(bits_of(g, s), v))
                ch->stage_of[v] = k; /* smaller sets overwrite */
    }
}

/* Returns the value with all messages, or INFINITY above the limit on loads. */
static double chain_value(const struct partition_core *c,
                          const struct partition_chain *ch) {
    double *load = mem_array((size_t)ch->stages + 1, sizeof *load), value = 0;
    int32_t *in = mem_array((size_t)ch->stages + 1, sizeof *in);
    for (int32_t v = 0; v < c->n; v++)
        load[ch->stage_of[v]] += ch->is_cpu[ch->stage_of[v]] ? c->cpu[v] : c->accel[v];
    for (int32_t h = 0; h < c->tensors; h++) {
        const int32_t *pin = c->pins.v + c->pins.at[h];
        int32_t pins = c->pins.at[h + 1] - c->pins.at[h];
        for (int32_t i = 0; i < pins; i++)
            in[ch->stage_of[pin[i]]]++;
        for (int32_t i = 0; i < pins; i++) {
            int32_t s = ch->stage_of[pin[i]];
            if (in[s] && in[s] < pins && !ch->is_cpu[s])
                load[s] += c->weight[h];
            in[s] = 0;
        }
    }
    for (int s = 0; s < ch->stages; s++)
        value = fmax(value, load[s]);
    free(load), free(in);
    return value <= c->max_load * (1 + 1e-9) ? value : INFINITY;
}

bool partition_reach_fit(const struct partition_core *c) {
    return c->goal == PARTITION_MAXLOAD && c->desc && c->n <= MAX_ITEMS &&
           c->succ.at[c->n] >= c->n / 2; /* without order there are too many sets */
}

static void reach_init(struct reach *g, const struct partition_core *c, double limit,
                       struct partition_watch *w) {
    size_t n = (size_t)c->n + 1;
    *g = (struct reach){.c = c,
                        .w = w,
                        .limit = limit * (1 + 1e-12),
                        .max_size = c->max_size * (1 + 1e-12),
                        .done = -1,
                        .from = -1};
    g->now = mem_array((size_t)c->words + 1, sizeof *g->now);
    g->closed = mem_array((size_t)c->words + 1, sizeof *g->closed);
    g->need = mem_array(n, sizeof *g->need);
    g->left_out = mem_array(n, sizeof *g->left_out);
    g->at = mem_array((size_t)(c->accels + 1) * (size_t)(c->cpus + 1), sizeof *g->at);
}

static void reach_release(struct reach *g) {
    for (int i = 0; i < (g->c->accels + 1) * (g->c->cpus + 1); i++)
        arr_release(&g->at[i]);
    free(g->at), free(g->bits), free(g->now), free(g->closed), free(g->need);
    free(g->left_out);
    arr_release(&g->sets), arr_release(&g->cand), arr_release(&g->closed_stack);
}

enum partition_reach partition_reach(const struct partition_core *c, double limit,
                                     struct partition_watch *w,
                                     struct partition_chain *ch) {
    struct reach g;
    reach_init(&g, c, limit, w);
    store(&g); /* nothing, with no device */
    for (int used = 0; used < c->accels + c->cpus; used++)
        for (int cpus = 0; cpus <= c->cpus && cpus <= used; cpus++) {
            int accels = used - cpus;
            const list *l = &g.at[accels * (c->cpus + 1) + cpus];
            for (int64_t i = 0; accels <= c->accels && i < l->n && !over(&g); i++)
                for (int kind = 0; kind < 2; kind++)
                    extend(&g, l->p[i], accels, cpus, kind);
        }
    enum partition_reach end = g.done >= 0               ? PARTITION_REACHED
                               : g.gave_up || w->stopped ? PARTITION_REACH_UNKNOWN
                                                         : PARTITION_OUT_OF_REACH;
    if (end == PARTITION_REACHED) {
        take_chain(&g, ch);
        ch->value = chain_value(c, ch);
    }
    reach_release(&g);
    return end;
}
