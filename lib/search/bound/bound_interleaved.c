/* Interleaved pipelines (see bound_interleaved.h).
 *
 * Stage k is between cuts k and k + 1, on group k modulo the number of groups. It
 * receives what its ops read from in front of it, and gradients for what its ops give
 * to stages behind it. Each comes from the neighbouring stage where the other end is
 * known to be there; otherwise from any other group, or free of charge from the same
 * group, if at least as many ops lie between as there are other groups. */
#include "search/bound/bound_interleaved.h"

#include <math.h>
#include <stdlib.h>

/* A tensor that passes a cut, or its gradient, and the time per micro-batch in which a
 * stage at the cut receives it if the stage has this op. */
struct passed {
    int op;
    double us;
};
struct crossed {
    int64_t first, end; /* indices into turns.passed */
};

struct turns {
    struct cuts *c;
    const struct relaxed *r;
    int groups, d, size; /* devices of a group; index of the size that they count as */
    /* Groups whose numbers differ by a multiple of this stand alike on their nodes. */
    int period;
    struct cut_costs {
        double take_near, take_any, back_near, back_any;
        /* [period + 1][kinds]; the last row is between the last group and the first */
    } * costs;
    /* [period + 1][n_ops + 1] what passes a cut in front of an op, as ranges of one list */
    struct crossed *taken, *back_over;
    ARR(struct passed) passed;
    /* [n_ops + 1] prefix sums over the ops of the model */
    double *work, *forward, *micro;
    bool back; /* counts the way back, but not the end of the step */
};

/* ---- cuts -------------------------------------------------------------------------------- */

static int period_of(const struct cuts *c, int d, int groups) {
    int period = !c->node           ? groups
                 : c->node % d == 0 ? c->node / d
                 : d % c->node == 0 ? 1
                                    : groups;
    return period < groups ? period : groups;
}

static double from_any_us(const struct turns *t, int kind, int a) {
    int n = t->period < t->groups ? 2 * t->period : t->groups, d = t->d;
    double best = INFINITY;
    for (int b = 0; b < n && b < t->groups; b++)
        if (b != a)
            best = fmin(best, cuts_between_us(t->c, kind, a * d, b * d, d));
    return best;
}

static void find_costs(struct turns *t) {
    int n = t->c->n_kinds, d = t->d;
    t->costs = mem_array((size_t)((t->period + 1) * n) + 1, sizeof *t->costs);
    for (int class = 0; class <= t->period; class ++) {
        bool around = class == t->period;
        int a = around ? (t->groups - 1) % t->period : class;
        int b = !around ? a + 1 : t->groups > t->period ? t->period : 0;
        for (int k = 0; k < n && b < t->groups; k++)
            t->costs[class * n + k] =
                (struct cut_costs){.take_near = cuts_between_us(t->c, k, b * d, a * d, d),
                                   .take_any = from_any_us(t, k, b),
                                   .back_near = cuts_between_us(t->c, k, a * d, b * d, d),
                                   .back_any = from_any_us(t, k, a)};
    }
}

/* Returns the row of costs for the two groups on both sides of cut k. */
static int class_of(const struct turns *t, int k) {
    int from = (k - 1) % t->groups;
    return from == t->groups - 1 ? t->period : from % t->period;
}

/* The time of a message with this many ops between its ends: if these may fill all
 * other groups, it may come from the same group free of charge. */
static double at_distance(const struct turns *t, int between, double near_us,
                          double any_us) {
    return !between ? near_us : between < t->groups - 1 ? any_us : 0;
}

/* What the longest possible stage behind the cut receives over it. */
static struct crossed find_taken(struct turns *t, const struct cut_costs *costs, int cut) {
    struct crossed out = {.first = t->passed.n};
    struct cut_walk w = {0};
    while (cuts_next_taken(t->c, cut, t->c->n_ops, &w)) {
        const struct cut_costs *x = &costs[w.kind];
        double all = at_distance(t, w.between, x->take_near, x->take_any);
        double us = fmax(0, all - (w.later ? cuts_addition_us(t->c, w.kind, t->d) : 0));
        arr_push(&t->passed, ((struct passed){w.other, us}));
    }
    out.end = t->passed.n;
    return out;
}

/* The gradients that the longest possible stage in front of the cut receives over it. */
static struct crossed find_back(struct turns *t, const struct cut_costs *costs, int cut) {
    struct crossed out = {.first = t->passed.n};
    struct cut_walk w = {0};
    while (cuts_next_back(t->c, 0, cut, &w)) {
        const struct cut_costs *x = &costs[w.kind];
        double us = at_distance(t, w.between, x->back_near, x->back_any);
        arr_push(&t->passed, ((struct passed){w.other, us}));
    }
    out.end = t->passed.n;
    return out;
}

static void find_passed(struct turns *t) {
    int n = t->c->n_ops + 1;
    size_t all = (size_t)(t->period + 1) * (size_t)n;
    t->taken = mem_array(2 * all, sizeof *t->taken);
    t->back_over = t->taken + all;
    for (int class = 0; class <= t->period; class ++)
        for (int cut = 0; cut < n; cut++) {
            const struct cut_costs *costs = t->costs + class * t->c->n_kinds;
            t->taken[class * n + cut] = find_taken(t, costs, cut);
            t->back_over[class * n + cut] = find_back(t, costs, cut);
        }
}

/* The time in which a stage of ops first .. end-1 receives its part of what passes. */
static inline double passed_us(const struct turns *t, const struct crossed *x, int first,
                               int end) {
    double us = 0;
    for (int64_t i = x->first; i < x->end; i++)
        if (t->passed.p[i].op >= first && t->passed.p[i].op < end)
            us += t->passed.p[i].us;
    return us;
}

