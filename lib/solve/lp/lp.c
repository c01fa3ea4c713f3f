/* lp.c - the guard around lp_solve: the model, what is checked, and the ladder.
 *
 * Attempts with different settings run in child processes (lp_run.c) and bring back points,
 * duals and claims. Here nothing of that is believed: points are rounded and checked
 * against the model, duals only count for the bound that they prove when it is worked out
 * afresh, and "infeasible" takes two attempts that agree.
 */
#include "solve/lp/lp_impl.h"

#include "common/progress.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_TOL 1e-6 /* relative violation up to which a point counts as feasible */
#define INT_TOL   1e-5 /* distance from a whole number that is rounded away */

/* ---- the model ------------------------------------------------------------------- */

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

int lp_add_row(struct lp_model *m, int n, const int *cols, const double *vals, double lo,
               double hi) {
    arr_push(&m->rows, (struct lp_row){(int)m->cols.n, n, lo, hi});
    for (int i = 0; i < n; i++) {
        arr_push(&m->cols, cols[i]);
        arr_push(&m->vals, vals[i]);
    }
    return (int)m->rows.n - 1;
}

int lp_rows(const struct lp_model *m) {
    return (int)m->rows.n;
}

int lp_columns(const struct lp_model *m) {
    return (int)m->vars.n;
}

/* ---- what is true whatever lp_solve says ----------------------------------------- */

/* The greatest violation of x over rows, bounds and integrality, each row relative to
 * 1 + the greatest term in it; *value (may be NULL) gets the cost. */
