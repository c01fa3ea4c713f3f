/* partition_line.c - incumbents: the dynamic program over the prefixes of one order.
 *
 * Along a fixed topological order the down-sets are its prefixes, and the best partition is
 * found in O(n * longest stage) steps. The first orders follow branches to their end, go
 * level by level, and put everything as late as it can stand. Most later ones keep the
 * stages of the best partition so far in place and shuffle inside of them, so that
 * boundaries can move to down-sets nearby and the result is never worse.
 */
#include "solve/partition/partition_core.h"

#include "common/mem.h"
#include "common/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ENDS     3000 /* places on an order where a stage may end ... */
#define FEW_ENDS 200  /* ... for the first answer */
#define PLAIN    3    /* orders that are not drawn at random */

/* The best partition of a prefix on so many devices. */
struct cell {
    double value;
    int32_t from; /* prefix before the last stage */
    bool is_cpu;
};

struct line {
    const struct partition_core *c;
    int32_t *order, *in_s, *need;
    int accels, cpus, layers; /* devices considered; pairs of such numbers */
    int32_t stride;     /* stages end at multiples of it, so that long orders stay cheap */
    struct cell *cells; /* [prefix][accels * (cpus + 1) + cpus] */
    double cut;
};

/* Draws an order: stage by stage of `best`, inside each with a stack (level = false) or a
 * queue, shuffled unless rng is NULL. */
static void draw_order(struct line *l, const struct partition_chain *best, bool level,
                       struct rng *rng) {
    const struct partition_core *c = l->c;
    int stages = isfinite(best->value) ? best->stages : 1;
    int32_t *list = mem_array((size_t)c->n + 1, sizeof *list), done = 0;
    for (int32_t v = 0; v < c->n; v++)
        l->need[v] = c->pred.at[v + 1] - c->pred.at[v];
    for (int s = 0; s < stages; s++) {
        int32_t lo = 0, hi = 0; /* free items of this stage stand in list[lo..hi) */
        for (int32_t v = c->n - 1; v >= 0; v--)
            if (!l->need[v] && (stages == 1 || best->stage_of[v] == s))
                list[hi++] = v;
        while (lo < hi) {
            if (rng) {
                int32_t x = lo + (int32_t)rng_below(rng, hi - lo),
                        top = level ? lo : hi - 1;
                /* Mostly go on where we are, sometimes jump. */
                if (rng_below(rng, 4) == 0 || level) {
                    int32_t t = list[x];
                    list[x] = list[top], list[top] = t;
                }
            }
            int32_t v = level ? list[lo++] : list[--hi];
            l->order[done++] = v;
            l->need[v] = -1;
            for (int32_t e = c->succ.at[v]; e < c->succ.at[v + 1]; e++) {
                int32_t x = c->succ.v[e];
                if (!--l->need[x] && (stages == 1 || best->stage_of[x] == s))
                    list[hi++] = x;
            }
        }
    }
    free(list);
}

/* Draws the order in which every item stands as late as it can, level by level. Items with
 * nothing in front of them then stand near those that need them, instead of all at the
 * beginning. */
static void draw_late(struct line *l) {
    const struct partition_core *c = l->c;
    const struct partition_chain none = {.value = INFINITY};
    int32_t *height = mem_array((size_t)c->n + 1, sizeof *height), most = 0;
    int32_t *first = mem_array((size_t)c->n + 2, sizeof *first);
    draw_order(l, &none, true, NULL);
    for (int32_t i = c->n - 1; i >= 0; i--) {
        int32_t v = l->order[i];
        for (int32_t e = c->succ.at[v]; e < c->succ.at[v + 1]; e++)
            if (height[c->succ.v[e]] >= height[v])
                height[v] = height[c->succ.v[e]] + 1;
        most = height[v] > most ? height[v] : most;
    }
    for (int32_t v = 0; v < c->n; v++)
        first[most - height[v] + 1]++;
    for (int32_t h = 0; h < most; h++)
        first[h + 1] += first[h];
    for (int32_t v = 0; v < c->n; v++)
        l->order[first[most - height[v]]++] = v;
    free(height), free(first);
}

/* Draws the k-th of the plain orders: by a stack, by a queue, or late. */
static void draw_plain(struct line *l, int k) {
    const struct partition_chain none = {.value = INFINITY};
    if (k < 2)
        draw_order(l, &none, k == 1, NULL);
    else
        draw_late(l);
}

