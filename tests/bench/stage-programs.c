/* stage-programs - layouts of a stage by integer programs, by elimination and by the layout solver.
 *
 *     stage-programs [MODEL]
 *
 * The tables of whole models as one stage (search/evaluate/stage_tables.h), without a limit of bytes, and
 * with one half way between the least there is and what the fastest layouts use. Of each its ops
 * and tables; the pieces between critical ops, calls of lp_solve, rows and columns of the largest
 * program; seconds of the processor, children included, and the gap that is left: by programs for
 * all pieces, by critical_solve as it is, and by the layout solver on the same tables; the best
 * of the three. */
#include "common/progress.h"
#include "search/evaluate/stage_tables.h"
#include "search/state.h"
#include "solve/layout/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const struct job {
    const char *model, *set, *cluster;
    int devices;
    int64_t micro_batch, micro_batches;
    bool all; /* legal layouts, not only some near the usual one */
} jobs[] = {
    {"mlp:mnist", "layers=2", "v100-4x8", 4, 32, 2, true},
    {"mlp:mnist", "layers=4", "v100-4x8", 4, 32, 2, true},
    {"gpt:1.3B", NULL, "v100-4x8", 8, 8, 8, false},
    {"llama:7B", NULL, "v100-4x8", 8, 8, 8, false},
    {"t5:770M", NULL, "v100-4x8", 8, 8, 8, false},
    {"moe:1.3B", NULL, "v100-4x8", 8, 8, 8, false},
    {"wide-resnet:1B", NULL, "v100-4x8", 8, 32, 8, false},
};

static double cpu_s(void) {
    double sum = 0;
    for (int i = 0; i < 2; i++) {
        struct rusage u;
        getrusage(i ? RUSAGE_CHILDREN : RUSAGE_SELF, &u);
        sum += (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    }
    return sum;
}

/* ---- the tables as the layout solver has them -------------------------------------------- */

static const double UNITS = 1000; /* in a microsecond */

static int64_t entries_of(const struct critical_problem *p,
                          const struct critical_factor *f) {
    int64_t n = 1;
    for (int i = 0; i < f->n; i++)
        n *= p->size[f->var[i]];
    return n;
}

/* It has pairs without bytes, so any other table is a node of its own, of which every choice allows one
 * value of each of its variables. */
static bool is_pair(const struct critical_problem *p, const struct critical_factor *f) {
    bool bytes = false;
    for (int64_t i = 0; f->usage && i < entries_of(p, f); i++)
        bytes |= f->usage[i] != 0;
    return f->n == 2 && !bytes;
}

struct builder {
    const struct critical_problem *p;
    struct layout_problem *l;
    double least_us, limit; /* what was taken off to have no costs, or bytes, below 0 */
    ARR(int64_t) first, cost, usage, edge_cost, entry;
    ARR(int32_t) ends;
};

static double least_of(const double *v, const double *cost, int64_t n) {
    double least = 0;
    for (int64_t i = 0; v && i < n; i++)
        least = isinf(cost[i]) ? least : fmin(least, v[i]);
    return least;
}

static int64_t cost_of(double us) {
    return isinf(us) ? LAYOUT_FORBIDDEN : (int64_t)(us * UNITS + 0.5);
}

/* A node's row of costs and bytes, added to what stands there. */
static void add_row(struct builder *b, int64_t at, const struct critical_factor *f) {
    int64_t n = entries_of(b->p, f);
    double us = least_of(f->cost, f->cost, n), bytes = least_of(f->usage, f->cost, n);
    b->least_us += us;
    b->limit -= bytes;
    for (int64_t i = 0; i < n; i++) {
        b->cost.p[at + i] += cost_of(f->cost[i] - us);
        if (f->usage && !isinf(f->cost[i]))
            b->usage.p[at + i] += (int64_t)(f->usage[i] - bytes);
    }
}

static int32_t add_node(struct builder *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        arr_push(&b->cost, 0);
        arr_push(&b->usage, 0);
    }
    arr_push(&b->first, b->cost.n);
    return (int32_t)b->first.n - 2;
}

