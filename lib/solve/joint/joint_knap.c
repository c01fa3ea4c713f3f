/* joint_knap.c - one alternative per node, the fastest that fits: a multiple-choice
 * knapsack.
 *
 * The linear relaxation comes first: every node starts at its fastest alternative, and the
 * steps along the lower convex hulls of (memory, time), cheapest time per byte first, are
 * taken until the memory fits. The last step taken as a fraction gives a bound, taken whole
 * a solution. Where that does not decide, lists of (time, memory) sums that no other sum of
 * the same nodes beats in both are built node by node. The nodes about which the multiplier
 * of the relaxation says least come first (Pisinger, "A minimal algorithm for the
 * multiple-choice knapsack problem", 1995). A sum is dropped when its time plus the
 * Lagrangian bound of the rest passes the best known. Dropped sums cannot lead to a better
 * choice, so what is left at the end is the optimum. A sum that the relaxation's choice for
 * the rest completes within `enough` ends the search.
 */
#include "solve/joint/joint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Most entries of all lists together. Beyond that, only the bound is given. */
#define MAX_LIST 4000000

struct option {
    double t, m; /* time * d, memory */
    int item;
};

struct step {
    double dt, dm; /* more time, less memory */
    int group, to; /* option index */
};

/* A node in the order of the lists, and what it and those after it add up to. */
struct rest {
    int group;
    double doubt;        /* how much worse the second best is at lambda */
    double least, lean;  /* sums of the least t + lambda m, of the least m */
    double time, memory; /* sums of the relaxation's choice */
};

struct entry {
    double t, m;
    int32_t parent, option;
};

struct list {
    struct entry *p;
    int64_t n, cap;
};

struct knap {
    int groups, options;
    struct option *opt; /* per group by rising time, memory falling: the efficient ones */
    int *first;         /* group g: first[g] .. first[g+1]-1 */
    struct step *steps;
    struct rest *rest; /* [groups + 1] */
    int *lp_at, *at;   /* option per group: of the relaxation; of the answer */
    double capacity, limit, enough;
    double lambda;     /* time per byte at the optimum of the relaxation */
    double lp, greedy; /* bound and solution of the relaxation */
};

static bool earlier(const struct option *x, const struct option *y) {
    return x->t < y->t ||
           (x->t == y->t && (x->m < y->m || (x->m == y->m && x->item < y->item)));
}

/* Collects the alternatives of every node that are worth having. */
static void make_options(struct knap *k, const struct joint_items *it, double sync,
                         double y) {
    int n = 0;
    for (int g = 0; g < k->groups; g++) {
        int from = k->first[g] = n;
        for (int i = it->group.p[g]; i < it->group.p[g + 1]; i++) {
            const struct joint_item *x = &it->items.p[i];
            struct option o = {x->base + sync * x->w, x->a * y + x->b, i};
            int to = n++;
            for (; to > from && earlier(&o, &k->opt[to - 1]); to--)
                k->opt[to] = k->opt[to - 1];
            k->opt[to] = o;
        }
        int kept = from + 1;
        for (int i = from + 1; i < n; i++)
            if (k->opt[i].m < k->opt[kept - 1].m)
                k->opt[kept++] = k->opt[i];
        n = kept;
    }
    k->first[k->groups] = n;
}

/* ---- the relaxation ------------------------------------------------------------------ */

static int by_rate(const void *a, const void *b) {
    const struct step *x = a, *y = b;
    double l = x->dt * y->dm, r = y->dt * x->dm;
    if (l != r)
        return l < r ? -1 : 1;
    return x->group != y->group ? x->group - y->group : x->to - y->to;
}

/* Lists the steps along the lower hull of one group. Returns how many there are. */
static int hull_steps(const struct knap *k, int g, struct step *out) {
    int n = 0, at = k->first[g], end = k->first[g + 1];
    while (at + 1 < end) {
        int best = at + 1;
        for (int j = at + 2; j < end; j++) {
            double dt = k->opt[j].t - k->opt[at].t, dm = k->opt[at].m - k->opt[j].m;
            double bt = k->opt[best].t - k->opt[at].t, bm = k->opt[at].m - k->opt[best].m;
            if (dt * bm <= bt * dm)
                best = j;
        }
        out[n++] = (struct step){k->opt[best].t - k->opt[at].t,
                                 k->opt[at].m - k->opt[best].m, g, best};
        at = best;
    }
    return n;
}

