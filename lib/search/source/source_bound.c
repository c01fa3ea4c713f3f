/* The bound of a source's space: the least over all micro-batches and rows of stages (source_bound.h).
 *
 * Where the devices can be shared in few ways each is a row of its own; else all ways are in one, whose
 * stages are weighed by their devices, and a device more than there are has a price. The row that is
 * lowest is raised again and again, until none that is below the best plan rises any more, or so
 * much was walked that it is enough. */
#include "search/source/source_bound.h"
#include "search/source/source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_ROWS = 64, /* of one micro-batch */
    MOST_IDLE = 30, /* walks that found nothing better, before steps are halved */
    MOST_HALVED = 12,
};

static const int64_t MOST_STEPS = 100000000; /* of all walks */

struct row {
    struct source_floors *op_bounds;
    double micro_batches, mean_us;            /* of a stage, about */
    struct source_stage_price *stages, *best; /* now, and those of the bound */
    struct pull {
        double us,
            bytes; /* beyond the mean, beyond the memory, on average over the last walks */
    } * pulls;
    int n;
    bool whole;                      /* has all of the stages, and not some of them */
    double now_us, best_us, devices; /* prices of a device; devices that are too many */
    double bound, pace;
    int walks, idle, halved;
};

struct bounder {
    struct pool *pool;
    ARR(struct row) rows;
    ARR(struct source_floors *) op_bounds;
    double target; /* no more than that is of use */
    int64_t steps;
};

/* ---- rows ----------------------------------------------------------------------------- */

static void add_row(struct bounder *b, struct source_floors *f, double micro_batches,
                    const struct source_stage_price *stages, int n, bool whole) {
    struct row r = {.op_bounds = f, .micro_batches = micro_batches, .n = n, .whole = whole};
    size_t bytes = (size_t)n * sizeof *stages;
    r.pace = 1;
    r.pulls = mem_array((size_t)n, sizeof *r.pulls);
    r.stages = memcpy(mem_alloc(bytes), stages, bytes);
    r.best = memcpy(mem_alloc(bytes), stages, bytes);
    arr_push(&b->rows, r);
}

static struct source_stage_price stage_of(const struct bounder *b, int devices,
                                          int behind) {
    int n_ops = b->pool->space->p.model->n_ops;
    return (struct source_stage_price){.devices = devices,
                                       .behind = behind,
                                       .weight =
                                           (double)devices / b->pool->space->p.devices,
                                       .most = n_ops,
                                       .end = n_ops};
}

/* All ways to share what is left between this stage and those in front of it; false where these are
 * too many. */
static bool add_rows(struct bounder *b, struct source_floors *f, double micro_batches,
                     struct source_stage_price *stages, int n, int left, int64_t most) {
    if (!left)
        add_row(b, f, micro_batches, stages, n, true);
    if (b->rows.n > most)
        return false;
    for (int d = 1; d <= left && n < b->pool->space->max_groups; d++) {
        if (!source_floors_have(f, d))
            continue;
        stages[n] = stage_of(b, d, n);
        if (!add_rows(b, f, micro_batches, stages, n + 1, left - d, most))
            return false;
    }
    return true;
}

static void free_row(struct row *r) {
    free(r->stages);
    free(r->best);
    free(r->pulls);
}

static void add_mixed(struct bounder *b, struct source_floors *f, double micro_batches) {
    int devices = b->pool->space->p.devices, n = 0;
    struct source_stage_price *all =
        mem_array((size_t)devices * (size_t)devices, sizeof *all);
    for (int k = 0; k < devices && k < b->pool->space->max_groups; k++)
        for (int d = 1; d <= devices - k; d++)
            if (source_floors_have(f, d))
                all[n++] = stage_of(b, d, k);
    if (n)
        add_row(b, f, micro_batches, all, n, false);
    free(all);
}

static void add_micro_batch(struct bounder *b, int64_t micro_batch) {
    const struct space *sp = b->pool->space;
    struct source_floors *f = source_floors_make(sp, micro_batch);
    double micro_batches = (double)(sp->p.batch / micro_batch);
    int64_t before = b->rows.n;
    struct source_stage_price *stages = mem_array((size_t)sp->p.devices, sizeof *stages);
    arr_push(&b->op_bounds, f);
    if (!add_rows(b, f, micro_batches, stages, 0, sp->p.devices, before + MOST_ROWS)) {
        while (b->rows.n > before)
            free_row(&b->rows.p[--b->rows.n]);
        add_mixed(b, f, micro_batches);
    }
    free(stages);
}

