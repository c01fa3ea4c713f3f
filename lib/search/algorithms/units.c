/* Rows of units for the stages solver (see units.h). */
#include "search/algorithms/units.h"

#include <stdlib.h>
#include <string.h>

/* Elements of one sample that pass in front of an op. */
static double passing(const struct space *sp, int op) {
    const struct model *m = sp->p.model;
    const struct crossing *x = &sp->crossings[op];
    double elems = 0;
    for (int i = 0; i < x->n; i++) {
        int t = sp->blocks.s.edges[x->edges[i]].tensor;
        double n = t >= 0;
        for (int k = 0; t >= 0 && k < m->tensors[t].shape.rank; k++)
            n *= (double)model_dim_size(m, m->tensors[t].shape.dim[k], 1);
        elems += n;
    }
    return elems;
}

/* May a unit begin here? fine: also inside blocks, where no more elements pass than in
 * front of the block, as between attention and what follows it. */
static bool is_bound(const struct space *sp, int op, bool fine) {
    const struct structure *st = &sp->blocks.s;
    return structure_begins_unit(st, op) ||
           (fine && passing(sp, op) <= passing(sp, structure_unit_of(st, op)));
}

static int find_bounds(const struct space *sp, bool fine, int *bound) {
    int n = 0, n_ops = sp->blocks.s.n_ops;
    for (int i = 0; i < n_ops; i++)
        if (is_bound(sp, i, fine))
            bound[n++] = i;
    bound[n] = n_ops;
    return n;
}

/* Joins the two neighbours that have the least work together. */
static void join_lightest(const struct space *sp, int *bound, int n) {
    int at = 1;
    for (int i = 2; i < n; i++) {
        double now = sp->flops[bound[i + 1]] - sp->flops[bound[i - 1]];
        at = now < sp->flops[bound[at + 1]] - sp->flops[bound[at - 1]] ? i : at;
    }
    memmove(&bound[at], &bound[at + 1], sizeof *bound * (size_t)(n - at));
}

int units_find_parts(const struct space *sp, int most, int *bound) {
    int *all = mem_array((size_t)sp->blocks.s.n_ops + 1, sizeof *all);
    int n = find_bounds(sp, true, all);
    if (n > 2 * most)
        n = find_bounds(sp, false, all);
    while (n > most)
        join_lightest(sp, all, n--);
    memcpy(bound, all, sizeof *all * (size_t)(n + 1));
    free(all);
    return n;
}

size_t units_cell(int first, int last, int units, int64_t columns) {
    return (size_t)(stages_table_cell(units, first, last) * columns);
}

size_t units_cells(int units, int64_t columns) {
    return units_cell(units, units, units, columns);
}

/* All stages take what they receive at their own cost (STAGES_CHARGE_RECEIVER), and
 * every column is a choice of its own. */
void units_problem(const struct space *sp, int units, int64_t columns, double micro_batches,
                   const double *time, const int16_t *succ, struct stages_problem *out) {
    size_t n = (size_t)columns;
    *out = (struct stages_problem){.layers = units,
                                   .devices = sp->p.devices,
                                   .micro_batches = micro_batches,
                                   .use_all = true,
                                   .max_stages = sp->max_groups,
                                   .num_configs = (int)n,
                                   .num_choices = (int)n,
                                   .dense_time = time,
                                   .dense_succ = succ};
    out->configs = mem_array(n, sizeof *out->configs);
    out->choices = mem_array(n, sizeof *out->choices);
    for (int c = 0; c < (int)n; c++) {
        out->configs[c] = (struct stages_config){.submesh = c, .config = c};
        out->choices[c].config = c;
    }
}
