/* partition_pack.c - a bound from how whole items fit into devices.
 *
 * Forget order and communication: items go into A accelerators that hold at most T seconds
 * and M bytes, and C CPUs that hold T seconds. Can they, at a limit T? Prices prove that they
 * cannot: if no device can hold items worth more than s (accelerators) or t (CPUs), and all
 * items together are worth more than A s + C t, then T is below the optimum. Good prices are
 * the duals of the packing program of Gilmore and Gomory (Operations Research 9, 1961), whose
 * bound sees the room that whole items leave over; a sum of times does not. The linear program
 * proposes prices (lp.h), a knapsack per kind of device finds what they overlook, and only the
 * knapsack's own upper bounds count for the proof.
 */
#include "solve/partition/partition_core.h"

#include "common/mem.h"
#include "common/progress.h"
#include "solve/lp/lp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ITEMS = 400, MAX_NODES = 100000, MAX_ROUNDS = 400 };

/* An item in the knapsack. */
struct good {
    double price, time, bytes, size; /* size: part of the bag, time and bytes weighed up */
    int32_t item;
};

struct bag {
    struct good *goods;
    int32_t n;
    double time, bytes; /* that it holds */
    double best, upper; /* found; not excluded where the search was cut off */
    int64_t nodes;
    bool *now, *in; /* [items] of the branch; of the best */
};

struct pack {
    const struct partition_core *c;
    struct partition_watch *w;
    double limit; /* T */
    struct lp_model *lp;
    struct lp_basis *basis;
    double *price; /* [items + 2]: then of an accelerator, of a CPU */
    struct bag bag;
    int *cols;
    double *vals;
};

/* ---- the most valuable load of one device ----------------------------------------- */

static int denser(const void *x, const void *y) {
    const struct good *a = x, *b = y;
    double p = a->price * b->size, q = b->price * a->size;
    return p > q ? -1 : p < q ? 1 : (a->item > b->item) - (a->item < b->item);
}

/* What goods i.. can add at most, where so much of the bag is free: the last one in parts. */
static double fractional(const struct bag *b, int32_t i, double room) {
    double value = 0;
    for (; i < b->n && b->goods[i].size <= room; i++) {
        room -= b->goods[i].size;
        value += b->goods[i].price;
    }
    return i < b->n ? value + b->goods[i].price * (room / b->goods[i].size) : value;
}

static void branch(struct bag *b, int32_t i, double value, double time, double bytes,
                   double room) {
    if (value > b->best) {
        b->best = value;
        memcpy(b->in, b->now, (size_t)MAX_ITEMS * sizeof *b->in);
    }
    for (; i < b->n; i++) {
        const struct good *g = &b->goods[i];
        double most = value + fractional(b, i, room);
        if (most <= b->best * (1 + 1e-9))
            return;
        if (++b->nodes > MAX_NODES) {
            b->upper = fmax(b->upper, most);
            return;
        }
        if (g->time > time || g->bytes > bytes)
            continue;
        b->now[g->item] = true;
        branch(b, i + 1, value + g->price, time - g->time, bytes - g->bytes,
               room - g->size);
        b->now[g->item] = false;
    }
}

/* Weighs time and bytes so that the fractional bound is least; returns the size of the bag. */
static void weigh_goods(struct bag *b) {
    double least = INFINITY, part = 0;
    int steps = isfinite(b->bytes) ? 8 : 0;
    for (int s = 0; s <= steps + 1; s++) { /* the last time round, with the best */
        double bytes = s > steps ? part : (double)s / 8;
        for (int32_t i = 0; i < b->n; i++) {
            struct good *g = &b->goods[i];
            g->size = (1 - bytes) * g->time / b->time +
                      (bytes > 0 ? bytes * g->bytes / b->bytes : 0);
        }
        qsort(b->goods, (size_t)b->n, sizeof *b->goods, denser);
        double value = fractional(b, 0, 1);
        if (s <= steps && value < least)
            least = value, part = bytes;
    }
}

/* The greatest price of what one device holds: an upper bound, and a set near it in bag.in. */
static double best_load(struct pack *k, bool cpu) {
    const struct partition_core *c = k->c;
    struct bag *b = &k->bag;
    b->n = 0;
    b->time = k->limit * (1 + 1e-12);
    b->bytes = cpu ? INFINITY : c->max_size * (1 + 1e-12);
    b->best = b->upper = 0;
    b->nodes = 0;
    memset(b->in, 0, (size_t)MAX_ITEMS * sizeof *b->in);
    for (int32_t i = 0; i < c->n; i++) {
        struct good g = {.price = k->price[i], .item = i};
        g.time = cpu ? c->cpu[i] : c->accel[i];
        g.bytes = cpu ? 0 : c->size[i] + c->act[i];
        if (g.price > 0 && g.time <= b->time && g.bytes <= b->bytes &&
            (cpu || c->supported[i]))
            b->goods[b->n++] = g;
    }
    weigh_goods(b);
    branch(b, 0, 0, b->time, b->bytes, 1 + 1e-12);
    return fmax(b->best, b->upper) * (1 + 1e-9);
}

