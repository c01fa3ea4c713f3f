/* The layout solver against brute force on small random problems: tight and loose memory,
 * no answer at all, ties, forbidden costs, nodes without strategies, several components,
 * parallel edges and loops; the optimum or a true "no" each time, and never a wrong bound,
 * not even when the solver is stopped early. */
#include "solve/layout/layout.h"
#include "solve/layout/layout_improve.h"
#include "solve/layout/layout_tree.h"

#include "common/mem.h"
#include "common/progress.h"
#include "common/rng.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define MOST_NODES 9
#define MOST_K     4

struct shape {
    const char *name;
    int nodes, k, edges; /* at most */
    int64_t cost, usage; /* numbers below this */
    double tight;        /* limit, between least (0) and greatest (1) peak */
    double forbidden;    /* share of forbidden entries */
    int lives;           /* lives per node, at most */
};

static void make(struct layout_problem *p, const struct shape *s, struct rng *r) {
    *p = (struct layout_problem){.cost_unit = 1, .usage_unit = 1};
    p->name = mem_strdup("random");
    p->n_nodes = 1 + (int32_t)rng_below(r, s->nodes);
    p->first = mem_array((size_t)p->n_nodes + 1, sizeof *p->first);
    for (int i = 0; i < p->n_nodes; i++)
        p->first[i + 1] = p->first[i] + 1 + rng_below(r, s->k);
    size_t n = (size_t)p->first[p->n_nodes];
    p->cost = mem_array(n, sizeof *p->cost);
    p->usage = mem_array(n, sizeof *p->usage);
    for (size_t a = 0; a < n; a++) {
        p->cost[a] = rng_real(r) < s->forbidden / 4 ? INT64_C(1000000000000000000)
                                                    : rng_below(r, s->cost);
        p->usage[a] = rng_below(r, s->usage);
    }
    p->live = mem_array((size_t)(p->n_nodes * s->lives) + 1, sizeof *p->live);
    for (int i = 0; i < p->n_nodes; i++)
        for (int64_t l = rng_below(r, s->lives + 1); l > 0; l--) {
            int64_t lo = rng_below(r, 8);
            p->live[p->n_live++] =
                (struct layout_live){i, 10 * lo, 10 * (lo + rng_below(r, 6))};
        }
    p->n_edges = rng_below(r, s->edges + 1);
    p->ends = mem_array((size_t)p->n_edges + 1, sizeof *p->ends);
    p->entry = mem_array((size_t)p->n_edges + 2, sizeof *p->entry);
    for (int64_t e = 0; e < p->n_edges; e++) {
        int32_t u = p->ends[e][0] = (int32_t)rng_below(r, p->n_nodes);
        int32_t v = p->ends[e][1] = (int32_t)rng_below(r, p->n_nodes);
        p->entry[e + 1] =
            p->entry[e] + (p->first[u + 1] - p->first[u]) * (p->first[v + 1] - p->first[v]);
    }
    p->n_entries = p->entry[p->n_edges];
    n = (size_t)p->n_entries;
    p->edge_cost = mem_array(n + 1, sizeof *p->edge_cost);
    for (size_t a = 0; a < n; a++)
        p->edge_cost[a] = rng_real(r) < s->forbidden ? INT64_C(1000000000000000000)
                                                     : rng_below(r, s->cost);
}

/* Cost of x, -1 if forbidden; *peak = greatest usage. Written apart from layout_check.c. */
static int64_t cost_of(const struct layout_problem *p, const int32_t *x, int64_t *peak) {
    int64_t sum = 0, use[200] = {0};
    for (int i = 0; i < p->n_nodes; i++)
        sum += p->cost[p->first[i] + x[i]];
    for (int64_t e = 0; e < p->n_edges; e++) {
        int u = p->ends[e][0], v = p->ends[e][1];
        int64_t c =
            p->edge_cost[p->entry[e] + x[u] * (p->first[v + 1] - p->first[v]) + x[v]];
        if (c >= LAYOUT_FORBIDDEN)
            return -1;
        sum += c;
    }
    if (sum >= LAYOUT_FORBIDDEN)
        return -1;
    *peak = 0;
    for (int64_t l = 0; l < p->n_live; l++)
        for (int64_t t = p->live[l].lo; t < p->live[l].hi; t++)
            use[t] += p->usage[p->first[p->live[l].node] + x[p->live[l].node]];
    for (int t = 0; t < 200; t++)
        *peak = use[t] > *peak ? use[t] : *peak;
    return sum;
}

