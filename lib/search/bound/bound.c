/* The bound: see bound.h. */
#include "search/bound/bound.h"

#include "search/bound/bound_chain.h"
#include "search/bound/bound_interleaved.h"
#include "search/space/devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a group takes ------------------------------------------------------------------ */

/* For each rate, the excess of the best range that ends at the current op, and of the best
 * range so far. All rates pass over the ops together: each is a chain of additions, so
 * several at once take little more time than one. */
struct stretches {
    double open[RATES], most[RATES];
};

static inline void extend(struct stretches *t, const double *dual, const double *cost,
                          const double rates[RATES], int first, int end) {
    struct stretches x = *t;
    for (int i = first; i < end; i++)
        for (int k = 0; k < RATES; k++) {
            double open = x.open[k] + (dual[i] - rates[k] * cost[i]);
            x.open[k] = open > 0 ? open : 0;
            x.most[k] = x.open[k] > x.most[k] ? x.open[k] : x.most[k];
        }
    *t = x;
}

/* Finds by how much, at most, the duals over a range of the model exceed the rate times the
 * costs. Two instances of a repeat stand for all but the first and the last, because at
 * these rates a whole instance is not worth its costs. */
static void find_excess(const struct relaxed *r, const double *dual, const double *cost,
                        const double rates[RATES], double most[RATES]) {
    struct stretches t = {{0}, {0}};
    int done = 0;
    for (int k = 0; k < r->n_stretches; k++) {
        extend(&t, dual, cost, rates, done, r->repeated[k].end);
        extend(&t, dual, cost, rates, r->repeated[k].first, r->repeated[k].end);
        done = r->repeated[k].end;
    }
    extend(&t, dual, cost, rates, done, r->n_ops);
    memcpy(most, t.most, sizeof t.most);
}

static double ratio(double worth, double cost) {
    return cost > 0 && isfinite(cost) ? worth / cost : 0;
}

/* Finds rates from the one at which no repeat is worth more than it costs to the one at
 * which no op is. */
static void find_rates(const struct relaxed *r, const double *dual, const double *cost,
                       double rates[RATES]) {
    const struct blocks *g = &r->ev->space->blocks;
    double worth = 0, sum = 0, high = 0;
    for (int i = 0; i < r->n_ops; i++) {
        worth += r->weight[i] * dual[i];
        sum += r->weight[i] * cost[i];
        high = fmax(high, ratio(dual[i], cost[i]));
    }
    double low = ratio(worth, sum);
    for (int k = 0; k < g->s.n_repeats; k++) {
        const struct repeat *repeat = &g->s.repeats[k];
        double w = 0, c = 0;
        for (int i = 0; i < repeat->period; i++) {
            w += dual[g->x.of[repeat->first + repeat->period + i]];
            c += cost[g->x.of[repeat->first + repeat->period + i]];
        }
        low = fmax(low, ratio(w, c));
    }
    for (int k = 0; k < RATES; k++)
        rates[k] = low + (high - low) * k * k / ((RATES - 1) * (RATES - 1));
    rates[0] *= 1 + 1e-12;
}

static struct line *lines_at(const struct relaxed *r, int size, int flight) {
    return r->lines + (int64_t)(size * r->n_flights + flight) * r->n_duals * RATES;
}

static void find_lines(struct relaxed *r, const double *dual) {
    for (int d = 0; d < r->n_sizes; d++)
        for (int f = 0; f < r->n_flights; f++)
            for (int k = 0; k < r->n_duals; k++) {
                double memory = r->classes->of[r->class[d]].memory;
                const double *cost = costs_at(r, d, f, k);
                double rates[RATES], excess[RATES];
                find_rates(r, dual, cost, rates);
                find_excess(r, dual, cost, rates, excess);
                for (int i = 0; i < RATES; i++)
                    lines_at(r, d, f)[k * RATES + i] = (struct line){
                        rates[i] * r->byte_dual[k] * memory + r->chunks * excess[i],
                        rates[i]};
            }
}

static double most_taken(const struct relaxed *r, int size, int flight, double us) {
    const struct line *l = lines_at(r, size, flight);
    double most = r->worth;
    for (int i = 0; i < r->n_duals * RATES; i++)
        most = fmin(most, l[i].a + l[i].b * us);
    return most;
}

/* ---- all groups -------------------------------------------------------------------------- */

/* What a group of each size can take at most, by its micro-batches in flight. */
struct offers {
    const struct relaxed *r;
    /* how many groups have this number of micro-batches in flight */
    int groups[MOST_FLIGHTS];
    double most[MOST_FLIGHTS][BOUND_DEVICES];
};