static void add_edge(struct builder *b, int32_t from, int32_t to) {
    arr_push(&b->ends, from);
    arr_push(&b->ends, to);
    arr_push(&b->entry, b->edge_cost.n);
}

static void add_table(struct builder *b, const struct critical_factor *f) {
    int64_t n = entries_of(b->p, f), inner = n;
    if (is_pair(b->p, f)) {
        double us = least_of(f->cost, f->cost, n);
        b->least_us += us;
        add_edge(b, f->var[0], f->var[1]);
        for (int64_t i = 0; i < n; i++)
            arr_push(&b->edge_cost, cost_of(f->cost[i] - us));
        return;
    }
    int32_t node = add_node(b, n);
    add_row(b, b->first.p[node], f);
    for (int v = 0; v < f->n; v++) {
        int size = b->p->size[f->var[v]];
        inner /= size;
        add_edge(b, node, f->var[v]);
        for (int64_t i = 0; i < n; i++)
            for (int a = 0; a < size; a++)
                arr_push(&b->edge_cost, i / inner % size == a ? 0 : LAYOUT_FORBIDDEN);
    }
}

static void build(struct builder *b) {
    const struct critical_problem *p = b->p;
    struct layout_problem *l = b->l;
    b->limit = p->limit;
    arr_push(&b->first, 0);
    for (int v = 0; v < p->n; v++)
        add_node(b, p->size[v]);
    for (int i = 0; i < p->n_factors; i++)
        if (p->factors[i].n == 1)
            add_row(b, b->first.p[p->factors[i].var[0]], &p->factors[i]);
        else
            add_table(b, &p->factors[i]);
    *l = (struct layout_problem){.n_nodes = (int32_t)b->first.n - 1,
                                 .first = b->first.p,
                                 .cost = b->cost.p,
                                 .usage = b->usage.p,
                                 .n_live = isinf(p->limit) ? 0 : b->first.n - 1,
                                 .n_edges = b->entry.n,
                                 .ends = (int32_t(*)[2])b->ends.p,
                                 .entry = b->entry.p,
                                 .n_entries = b->edge_cost.n,
                                 .edge_cost = b->edge_cost.p,
                                 .usage_limit =
                                     isinf(p->limit) ? LAYOUT_NO_LIMIT : (int64_t)b->limit,
                                 .cost_unit = 1 / UNITS,
                                 .usage_unit = 1};
    l->live = mem_array((size_t)l->n_nodes, sizeof *l->live);
    for (int32_t i = 0; i < l->n_nodes; i++)
        l->live[i] = (struct layout_live){i, 0, 1};
}

/* ---- three ways ------------------------------------------------------------------------------ */

static double gap(double value, double bound) {
    return 100 * (value - bound) / value;
}

/* Each returns its microseconds. */
static double by_programs(const struct critical_problem *p, bool by_pieces) {
    struct critical_options o = {
        .programs = 100000, .closes = true, .by_pieces = by_pieces, .time_budget_s = 60};
    struct critical_answer a;
    double begin = cpu_s();
    critical_solve(p, &o, &a);
    if (by_pieces)
        printf("%6d %5lld %5d x %-5d", a.n_pieces, (long long)a.programs, a.rows,
               a.columns);
    double us = a.choice ? a.cost : INFINITY;
    if (a.choice)
        printf(" %8.3f s %4.2f %%", cpu_s() - begin, gap(a.cost, a.bound));
    else
        printf(" %8s   %4s  ", "-", "");
    critical_answer_release(&a);
    return us;
}

