/* layout.c - the layout solver: reduce, bound, search, and check the answer. What is
 * left after the reductions goes to the first of these methods that finishes:
 * elimination (no memory rows, small tables), branch and bound (small), and batches that
 * improve bound and choice until the time is up. */
#include "solve/layout/layout.h"

#include "common/mem.h"
#include "common/progress.h"
#include "solve/layout/layout_bb.h"
#include "solve/layout/layout_core.h"
#include "solve/layout/layout_elim.h"
#include "solve/layout/layout_improve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Fractions of the time budget after which these steps give way to those that find an
 * answer quickly. */
#define REDUCTION   0.4
#define ELIMINATION 0.6

const char *layout_proof_text(enum layout_proof proof) {
    static const char *const text[] = {
#define X(id, words) [id] = words,
        LAYOUT_PROOFS(X)
#undef X
    };
    return text[proof];
}

static int no_answer(const struct layout_core *c, struct err *err) {
    int tight = -1;
    for (int r = 0; r < c->n_rows; r++)
        if (tight < 0 || c->cap[r] < c->cap[tight])
            tight = r;
    if (tight < 0)
        return err_no(err, "every choice has a forbidden cost");
    return layout_core_no_room(c, tight, err);
}

/* What the search knows about the core. */
struct result {
    int *x;
    int64_t value, bound; /* scaled; value LAYOUT_INF: none */
    bool done;            /* nothing better exists */
    enum layout_proof proof;
};

/* Solves by branch and bound alone, which is enough for small problems. */
static void solve_small(struct layout_core *c, const struct solve_limits *limits,
                        double deadline_s, int64_t max_nodes, struct result *r) {
    struct layout_search s = {.core = c,
                              .upper = LAYOUT_INF,
                              .x = r->x,
                              .gap = limits->gap,
                              .max_nodes = max_nodes,
                              .deadline_s = deadline_s};
    layout_search_run(&s);
    r->value = s.found ? s.upper : LAYOUT_INF;
    r->bound = s.bound;
    r->done = s.done;
    r->proof = LAYOUT_PROOF_SEARCH;
}

static int cores(const struct solve_limits *limits) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    n = n < 1 ? 1 : n;
    return limits->threads > 0 ? limits->threads : n > 64 ? 64 : (int)n;
}

static void solve_large(struct layout_core *c, const struct solve_limits *limits,
                        double deadline_s, struct result *r) {
    struct layout_improve m = {.core = c,
                               .seed = limits->seed,
                               .threads = cores(limits),
                               .deadline_s = deadline_s,
                               .gap = limits->gap,
                               .x = r->x,
                               .value = r->value,
                               .bound = r->bound};
    layout_improve_run(&m);
    r->value = m.value;
    r->bound = m.bound;
    r->done = m.bound > m.value - (INT64_C(1) << c->shift);
    r->proof = m.by_search ? LAYOUT_PROOF_SEARCH : LAYOUT_PROOF_DUAL;
}

static void note_core(const struct layout_core *c, double start_s) {
    long long vars = 0, values = 0, segs = 0;
    for (int i = 0; i < c->n_vars; i++) {
        vars += c->var[i].k > 0;
        values += c->var[i].k;
        segs += c->var[i].k ? c->var[i].seg.n : 0;
    }
    note_verbose("layout: reduced after %.2f s to %lld variables with %lld values and %lld "
                 "uses of %d rows; costs times 2^%d",
                 now_s() - start_s, vars, values, segs, c->n_rows, c->shift);
}

static void solve_core(struct layout_core *c, const struct solve_limits *limits,
                       double start_s, struct result *r) {
    double budget = limits->time_budget_s;
    double deadline_s = budget > 0 ? start_s + budget : 0;
    int n = 0;
    for (int i = 0; i < c->n_vars; i++)
        n += c->var[i].k > 0;
    r->value = LAYOUT_INF;
    r->bound = INT64_MIN / 4;
    c->deadline_s = budget > 0 ? start_s + ELIMINATION * budget : 0;
    r->done = layout_eliminate(c, 2000000, r->x, &r->value);
    c->deadline_s = deadline_s;
    if (r->done) {
        r->proof = LAYOUT_PROOF_ELIMINATION;
        r->bound = r->value;
        return;
    }
    if (n <= 400)
        solve_small(c, limits, deadline_s, n < 30 ? 0 : n < 120 ? 20000 : 64, r);
    if (!r->done)
        solve_large(c, limits, deadline_s, r);
}

/* Fills in the strategies of the nodes and what the evaluator finds about them. */
static int fill_answer(struct layout_answer *a, const struct layout_core *c,
                       const struct result *r, struct err *err) {
    a->choice = mem_array((size_t)c->p->n_nodes + 1, sizeof *a->choice);
    layout_core_choice(c, r->x, a->choice);
    int64_t unit = INT64_C(1) << c->shift;
    a->proof = r->done || r->bound > 0 ? r->proof : LAYOUT_PROOF_NONE;
    if (layout_evaluate(c->p, a->choice, &a->value, &a->peak_usage, &a->peak_time, err) < 0)
        return -1;
    a->bound = r->done ? a->value : r->bound <= 0 ? 0 : (r->bound + unit - 1) / unit;
    return 0;
}

static int none_found(const struct layout_core *c, const struct result *r,
                      struct err *err) {
    if (r->done)
        return no_answer(c, err);
    if (interrupted())
        return err_no(err, LAYOUT_INTERRUPTED);
    return err_no(err, "no answer was found within the time budget; there may be one");
}

int layout_solve(const struct layout_problem *p, const struct solve_limits *limits,
                 struct layout_answer *a, struct err *err) {
    double start = now_s();
    *a = (struct layout_answer){0};
    if (layout_validate(p, err) < 0)
        return -1;
    struct layout_core c;
    double budget = limits->time_budget_s;
    int rc = layout_core_build(&c, p, err);
    if (rc == 0) {
        c.deadline_s = budget > 0 ? start + REDUCTION * budget : 0;
        rc = layout_core_shrink(&c, err);
    }
    if (rc == 0) {
        layout_core_scale(&c);
        note_core(&c, start);
        struct result r = {.x = mem_array((size_t)c.n_vars + 1, sizeof *r.x)};
        solve_core(&c, limits, start, &r);
        if (r.value < LAYOUT_INF)
            rc = fill_answer(a, &c, &r, err);
        else
            rc = none_found(&c, &r, err);
        free(r.x);
    }
    a->time_s = now_s() - start;
    layout_core_release(&c);
    return rc;
}

void layout_answer_release(struct layout_answer *a) {
    free(a->choice);
    *a = (struct layout_answer){0};
}