/* The stage that grows from one prefix. */
struct piece {
    double accel, cpu, size, act, touched, full;
    bool supported;
};

static void piece_add(struct line *l, struct piece *s, int32_t v) {
    const struct partition_core *c = l->c;
    s->accel += c->accel[v], s->cpu += c->cpu[v];
    s->size += c->size[v], s->act += c->act[v];
    s->supported = s->supported && c->supported[v];
    for (int32_t e = c->touch.at[v]; e < c->touch.at[v + 1]; e++) {
        int32_t h = c->touch.v[e], in_s = ++l->in_s[h];
        if (in_s == 1)
            s->touched += c->weight[h];
        if (in_s == c->pins.at[h + 1] - c->pins.at[h])
            s->full += c->weight[h];
    }
}

/* Tries the piece as the next stage behind prefix i, with every number of devices. */
static void piece_end(struct line *l, const struct piece *s, int32_t i, int32_t j) {
    const struct partition_core *c = l->c;
    double load = s->accel + (s->touched - s->full);
    struct cell *from = l->cells + (size_t)i * (size_t)l->layers;
    struct cell *to = l->cells + (size_t)j * (size_t)l->layers;
    for (int a = 0; a <= l->accels; a++)
        for (int b = 0; b <= l->cpus; b++) {
            int at = a * (l->cpus + 1) + b;
            double value = from[at].value;
            if (value >= l->cut)
                continue;
            double flight = fmin((double)c->micro_batches, a + b + 1);
            double on_accel = fmax(value, load), on_cpu = fmax(value, s->cpu);
            if (a < l->accels && s->supported &&
                s->size + flight * s->act <= c->max_size * (1 + 1e-12) &&
                on_accel < to[at + l->cpus + 1].value)
                to[at + l->cpus + 1] = (struct cell){on_accel, i, false};
            if (b < l->cpus && on_cpu < to[at + 1].value)
                to[at + 1] = (struct cell){on_cpu, i, true};
        }
}

/* Returns whether extending the piece is of no use. */
static bool piece_over(const struct line *l, const struct piece *s) {
    const struct partition_core *c = l->c;
    bool accel = s->supported && s->accel <= l->cut &&
                 s->size + s->act <= c->max_size * (1 + 1e-12) && l->accels;
    bool cpu = s->cpu <= l->cut && l->cpus;
    return !accel && !cpu;
}

static void fill_cells(struct line *l, struct partition_watch *w) {
    const struct partition_core *c = l->c;
    size_t count = (size_t)(c->n + 1) * (size_t)l->layers, tensors = (size_t)c->tensors;
    for (size_t i = 0; i < count; i++)
        l->cells[i].value = INFINITY;
    l->cells[0].value = 0;
    for (int32_t i = 0; i < c->n; i += l->stride) {
        /* On a long order one piece takes longer than reading the clock. */
        if (partition_watch_stop(w) || partition_watch_stop_now(w))
            return;
        struct piece s = {.supported = true};
        memset(l->in_s, 0, tensors * sizeof *l->in_s);
        bool reached = false;
        for (int at = 0; at < l->layers; at++)
            reached = reached ||
                      l->cells[(size_t)i * (size_t)l->layers + (size_t)at].value < l->cut;
        for (int32_t j = i; reached && j < c->n; j++) {
            piece_add(l, &s, l->order[j]);
            if ((j + 1) % l->stride == 0 || j + 1 == c->n)
                piece_end(l, &s, i, j + 1);
            if (piece_over(l, &s))
                break;
        }
    }
}