/* ---- raising one ----------------------------------------------------------------------- */

/* What is too much on the cheapest way, as a part of what may be, enters the mean with this share. */
static const double FRESH = 0.1;

static void blend(double *mean, double now, bool first) {
    *mean = first ? now : (1 - FRESH) * *mean + FRESH * now;
}

static void measure(const struct bounder *b, struct row *r) {
    double memory = (double)b->pool->space->p.memory_bytes, mean_us = 0, devices = 0;
    for (int t = 0; t < r->n; t++) {
        mean_us += r->stages[t].us / r->n;
        devices += r->stages[t].us > 0 ? r->stages[t].devices : 0;
    }
    for (int t = 0; t < r->n; t++) {
        const struct source_stage_price *st = &r->stages[t];
        bool there = r->whole || st->us > 0;
        blend(&r->pulls[t].bytes, memory > 0 && there ? st->bytes / memory - 1 : 0,
              !r->walks);
        blend(&r->pulls[t].us, r->whole ? (st->us - mean_us) / r->mean_us : 0, !r->walks);
    }
    blend(&r->devices, r->whole ? 0 : devices / b->pool->space->p.devices - 1, !r->walks);
}

static void walk(struct bounder *b, struct row *r) {
    double us = source_floors_walk(r->op_bounds, r->stages, r->n, r->whole, &b->steps) -
                r->now_us * b->pool->space->p.devices;
    if (isinf(us)) {
        r->bound = us;
        return;
    }
    measure(b, r);
    r->walks++;
    if (us > r->bound) {
        r->idle = us > r->bound * (1 + 1e-6) ? 0 : r->idle;
        r->bound = us;
        r->best_us = r->now_us;
        memcpy(r->best, r->stages, (size_t)r->n * sizeof *r->stages);
    } else if (++r->idle > MOST_IDLE) {
        r->idle = 0;
        r->halved++;
        r->pace /= 2;
    }
}

/* A price of nothing cannot fall. */
static double useful(double pull, double price) {
    return pull < 0 && price <= 0 ? 0 : pull;
}

/* From the best prices on towards where there is too much. Weights that would be negative are
 * none, and all are 1 together. */
static void move(const struct bounder *b, struct row *r) {
    double memory = (double)b->pool->space->p.memory_bytes, weights = 0;
    double devices = useful(r->devices, r->best_us), norm = devices * devices;
    for (int t = 0; t < r->n; t++) {
        double bytes = useful(r->pulls[t].bytes, r->best[t].us_per_byte);
        double us = useful(r->pulls[t].us, r->best[t].weight);
        norm += bytes * bytes + us * us;
    }
    double us = r->pace * (b->target - r->bound) / fmax(norm, 1e-9);
    double all = (r->micro_batches - 1) * r->mean_us;
    r->now_us = fmax(0, r->best_us + us * devices / b->pool->space->p.devices);
    for (int t = 0; t < r->n; t++) {
        struct source_stage_price *st = &r->stages[t];
        *st = r->best[t];
        if (memory > 0)
            st->us_per_byte = fmax(0, st->us_per_byte + us * r->pulls[t].bytes / memory);
        if (r->whole && all > 0)
            st->weight = fmax(0, st->weight + us * r->pulls[t].us / all);
        st->fixed_us = r->now_us * st->devices;
        weights += st->weight;
    }
    for (int t = 0; t < r->n && r->whole; t++)
        r->stages[t].weight /= weights;
}

/* ---- what may be better than the best plan ------------------------------------------------ */

static double least_us(const struct row *r, const struct source_stage_price *st, int op) {
    return source_floors_least(r->op_bounds, st->devices, op).us;
}

/* The slowest stage of a plan that takes no longer than the target, at most. */
static double slowest_us(const struct bounder *b, const struct row *r) {
    double through = 0;
    for (int i = 0; i < b->pool->space->p.model->n_ops; i++) {
        double us = INFINITY;
        for (int t = 0; t < r->n; t++)
            us = fmin(us, least_us(r, &r->stages[t], i));
        through += us;
    }
    double us = b->target / r->micro_batches;
    return r->micro_batches > 1 ? fmin(us, (b->target - through) / (r->micro_batches - 1))
                                : us;
}