/* ---- prices ---------------------------------------------------------------------- */

/* A load that a device holds costs no more than the device. */
static void add_load(struct pack *k, const bool *in, bool cpu) {
    int n = 0;
    for (int32_t i = 0; i < k->c->n; i++)
        if (in[i]) {
            k->cols[n] = i;
            k->vals[n++] = 1;
        }
    k->cols[n] = k->c->n + cpu;
    k->vals[n++] = -1;
    lp_add_row(k->lp, n, k->cols, k->vals, -INFINITY, 0);
}

/* The first program: every item alone; all devices together cost 1. */
static void start_prices(struct pack *k) {
    const struct partition_core *c = k->c;
    bool *in = mem_array(MAX_ITEMS, sizeof *in);
    k->lp = lp_create();
    for (int32_t i = 0; i < c->n; i++)
        lp_add_var(k->lp, -1, 0, 1, false);
    for (int i = 0; i < 2; i++)
        lp_add_var(k->lp, 0, 0, (i ? c->cpus : c->accels) ? 1 : 0, false);
    lp_add_row(k->lp, 2, (int[]){c->n, c->n + 1}, (double[]){c->accels, c->cpus}, 1, 1);
    for (int32_t i = 0; i < c->n; i++) {
        in[i] = true;
        if (c->accels && c->supported[i] && c->accel[i] <= k->limit &&
            c->size[i] + c->act[i] <= c->max_size)
            add_load(k, in, false);
        if (c->cpus && c->cpu[i] <= k->limit)
            add_load(k, in, true);
        in[i] = false;
    }
    free(in);
}

/* One round: new prices; loads that are worth more than their device. 1: T is too small, 0:
 * more rounds, -1: this proves nothing. */
static int improve_prices(struct pack *k) {
    const struct partition_core *c = k->c;
    struct lp_options o = {.relax = true, .cutoff = INFINITY, .basis = k->basis};
    struct lp_answer a;
    if (isfinite(k->w->end_s))
        o.time_budget_s = fmax(k->w->end_s - now_s(), 1e-3);
    double sum = 0, devices = 0;
    bool good = lp_minimize(k->lp, &o, &a) == LP_OPTIMAL && a.value < -1 - 1e-7;
    if (good)
        memcpy(k->price, a.x, ((size_t)c->n + 2) * sizeof *k->price);
    free(k->basis);
    k->basis = a.basis; /* the next program has two rows more */
    a.basis = NULL;
    lp_answer_release(&a);
    if (!good)
        return -1; /* the loads known pack everything, in parts */
    for (int32_t i = 0; i < c->n; i++)
        sum += k->price[i];
    bool found = false;
    for (int cpu = 0; cpu < 2; cpu++) {
        if (!(cpu ? c->cpus : c->accels))
            continue;
        double most = best_load(k, cpu);
        devices += most * (cpu ? c->cpus : c->accels);
        if (k->bag.best > k->price[c->n + cpu] + 1e-7) {
            add_load(k, k->bag.in, cpu);
            found = true;
        }
    }
    return sum > devices * (1 + 1e-9) ? 1 : found ? 0 : -1;
}

/* Is T proven to be too small? */
static bool too_small(struct pack *k) {
    int state = 0;
    start_prices(k);
    for (int round = 0; !state && round < MAX_ROUNDS && !partition_watch_stop_now(k->w);
         round++)
        state = improve_prices(k);
    lp_destroy(k->lp);
    free(k->basis);
    k->basis = NULL;
    return state > 0;
}

/* Where a device holds many items, what is left over does not matter. */
bool partition_pack_fit(const struct partition_core *c) {
    return c->goal == PARTITION_MAXLOAD && c->n <= MAX_ITEMS &&
           c->n <= 8 * (c->accels + c->cpus);
}

bool partition_pack_refute(const struct partition_core *c, double limit,
                           struct partition_watch *w) {
    size_t n = (size_t)c->n + 3;
    struct pack k = {.c = c, .w = w, .limit = limit};
    k.price = mem_array(n, sizeof *k.price);
    k.cols = mem_array(n, sizeof *k.cols), k.vals = mem_array(n, sizeof *k.vals);
    k.bag.goods = mem_array(n, sizeof *k.bag.goods);
    k.bag.now = mem_array(MAX_ITEMS, sizeof *k.bag.now);
    k.bag.in = mem_array(MAX_ITEMS, sizeof *k.bag.in);
    bool small = too_small(&k);
    free(k.price), free(k.cols), free(k.vals);
    free(k.bag.goods), free(k.bag.now), free(k.bag.in);
    return small;
}