static bool take_best(struct line *l, struct partition_chain *best) {
    const struct cell *end = l->cells + (size_t)l->c->n * (size_t)l->layers;
    int at = 0, stages = 0;
    for (int i = 1; i < l->layers; i++)
        if (end[i].value < end[at].value)
            at = i;
    if (end[at].value >= fmin(l->cut, best->value))
        return false;
    best->value = l->cut = end[at].value;
    for (int32_t j = l->c->n; j > 0; stages++) {
        const struct cell *x = l->cells + (size_t)j * (size_t)l->layers + at;
        for (int32_t i = x->from; i < j; i++)
            best->stage_of[l->order[i]] = stages;
        best->is_cpu[stages] = x->is_cpu;
        at -= x->is_cpu ? 1 : l->cpus + 1;
        j = x->from;
    }
    best->stages = stages; /* numbered from the end so far, so they are reversed */
    for (int32_t v = 0; v < l->c->n; v++)
        best->stage_of[v] = stages - 1 - best->stage_of[v];
    for (int s = 0; 2 * s < stages - 1; s++) {
        bool t = best->is_cpu[s];
        best->is_cpu[s] = best->is_cpu[stages - 1 - s];
        best->is_cpu[stages - 1 - s] = t;
    }
    return true;
}

/* Finds the best partition whose stages end in fewer places, which is quick on long
 * orders. */
static bool try_few_ends(struct line *l, struct partition_watch *w,
                         struct partition_chain *best) {
    int32_t stride = l->stride;
    l->stride = 1 + l->c->n / FEW_ENDS;
    fill_cells(l, w);
    bool found = !w->stopped && take_best(l, best);
    l->stride = stride;
    return found;
}

/* Finds a first answer on long orders along one of the plain orders. Stages stay short
 * below a cut, which makes it cheap, and the first cut is often high enough. */
static bool try_first(struct line *l, struct partition_watch *w,
                      struct partition_chain *best) {
    static const double cuts[] = {1.25, 1.6, 2.5, INFINITY};
    double least = partition_rates_least(l->c);
    bool found = false;
    for (int i = 0; i < 4 * PLAIN && !found && !w->stopped; i++) {
        l->cut = cuts[i / PLAIN] * least;
        draw_plain(l, i % PLAIN);
        found = try_few_ends(l, w, best);
    }
    l->cut = best->value;
    return found;
}

/* Finds the best partition along the order that was drawn, if it beats `best`. The first
 * one is found faster below a cut. */
static bool try_order(struct line *l, struct partition_watch *w,
                      struct partition_chain *best) {
    if (isinf(best->value)) {
        l->cut = 1.25 * partition_rates_least(l->c);
        fill_cells(l, w);
        if (!w->stopped && take_best(l, best) && l->stride == 1)
            return true;
        l->cut = best->value;
    }
    fill_cells(l, w);
    return !w->stopped && take_best(l, best);
}

void partition_line(const struct partition_core *c, int rounds, uint64_t seed,
                    struct partition_watch *w, struct partition_chain *best) {
    struct line l = {.c = c, .accels = c->accels, .cpus = c->cpus, .cut = best->value};
    size_t n = (size_t)c->n + 1, t = (size_t)c->tensors + 1;
    /* Tables of more than 400 MB are not worth it, so fewer devices are considered. */
    while ((int64_t)n * (l.accels + 1) * (l.cpus + 1) > 25000000 && l.accels + l.cpus > 1)
        *(l.accels >= l.cpus ? &l.accels : &l.cpus) /= 2;
    l.layers = (l.accels + 1) * (l.cpus + 1);
    l.stride = 1 + c->n / ENDS;
    /* Long orders get fewer rounds, by work and not by time, so that answers can be
     * repeated. */
    double work = (double)c->n / l.stride * c->n / (l.accels + l.cpus) * (l.layers + 8);
    rounds = work * rounds < 4e8 ? rounds : work * 4 < 4e8 ? (int)(4e8 / work) : 4;
    l.cells = mem_array(n * (size_t)l.layers, sizeof *l.cells);
    l.order = mem_array(n, sizeof *l.order), l.need = mem_array(n, sizeof *l.need);
    l.in_s = mem_array(t, sizeof *l.in_s);
    struct rng rng = {.seed = seed};
    struct partition_chain none = {.value = INFINITY};
    if (l.stride > 1 && isinf(best->value))
        try_first(&l, w, best);
    for (int round = 0, idle = 0; round < rounds && idle < rounds / 4 + 2; round++) {
        if (round < PLAIN)
            draw_plain(&l, round);
        else
            draw_order(&l, round % 8 == 3 ? &none : best, round % 4 == 3, &rng);
        idle = try_order(&l, w, best) ? 0 : idle + 1;
        if (w->stopped)
            break;
    }
    free(l.cells), free(l.order), free(l.need), free(l.in_s);
}