static double violation(const struct lp_model *m, const double *x, bool integers,
                        double *value) {
    double worst = 0, cost = 0;
    for (int64_t j = 0; j < m->vars.n; j++) {
        const struct lp_var *v = &m->vars.p[j];
        if (!isfinite(x[j]))
            return INFINITY;
        worst = fmax(worst, fmax(v->lo - x[j], x[j] - v->hi));
        if (v->integer && integers)
            worst = fmax(worst, fabs(x[j] - round(x[j])));
        cost += v->cost * x[j];
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
    if (value)
        *value = cost;
    return worst;
}

/* The least of r*x over lo..hi. A reduced cost that rounding may have made is no reason to
 * give up the bound when the variable has no bound on that side. */
static double least_product(double r, double lo, double hi, double noise) {
    double side = r > 0 ? lo : hi;
    if (r == 0 || (isinf(side) && fabs(r) <= noise))
        return 0;
    return r * side;
}

/* The bound that duals y (one per row) prove for the relaxation, -INFINITY if none. */
static double dual_bound(const struct lp_model *m, const double *y) {
    double *reduced = mem_array((size_t)m->vars.n + 1, sizeof *reduced);
    double *size = mem_array((size_t)m->vars.n + 1, sizeof *size);
    double bound = 0, total = 0;
    for (int64_t j = 0; j < m->vars.n; j++) {
        reduced[j] = m->vars.p[j].cost;
        size[j] = fabs(reduced[j]);
    }
    for (int64_t i = 0; i < m->rows.n; i++) {
        const struct lp_row *r = &m->rows.p[i];
        double yi = y[i], side = yi > 0 ? r->lo : r->hi;
        if (yi == 0 || !isfinite(yi) || isinf(side))
            continue; /* a dual that no side supports proves nothing: take it as 0 */
        bound += yi * side;
        total += fabs(yi * side);
        for (int k = r->first; k < r->first + r->n; k++) {
            double term = yi * m->vals.p[k];
            reduced[m->cols.p[k]] -= term;
            size[m->cols.p[k]] += fabs(term);
        }
    }
    for (int64_t j = 0; j < m->vars.n; j++) {
        const struct lp_var *v = &m->vars.p[j];
        double least = least_product(reduced[j], v->lo, v->hi, 1e-11 * size[j]);
        bound += least;
        total += fabs(least);
    }
    free(reduced);
    free(size);
    /* Rounding of the sums above. */
    return isnan(bound)
               ? -INFINITY
               : bound - 4 * DBL_EPSILON * total * (1 + log2(2.0 + (double)m->rows.n));
}

/* ---- the ladder ----------------------------------------------------------------- */

static double lp_gap(const struct lp_options *o) {
    return o->gap > 0 ? o->gap : 1e-9;
}

struct climber {
    const struct lp_model *m;
    const struct lp_options *o;
    struct lp_answer *best;       /* incumbent and bound over all attempts */
    const struct lp_basis *start; /* where the first rung begins */
    bool relax;
    double deadline_s;
    int infeasible, unbounded; /* votes */
};

/* Takes x as the incumbent if it checks and is better. Integers are rounded first. */
static bool offer(struct climber *c, const double *x, int rung) {
    const struct lp_model *m = c->m;
    size_t n = (size_t)m->vars.n;
    double *y = mem_array(n + 1, sizeof *y), value = INFINITY;
    for (size_t j = 0; j < n; j++) {
        const struct lp_var *v = &m->vars.p[j];
        bool whole = v->integer && !c->relax && fabs(x[j] - round(x[j])) <= INT_TOL;
        y[j] = whole ? round(x[j]) : x[j];
        if (y[j] < v->lo && y[j] >= v->lo - CHECK_TOL)
            y[j] = v->lo;
        if (y[j] > v->hi && y[j] <= v->hi + CHECK_TOL)
            y[j] = v->hi;
    }
    bool good = violation(m, y, !c->relax, &value) <= CHECK_TOL;
    if (!c->relax && value > c->o->cutoff + CHECK_TOL * (1 + fabs(c->o->cutoff)))
        good = false;
    if (!good || (c->best->x && value >= c->best->value)) {
        free(y);
        return good;
    }
    free(c->best->x);
    c->best->x = y;
    c->best->value = value;
    c->best->rung = rung;
    return true;
}

/* Takes duals over, and the bound that they prove. */
static void keep_duals(struct climber *c, double *y) {
    double b = dual_bound(c->m, y);
    if (c->best->dual && b <= c->best->bound) {
        free(y);
        return;
    }
    free(c->best->dual);
    c->best->dual = y;
    c->best->bound = fmax(c->best->bound, b);
}

/* lp_solve's infinity, handed back as if it were a number. */
static bool unlimited(const struct lp_model *m, const double *x) {
    for (int64_t j = 0; j < m->vars.n; j++)
        if (fabs(x[j]) >= 1e29)
            return true;
    return false;
}

static bool say(struct lp_answer *a, enum lp_status status, const char *why) {
    a->status = status;
    a->why = why;
    return true;
}

/* What the end of an attempt is worth: true when the answer is final. */
static bool judge(struct climber *c, enum lp_end end, bool accepted, double claimed) {
    struct lp_answer *a = c->best;
    double cut = c->o->cutoff, tol = fmax(CHECK_TOL, lp_gap(c->o)) * (1 + fabs(claimed));
    switch (end) {
    case END_OPTIMAL:
        /* An incumbent better than the "optimum" means that branch and bound lost it; a
         * value below the proven bound means that it was never feasible. */
        if (!accepted || fabs(a->value - claimed) > tol ||
            a->value < a->bound - CHECK_TOL * (1 + fabs(a->bound)))
            return false;
        return say(a, LP_OPTIMAL,
                   "branch and bound ended; the point was checked row by row");
    case END_INFEASIBLE:
        if (a->x && !c->relax && a->value <= cut - CHECK_TOL * (1 + fabs(cut)))
            return false; /* refuted by a point in hand */
        return ++c->infeasible == 2 &&
               say(a, LP_INFEASIBLE, "two different settings of lp_solve found no point");
    case END_UNBOUNDED:
        return ++c->unbounded == 2 &&
               say(a, LP_UNBOUNDED,
                   "two different settings of lp_solve found no least value");
    default: return false;
    }
}

/* One step of the ladder: true when nothing more is to be tried. */
static bool climb(struct climber *c, int rung, double stall_s) {
    struct lp_attempt t = {.m = c->m,
                           .relax = c->relax,
                           .gap = lp_gap(c->o),
                           .cutoff = c->o->cutoff,
                           .deadline_s = c->deadline_s,
                           .stall_s = stall_s,
                           .rung = rung,
                           .start = rung ? NULL : c->start};
    enum lp_end end = lp_attempt_run(&t);
    bool accepted = false;
    if (t.x && unlimited(c->m, t.x))
        end = end == END_OPTIMAL ? END_UNBOUNDED : end;
    else if (t.x)
        accepted = offer(c, t.x, rung);
    if (t.dual && accepted)
        keep_duals(c, t.dual);
    else
        free(t.dual);
    if (t.basis && accepted) {
        free(c->best->basis);
        c->best->basis = t.basis;
    } else {
        free(t.basis);
    }
    free(t.x);
    return judge(c, end, accepted, t.claimed) || t.timed_out;
}

/* Climbs until an answer is final or time is up. */
static void ladder_run(struct climber *c, bool relax) {
    double left = c->deadline_s - now_s();
    double stall = isfinite(left) ? fmax(0.2, 0.2 * left) : 20;
    c->relax = relax;
    c->infeasible = c->unbounded = 0;
    for (int rung = 0; rung < LP_NUM_RUNGS; rung++, stall *= 2)
        if (now_s() >= c->deadline_s || interrupted() || climb(c, rung, stall))
            return;
}

/* The relaxation first: its duals give the bound that survives a time-out. */
static void relaxation_run(struct climber *c) {
    struct lp_answer rel = {.value = INFINITY, .bound = -INFINITY, .status = LP_FAILED};
    struct lp_answer *keep = c->best;
    double cut = c->o->cutoff;
    c->best = &rel;
    ladder_run(c, true);
    c->best = keep;
    keep->bound = rel.bound;
    keep->dual = rel.dual;
    keep->basis = rel.basis;
    c->start = rel.basis ? rel.basis : c->start;
    free(rel.x);
    if (rel.status == LP_INFEASIBLE)
        say(keep, LP_INFEASIBLE, rel.why);
    if (keep->bound > cut + 1e-9 * (1 + fabs(cut)))
        say(keep, LP_INFEASIBLE, "the duals of the relaxation exclude the cutoff");
}

static bool has_integers(const struct lp_model *m) {
    for (int64_t j = 0; j < m->vars.n; j++)
        if (m->vars.p[j].integer)
            return true;
    return false;
}

/* What is known when the ladder ended. A relaxation's bound is what its duals prove, no
 * more. */
static void settle(struct lp_answer *a, const struct lp_options *o, bool relax) {
    if (a->status == LP_OPTIMAL && !relax) {
        a->bound = fmax(a->bound, a->value - lp_gap(o) * (1 + fabs(a->value)));
    } else if (a->status == LP_INFEASIBLE && isfinite(o->cutoff)) {
        a->bound = fmax(a->bound, o->cutoff); /* nothing better than the cutoff exists */
        a->why = "no point with a value up to the cutoff";
    } else if (a->status == LP_FAILED && a->x) {
        if (!relax && a->value - a->bound <= lp_gap(o) * (1 + fabs(a->value)))
            say(a, LP_OPTIMAL,
                "a checked point that meets the bound of the relaxation's duals");
        else
            say(a, LP_FEASIBLE, "a checked point; branch and bound did not end");
    }
    if (a->x && a->bound > a->value)
        a->bound =
            a->value; /* rounding only: a checked value is never below a true bound */
}

/* lp_solve drops rows without entries, met or not. The cutoff is such a row when no
 * variable has a cost. */
static bool empty_row_fails(const struct lp_model *m, const struct lp_options *o,
                            struct lp_answer *a) {
    bool fails = false, costless = true;
    for (int64_t i = 0; i < m->rows.n; i++)
        fails |= m->rows.p[i].n == 0 && (m->rows.p[i].lo > 0 || m->rows.p[i].hi < 0);
    for (int64_t j = 0; j < m->vars.n; j++) {
        costless &= m->vars.p[j].cost == 0;
        fails |= m->vars.p[j].lo > m->vars.p[j].hi;
    }
    if (!fails && !(costless && o->cutoff < 0))
        return false;
    a->status = LP_INFEASIBLE;
    a->why = fails ? "a row or a variable that nothing can satisfy" : "no costs at all";
    a->bound = fails ? INFINITY : 0;
    return true;
}

enum lp_status lp_minimize(const struct lp_model *m, const struct lp_options *o,
                           struct lp_answer *a) {
    double start = now_s();
    *a = (struct lp_answer){.status = LP_FAILED,
                            .value = INFINITY,
                            .bound = -INFINITY,
                            .why = "no settings of lp_solve gave an answer"};
    struct climber c = {.m = m, .o = o, .best = a, .start = o->basis};
    c.deadline_s = o->time_budget_s > 0 ? start + o->time_budget_s : INFINITY;
    if (empty_row_fails(m, o, a)) {
        a->time_s = now_s() - start;
        return a->status;
    }
    if (o->relax || !has_integers(m)) {
        ladder_run(&c, true);
    } else {
        relaxation_run(&c);
        if (a->status != LP_INFEASIBLE) {
            if (o->start)
                offer(&c, o->start, -1);
            ladder_run(&c, false);
        }
    }
    settle(a, o, c.relax);
    a->time_s = now_s() - start;
    return a->status;
}

void lp_answer_release(struct lp_answer *a) {
    free(a->x);
    free(a->dual);
    free(a->basis);
    a->x = a->dual = NULL;
    a->basis = NULL;
}