/* Fills in lp, lambda and the greedy solution. Returns false when nothing fits. */
static bool relax(struct knap *k) {
    double t = 0, m = 0;
    int n = 0, i = 0;
    for (int g = 0; g < k->groups; g++) {
        k->lp_at[g] = k->first[g];
        t += k->opt[k->first[g]].t;
        m += k->opt[k->first[g]].m;
        n += hull_steps(k, g, k->steps + n);
    }
    if (m > k->capacity)
        qsort(k->steps, (size_t)n, sizeof *k->steps, by_rate);
    k->lambda = 0;
    k->lp = t;
    for (; i < n && m > k->capacity; i++) {
        const struct step *s = &k->steps[i];
        k->lambda = s->dt / s->dm;
        k->lp = t + k->lambda * (m - k->capacity);
        t += s->dt;
        m -= s->dm;
        k->lp_at[s->group] = s->to;
    }
    /* The running sums drift, so both are taken afresh. */
    m = t = 0;
    for (int g = 0; g < k->groups; g++) {
        m += k->opt[k->lp_at[g]].m;
        t += k->opt[k->lp_at[g]].t;
    }
    k->greedy = m <= k->capacity ? t : INFINITY;
    return i < n || m <= k->capacity * (1 + 1e-12);
}

/* ---- lists ----------------------------------------------------------------------- */

static int by_doubt(const void *a, const void *b) {
    const struct rest *x = a, *y = b;
    if (x->doubt != y->doubt)
        return x->doubt < y->doubt ? -1 : 1;
    return x->group - y->group;
}

static void order_groups(struct knap *k) {
    for (int g = 0; g < k->groups; g++) {
        struct rest *r = &k->rest[g];
        double second = INFINITY;
        *r = (struct rest){.group = g, .least = INFINITY};
        for (int i = k->first[g]; i < k->first[g + 1]; i++) {
            double cost = k->opt[i].t + k->lambda * k->opt[i].m;
            second = fmin(second, fmax(cost, r->least));
            r->least = fmin(r->least, cost);
        }
        r->doubt = second - r->least;
        r->lean = k->opt[k->first[g + 1] - 1].m;
        r->time = k->opt[k->lp_at[g]].t;
        r->memory = k->opt[k->lp_at[g]].m;
    }
    qsort(k->rest, (size_t)k->groups, sizeof *k->rest, by_doubt);
    k->rest[k->groups] = (struct rest){0};
    for (int i = k->groups - 1; i >= 0; i--) {
        struct rest *r = &k->rest[i];
        r->least += r[1].least;
        r->lean += r[1].lean;
        r->time += r[1].time;
        r->memory += r[1].memory;
    }
}

static void push(struct list *l, struct entry e) {
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->p = mem_grow(l->p, (size_t)l->cap, sizeof *l->p);
    }
    l->p[l->n++] = e;
}

/* Appends e to sums that are no slower, unless the last of them takes no more memory. */
static void push_efficient(struct list *l, struct entry e) {
    if (l->n && l->p[l->n - 1].t == e.t && e.m < l->p[l->n - 1].m)
        l->n--;
    if (!l->n || e.m < l->p[l->n - 1].m)
        push(l, e);
}

/* Merges into `out` the list `with` and the sums of `base` from `from` on with one more
 * option, as far as these may lead below `best`. All are sorted by rising time and falling
 * memory. */
static void merge(const struct knap *k, struct list *out, const struct list *with,
                  const struct list *base, int64_t from, int option,
                  const struct rest *rest, double best) {
    const struct option *o = &k->opt[option];
    int64_t j = 0;
    out->n = 0;
    for (int64_t i = from; i < base->n; i++) {
        struct entry e = {base->p[i].t + o->t, base->p[i].m + o->m, (int32_t)i, option};
        if (e.m + rest->lean > k->capacity * (1 + 1e-13) ||
            e.t + rest->least + k->lambda * (e.m - k->capacity) >= best)
            continue;
        while (j < with->n && with->p[j].t <= e.t)
            push_efficient(out, with->p[j++]);
        push_efficient(out, e);
    }
    while (j < with->n)
        push_efficient(out, with->p[j++]);
}