/* ---- all groups together ------------------------------------------------------------------- */

/* Returns the delay that stage k adds, summed over all groups. The groups behind a first
 * stage wait until the first micro-batch's path has come through it, except with ops in
 * front of their own path, and the last micro-batch has to go back through it. */
static double delay_us(const struct turns *t, int k, int first, int end) {
    const struct cuts *c = t->c;
    int from = c->next_on[first] < end ? c->next_on[first] : end, to = c->last_on[end] + 1;
    if (k >= t->groups)
        return 0;
    const double *until = t->back ? t->micro : t->forward;
    double path = to > from ? until[to] - until[from] : 0;
    return (t->groups - 1 - k) * path -
           (t->back ? 2 : 1) * (t->work[from] - t->work[first]) / t->r->m;
}

/* Adds stage k: finds for each end the least time of it and the stages in front, if none
 * takes longer than the limit. */
static void add_stage(const struct turns *t, int k, double limit_us, const double *before,
                      double *after) {
    int n = t->c->n_ops, last = 2 * t->groups - 1;
    const struct crossed *in = t->taken + class_of(t, k ? k : 1) * (n + 1);
    const struct crossed *out = t->back_over + class_of(t, k + 1) * (n + 1);
    for (int end = 0; end <= n; end++)
        after[end] = INFINITY;
    for (int first = 0; first < n; first++)
        for (int end = first + 1; end <= n && isfinite(before[first]); end++) {
            if (t->work[end] - t->work[first] > limit_us * (1 + 1e-9))
                break;
            if (k == last && end < n)
                continue;
            double all = before[first] + delay_us(t, k, first, end);
            if (all >= after[end])
                continue;
            double us = k ? passed_us(t, &in[first], first, end) : 0;
            us += k < last ? passed_us(t, &out[end], first, end) : 0;
            after[end] = fmin(after[end], all + us * t->r->m);
        }
}

/* The least time of receiving over all cuts, with the delays by the path, if no stage
 * takes longer than the limit; INFINITY if one has to. */
static double passing_us(const struct turns *t, double limit_us) {
    int n = t->c->n_ops;
    double *rows = mem_array(2 * (size_t)n + 2, sizeof *rows);
    double *before = rows, *after = rows + n + 1;
    for (int i = 1; i <= n; i++)
        before[i] = INFINITY;
    for (int k = 0; k < 2 * t->groups; k++) {
        add_stage(t, k, limit_us, before, after);
        double *other = before;
        before = after;
        after = other;
    }
    double all = before[n];
    free(rows);
    return all;
}

/* The time of all ops on groups of this size, with memory charged by duals of bytes. */
static double all_us(const struct turns *t) {
    const struct relaxed *r = t->r;
    double most = 0;
    for (int k = 0; k < r->n_duals; k++) {
        double us = -r->byte_dual[k] * r->classes->of[0].memory * t->groups;
        for (int i = 0; i < r->n_ops; i++)
            us += r->weight[i] * costs_at(r, t->size, 0, k)[i];
        most = fmax(most, us);
    }
    return most;
}

/* A group's even share, if no stage takes longer than the limit. */
static double share_us(struct turns *t, double all, double limit_us) {
    t->back = false;
    double us = (all + passing_us(t, limit_us)) / t->groups;
    t->back = true;
    double micro = t->r->m * t->micro[t->c->n_ops];
    return us >= limit_us ? us : fmax(us, (micro + passing_us(t, limit_us)) / t->groups);
}

/* The bound with this number of groups, found by bisection over the limit of a stage. */
static double groups_raise(struct turns *t, double us, double enough_us) {
    enum { STEPS = 4 };
    /* pairs of ops where a stage may begin and end; more take over a second */
    static const double MOST_WORK = 1e6;
    double all = all_us(t), n = t->c->n_ops;
    if (!isfinite(all))
        return INFINITY;
    us = fmax(us, all / t->groups);
    if (n * n > MOST_WORK)
        return us;
    find_costs(t);
    find_passed(t);
    size_t ops = (size_t)t->c->n_ops + 1, of = (size_t)t->size * (size_t)t->r->n_ops;
    t->work = mem_array(3 * ops, sizeof *t->work);
    t->forward = t->work + ops;
    t->micro = t->forward + ops;
    sums_write_out(t->r, costs_at(t->r, t->size, 0, 0), t->work);
    sums_write_out(t->r, t->r->forward + of, t->forward);
    sums_write_out(t->r, t->r->micro + of, t->micro);
    /* The more time a stage may take, the less has to pass; the bound is where both
     * meet. */
    double high = enough_us;
    if (isfinite(high) && share_us(t, all, high) >= high)
        us = high;
    for (int i = 0; i < STEPS && high > us * 1.005; i++) {
        double mid = isfinite(high) ? (us + high) / 2 : 1.2 * us;
        *(share_us(t, all, mid) > mid ? &us : &high) = mid;
    }
    free(t->work);
    free(t->costs);
    free(t->taken);
    arr_release(&t->passed);
    return us;
}

/* Takes the least bound over all numbers of groups that divide the devices and the
 * micro-batches. */
double interleaved_raise(struct cuts *c, int devices, double us, double enough_us) {
    const struct relaxed *r = c->r;
    double best = enough_us;
    for (int groups = 2; groups <= r->groups && us > 0; groups++) {
        int d = devices / groups;
        struct turns t = {.c = c, .r = r, .groups = groups, .d = d};
        bool may = groups * d == devices && 2 * groups <= r->ev->space->max_stages &&
                   fmod(r->m, groups) < 0.5;
        if (!may || best <= us)
            continue;
        t.size = r->size_of[d];
        t.period = period_of(c, d, groups);
        best = fmin(best, groups_raise(&t, us, best));
    }
    return fmax(us, best);
}
