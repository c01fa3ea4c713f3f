/* Lower bounds on stages, by multipliers on memory.
 *
 * At a multiplier of lambda per MiB, a strategy costs its time plus lambda times what it
 * holds. The cheapest strategy's cost, less lambda times the memory that there is, is a
 * lower bound on the fastest stage that fits. Reserves do not add up along a strategy, so
 * the least that any layout reserves is taken off the memory. Peaks and messages are left
 * out. All multipliers are walked at once. */
#include "aceso/aceso_stage.h"

#include <math.h>
#include <stdlib.h>

enum { N = ACESO_MULTIPLIERS };

struct walk {
    const struct aceso_stages *st;
    const struct aceso_ask *ask;
    double in_flight;
    double least[ACESO_MOST_LAYOUTS][2]
                [N]; /* by layout and mark of the last op, and multiplier */
    double input, weights, forward, backward; /* the least that any layout holds */
};

/* Unlike fmin and fmax, these let compilers vectorize loops. */
static inline double less(double a, double b) {
    return a < b ? a : b;
}
static inline double more(double a, double b) {
    return a > b ? a : b;
}

static void set_all(double *to, double value) {
    for (int p = 0; p < N; p++)
        to[p] = value;
}

/* Extends strategies that cost `before` by op i in layout l, marked or not. */
static void put_op(const struct walk *w, int i, int l, int mark, const double *before,
                   double *least) {
    const struct aceso_stages *st = w->st;
    const struct aceso_cell *c = aceso_cells(st, i)[l];
    double us = c->forward + c->backward + mark * c->forward;
    double state = st->m->state * c->weights / w->in_flight;
    for (int p = 0; p < N; p++)
        least[p] = before[p] + us + st->multipliers[p] * state;
}

/* Finds the least costs to the end of op i in layout l, its activations included: to[0] if
 * the next op is not marked, to[1] if it is. */
static void leave_op(const struct walk *w, int i, int l, double (*to)[N]) {
    const struct aceso_stages *st = w->st;
    double kept = st->m->ops[st->m->op_of[i]].counts * aceso_cells(st, i)[l]->activations;
    double recomputed = aceso_drops_saved(st->m, i) ? 0 : kept;
    bool may = aceso_may_recompute(st, i);
    const double *plain = w->least[l][0], *marked = w->least[l][1];
    for (int p = 0; p < N; p++) {
        double multiplier = st->multipliers[p];
        double unmarked = plain[p] + multiplier * kept;
        to[0][p] = less(unmarked, marked[p] + multiplier * kept);
        to[1][p] = may ? less(unmarked, marked[p] + multiplier * recomputed) : unmarked;
    }
}

static void begin(struct walk *w) {
    const struct aceso_cell *const *cells = aceso_cells(w->st, w->ask->first);
    double none[N] = {0};
    w->input = INFINITY;
    for (int l = 0; l < w->st->n; l++)
        for (int mark = 0; mark < 2; mark++) {
            set_all(w->least[l][mark], INFINITY);
            if (!cells[l])
                continue;
            w->input = less(w->input, cells[l]->input);
            if (aceso_may_mark(w->st, w->ask->first, mark))
                put_op(w, w->ask->first, l, mark, none, w->least[l][mark]);
        }
}

static void advance(struct walk *w, int i) {
    const struct aceso_stages *st = w->st;
    const struct aceso_cell *const *cells = aceso_cells(st, i);
    const double *convert = st->convert_us + (size_t)st->m->pair_of[i] * st->n * st->n;
    double left[ACESO_MOST_LAYOUTS][2][N];
    for (int l = 0; l < st->n; l++)
        if (aceso_cells(st, i - 1)[l])
            leave_op(w, i - 1, l, left[l]);
    for (int l = 0; l < st->n; l++)
        for (int mark = 0; mark < 2; mark++) {
            double before[N];
            set_all(before, INFINITY);
            for (int k = 0; k < st->n && cells[l]; k++) {
                double us = convert[k * st->n + l];
                if (us < INFINITY)
                    for (int p = 0; p < N; p++)
                        before[p] = less(before[p], left[k][mark][p] + us);
            }
            if (cells[l] && aceso_may_mark(st, i, mark))
                put_op(w, i, l, mark, before, w->least[l][mark]);
            else
                set_all(w->least[l][mark], INFINITY);
        }
}

/* Returns the best bound of all multipliers for a stage that ends behind op i. *core leaves
 * out the activations of that op, so it only grows with the stage. */
static double best_bound(const struct walk *w, int i, double *core) {
    const struct aceso_stages *st = w->st;
    double mib = less(st->limits->mib, 1e12),
           reserved = more(w->weights, w->forward + w->backward);
    double room = (mib - reserved) / w->in_flight - w->input;
    double best = -INFINITY, all[N], inner[N];
    set_all(all, INFINITY);
    set_all(inner, INFINITY);
    for (int l = 0; l < st->n; l++) {
        const struct aceso_cell *c = aceso_cells(st, i)[l];
        if (!c)
            continue;
        double kept = st->m->ops[st->m->op_of[i]].counts * c->activations;
        for (int p = 0; p < N; p++) {
            double both = less(w->least[l][0][p], w->least[l][1][p]);
            inner[p] = less(inner[p], both);
            all[p] = less(all[p], both + st->multipliers[p] * kept);
        }
    }
    *core = -INFINITY;
    for (int p = 0; p < N; p++) {
        best = more(best, all[p] - st->multipliers[p] * room);
        *core = more(*core, inner[p] - st->multipliers[p] * room);
    }
    return best;
}