/* Collects the choice that ends in `leaf`, an entry of the list of the first n nodes. */
static void collect(struct knap *k, const struct list *all, int64_t leaf, int n) {
    memcpy(k->at, k->lp_at, (size_t)k->groups * sizeof *k->at);
    for (int i = n - 1; i >= 0; i--, leaf = all->p[leaf].parent)
        k->at[k->rest[i].group] = all->p[leaf].option;
}

/* Returns a sum of the last list that is good enough with the relaxation's choice for
 * the rest, or -1. */
static int64_t find_enough(const struct knap *k, const struct list *all, int64_t from,
                           const struct rest *rest, double enough) {
    for (int64_t i = from; i < all->n; i++)
        if (all->p[i].m + rest->memory <= k->capacity && all->p[i].t + rest->time <= enough)
            return i;
    return -1;
}

/* Finds the optimum strictly below `best`, or any choice that is enough. Returns
 * INFINITY if there is none, NAN when the lists grow too large. at[] gets option
 * indices. */
static double solve_lists(struct knap *k, const struct joint_problem *p, double best) {
    struct list all = {0}, one = {0}, two = {0};
    /* rounding of the bound must not drop an optimum that equals it */
    double slack = 1e-13 * (fabs(best) + k->lambda * k->capacity), found = INFINITY;
    int64_t from = 0;
    int i = 0;
    order_groups(k);
    push(&all, (struct entry){0, 0, -1, -1});
    for (; i < k->groups && all.n > from && isinf(found); i++) {
        int g = k->rest[i].group;
        one.n = 0;
        for (int o = k->first[g]; o < k->first[g + 1]; o++) {
            merge(k, &two, &one, &all, from, o, &k->rest[i + 1], best + slack);
            struct list swap = one;
            one = two;
            two = swap;
        }
        from = all.n;
        for (int64_t e = 0; e < one.n; e++)
            push(&all, one.p[e]);
        bool last = i + 1 == k->groups;
        int64_t leaf = find_enough(k, &all, from, &k->rest[i + 1],
                                   last ? nextafter(best, 0) : k->enough);
        if (leaf >= 0) {
            found = all.p[leaf].t + k->rest[i + 1].time;
            collect(k, &all, leaf, i + 1);
        }
        if (all.n > MAX_LIST || (one.n > 10000 && joint_stopped(p)))
            found = NAN;
    }
    free(all.p);
    free(one.p);
    free(two.p);
    return found;
}

/* ---- yes or no by multipliers -------------------------------------------------------- */

/* Time and memory of a choice. */
struct point {
    double t, m;
};

/* Makes the choice of least time * t + lambda * m per node, the faster of equal ones. With
 * `time` 0 that is the one of least memory. */
static struct point choose(const struct joint_items *it, double sync, double y, double time,
                           double lambda) {
    struct point sum = {0};
    for (int64_t g = 0; g + 1 < it->group.n; g++) {
        struct point best = {INFINITY, INFINITY};
        double least = INFINITY;
        for (int i = it->group.p[g]; i < it->group.p[g + 1]; i++) {
            const struct joint_item *x = &it->items.p[i];
            struct point at = {x->base + sync * x->w, x->a * y + x->b};
            double cost = time * at.t + lambda * at.m;
            if (cost < least || (cost == least && at.t < best.t)) {
                least = cost;
                best = at;
            }
        }
        sum.t += best.t;
        sum.m += best.m;
    }
    return sum;
}

/* Decides by multipliers whether there is a choice within `capacity` and `limit`. Returns 1
 * for yes, -1 for no, 0 where multipliers cannot tell. The multiplier moves to where the
 * last choice that fits and the last one too large cost the same, which reaches the optimum
 * of the relaxation after a few steps. *lambda is the first guess, and becomes that of the
 * next call. */
