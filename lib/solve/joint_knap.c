/* joint_knap.c - one alternative per node, the fastest that fits: a multiple-choice
 * knapsack.
 *
 * The linear relaxation comes first: every node starts at its fastest alternative, and the
 * steps along the lower convex hulls of (memory, time), cheapest time per byte first, are
 * taken until the memory fits. The last step taken as a fraction gives a bound, taken whole
 * a solution. Where that does not decide, lists of (time, memory) sums that no other sum of
 * the same nodes beats in both are built node by node; a sum is dropped when its time plus
 * the Lagrangian bound of the rest, at the multiplier of the relaxation, passes the best
 * known. Dropped sums cannot lead to a better choice, so what is left at the end is the
 * optimum.
 */
#include "solve/joint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LIST                                                                           \
    4000000 /* entries of all lists together; beyond, only the bound is given */

struct option {
    double t, m; /* time * d, memory */
    int item;
};

struct step {
    double dt, dm; /* more time, less memory */
    int group, to; /* option index */
};

struct entry {
    double t, m;
    int64_t parent;
    int option;
};

struct knap {
    int groups;
    struct option *opt; /* per group by rising time, memory falling: the efficient ones */
    int *first;         /* group g: first[g] .. first[g+1]-1 */
    double capacity, limit, enough;
    double lambda;       /* time per byte at the optimum of the relaxation */
    double lp, greedy;   /* bound and solution of the relaxation */
    int *greedy_at;      /* option per group */
    double *rest_least;  /* per group: sum over groups >= g of least t + lambda m */
    double *rest_memory; /* ... of the least m */
};

double joint_sync_factor(const struct joint_problem *p) {
    return 4 / ((double)p->samples * p->bandwidth);
}

static int by_time(const void *a, const void *b) {
    const struct option *x = a, *y = b;
    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    if (x->m != y->m)
        return x->m < y->m ? -1 : 1;
    return x->item - y->item;
}

static int by_rate(const void *a, const void *b) {
    const struct step *x = a, *y = b;
    double l = x->dt * y->dm, r = y->dt * x->dm;
    if (l != r)
        return l < r ? -1 : 1;
    return x->group != y->group ? x->group - y->group : x->to - y->to;
}

/* The alternatives worth having of every node. */
static void knap_options(struct knap *k, const struct joint_items *it, double sync,
                         double y) {
    int n = 0;
    for (int g = 0; g < k->groups; g++) {
        k->first[g] = n;
        int from = n;
        for (int i = it->group.p[g]; i < it->group.p[g + 1]; i++) {
            const struct joint_item *x = &it->items.p[i];
            k->opt[n++] = (struct option){x->base + sync * x->w, x->a * y + x->b, i};
        }
        qsort(k->opt + from, (size_t)(n - from), sizeof *k->opt, by_time);
        int kept = from + 1;
        for (int i = from + 1; i < n; i++)
            if (k->opt[i].m < k->opt[kept - 1].m)
                k->opt[kept++] = k->opt[i];
        n = kept;
    }
    k->first[k->groups] = n;
}

/* Steps along the lower hull of one group. */
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

/* Fills lp, lambda and the greedy solution; false when nothing fits. */
static bool relax(struct knap *k) {
    struct step *steps = mem_array((size_t)k->first[k->groups] + 1, sizeof *steps);
    double t = 0, m = 0;
    int n = 0, i = 0;
    for (int g = 0; g < k->groups; g++) {
        k->greedy_at[g] = k->first[g];
        t += k->opt[k->first[g]].t;
        m += k->opt[k->first[g]].m;
        n += hull_steps(k, g, steps + n);
    }
    qsort(steps, (size_t)n, sizeof *steps, by_rate);
    k->lp = t;
    for (; i < n && m > k->capacity; i++) {
        k->lambda = steps[i].dt / steps[i].dm;
        k->lp = t + k->lambda * (m - k->capacity);
        t += steps[i].dt;
        m -= steps[i].dm;
        k->greedy_at[steps[i].group] = steps[i].to;
    }
    free(steps);
    k->greedy = t;
    /* The running sum drifts; what is sure is a sum taken afresh. */
    m = t = 0;
    for (int g = 0; g < k->groups; g++) {
        m += k->opt[k->greedy_at[g]].m;
        t += k->opt[k->greedy_at[g]].t;
    }
    k->greedy = m <= k->capacity ? t : INFINITY;
    return i < n || m <= k->capacity * (1 + 1e-12);
}

static void suffix_bounds(struct knap *k) {
    k->rest_least[k->groups] = k->rest_memory[k->groups] = 0;
    for (int g = k->groups - 1; g >= 0; g--) {
        double least = INFINITY;
        for (int i = k->first[g]; i < k->first[g + 1]; i++)
            least = fmin(least, k->opt[i].t + k->lambda * k->opt[i].m);
        k->rest_least[g] = k->rest_least[g + 1] + least;
        k->rest_memory[g] = k->rest_memory[g + 1] + k->opt[k->first[g + 1] - 1].m;
    }
}

