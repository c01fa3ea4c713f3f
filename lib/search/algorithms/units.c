/* Rows of units for the stages solver (see units.h). */
#include "search/algorithms/units.h"

#include <stdlib.h>
#include <string.h>

/* Finds where units begin. fine: also inside blocks, wherever there is a cut. */
static int find_bounds(const struct space *sp, bool fine, int *bound) {
    int n = 0, n_ops = sp->blocks.s.n_ops;
    for (int i = 0; i < n_ops; i++)
        if (structure_begins_unit(&sp->blocks.s, i) || (fine && space_is_cut(sp, i)))
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

/* Every column becomes a configuration and a choice of its own. */
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