static int try_multipliers(const struct joint_items *it, double sync, double y,
                           double capacity, double limit, double *lambda) {
    struct point lo = choose(it, sync, y, 1, 0), hi = {INFINITY, 0};
    if (lo.m <= capacity || lo.t > limit * (1 + 1e-12))
        return lo.t <= limit ? 1 : lo.t > limit * (1 + 1e-12) ? -1 : 0;
    double guess = *lambda;
    for (int i = 0; i < 30; i++) {
        bool lean = guess <= 0 && isinf(hi.t);
        struct point at = choose(it, sync, y, !lean, lean ? 1 : guess);
        if (lean && at.m > capacity * (1 + 1e-12))
            return -1;
        if (at.m <= capacity && at.t <= limit)
            return 1;
        if (!lean && at.t + guess * (at.m - capacity) >
                         limit + 1e-12 * (limit + guess * (at.m + capacity)))
            return -1;
        if (isfinite(hi.t) && (at.t == lo.t || at.t == hi.t))
            return 0; /* the relaxation's optimum */
        if (at.m <= capacity || lean)
            hi = at;
        else
            lo = at;
        if (!lean)
            *lambda = guess;
        guess = isinf(hi.t) ? 0 : (hi.t - lo.t) / (lo.m - hi.m);
        if (isfinite(hi.t) && !(guess > 0))
            return 0;
    }
    return 0;
}

/* ---- the whole ------------------------------------------------------------------- */

static struct joint_pick decide(struct knap *k, const struct joint_problem *p) {
    if (!relax(k))
        return (struct joint_pick){INFINITY, INFINITY};
    struct joint_pick pick = {k->greedy, k->lp};
    memcpy(k->at, k->lp_at, (size_t)k->groups * sizeof *k->at);
    if (k->lp > k->limit) {
        pick.time = INFINITY;
        return pick;
    }
    if (isfinite(k->greedy) && (k->greedy <= k->enough || k->greedy <= k->lp * (1 + 1e-15)))
        return pick;
    double cap = fmin(k->greedy, nextafter(k->limit, INFINITY));
    double found = solve_lists(k, p, cap);
    if (isnan(found)) /* too large: the greedy solution and the bound stand */
        return (struct joint_pick){k->greedy <= k->limit ? k->greedy : INFINITY, k->lp};
    if (isinf(found) && k->greedy <= k->limit)
        return (struct joint_pick){k->greedy, k->greedy}; /* nothing is faster */
    if (isinf(found))
        return (struct joint_pick){INFINITY, cap};
    return (struct joint_pick){found, found <= k->enough ? k->lp : found};
}

/* Allocates all arrays in one piece. */
static void *knap_init(struct knap *k, const struct joint_items *it) {
    size_t groups = (size_t)it->group.n, options = (size_t)it->items.n + 1;
    size_t bytes = options * (sizeof *k->opt + sizeof *k->steps) +
                   (groups + 1) * (sizeof *k->rest + 3 * sizeof *k->first);
    char *scratch = mem_alloc(bytes);
    k->groups = (int)groups - 1;
    k->opt = (struct option *)(void *)scratch;
    k->steps = (struct step *)(void *)(k->opt + options);
    k->rest = (struct rest *)(void *)(k->steps + options);
    k->first = (int *)(void *)(k->rest + groups + 1);
    k->lp_at = k->first + groups + 1;
    k->at = k->lp_at + groups + 1;
    return scratch;
}

bool joint_fits(const struct joint_problem *p, struct joint_items *it, int d, int64_t y,
                double limit, double *open) {
    double sync = joint_sync_factor(p) * (d - 1);
    int sure = try_multipliers(it, sync, (double)y, p->capacity, limit * d, &it->lambda);
    if (sure)
        return sure > 0;
    struct joint_pick pick = joint_knapsack(p, it, d, y, limit, limit, NULL);
    bool good = isfinite(pick.time) && pick.time <= limit;
    if (!good)
        *open = fmin(*open, pick.bound);
    return good;
}

struct joint_pick joint_knapsack(const struct joint_problem *p,
                                 const struct joint_items *it, int d, int64_t y,
                                 double enough, double limit, int *picks) {
    struct knap k = {.capacity = p->capacity, .enough = enough * d, .limit = limit * d};
    void *scratch = knap_init(&k, it);
    make_options(&k, it, joint_sync_factor(p) * (d - 1), (double)y);
    struct joint_pick pick = decide(&k, p);
    for (int g = 0; g < k.groups && picks; g++)
        picks[g] = k.opt[k.at[g]].item;
    pick.time /= d;
    pick.bound /= d;
    free(scratch);
    return pick;
}