static double all_taken(const struct offers *o, double device) {
    const struct relaxed *r = o->r;
    double all = device * r->devices;
    for (int f = 0; f < r->n_flights; f++) {
        double best = 0;
        for (int d = 0; d < r->n_sizes; d++)
            best = fmax(best, o->most[f][d] - device * r->share[d]);
        all += o->groups[f] * best;
    }
    return all;
}

/* Returns whether the groups together may do the whole model in this time. Any dual of a
 * device gives an upper limit of what they do. The limit is convex in the dual, so golden
 * section finds the lowest. */
static bool may_do(const struct relaxed *r, double us) {
    enum { STEPS = 30 };
    static const double golden = 0.6180339887498949;
    /* On fewer devices the gradient norm takes less. */
    double norm_us = r->ev->space->p.may_idle ? 0 : r->ev->graph.norm_us;
    double left = us - norm_us, enough = r->worth * (1 - 1e-9);
    struct offers o = {.r = r};
    if (left <= 0)
        return false;
    for (int s = 0; s < r->groups; s++)
        o.groups[flight_at(r, s)]++;
    for (int f = 0; f < r->n_flights; f++)
        for (int d = 0; d < r->n_sizes; d++)
            o.most[f][d] = most_taken(r, d, f, left);
    double low = 0, high = 2 * r->worth / r->devices;
    double a = high - golden * (high - low), b = low + golden * (high - low);
    double at_a = all_taken(&o, a), at_b = all_taken(&o, b);
    for (int i = 0; i < STEPS; i++) {
        if (at_a < enough || at_b < enough)
            return false;
        if (at_a < at_b) {
            high = b, b = a, at_b = at_a;
            a = high - golden * (high - low);
            at_a = all_taken(&o, a);
        } else {
            low = a, a = b, at_a = at_b;
            b = low + golden * (high - low);
            at_b = all_taken(&o, b);
        }
    }
    return true;
}

/* Raises `us` to the least time in which the groups can do the whole model; stops at
 * `enough_us`. */
static double raise(const struct relaxed *r, double us, double enough_us) {
    enum { STEPS = 40 };
    if (may_do(r, us * 1.001))
        return us;
    if (isfinite(enough_us) && !may_do(r, enough_us))
        return enough_us;
    double low = us, high = fmax(us, 1);
    for (int i = 0; i < STEPS && !may_do(r, high); i++)
        low = high, high *= 2;
    if (!may_do(r, high))
        return INFINITY;
    while (high > low * 1.0005) {
        double mid = (low + high) / 2;
        *(may_do(r, mid) ? &high : &low) = mid;
    }
    return low;
}

/* Returns the best bound of several duals: what the ops cost in a group in the middle of
 * the pipeline if all groups have equally many devices. Only `tried` of these numbers of
 * devices and every step-th dual of a byte are tried. */
static double best_duals(struct relaxed *r, double enough_us, int tried, int step) {
    double best = 0;
    int even = 0, number = 0;
    for (int d = 0; d < r->n_sizes; d++)
        even += r->ev->space->p.devices % r->sizes[d] == 0;
    for (int d = 0; d < r->n_sizes; d++) {
        int groups = r->ev->space->p.devices / r->sizes[d],
            flight = flight_at(r, (groups - 1) / 2);
        if (groups * r->sizes[d] != r->ev->space->p.devices ||
            (++number % ((even + tried - 1) / tried) && number < even))
            continue;
        for (int k = 0;
             k < r->n_duals && best < enough_us && !budget_out_of_time(r->ev->budget);
             k += step) {
            const double *dual = costs_at(r, d, flight, k);
            r->worth = 0;
            for (int i = 0; i < r->n_ops; i++)
                r->worth += r->weight[i] * dual[i];
            if (!isfinite(r->worth))
                continue;
            find_lines(r, dual);
            best = raise(r, best, enough_us);
        }
    }
    return best;
}

/* Returns whether the ranks of each stage are known and using them is not too much work. */
static bool has_order(const struct space *sp) {
    return sp->p.devices <= BOUND_PLACED_DEVICES && !sp->p.pins && !space_has_places(sp);
}

const char *bound_relaxation(const struct space *sp) {
    return has_order(sp) ? BOUND_PLACED : BOUND_DUAL;
}

/* Raises the bound by the places of groups, for pipelines on all devices or, where
 * plans may leave some idle, on fewer. */