/* Adds the least weights that op i has in any layout. */
static void add_weights(struct walk *w, int i) {
    double least = INFINITY;
    for (int l = 0; l < w->st->n; l++)
        if (aceso_cells(w->st, i)[l])
            least = less(least, aceso_cells(w->st, i)[l]->weights);
    w->weights += least;
}

static void add_reserves(struct walk *w, int i) {
    double forward = INFINITY, backward = INFINITY;
    for (int l = 0; l < w->st->n; l++) {
        const struct aceso_cell *c = aceso_cells(w->st, i)[l];
        if (c) {
            forward = less(forward, c->reserved_forward);
            backward = less(backward, c->reserved_backward);
        }
    }
    w->forward = more(w->forward, forward);
    w->backward = more(w->backward, backward);
}

void aceso_stage_bound(const struct aceso_stages *st, const struct aceso_ask *ask,
                       double *us) {
    struct walk w = {.st = st, .ask = ask, .in_flight = ask->behind + 1};
    for (int end = ask->first; end <= ask->most; end++)
        us[end - ask->first] = INFINITY;
    begin(&w);
    for (int i = ask->first; i < ask->most; i++) {
        double core;
        if (i > ask->first)
            advance(&w, i);
        add_weights(&w, i);
        us[i + 1 - ask->first] = best_bound(&w, i, &core);
        add_reserves(&w, i); /* the last op reserves nothing */
        if (core > ask->most_us)
            return;
    }
}

/* ---- from an op on -------------------------------------------------------------------------- */

struct aceso_rest {
    const struct aceso_stages *st;
    int first, end;
    double in_flight, reserved; /* reserved: the least of the whole stage */
    double (*us)[N];            /* [op - first][layout][mark] */
};

static double *rest_of(const struct aceso_rest *r, int i, int l, int mark) {
    return r->us[(((ptrdiff_t)i - r->first) * r->st->n + l) * 2 + mark];
}

/* Lowers the rest behind op i - 1, in layout l and marked or not, to that of the best way
 * through op i, in any layout and marked as next_mark says. */
static void rest_from(const struct aceso_rest *r, int i, int l, int mark, int next_mark) {
    const struct aceso_stages *st = r->st;
    const double *convert = st->convert_us + (ptrdiff_t)st->m->pair_of[i] * st->n * st->n;
    double kept =
        st->m->ops[st->m->op_of[i - 1]].counts * aceso_cells(st, i - 1)[l]->activations;
    double *rest = rest_of(r, i - 1, l, mark);
    if (mark && next_mark && !aceso_may_recompute(st, i - 1))
        return;
    if (mark && next_mark && aceso_drops_saved(st->m, i - 1))
        kept = 0;
    for (int k = 0; k < st->n; k++) {
        const struct aceso_cell *c = aceso_cells(st, i)[k];
        if (!c || !aceso_may_mark(st, i, next_mark) || convert[l * st->n + k] == INFINITY)
            continue;
        double us =
            convert[l * st->n + k] + c->forward + c->backward + next_mark * c->forward;
        double held = kept + st->m->state * c->weights / r->in_flight;
        const double *next = rest_of(r, i, k, next_mark);
        for (int p = 0; p < N; p++)
            rest[p] = less(rest[p], next[p] + us + st->multipliers[p] * held);
    }
}

struct aceso_rest *aceso_rest_create(const struct aceso_stages *st,
                                     const struct aceso_ask *ask, int end) {
    struct aceso_rest *r = mem_alloc(sizeof *r);
    struct walk least = {.st = st};
    *r = (struct aceso_rest){
        .st = st, .first = ask->first, .end = end, .in_flight = ask->behind + 1};
    r->us = mem_array((size_t)(end - ask->first) * (size_t)st->n * 2, sizeof *r->us);
    for (int i = end - 1; i > ask->first; i--)
        for (int l = 0; l < st->n; l++)
            for (int mark = 0; mark < 2; mark++) {
                set_all(rest_of(r, i - 1, l, mark), INFINITY);
                for (int next = 0; next < 2 && aceso_cells(st, i - 1)[l]; next++)
                    rest_from(r, i, l, mark, next);
            }
    for (int i = ask->first; i < end; i++) {
        add_weights(&least, i);
        if (i + 1 < end)
            add_reserves(&least, i);
    }
    r->reserved = more(least.weights, least.forward + least.backward);
    return r;
}

void aceso_rest_destroy(struct aceso_rest *r) {
    if (r)
        free(r->us);
    free(r);
}

double aceso_rest_us(const struct aceso_rest *r, int i, int layout, int mark, double us,
                     double mib, double reserved) {
    double best = us;
    double room = less(r->st->limits->mib, 1e12) - mib - more(reserved, r->reserved);
    if (i >= r->end)
        return us;
    const double *rest = rest_of(r, i, layout, mark);
    for (int p = 0; p < N; p++)
        best = more(best, us + rest[p] - r->st->multipliers[p] / r->in_flight * room);
    return best;
}