/* Calls for all choices; the least cost within the limit (-1: none) and the range of peaks.
 */
static int64_t brute(const struct layout_problem *p, int64_t limit, int64_t *lo,
                     int64_t *hi) {
    int32_t x[MOST_NODES] = {0};
    int64_t best = -1;
    *lo = INT64_MAX;
    *hi = 0;
    for (;;) {
        int64_t peak = 0, c = cost_of(p, x, &peak);
        if (c >= 0) {
            *lo = peak < *lo ? peak : *lo;
            *hi = peak > *hi ? peak : *hi;
            if (peak <= limit && (best < 0 || c < best))
                best = c;
        }
        int i = 0;
        while (i < p->n_nodes && ++x[i] == p->first[i + 1] - p->first[i])
            x[i++] = 0;
        if (i == p->n_nodes)
            return best;
    }
}

/* One random problem: 0 = right, else what is wrong. */
static const char *try_one(const struct shape *s, uint64_t seed, bool hurry) {
    struct rng r = {seed, 0};
    struct layout_problem p;
    struct layout_answer a;
    struct err err = {0};
    const char *wrong = NULL;
    make(&p, s, &r);
    int64_t lo, hi;
    brute(&p, INT64_MAX, &lo, &hi);
    p.usage_limit = LAYOUT_NO_LIMIT;
    if (s->tight < 2 && lo <= hi)
        p.usage_limit = lo + (int64_t)(s->tight * rng_real(&r) * (double)(hi - lo)) -
                        (rng_below(&r, 10) == 0);
    if (p.usage_limit < 0)
        p.usage_limit = 0;
    int64_t best = brute(&p, p.usage_limit, &lo, &hi);
    struct solve_limits limits = {.seed = seed, .time_budget_s = hurry ? 1e-6 : 0};
    int rc = layout_solve(&p, &limits, &a, &err);
    if (rc < 0 && err.status != EXIT_NO)
        wrong = "failed";
    else if (rc < 0 && best >= 0 && !hurry)
        wrong = "said there is no answer";
    else if (rc == 0 && best < 0)
        wrong = "gave an answer where there is none";
    else if (rc == 0 && (a.bound > best || a.value < best))
        wrong = "wrong bound or value";
    else if (rc == 0 && !hurry && (a.value != best || a.bound != best))
        wrong = "not the optimum";
    if (rc == 0 && !wrong) {
        int64_t peak, c = cost_of(&p, a.choice, &peak);
        if (c != a.value || peak > p.usage_limit || peak != a.peak_usage)
            wrong = "the value is not that of the choice";
    }
    layout_answer_release(&a);
    layout_problem_release(&p);
    return wrong;
}

/* Batches of jobs, which small problems do not come to by themselves. */
static const char *try_large(const struct shape *s, uint64_t seed, int threads) {
    struct rng r = {seed, 0};
    struct layout_problem p;
    struct layout_core c;
    const char *wrong = NULL;
    make(&p, s, &r);
    int64_t lo, hi;
    brute(&p, INT64_MAX, &lo, &hi);
    p.usage_limit =
        lo <= hi ? lo + (int64_t)(s->tight * rng_real(&r) * (double)(hi - lo)) : 0;
    int64_t best = brute(&p, p.usage_limit, &lo, &hi);
    if (layout_core_build(&c, &p, NULL) < 0 || layout_core_shrink(&c, NULL) < 0) {
        wrong = best >= 0 ? "said there is no answer" : NULL;
    } else {
        layout_core_scale(&c);
        struct layout_improve m = {.core = &c,
                                   .seed = seed,
                                   .threads = threads,
                                   .value = LAYOUT_INF,
                                   .bound = INT64_MIN / 4};
        m.x = mem_array((size_t)c.n_vars + 1, sizeof *m.x);
        layout_improve_run(&m);
        int64_t value = m.value < LAYOUT_INF ? m.value >> c.shift : -1;
        if (value != best || (best >= 0 && m.bound > m.value))
            wrong = "not the optimum";
        free(m.x);
    }
    layout_core_release(&c);
    layout_problem_release(&p);
    return wrong;
}

static void large_problems(const struct shape *s, int count) {
    const char *wrong = NULL;
    int n = 0;
    for (; n < count && !wrong; n++)
        wrong = try_large(s, (uint64_t)n, 1 + n % 3);
    ok(!wrong, "%d random problems in batches, %s%s%s (last seed %d)", n, s->name,
       wrong ? ": " : "", wrong ? wrong : "", n - 1);
}