static double placed_us(const struct relaxed *r, double us, double enough_us) {
    const struct search_problem *p = &r->ev->space->p;
    double norm_us = p->may_idle ? 0 : r->ev->graph.norm_us, best = enough_us - norm_us;
    struct cuts *c = cuts_make(r);
    struct chain *h = chain_make(c);
    us -= norm_us;
    for (int d = p->devices; d > 0 && best > us; d--) {
        if (d < p->devices && !(p->may_idle && devices_may_be(p, d)))
            continue;
        double plain = chain_raise(h, d, us, best);
        best = fmin(best, r->chunks > 1 ? fmin(plain, interleaved_raise(c, d, us, plain))
                                        : plain);
    }
    chain_free(h);
    cuts_free(c);
    return best + norm_us;
}

/* The part of the space with one micro-batch, and its bound so far. */
struct part {
    struct relaxed r;
    int i; /* index among the problem's micro-batches */
    double us;
};

static double dual_us(struct relaxed *r, double enough_us, bool rough) {
    enum { ROUGH_TRIED = 2, ROUGH_STEP = 4, TRIED = 12, STEP = 2 };
    r->lines = mem_array((size_t)(r->n_sizes * r->n_flights * r->n_duals) * RATES,
                         sizeof *r->lines);
    double us = rough ? best_duals(r, enough_us, ROUGH_TRIED, ROUGH_STEP)
                      : best_duals(r, enough_us, TRIED, STEP);
    free(r->lines);
    r->lines = NULL;
    return us;
}

static void bound_part(struct part *p, double enough_us) {
    p->us = relaxed_make(&p->r) ? dual_us(&p->r, enough_us, false) : INFINITY;
}

static void place(struct part *p, double enough_us) {
    if (p->us > 0 && p->us < enough_us)
        p->us = placed_us(&p->r, p->us, enough_us);
}

static int lowest_first(const void *a, const void *b) {
    const struct part *x = a, *y = b;
    return x->us != y->us ? (x->us > y->us) - (x->us < y->us) : y->i - x->i;
}

/* The work of all ops on one device, divided by the devices, plus the gradient norm. */
static double share_us(const struct relaxed *r) {
    const struct search_problem *p = &r->ev->space->p;
    const double *us = costs_at(r, 0, 0, 0);
    double all = 0;
    for (int i = 0; i < r->n_ops; i++)
        all += r->weight[i] * us[i];
    return all / p->devices + (p->may_idle ? 0 : r->ev->graph.norm_us);
}

/* Returns whether share_us is a bound: it is where the parts of a divided instruction
 * together never take less than the whole, because then a larger group saves no work. */
static bool share_is_bound(const struct space *sp, const struct classes *classes) {
    return sp->p.provider->subadditive && classes->n == 1;
}

/* Raises a rough bound by places first. All duals are tried only where that leaves room
 * for a pipeline in less than `enough_us`. */
static void place_rough(struct part *p, double enough_us) {
    double rough = p->us, placed = 0;
    if (rough <= 0 || rough >= enough_us)
        return;
    if (isfinite(enough_us)) {
        place(p, enough_us);
        placed = p->us;
        if (placed >= enough_us)
            return;
    }
    p->us = fmax(dual_us(&p->r, enough_us, false), rough);
    if (placed <= 0 || p->us > placed)
        place(p, enough_us);
    else
        p->us = placed;
}

static int smallest_first(const void *a, const void *b) {
    const struct part *x = a, *y = b;
    return x->i - y->i;
}

/* Sorts parts by their bounds, lowest first. Those that are about equal are sorted by
 * micro-batch, the smallest first, because their pipelines have the shortest ramps. */
static void put_in_order(struct part *parts, int n) {
    static const double ABOUT = 1.003;
    int near = 0;
    qsort(parts, (size_t)n, sizeof *parts, lowest_first);
    while (near < n && parts[near].us <= ABOUT * parts[0].us)
        near++;
    qsort(parts, (size_t)near, sizeof *parts, smallest_first);
}

/* Bounds the parts in an order in which most need not be raised beyond the bound of
 * the first. */
static double least_rough(struct evaluate *ev, struct part *parts, int n) {
    bool share = share_is_bound(ev->space, parts[0].r.classes);
    double least = INFINITY;
    for (int i = 0; i < n; i++) {
        struct part *p = &parts[i];
        p->us = relaxed_make(&p->r) ? dual_us(&p->r, INFINITY, true) : INFINITY;
        double shared = share ? share_us(&p->r) : 0;
        p->us = isfinite(shared) ? fmax(p->us, shared) : p->us;
    }
    put_in_order(parts, n);
    for (int i = 0; i < n && least > 0; i++) {
        place_rough(&parts[i], least);
        least = budget_out_of_time(ev->budget) ? 0 : fmin(least, parts[i].us);
    }
    return least;
}

/* First every part gets a bound without places. Large micro-batches come first: they are
 * usually the fastest, so the others are done quickly. Then places are added, beginning
 * with the lowest bound, so that the others only have to reach its result. each: the bound
 * of every part is wanted. */
