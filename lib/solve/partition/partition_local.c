/* partition_local.c - better incumbents for wide graphs: annealed moves and swaps of items.
 *
 * Orders see only boundaries that are prefixes of them. Here items move one by one to any
 * stage that their neighbours in the order allow, or two of them change places. What is minimized
 * is not the largest load but the sum of what exceeds a target a little below the best value
 * known (bytes: the bytes, plus what computes for too long), so that moves between two full
 * stages count as well.
 */
#include "solve/partition/partition_core.h"

#include "common/mem.h"
#include "common/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct walk {
    const struct partition_core *c;
    int stages;
    const bool *is_cpu;
    int32_t *stage_of, *in; /* in[tensor * stages + stage]: items of the tensor there */
    int32_t *items;         /* of each stage */
    double *work, *comm, *size, *act;
    double bytes, target,
        unit; /* unit: what a byte weighs against a second over the limit */
};

/* What a stage would come to with a few numbers changed. */
struct change {
    double work, comm, size, act;
};

static double excess(const struct walk *w, int s, struct change d) {
    const struct partition_core *c = w->c;
    bool bytes = c->goal == PARTITION_BYTES;
    double load = w->work[s] + d.work + (bytes || w->is_cpu[s] ? 0 : w->comm[s] + d.comm);
    double over = fmax(0, load - fmin(w->target, c->max_load));
    if (!w->is_cpu[s] && isfinite(c->max_size)) {
        double flight = fmin((double)c->micro_batches, s + 1);
        double need = w->size[s] + d.size + flight * (w->act[s] + d.act);
        if (need >
            c->max_size) /* as bad as all the work of a stage, and worse with the lack */
            over += w->unit * (1 + (need - c->max_size) / fmax(1, c->max_size));
    }
    return over;
}

/* The two stages' changes when v goes from s to t, and the bytes. */
static double move_changes(const struct walk *w, int32_t v, int s, int t,
                           struct change *from, struct change *to) {
    const struct partition_core *c = w->c;
    double bytes = 0;
    *from = (struct change){-(w->is_cpu[s] ? c->cpu[v] : c->accel[v]), 0, -c->size[v],
                            -c->act[v]};
    *to = (struct change){w->is_cpu[t] ? c->cpu[v] : c->accel[v], 0, c->size[v], c->act[v]};
    for (int32_t e = c->touch.at[v]; e < c->touch.at[v + 1]; e++) {
        int32_t h = c->touch.v[e], pins = c->pins.at[h + 1] - c->pins.at[h];
        const int32_t *in = w->in + (size_t)h * (size_t)w->stages;
        double x = c->weight[h];
        from->comm += x * ((in[s] > 1) - (in[s] < pins));
        to->comm += x * ((in[t] + 1 < pins) - (in[t] > 0));
        bytes += x * ((in[t] == 0) - (in[s] == 1));
    }
    return bytes;
}

static void place_item(struct walk *w, int32_t v, int s, int t) {
    const struct partition_core *c = w->c;
    for (int32_t e = c->touch.at[v]; e < c->touch.at[v + 1]; e++) {
        int32_t *in = w->in + (size_t)c->touch.v[e] * (size_t)w->stages;
        in[s]--, in[t]++;
    }
    w->items[s]--, w->items[t]++;
    w->stage_of[v] = t;
}

static void move_item(struct walk *w, int32_t v, int s, int t, struct change from,
                      struct change to, double bytes) {
    place_item(w, v, s, t);
    w->work[s] += from.work, w->comm[s] += from.comm;
    w->size[s] += from.size, w->act[s] += from.act;
    w->work[t] += to.work, w->comm[t] += to.comm;
    w->size[t] += to.size, w->act[t] += to.act;
    w->bytes += bytes;
}

/* The stages between which the order holds v: lo..hi. */
static void stage_range(const struct walk *w, int32_t v, int *lo, int *hi) {
    const struct partition_core *c = w->c;
    *lo = 0, *hi = w->stages - 1;
    for (int32_t e = c->pred.at[v]; e < c->pred.at[v + 1]; e++)
        *lo = w->stage_of[c->pred.v[e]] > *lo ? w->stage_of[c->pred.v[e]] : *lo;
    for (int32_t e = c->succ.at[v]; e < c->succ.at[v + 1]; e++)
        *hi = w->stage_of[c->succ.v[e]] < *hi ? w->stage_of[c->succ.v[e]] : *hi;
}

