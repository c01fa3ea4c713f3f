/* lp.c - the guard around lp_solve: keeps the program, checks points, and decides in which
 * order settings are tried.
 *
 * Attempts run in child processes (lp_run.c) and bring back points and claims. None of them
 * is believed: a point is rounded and checked against the program, an optimum must be the
 * value of the best checked point, and "infeasible" takes two attempts that agree.
 */
#include "solve/lp/lp_impl.h"

#include "common/progress.h"

#include <math.h>
#include <stdlib.h>

#define CHECK_TOL 1e-6 /* relative violation up to which a point counts as feasible */
#define INT_TOL   1e-5 /* distance from a whole number that is rounded away */

/* ---- the program ----------------------------------------------------------------- */

struct lp_model *lp_create(void) {
    return mem_alloc(sizeof(struct lp_model));
}

void lp_destroy(struct lp_model *m) {
    if (!m)
        return;
    arr_release(&m->vars);
    arr_release(&m->rows);
    arr_release(&m->cols);
    arr_release(&m->vals);
    free(m);
}

int lp_add_var(struct lp_model *m, double cost, double lo, double hi, bool integer) {
    arr_push(&m->vars, (struct lp_var){cost, lo, hi, integer});
    return (int)m->vars.n - 1;
}

void lp_add_row(struct lp_model *m, int n, const int *cols, const double *vals, double lo,
                double hi) {
    arr_push(&m->rows, (struct lp_row){(int)m->cols.n, n, lo, hi});
    for (int i = 0; i < n; i++) {
        arr_push(&m->cols, cols[i]);
        arr_push(&m->vals, vals[i]);
    }
}

int lp_rows(const struct lp_model *m) {
    return (int)m->rows.n;
}

int lp_columns(const struct lp_model *m) {
    return (int)m->vars.n;
}

/* ---- points ---------------------------------------------------------------------- */

/* Returns the greatest violation of x over rows, bounds and integrality, each row relative
 * to the greatest term in it or to 1. *value gets the cost. */
static double violation(const struct lp_model *m, const double *x, double *value) {
    double worst = 0;
    *value = 0;
    for (int64_t j = 0; j < m->vars.n; j++) {
        const struct lp_var *v = &m->vars.p[j];
        if (!isfinite(x[j]))
            return INFINITY;
        worst = fmax(worst, fmax(v->lo - x[j], x[j] - v->hi));
        if (v->integer)
            worst = fmax(worst, fabs(x[j] - round(x[j])));
        *value += v->cost * x[j];
    }
    for (int64_t i = 0; i < m->rows.n; i++) {
        const struct lp_row *r = &m->rows.p[i];
        double sum = 0, scale = 1;
        for (int k = r->first; k < r->first + r->n; k++) {
            double term = m->vals.p[k] * x[m->cols.p[k]];
            sum += term;
            scale = fmax(scale, fabs(term));
        }
        worst = fmax(worst, fmax(r->lo - sum, sum - r->hi) / scale);
    }
    return worst;
}

/* Removes what lp_solve's tolerances leave: integers that are almost whole, and values just
 * outside of their bounds. */
static void clean(const struct lp_model *m, double *x) {
    for (int64_t j = 0; j < m->vars.n; j++) {
        const struct lp_var *v = &m->vars.p[j];
        if (v->integer && fabs(x[j] - round(x[j])) <= INT_TOL)
            x[j] = round(x[j]);
        if (x[j] < v->lo && x[j] >= v->lo - CHECK_TOL)
            x[j] = v->lo;
        if (x[j] > v->hi && x[j] <= v->hi + CHECK_TOL)
            x[j] = v->hi;
    }
}

/* Takes x over, and makes it the incumbent if it passes the check and is better. Returns
 * whether it passes. */
static bool offer(const struct lp_model *m, double *x, struct lp_answer *best) {
    double value;
    clean(m, x);
    bool good = violation(m, x, &value) <= CHECK_TOL;
    if (!good || (best->x && value >= best->value)) {
        free(x);
        return good;
    }
    free(best->x);
    best->x = x;
    best->value = value;
    return true;
}

/* Returns whether a value of x is infinite, for which lp_solve returns 1e30 as if it were a
 * number. */
static bool is_unlimited(const struct lp_model *m, const double *x) {
    for (int64_t j = 0; j < m->vars.n; j++)
        if (fabs(x[j]) >= 1e29)
            return true;
    return false;
}

/* ---- attempts -------------------------------------------------------------------- */

struct votes {
    int infeasible, unbounded;
};

/* Judges the end of an attempt. Returns LP_FAILED while the answer is still open. */
static enum lp_status judge(enum lp_end end, bool passed, double claimed,
                            const struct lp_answer *best, struct votes *votes) {
    switch (end) {
    case END_OPTIMAL: /* A better point in hand means that branch and bound lost it. */
        return passed && fabs(best->value - claimed) <= CHECK_TOL * (1 + fabs(claimed))
                   ? LP_OPTIMAL
                   : LP_FAILED;
    case END_INFEASIBLE: /* A point in hand refutes it. */
        return !best->x && ++votes->infeasible == 2 ? LP_INFEASIBLE : LP_FAILED;
    case END_UNBOUNDED: return ++votes->unbounded == 2 ? LP_UNBOUNDED : LP_FAILED;
    default: return LP_FAILED;
    }
}

/* Returns whether a row without entries or the bounds of a variable cannot hold. lp_solve
 * drops such rows whether they hold or not. */
static bool cannot_hold(const struct lp_model *m) {
    for (int64_t i = 0; i < m->rows.n; i++)
        if (m->rows.p[i].n == 0 && (m->rows.p[i].lo > 0 || m->rows.p[i].hi < 0))
            return true;
    for (int64_t j = 0; j < m->vars.n; j++)
        if (m->vars.p[j].lo > m->vars.p[j].hi)
            return true;
    return false;
}

static enum lp_status try_settings(const struct lp_model *m, double deadline_s,
                                   struct lp_answer *best) {
    double left = deadline_s - now_s();
    double stall_s = isfinite(left) ? fmax(0.2, 0.2 * left) : 20;
    enum lp_status status = LP_FAILED;
    struct votes votes = {0};
    bool over = false;
    for (int i = 0; i < LP_NUM_SETTINGS && status == LP_FAILED && !over; i++) {
        struct lp_attempt t = {
            .m = m, .deadline_s = deadline_s, .stall_s = stall_s, .setting = i};
        enum lp_end end = lp_attempt_run(&t);
        bool unlimited = t.x && is_unlimited(m, t.x), passed = false;
        if (unlimited)
            free(t.x);
        else if (t.x)
            passed = offer(m, t.x, best);
        if (unlimited && end == END_OPTIMAL)
            end = END_UNBOUNDED;
        status = judge(end, passed, t.claimed, best, &votes);
        over = t.timed_out || now_s() >= deadline_s || interrupted();
        stall_s *= 2;
    }
    return status;
}

enum lp_status lp_minimize(const struct lp_model *m, double time_budget_s,
                           struct lp_answer *a) {
    *a = (struct lp_answer){.status = LP_INFEASIBLE, .value = INFINITY};
    if (!cannot_hold(m))
        a->status =
            try_settings(m, time_budget_s > 0 ? now_s() + time_budget_s : INFINITY, a);
    if (a->status != LP_OPTIMAL)
        lp_answer_release(a);
    return a->status;
}

void lp_answer_release(struct lp_answer *a) {
    free(a->x);
    a->x = NULL;
    a->value = INFINITY;
}
