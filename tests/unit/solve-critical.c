/* Cutting at critical variables: random problems against all choices, and blocks of a transformer's
 * shape against the layout solver. Bounds are never above the optimum, limits are kept, and a limit of
 * work leaves a bound that holds. Times of both solvers are printed. */
#include "common/mem.h"
#include "common/rng.h"
#include "solve/critical/critical.h"
#include "solve/layout/layout.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { MOST_VARS = 40, MOST_FACTORS = 120 };

struct drawn {
    struct critical_problem p;
    int size[MOST_VARS];
    bool critical[MOST_VARS];
    struct critical_factor factors[MOST_FACTORS];
    double *tables[2 * MOST_FACTORS];
    int n_tables;
};

static struct rng rng;

static double *table(struct drawn *d, int64_t n, double forbidden, bool whole) {
    double *v = mem_array((size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = rng_real(&rng) < forbidden ? INFINITY
               : whole                    ? (double)rng_below(&rng, 1000)
                                          : rng_real(&rng) * 100 - 10;
    d->tables[d->n_tables++] = v;
    return v;
}

static void add(struct drawn *d, int n, const int *var, double forbidden, bool usage) {
    struct critical_factor *f = &d->factors[d->p.n_factors++];
    int64_t size = 1;
    *f = (struct critical_factor){.n = n};
    for (int i = 0; i < n; i++) {
        f->var[i] = var[i];
        size *= d->size[var[i]];
    }
    f->cost = table(d, size, forbidden, !usage || n == 1);
    if (usage)
        f->usage = table(d, size, 0, n == 1);
}

static void begin(struct drawn *d, int n) {
    *d = (struct drawn){.p = {.n = n, .limit = INFINITY}};
    d->p.size = d->size;
    d->p.critical = d->critical;
    d->p.factors = d->factors;
}

static void release(struct drawn *d) {
    for (int i = 0; i < d->n_tables; i++)
        free(d->tables[i]);
}

/* A few variables, tables over one to four of them, some cut. */
static void draw(struct drawn *d) {
    begin(d, 2 + (int)rng_below(&rng, 6));
    for (int i = 0; i < d->p.n; i++) {
        d->size[i] = 1 + (int)rng_below(&rng, 4);
        d->critical[i] = rng_below(&rng, 2);
    }
    for (int i = 0; i < d->p.n; i++)
        add(d, 1, &i, 0.05, true);
    for (int k = 0; k < d->p.n + 2; k++) {
        int var[CRITICAL_ARITY], n = 0, of = 2 + (int)rng_below(&rng, 3);
        for (int i = 0; i < d->p.n && n < of; i++)
            if (rng_below(&rng, d->p.n) < 3)
                var[n++] = i;
        if (n)
            add(d, n, var, 0.1, rng_below(&rng, 2));
    }
}

static void sum_up(const struct critical_problem *p, const int *x, double *cost,
                   double *usage) {
    *cost = *usage = 0;
    for (int k = 0; k < p->n_factors; k++) {
        const struct critical_factor *f = &p->factors[k];
        int64_t at = 0;
        for (int i = 0; i < f->n; i++)
            at = at * p->size[f->var[i]] + x[f->var[i]];
        *cost += f->cost[at];
        *usage += f->usage ? f->usage[at] : 0;
    }
}

/* The best of all choices within the limit; the least and the most that the allowed ones use. */
static double brute(const struct critical_problem *p, double *least, double *most) {
    int x[MOST_VARS] = {0}, i = 0;
    double best = INFINITY;
    *least = INFINITY;
    *most = -INFINITY;
    while (i >= 0) {
        double cost, usage;
        sum_up(p, x, &cost, &usage);
        if (!isinf(cost)) {
            *least = fmin(*least, usage);
            *most = fmax(*most, usage);
            best = usage <= p->limit ? fmin(best, cost) : best;
        }
        for (i = p->n - 1; i >= 0 && ++x[i] == p->size[i]; i--)
            x[i] = 0;
    }
    return best;
}

/* How many choices cost at most that. */
static int64_t brute_count(const struct critical_problem *p, double most) {
    int x[MOST_VARS] = {0}, i = 0;
    int64_t n = 0;
    while (i >= 0) {
        double cost, usage;
        sum_up(p, x, &cost, &usage);
        n += cost <= most;
        for (i = p->n - 1; i >= 0 && ++x[i] == p->size[i]; i--)
            x[i] = 0;
    }
    return n;
}

static bool count_choice(void *arg, const int *choice) {
    (void)choice;
    ++*(int64_t *)arg;
    return true;
}

static struct {
    int problems, impossible, without, wrong, unproven, above, over, miscounted;
    int64_t programs;
} tally;

static void check(const struct critical_problem *p, int64_t programs, bool by_pieces) {
    double least, most, best = brute(p, &least, &most), cost, usage;
    struct critical_answer a;
    struct critical_options o = {
        .programs = programs, .closes = true, .by_pieces = by_pieces};
    int rc = critical_solve(p, &o, &a);
    tally.problems++;
    tally.programs += a.programs;
    tally.without += a.programs == 0;
    tally.impossible += isinf(best);
    tally.over += a.programs > programs;
    tally.above += a.bound > best + 1e-6 * (1 + fabs(best));
    if (programs > 100) {
        tally.wrong += (rc == 0) != !isinf(best) ||
                       (rc == 0 && fabs(a.cost - best) > 1e-6 * (1 + fabs(best)));
        tally.unproven += a.bound < best - 1e-6 * (1 + fabs(best));
    }
    double enough = isinf(best) ? 1000 : best + rng_real(&rng) * 500 + 1e-6;
    int64_t listed = 0;
    tally.miscounted += !critical_list(p, enough, 1000000, count_choice, &listed) ||
                        listed != brute_count(p, enough);
    if (rc == 0) {
        sum_up(p, a.choice, &cost, &usage);
        tally.wrong += fabs(cost - a.cost) > 1e-6 || usage > p->limit + 1e-9;
    }
    critical_answer_release(&a);
}

static void test_random(int n) {
    for (int i = 0; i < n; i++) {
        struct drawn d;
        double least, most;
        draw(&d);
        brute(&d.p, &least, &most);
        check(&d.p, 10000, false);
        check(&d.p, 10000, true);
        d.p.limit = least + (most - least) * rng_real(&rng) * 0.6;
        if (!isinf(least)) {
            check(&d.p, 10000, false);
            check(&d.p, 10000, true);
            check(&d.p, 2, true);
        }
        release(&d);
    }
    ok(!tally.wrong && !tally.unproven && tally.problems > n,
       "%d problems, %d without a choice: %d are not solved to the optimum, %d not proven",
       tally.problems, tally.impossible, tally.wrong, tally.unproven);
    ok(tally.programs > n / 3 && tally.without >= 2 * (tally.problems / 5),
       "%lld programs; %d problems are solved without any", (long long)tally.programs,
       tally.without);
    ok(!tally.miscounted, "all choices up to a cost are listed, but in %d",
       tally.miscounted);
    ok(!tally.above && !tally.over,
       "no bound is above the optimum (%d), no work above its limit (%d)", tally.above,
       tally.over);
}

/* ---- against the layout solver ------------------------------------------------------------- */

static double cpu_s(void) {
    double sum = 0;
    for (int i = 0; i < 2; i++) {
        struct rusage u;
        getrusage(i ? RUSAGE_CHILDREN : RUSAGE_SELF, &u);
        sum += (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6;
    }
    return sum;
}

/* What the ring of a transformer's block is like: residuals are critical, four ops between them. */
static void draw_blocks(struct drawn *d, int blocks, int values) {
    begin(d, 5 * blocks + 1);
    for (int i = 0; i < d->p.n; i++) {
        d->size[i] = values;
        d->critical[i] = i % 5 == 0;
        add(d, 1, &i, 0, false);
    }
    for (int b = 0; b < blocks; b++) {
        int at = 5 * b;
        for (int i = 0; i < 5; i++)
            add(d, 2, (int[]){at + i, at + i + 1}, 0, false);
        add(d, 2, (int[]){at, at + 5}, 0, false);
        add(d, 2, (int[]){at + 1, at + 3}, 0, false);
    }
}

/* The same as the layout solver has it. */
static void as_layout(const struct critical_problem *p, struct layout_problem *l) {
    size_t n = (size_t)p->n, k = (size_t)p->size[0], edges = (size_t)p->n_factors - n;
    *l = (struct layout_problem){.n_nodes = p->n,
                                 .n_edges = (int64_t)edges,
                                 .usage_limit = LAYOUT_NO_LIMIT,
                                 .cost_unit = 1,
                                 .usage_unit = 1};
    l->first = mem_array(n + 1, sizeof *l->first);
    l->cost = mem_array(n * k, sizeof *l->cost);
    l->usage = mem_array(n * k, sizeof *l->usage);
    l->ends = mem_array(edges, sizeof *l->ends);
    l->entry = mem_array(edges + 1, sizeof *l->entry);
    l->edge_cost = mem_array(edges * k * k, sizeof *l->edge_cost);
    for (size_t i = 0; i < n; i++) {
        l->first[i + 1] = (int64_t)((i + 1) * k);
        for (size_t a = 0; a < k; a++)
            l->cost[i * k + a] = (int64_t)p->factors[i].cost[a];
    }
    for (size_t e = 0; e < edges; e++) {
        const struct critical_factor *f = &p->factors[n + e];
        l->ends[e][0] = f->var[0];
        l->ends[e][1] = f->var[1];
        l->entry[e + 1] = (int64_t)((e + 1) * k * k);
        for (size_t i = 0; i < k * k; i++)
            l->edge_cost[e * k * k + i] = (int64_t)f->cost[i];
    }
    l->n_entries = l->entry[edges];
}

static void test_blocks(int blocks, int values) {
    struct drawn d;
    struct layout_problem l;
    struct layout_answer b;
    struct critical_answer a, c;
    struct solve_limits limits = {.seed = 1, .threads = 1};
    draw_blocks(&d, blocks, values);
    as_layout(&d.p, &l);
    double start = cpu_s();
    struct critical_options o = {.programs = 100000}, cut = o;
    int rc = critical_solve(&d.p, &o, &a);
    double middle = cpu_s();
    cut.by_pieces = true;
    rc |= critical_solve(&d.p, &cut, &c);
    double third = cpu_s();
    int other = layout_solve(&l, &limits, &b, NULL);
    double end = cpu_s();
    ok(rc == 0 && other == 0 && (int64_t)(a.cost + 0.5) == b.value &&
           a.bound > a.cost - 1e-6 && c.cost < a.cost + 1e-6 && c.cost > a.cost - 1e-6 &&
           c.bound > c.cost - 1e-6 && !a.programs && c.programs,
       "%d blocks, %d values each: %.0f as by the layout solver in %.4f s; %.4f s without and "
       "%.3f s with %lld programs",
       blocks, values, a.cost, end - third, middle - start, third - middle,
       (long long)c.programs);
    critical_answer_release(&a);
    critical_answer_release(&c);
    if (other == 0)
        layout_answer_release(&b);
    layout_problem_release(&l);
    release(&d);
}

int main(void) {
    const char *count = getenv("COUNT");
    rng = (struct rng){7, 0};
    test_random(count ? atoi(count) : 300);
    test_blocks(1, 6);
    test_blocks(2, 6);
    test_blocks(4, 4);
    return done_testing();
}
