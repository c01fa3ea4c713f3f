/* layout.c - the layout solver: reduce, bound, search, and check the answer.
 */
#include "solve/layout.h"

#include "common/mem.h"
#include "common/progress.h"
#include "solve/layout_bb.h"
#include "solve/layout_core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *layout_proof_text(enum layout_proof proof) {
    static const char *const text[] = {
#define X(id, words) [id] = words,
        LAYOUT_PROOFS(X)
#undef X
    };
    return text[proof];
}

/* Reduces until rows and values no longer change. */
static int shrink(struct lay_core *c, struct err *err) {
    do {
        if (lay_core_reduce(c, err) < 0)
            return -1;
    } while (lay_core_rows(c) > 0);
    return 0;
}

static int no_answer(const struct lay_core *c, struct err *err) {
    int tight = -1;
    for (int r = 0; r < c->n_rows; r++)
        if (tight < 0 || c->cap[r] < c->cap[tight])
            tight = r;
    if (tight < 0)
        return err_no(err, "every choice uses a forbidden cost");
    double unit = c->p->usage_unit;
    return err_no(err, "usage_limit: no choice without forbidden costs is within it at all "
                  "times: the limit is %.17g, and at time %lld at least %.17g is used",
                  (double)c->p->usage_limit * unit, (long long)c->row_time[tight],
                  ((double)c->p->usage_limit - (double)c->cap[tight]) * unit);
}

int layout_solve(const struct layout_problem *p, const struct solve_limits *limits,
                 struct layout_answer *a, struct err *err) {
    double start = now_s();
    *a = (struct layout_answer){0};
    struct lay_core c;
    int rc = lay_core_build(&c, p, err);
    if (rc == 0)
        rc = shrink(&c, err);
    if (rc < 0) {
        lay_core_release(&c);
        return -1;
    }
    lay_core_scale(&c);
    struct lay_search s = {.core = &c, .upper = LAY_INF, .gap = limits->gap};
    s.x = mem_array((size_t)c.n_vars + 1, sizeof *s.x);
    if (limits->time_budget_s > 0)
        s.deadline_s = start + limits->time_budget_s;
    lay_search_run(&s);
    if (!s.found) {
        rc = s.done ? no_answer(&c, err) : err_no(err, "no choice was found in the time given");
    } else {
        a->choice = mem_array((size_t)p->n_nodes + 1, sizeof *a->choice);
        lay_core_choice(&c, s.x, a->choice);
        int64_t unit = INT64_C(1) << c.shift;
        a->bound = s.bound / unit + (s.bound % unit > 0);
        a->proof = LAYOUT_PROOF_SEARCH;
        rc = layout_check(p, a->choice, &a->value, &a->peak_usage, &a->peak_time, err);
        note_verbose("layout: value %lld bound %lld nodes %lld", (long long)a->value,
                     (long long)a->bound, (long long)s.nodes);
    }
    a->time_s = now_s() - start;
    free(s.x);
    lay_core_release(&c);
    return rc;
}

void layout_answer_release(struct layout_answer *a) {
    free(a->choice);
    *a = (struct layout_answer){0};
}