/* ---- lists ----------------------------------------------------------------------- */

static int by_entry(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    if (x->m != y->m)
        return x->m < y->m ? -1 : 1;
    return x->option != y->option ? x->option - y->option
                                  : (x->parent > y->parent) - (x->parent < y->parent);
}

/* Sorts list[from..n) and keeps the entries that none beats in both. Returns the new n. */
static int64_t efficient(struct entry *list, int64_t from, int64_t n) {
    if (n == from)
        return n;
    qsort(list + from, (size_t)(n - from), sizeof *list, by_entry);
    int64_t kept = from + 1;
    for (int64_t i = from + 1; i < n; i++)
        if (list[i].m < list[kept - 1].m)
            list[kept++] = list[i];
    return kept;
}

/* The optimum below `best` (strictly); INFINITY if there is none, NAN when the lists grow
 * beyond all measure. at[] gets option indices. */
static double lists_solve(struct knap *k, double best, int *at) {
    ARR(struct entry) list = {0};
    int64_t from = 0, end = 1;
    /* rounding of the bound must not drop an optimum that equals it */
    double slack = 1e-13 * (fabs(best) + k->lambda * k->capacity);
    suffix_bounds(k);
    arr_push(&list, (struct entry){0, 0, -1, -1});
    for (int g = 0; g < k->groups && end > from; g++) {
        for (int64_t i = from; i < end; i++)
            for (int o = k->first[g]; o < k->first[g + 1]; o++) {
                double t = list.p[i].t + k->opt[o].t, m = list.p[i].m + k->opt[o].m;
                if (m + k->rest_memory[g + 1] > k->capacity * (1 + 1e-13) ||
                    t + k->rest_least[g + 1] + k->lambda * (m - k->capacity) >=
                        best + slack)
                    continue;
                arr_push(&list, (struct entry){t, m, i, o});
            }
        from = end;
        end = list.n = efficient(list.p, from, list.n);
        if (end > MAX_LIST) {
            arr_release(&list);
            return NAN;
        }
    }
    double found = INFINITY;
    int64_t leaf = from;
    while (leaf < end && list.p[leaf].m > k->capacity)
        leaf++;
    if (leaf < end && list.p[leaf].t < best) {
        found = list.p[leaf].t;
        for (int g = k->groups - 1; g >= 0; g--, leaf = list.p[leaf].parent)
            at[g] = list.p[leaf].option;
    }
    arr_release(&list);
    return found;
}

/* ---- the whole ------------------------------------------------------------------- */

static void knap_init(struct knap *k, const struct joint_items *it) {
    size_t g = (size_t)it->group.n;
    k->groups = (int)g - 1;
    k->opt = mem_array((size_t)it->items.n + 1, sizeof *k->opt);
    k->first = mem_array(g, sizeof *k->first);
    k->greedy_at = mem_array(g, sizeof *k->greedy_at);
    k->rest_least = mem_array(g, sizeof *k->rest_least);
    k->rest_memory = mem_array(g, sizeof *k->rest_memory);
}

static void knap_release(struct knap *k) {
    free(k->opt);
    free(k->first);
    free(k->greedy_at);
    free(k->rest_least);
    free(k->rest_memory);
}

static struct joint_pick decide(struct knap *k, int *at) {
    if (!relax(k))
        return (struct joint_pick){INFINITY, INFINITY};
    struct joint_pick pick = {k->greedy, k->lp};
    memcpy(at, k->greedy_at, (size_t)k->groups * sizeof *at);
    if (k->lp > k->limit) {
        pick.time = INFINITY;
        return pick;
    }
    if (k->greedy <= k->enough || k->greedy <= k->lp * (1 + 1e-15))
        return pick;
    double cap = fmin(k->greedy, nextafter(k->limit, INFINITY));
    double found = lists_solve(k, cap, at);
    if (isnan(found)) /* beyond measure: the greedy solution and the bound stand */
        return (struct joint_pick){k->greedy <= k->limit ? k->greedy : INFINITY, k->lp};
    if (isinf(found) && k->greedy <= k->limit)
        return (struct joint_pick){k->greedy, k->greedy}; /* nothing is faster */
    if (isinf(found))
        return (struct joint_pick){INFINITY, cap};
    return (struct joint_pick){found, found};
}

struct joint_pick joint_knapsack(const struct joint_problem *p,
                                 const struct joint_items *it, int d, int64_t y,
                                 double enough, double limit, int *picks) {
    struct knap k = {.capacity = p->capacity, .enough = enough * d, .limit = limit * d};
    knap_init(&k, it);
    knap_options(&k, it, joint_sync_factor(p) * (d - 1), (double)y);
    int *at = mem_array((size_t)k.groups + 1, sizeof *at);
    struct joint_pick pick = decide(&k, at);
    for (int g = 0; g < k.groups && picks; g++)
        picks[g] = k.opt[at[g]].item;
    pick.time /= d;
    pick.bound /= d;
    free(at);
    knap_release(&k);
    return pick;
}