static void random_problems(const struct shape *s, int count, bool hurry) {
    const char *wrong = NULL;
    int n = 0;
    while (n < count && !wrong)
        wrong = try_one(s, (uint64_t)n++, hurry);
    ok(!wrong, "%d random problems, %s%s%s%s (last seed %d)", n, s->name,
       hurry ? ", stopped early" : "", wrong ? ": " : "", wrong ? wrong : "", n - 1);
}

struct tree_count {
    int above, fallen; /* bounds that are wrong */
    int cases, proven; /* where the dual alone is below the optimum; and raised to it */
};

/* The tree of decisions over one problem: its bound rises and is never above the optimum. */
static void try_tree(const struct shape *s, uint64_t seed, struct tree_count *n) {
    struct rng r = {seed, 0};
    struct layout_problem p;
    struct layout_core c;
    make(&p, s, &r);
    int64_t lo, hi;
    brute(&p, INT64_MAX, &lo, &hi);
    p.usage_limit = s->tight >= 2 ? LAYOUT_NO_LIMIT
                    : lo <= hi    ? lo + (int64_t)(s->tight * (double)(hi - lo))
                                  : 0;
    int64_t best = brute(&p, p.usage_limit, &lo, &hi);
    if (layout_core_build(&c, &p, NULL) == 0 && layout_core_shrink(&c, NULL) == 0 &&
        best >= 0) {
        struct layout_tree t = {0};
        struct layout_dual d;
        layout_core_scale(&c);
        int64_t unit = INT64_C(1) << c.shift, upper = (best + 4) * unit, before = 0;
        layout_dual_init(&d, &c);
        layout_dual_run(&d, 10, upper, 0);
        int64_t dual = before = d.bound;
        for (int turn = 0; turn < 40; turn++) {
            int64_t bound = layout_tree_grow(&t, &d, d.x, upper, 60, 0);
            n->fallen += bound < before;
            before = bound;
        }
        n->above += before > best * unit;
        if (dual <= (best - 1) * unit) {
            n->cases++;
            n->proven += before > (best - 1) * unit;
        }
        layout_tree_release(&t);
        layout_dual_release(&d);
    }
    layout_core_release(&c);
    layout_problem_release(&p);
}

static const struct shape shapes[] = {
    {"loose memory", 7, 4, 10, 100, 20, 1.0, 0.0, 1},
    {"no limit", 7, 4, 12, 1000, 20, 2.0, 0.1, 1},
    {"tight memory", 7, 4, 8, 1000, 100, 0.3, 0.0, 1},
    {"very tight, dense", 6, 4, 15, 1000, 100, 0.1, 0.1, 1},
    {"ties", 7, 4, 10, 3, 3, 0.5, 0.1, 1},
    {"forbidden pairs", 7, 4, 10, 100, 30, 0.6, 0.35, 1},
    {"mostly forbidden", 6, 4, 9, 100, 30, 0.8, 0.7, 1},
    {"no edges", 8, 3, 0, 50, 50, 0.3, 0.0, 1},
    {"trees of followers", 9, 3, 8, 20, 10, 0.5, 0.55, 1},
    {"several lives", 7, 3, 9, 100, 30, 0.4, 0.1, 3},
    {"large costs", 6, 4, 9, INT64_C(1000000000000), 1000000, 0.4, 0.1, 1},
};

/* Without memory, and so many edges that pairs alone do not decide. */
static const struct shape dense = {"dense", 9, 4, 30, 1000, 20, 2.0, 0.0, 1};

static void trees(void) {
    struct tree_count n = {0}, all = {0};
    for (uint64_t seed = 0; seed < 1500; seed++)
        try_tree(&dense, seed, &n);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (uint64_t seed = 0; seed < 100; seed++)
            try_tree(&shapes[s], seed, &all);
    ok(!n.above && !all.above, "no bound of a tree is above the optimum: %d, %d are",
       n.above, all.above);
    ok(!n.fallen && !all.fallen, "none falls: %d, %d do", n.fallen, all.fallen);
    ok(n.cases > 30 && n.proven == n.cases,
       "without memory trees raise all %d bounds below the optimum up to it: %d", n.cases,
       n.proven);
}

int main(void) {
    int n = (int)(sizeof shapes / sizeof *shapes);
    for (int s = 0; s < n; s++)
        random_problems(&shapes[s], 4000, false);
    for (int s = 0; s < n; s++)
        random_problems(&shapes[s], 1000, true);
    for (int s = 0; s < n; s++)
        large_problems(&shapes[s], 300);
    trees();
    return done_testing();
}