static double by_layout_solver(const struct critical_problem *p) {
    struct layout_problem l;
    struct layout_answer a;
    struct builder b = {.p = p, .l = &l};
    struct solve_limits limits = {.seed = 1, .threads = 1, .time_budget_s = 60};
    build(&b);
    double begin = cpu_s();
    double us = INFINITY;
    struct err err;
    if (layout_solve(&l, &limits, &a, &err) == 0) {
        us = (double)a.value / UNITS + b.least_us;
        printf(" %8.3f s %4.2f %%", cpu_s() - begin,
               gap(us, (double)a.bound / UNITS + b.least_us));
        layout_answer_release(&a);
    } else {
        printf(" %s", err.msg);
    }
    layout_problem_release(&l);
    return us;
}

static void compare(const struct job *j, struct critical_problem *p, const char *limit) {
    char name[64];
    snprintf(name, sizeof name, "%s%s%s on %d", j->model, j->set ? " " : "",
             j->set ? j->set : "", j->devices);
    printf("%-26s %-5s %3d %6d", name, limit, p->n, p->n_factors);
    double us = by_programs(p, true);
    us = fmin(us, by_programs(p, false));
    us = fmin(us, by_layout_solver(p));
    printf(" %12.1f us\n", us);
    fflush(stdout);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static double usage_of(const struct critical_problem *p, const int *choice) {
    double sum = 0;
    for (int i = 0; i < p->n_factors; i++) {
        const struct critical_factor *f = &p->factors[i];
        int64_t at = 0;
        for (int v = 0; v < f->n; v++)
            at = at * p->size[f->var[v]] + choice[f->var[v]];
        sum += f->usage ? f->usage[at] : 0;
    }
    return sum;
}

/* Between the least bytes and those of the fastest layouts; INFINITY where these are not found. */
static double half_strategy(const struct critical_problem *p) {
    struct critical_options o = {.programs = 1000};
    struct critical_answer a;
    struct critical_problem q = *p;
    if (critical_solve(p, &o, &a) != 0)
        return INFINITY;
    double fast = usage_of(p, a.choice), least = fast;
    critical_answer_release(&a);
    for (double low = 0, high = fast; high - low > 1e-3 * fast;) {
        q.limit = (low + high) / 2;
        bool good = critical_solve(&q, &o, &a) == 0;
        critical_answer_release(&a);
        *(good ? &high : &low) = q.limit;
        least = high;
    }
    return (least + fast) / 2;
}

static void run(const struct job *j) {
    struct err err = {0};
    struct search_problem p = {.batch = j->micro_batch * j->micro_batches,
                               .micro = &j->micro_batch,
                               .n_micro = 1,
                               .devices = j->devices,
                               .top = 1,
                               .schedules = 1u << SCHEDULE_1f1b,
                               .no_bound = true};
    cluster_read(&p.cluster, j->cluster, &err);
    struct cost_provider *provider = provider_open(NULL, NULL, &p.cluster, true, &err);
    p.provider = provider;
    p.model = model_load(j->model, j->set, &err);
    if (!provider || !p.model) {
        printf("%s: %s\n", j->model, err.msg);
        return;
    }
    struct search s;
    struct stage_tables t;
    struct search_stage st = {.end = p.model->n_ops, .devices = j->devices};
    struct in_flight f = {0};
    search_begin(&s, &p);
    space_apply_preset(&s.space, &st, j->micro_batch, (struct preset){0});
    struct setting setting = {
        .devices = j->devices, .micro_batch = j->micro_batch, .mesh = st.mesh};
    if (stage_tables_make(&s.eval, &setting, &st, &f, j->all, &t)) {
        compare(j, &t.p, "none");
        t.p.limit = half_strategy(&t.p);
        if (isfinite(t.p.limit))
            compare(j, &t.p, "bytes");
    }
    stage_tables_release(&t);
    search_end(&s);
    model_destroy(p.model);
    provider_destroy(provider);
}

int main(int argc, char **argv) {
    printf("%-26s %-5s %3s %6s %6s %5s %13s %17s %17s %17s %15s\n", "stage", "limit", "ops",
           "tables", "pieces", "calls", "rows x cols", "programs", "elimination",
           "layout solver", "step");
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (argc < 2 || strstr(jobs[i].model, argv[1]))
            run(&jobs[i]);
    return 0;
}