static bool may_stand(const struct walk *w, int32_t v, int s) {
    int lo, hi;
    if (!w->is_cpu[s] && !w->c->supported[v])
        return false;
    stage_range(w, v, &lo, &hi);
    return lo <= s && s <= hi;
}

/* A stage that v may go to, -1 if there is none. */
static int draw_stage(const struct walk *w, int32_t v, struct rng *r) {
    int s = w->stage_of[v], lo, hi;
    stage_range(w, v, &lo, &hi);
    if (lo == hi || w->items[s] == 1)
        return -1;
    int t = lo + (int)rng_below(r, hi - lo);
    t += t >= s;
    return w->is_cpu[t] || w->c->supported[v] ? t : -1;
}

static double walk_value(const struct walk *w) {
    const struct partition_core *c = w->c;
    double value = 0;
    for (int s = 0; s < w->stages; s++) {
        double flight = fmin((double)c->micro_batches, s + 1);
        double load = w->work[s] + (w->is_cpu[s] ? 0 : w->comm[s]);
        double limited = c->goal == PARTITION_BYTES ? w->work[s] : load;
        if (limited > c->max_load * (1 + 1e-9) ||
            (!w->is_cpu[s] && w->size[s] + flight * w->act[s] > c->max_size * (1 + 1e-12)))
            return INFINITY;
        value = fmax(value, load);
    }
    return c->goal == PARTITION_BYTES ? w->bytes : value;
}

static void walk_load(struct walk *w, const struct partition_chain *ch) {
    const struct partition_core *c = w->c;
    size_t k = (size_t)w->stages;
    memset(w->in, 0, (size_t)c->tensors * k * sizeof *w->in);
    memset(w->items, 0, k * sizeof *w->items);
    memset(w->work, 0, 4 * k * sizeof *w->work); /* work, comm, size, act are one block */
    w->bytes = 0;
    for (int32_t v = 0; v < c->n; v++) {
        int s = w->stage_of[v] = ch->stage_of[v];
        w->items[s]++;
        w->work[s] += w->is_cpu[s] ? c->cpu[v] : c->accel[v];
        w->size[s] += c->size[v], w->act[s] += c->act[v];
        for (int32_t e = c->touch.at[v]; e < c->touch.at[v + 1]; e++)
            w->in[(size_t)c->touch.v[e] * k + (size_t)s]++;
    }
    for (int32_t h = 0; h < c->tensors; h++)
        for (int s = 0, seen = 0; s < w->stages; s++) {
            int32_t in = w->in[(size_t)h * k + (size_t)s];
            if (in && in < c->pins.at[h + 1] - c->pins.at[h])
                w->comm[s] += c->weight[h];
            w->bytes += in && seen++ ? c->weight[h] : 0;
        }
}

/* Whether a change for the worse is taken all the same. */
static bool accept(double worse, double heat, struct rng *r) {
    return worse <= 0 || worse <= -heat * log(1 - rng_real(r));
}

/* What is minimized: overloads, with communication as the tie-break where the target does not
 * bind (bytes: the bytes decide). */
static double weigh(const struct walk *w, double over, double comm, double bytes) {
    return w->c->goal == PARTITION_BYTES ? over * w->unit + bytes : over + 0.05 * comm;
}

/* Tries v at another stage, which is returned, or -1 when it stays. */
static int try_move(struct walk *w, int32_t v, double heat, struct rng *r) {
    int s = w->stage_of[v], t = draw_stage(w, v, r);
    if (t < 0)
        return -1;
    struct change from, to, none = {0};
    double bytes = move_changes(w, v, s, t, &from, &to);
    double over =
        excess(w, s, from) + excess(w, t, to) - excess(w, s, none) - excess(w, t, none);
    if (!accept(weigh(w, over, from.comm + to.comm, bytes), heat, r))
        return -1;
    move_item(w, v, s, t, from, to, bytes);
    return t;
}