static double least_of(struct evaluate *ev, struct part *parts, int n, bool each) {
    bool order = has_order(ev->space);
    double least = INFINITY;
    if (order && !each)
        return least_rough(ev, parts, n);
    for (int i = n - 1; i >= 0 && least > 0; i--) {
        bound_part(&parts[i], each || order ? INFINITY : least);
        least = budget_out_of_time(ev->budget) ? 0 : fmin(least, parts[i].us);
    }
    if (!order || least <= 0)
        return least;
    qsort(parts, (size_t)n, sizeof *parts, lowest_first);
    least = INFINITY;
    for (int i = 0; i < n && least > 0; i++) {
        place(&parts[i], each ? INFINITY : least);
        least = budget_out_of_time(ev->budget) ? 0 : fmin(least, parts[i].us);
    }
    return least;
}

/* Kinds of devices are distinguished where that is not too much work. */
static struct classes classes_make(struct evaluate *ev) {
    struct device_class all[CLUSTER_MAX_GROUPS];
    struct classes out = {.n = space_device_classes(ev->space, all)};
    if (out.n * ev->space->p.devices > BOUND_DEVICES)
        out.n = 1;
    for (int c = 0; c < out.n; c++) {
        int devices = out.n > 1 ? all[c].end - all[c].first : ev->space->p.devices;
        out.of[c].op_bounds = op_bounds_make(ev, out.n > 1 ? &all[c] : NULL);
        out.of[c].devices = devices;
        out.of[c].memory =
            (double)(out.n > 1 ? search_memory(&ev->space->p, all[c].first, devices)
                               : ev->space->p.memory_bytes);
    }
    return out;
}

static void classes_free(struct classes *c) {
    for (int i = 0; i < c->n; i++)
        op_bounds_free(c->of[i].op_bounds);
}

static struct part part_of(struct evaluate *ev, struct classes *classes, int i) {
    int64_t micro_batch = ev->space->p.micro[i];
    return (struct part){
        .r = {.ev = ev,
              .classes = classes,
              .m = (double)(ev->space->p.batch / micro_batch),
              .micro_batch = micro_batch,
              .groups = ev->space->max_groups,
              .chunks = ev->space->max_stages > ev->space->max_groups ? MOST_CHUNKS : 1},
        .i = i};
}

/* The bound by an even share of all work, where that is valid. Duals prove more only
 * through memory. If they prove little more for groups just large enough to use all
 * devices, computing the lower bounds of larger groups, which is most of the work, would
 * gain nothing. Returns 0 where the share is no bound or duals may prove more. */
static double shared_us(struct evaluate *ev, struct classes *classes) {
    static const double LITTLE = 1.001;
    double least = INFINITY, dual = INFINITY;
    int size = 1;
    if (!share_is_bound(ev->space, classes) || has_order(ev->space))
        return 0;
    while (size * ev->space->max_groups < ev->space->p.devices)
        size *= 2;
    size = size < ev->space->p.devices ? size : ev->space->p.devices;
    for (int i = ev->space->p.n_micro - 1; i >= 0 && least > 0; i--) {
        struct part p = part_of(ev, classes, i);
        p.r.most_size = size;
        bound_part(&p, dual);
        dual = fmin(dual, p.us);
        least = budget_out_of_time(ev->budget) ? 0 : fmin(least, share_us(&p.r));
        relaxed_release(&p.r);
    }
    return isfinite(least) && dual <= LITTLE * least ? least : 0;
}

/* The least bound of all micro-batches; with micro_us also the bound of each. */
static double all_parts_us(struct evaluate *ev, struct classes *classes, double *micro_us) {
    int n = ev->space->p.n_micro;
    struct part *parts = mem_array((size_t)n, sizeof *parts);
    for (int i = 0; i < n; i++)
        parts[i] = part_of(ev, classes, i);
    double least = least_of(ev, parts, n, micro_us != NULL);
    for (int i = 0; i < n; i++) {
        if (micro_us)
            micro_us[parts[i].i] = least > 0 ? parts[i].us : 0;
        relaxed_release(&parts[i].r);
    }
    free(parts);
    return least;
}

double bound_us(struct evaluate *ev, double *micro_us) {
    if (ev->space->p.devices > BOUND_DEVICES) {
        for (int i = 0; micro_us && i < ev->space->p.n_micro; i++)
            micro_us[i] = 0;
        return 0;
    }
    struct classes classes = classes_make(ev);
    double least = micro_us ? 0 : shared_us(ev, &classes);
    if (least <= 0)
        least = all_parts_us(ev, &classes, micro_us);
    classes_free(&classes);
    return least;
}