/* So its stages cannot begin anywhere: from the front on they reach so far, from the end back so far. */
static void find_windows(const struct bounder *b, struct row *r) {
    int n_ops = b->pool->space->p.model->n_ops, at = 0;
    double most_us = slowest_us(b, r) * (1 + 1e-9);
    for (int t = r->n - 1; t >= 0; t--) { /* the first one has the most behind it */
        struct source_stage_price *st = &r->best[t];
        st->most = at;
        for (double us = 0; at < n_ops; at++) {
            us += least_us(r, st, at);
            if (us > most_us)
                break;
        }
        st->end = at;
    }
    if (at < n_ops)
        r->bound = b->target;
    at = n_ops;
    for (int t = 0; t < r->n; t++) {
        struct source_stage_price *st = &r->best[t];
        for (double us = 0; at > 0; at--) {
            us += least_us(r, st, at - 1);
            if (us > most_us)
                break;
        }
        st->least = at;
    }
}

/* What a stage reserves for ops that it has wherever it begins and ends; if that is more than ops
 * reserve by themselves from the middle of where it may begin to that of where it may end, it is
 * counted in place of that. */
static void find_reserve(const struct bounder *b, struct row *r, int t) {
    struct source_stage_price *st = &r->best[t];
    const struct source_stage_price *next = t ? st - 1 : NULL;
    int n_ops = b->pool->space->p.model->n_ops, end = next ? next->least : n_ops;
    int middle_end = next ? (next->least + next->most) / 2 : n_ops;
    double forward = 0, backward = 0, each = 0;
    for (int i = st->least; i < middle_end; i++) {
        struct source_least x = source_floors_least(r->op_bounds, st->devices, i);
        each += i >= (st->least + st->most) / 2 ? x.reserved_bytes : 0;
        if (i < st->most || i >= end - 1) /* the last op reserves nothing */
            continue;
        forward = fmax(forward, x.forward_bytes);
        backward = fmax(backward, x.backward_bytes);
    }
    st->own_bytes = forward + backward > each ? forward + backward : 0;
}

static void limit_row(const struct bounder *b, struct row *r) {
    if (!r->whole)
        return;
    find_windows(b, r);
    for (int t = 0; t < r->n; t++)
        find_reserve(b, r, t);
}

/* ---- all of them ------------------------------------------------------------------------- */

/* The lowest, if it can rise; NULL where that is high enough. */
static struct row *lowest(const struct bounder *b) {
    struct row *low = NULL;
    for (int64_t i = 0; i < b->rows.n; i++)
        if (!low || b->rows.p[i].bound < low->bound)
            low = &b->rows.p[i];
    return low && low->bound < b->target && low->halved < MOST_HALVED ? low : NULL;
}

static double least(const struct bounder *b) {
    double us = INFINITY;
    for (int64_t i = 0; i < b->rows.n; i++)
        us = fmin(us, b->rows.p[i].bound);
    return us;
}

/* Every op by itself, in the stage that it suits best: before anything is walked. */
static double first_bound(const struct bounder *b, const struct row *r) {
    double us = 0;
    for (int i = 0; i < b->pool->space->p.model->n_ops; i++) {
        double best = INFINITY;
        for (int t = 0; t < r->n; t++)
            best = fmin(best, (1 + (r->micro_batches - 1) * r->best[t].weight) *
                                  least_us(r, &r->best[t], i));
        us += best;
    }
    return us * (1 - 1e-12);
}

static void set_out(struct bounder *b) {
    const struct pool *pool = b->pool;
    bool known = pool->n_best && !pool->best[0].score.overflow;
    for (int64_t i = 0; i < b->rows.n; i++)
        b->rows.p[i].bound = first_bound(b, &b->rows.p[i]);
    b->target = known ? pool->best[0].score.time_us : 1.3 * least(b);
    for (int64_t i = 0; i < b->rows.n; i++) {
        struct row *r = &b->rows.p[i];
        r->mean_us = b->target / (r->micro_batches + r->n - 1);
        if (known && r->bound < b->target)
            limit_row(b, r);
    }
}

double source_bound(struct pool *pool) {
    struct bounder b = {.pool = pool};
    for (int i = 0; i < pool->space->p.n_micro; i++)
        add_micro_batch(&b, pool->space->p.micro[i]);
    set_out(&b);
    for (struct row *r;
         (r = lowest(&b)) && b.steps < MOST_STEPS && !budget_stopped(pool->budget);) {
        move(&b, r);
        walk(&b, r);
    }
    double us = fmin(least(&b), b.target);
    for (int64_t i = 0; i < b.rows.n; i++)
        free_row(&b.rows.p[i]);
    for (int64_t i = 0; i < b.op_bounds.n; i++)
        source_floors_free(b.op_bounds.p[i]);
    arr_release(&b.rows);
    arr_release(&b.op_bounds);
    return isfinite(us) ? us : 0;
}
