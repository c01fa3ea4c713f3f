/* What ops take on stages of one size, in each layout that is worth a look. */
#include "aceso/aceso_stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct aceso_cell *const *aceso_cells(const struct aceso_stages *st, int i) {
    return st->cell + (ptrdiff_t)st->m->op_of[i] * st->n;
}

bool aceso_may_mark(const struct aceso_stages *st, int i, int mark) {
    switch (st->limits->recompute) {
    case ACESO_recompute_none: return !mark;
    case ACESO_recompute_all: return mark == !st->m->ops[st->m->op_of[i]].stays;
    case ACESO_recompute_any: break;
    }
    return true;
}

bool aceso_may_recompute(const struct aceso_stages *st, int i) {
    return !st->m->ops[st->m->op_of[i]].stays;
}

static void find_layouts(struct aceso_stages *st, int64_t micro_batch) {
    const struct aceso_tables *t = &st->m->tables;
    for (int tp = 1; tp <= st->devices && tp < 1 << t->n_tp; tp *= 2) {
        int dp = st->devices / tp, m = 0;
        while (m < t->n_mbs && t->mbs[m] * dp != micro_batch)
            m++;
        bool good = dp * tp == st->devices && m < t->n_mbs;
        for (int a = 0; good && a < ACESO_ALGORITHMS; a++)
            if (!st->limits->tp || st->limits->tp == tp)
                st->layout[st->n++] = (struct aceso_layout){tp, dp, a};
    }
}

/* ---- which are worth a look ----------------------------------------------------------------- */

/* Returns whether cell a takes no more than b of anything. */
static bool no_worse(const struct aceso_cell *a, const struct aceso_cell *b) {
    return a->forward <= b->forward && a->backward <= b->backward && a->input <= b->input &&
           a->output <= b->output && a->weights <= b->weights &&
           a->activations <= b->activations && a->reserved_forward <= b->reserved_forward &&
           a->reserved_backward <= b->reserved_backward;
}

/* Drops the worse of an op's two algorithms where one is better in everything. Both must
 * lie on the devices alike, as they do in ResNet and where tp is 1. */
static void drop_beaten(const struct aceso_stages *st, int op) {
    const struct aceso_op *o = &st->m->ops[op];
    const struct aceso_cell **cell = st->cell + (ptrdiff_t)op * st->n;
    for (int l = 0; l + 1 < st->n; l += ACESO_ALGORITHMS) {
        bool alike =
            st->layout[l].tp == 1 || (o->in[0] == o->in[1] && o->out[0] == o->out[1]);
        if (!alike || !cell[l] || !cell[l + 1])
            continue;
        if (no_worse(cell[l], cell[l + 1]))
            cell[l + 1] = NULL;
        else if (no_worse(cell[l + 1], cell[l]))
            cell[l] = NULL;
    }
}

static void find_cells(struct aceso_stages *st, int64_t micro_batch) {
    const struct aceso_model *m = st->m;
    st->cell = mem_array((size_t)(m->tables.n_rows * st->n), sizeof *st->cell);
    for (int op = 0; op < m->tables.n_rows; op++) {
        for (int l = 0; l < st->n; l++) {
            struct aceso_layout is = st->layout[l];
            if (!is.algorithm || m->ops[op].two_algorithms)
                st->cell[op * st->n + l] = aceso_cell_find(
                    &m->tables, op, micro_batch / is.dp, is.tp, is.algorithm);
        }
        drop_beaten(st, op);
    }
}

/* ---- between ops and stages ----------------------------------------------------------------- */

static void find_conversions(struct aceso_stages *st) {
    size_t n = (size_t)st->n;
    st->convert_us = mem_array((size_t)st->m->n_pairs * n * n, sizeof *st->convert_us);
    for (int p = 0; p < st->m->n_pairs; p++) {
        int i = st->m->pair_op[p];
        double *us = st->convert_us + (size_t)p * n * n;
        for (int from = 0; from < st->n; from++)
            for (int to = 0; to < st->n; to++) {
                const struct aceso_cell *before = aceso_cells(st, i - 1)[from];
                const struct aceso_cell *c = aceso_cells(st, i)[to];
                us[from * st->n + to] = before && c
                                            ? aceso_convert_us(st->m, i, st->layout[from],
                                                               st->layout[to], c->input)
                                            : INFINITY;
            }
    }
}

/* Finds the least messages over all layouts. The outgoing one is looked up with the tp of
 * the stage's first op, so any tp counts. */
static void find_messages(struct aceso_stages *st, int64_t micro_batch) {
    const struct aceso_tables *t = &st->m->tables;
    for (int crosses = 0; crosses < 2; crosses++) {
        st->in_us[crosses] = mem_array((size_t)t->n_rows, sizeof *st->in_us[crosses]);
        st->out_us[crosses] = mem_array((size_t)t->n_rows, sizeof *st->out_us[crosses]);
        for (int op = 0; op < t->n_rows; op++) {
            double in = INFINITY, out = INFINITY;
            for (int l = 0; l < st->n; l++) {
                const struct aceso_cell *c = st->cell[op * st->n + l];
                if (!c)
                    continue;
                in = fmin(in, aceso_message_us(t, c->input, crosses));
                for (int k = 0; k < st->n; k += ACESO_ALGORITHMS) {
                    const struct aceso_cell *to =
                        aceso_cell_find(t, op, micro_batch / st->layout[l].dp,
                                        st->layout[k].tp, st->layout[l].algorithm);
                    if (to)
                        out = fmin(out, aceso_message_us(t, to->output, crosses));
                }
            }
            st->in_us[crosses][op] = in;
            st->out_us[crosses][op] = out;
        }
    }
}

/* Spreads multipliers, evenly on a log scale, over those at which it starts to pay to
 * recompute some op. The first multiplier is 0, and at the last one memory outweighs any
 * time. */
static void find_multipliers(struct aceso_stages *st) {
    double least = INFINITY, most = 0;
    for (int k = 0; k < st->m->tables.n_rows * st->n; k++) {
        const struct aceso_cell *c = st->cell[k];
        double kept = c ? c->activations * st->m->ops[k / st->n].counts : 0;
        if (kept > 0 && c->forward > 0) {
            least = fmin(least, c->forward / kept);
            most = fmax(most, c->forward / kept);
        }
    }
    st->multipliers[0] = 0;
    for (int p = 1; p < ACESO_MULTIPLIERS - 1 && most > 0; p++)
        st->multipliers[p] = least * pow(most / least, (p - 1) / (ACESO_MULTIPLIERS - 3.0));
    st->multipliers[ACESO_MULTIPLIERS - 1] = 1e3 * most;
}

struct aceso_stages *aceso_stages_create(const struct aceso_model *m,
                                         const struct aceso_limits *limits, int devices,
                                         int64_t micro_batch) {
    struct aceso_stages *st = mem_alloc(sizeof *st);
    st->m = m;
    st->limits = limits;
    st->devices = devices;
    st->micro_batch = micro_batch;
    find_layouts(st, micro_batch);
    if (!st->n)
        return st;
    find_cells(st, micro_batch);
    find_conversions(st);
    find_messages(st, micro_batch);
    find_multipliers(st);
    return st;
}

void aceso_stages_destroy(struct aceso_stages *st) {
    if (!st)
        return;
    free(st->cell);
    free(st->convert_us);
    for (int crosses = 0; crosses < 2; crosses++) {
        free(st->in_us[crosses]);
        free(st->out_us[crosses]);
    }
    free(st);
}