static struct change load_of(const struct walk *w, int s) {
    return (struct change){w->work[s], w->comm[s], w->size[s], w->act[s]};
}

static void set_load(struct walk *w, int s, struct change d) {
    w->work[s] = d.work, w->comm[s] = d.comm, w->size[s] = d.size, w->act[s] = d.act;
}

/* Lets u and v change places; one of their stages, or -1 when they stay. */
static int try_swap(struct walk *w, int32_t u, int32_t v, double heat, struct rng *r) {
    int s = w->stage_of[u], t = w->stage_of[v];
    if (s == t || !may_stand(w, u, t))
        return -1;
    struct change from, to, none = {0}, was_s = load_of(w, s), was_t = load_of(w, t);
    double before = excess(w, s, none) + excess(w, t, none), had = w->bytes;
    double bytes = move_changes(w, u, s, t, &from, &to);
    move_item(w, u, s, t, from, to, bytes);
    bool good = may_stand(w, v, s);
    if (good) {
        bytes = move_changes(w, v, t, s, &from, &to);
        move_item(w, v, t, s, from, to, bytes);
        double over = excess(w, s, none) + excess(w, t, none) - before;
        double comm = w->comm[s] + w->comm[t] - was_s.comm - was_t.comm;
        if (accept(weigh(w, over, comm, w->bytes - had), heat, r))
            return t;
        place_item(w, v, s, t);
    }
    place_item(w, u, t, s);
    set_load(w, s, was_s), set_load(w, t, was_t);
    w->bytes = had;
    return -1;
}

/* One annealing from `best`, which a better find replaces. */
static void anneal(struct walk *w, int64_t moves, struct rng *r,
                   struct partition_watch *watch, struct partition_chain *best) {
    const struct partition_core *c = w->c;
    bool bytes = c->goal == PARTITION_BYTES;
    walk_load(w, best);
    double share = bytes ? best->value / w->stages : best->value;
    for (int64_t i = 0; i < moves && !partition_watch_stop(watch); i++) {
        double heat = 0.03 * share * (double)(moves - i) / (double)moves;
        int32_t v = (int32_t)rng_below(r, c->n);
        int t = rng_below(r, 2) ? try_move(w, v, heat, r)
                                : try_swap(w, v, (int32_t)rng_below(r, c->n), heat, r);
        if (t < 0 || (bytes ? w->bytes : w->work[t]) >= best->value)
            continue;
        double value = walk_value(w);
        if (value < best->value * (1 - 1e-9)) {
            memcpy(best->stage_of, w->stage_of, (size_t)c->n * sizeof *best->stage_of);
            walk_load(w, best); /* the running sums have drifted a little */
            best->value = value = walk_value(w);
            w->target = bytes ? w->target : value * 0.998;
        }
    }
}

void partition_local(const struct partition_core *c, int rounds, uint64_t seed,
                     struct partition_watch *watch, struct partition_chain *best) {
    size_t k = (size_t)best->stages, n = (size_t)c->n + 1;
    if (!isfinite(best->value) || k < 2 || (size_t)c->tensors * k > 50000000)
        return;
    struct walk w = {.c = c, .stages = best->stages, .is_cpu = best->is_cpu};
    double *block = mem_array(4 * k, sizeof *block);
    w.stage_of = mem_array(n, sizeof *w.stage_of), w.items = mem_array(k, sizeof *w.items);
    w.in = mem_array((size_t)c->tensors * k + 1, sizeof *w.in);
    w.work = block, w.comm = block + k, w.size = block + 2 * k, w.act = block + 3 * k;
    w.target = c->goal == PARTITION_BYTES ? c->max_load : best->value * 0.998;
    w.unit = c->goal == PARTITION_BYTES && isfinite(c->max_load) && c->max_load > 0
                 ? 10 * best->value / c->max_load
                 : best->value;
    struct rng r = {.seed = seed ^ 0x10ca1};
    int64_t moves = 200 * (int64_t)c->n * (int64_t)k;
    for (int i = 0; i < rounds && !watch->stopped; i++)
        anneal(&w, moves < 2000000 ? moves : 2000000, &r, watch, best);
    free(block), free(w.stage_of), free(w.items), free(w.in);
}
