/* Rows of units for the stages solver. */
#include "search/units.h"

#include "search/search_impl.h"

/* Every bound, or every second, third ... of them where there are too many. */
int units_find(const struct structure *st, int most, int *bound) {
    int step = (structure_units(st) + most - 1) / most, seen = 0, n = 0;
    for (int i = 0; i < st->n_ops; i++)
        if (structure_begins_unit(st, i) && seen++ % step == 0)
            bound[n++] = i;
    bound[n] = st->n_ops;
    return n;
}

size_t units_cell(int first, int last, int units, int64_t columns) {
    return (size_t)(stages_table_cell(units, first, last) * columns);
}

size_t units_cells(int units, int64_t columns) {
    return units_cell(units, units, units, columns);
}

void units_problem(const struct search *s, int units, int64_t columns, double micro_batches,
                   const double *time, const int16_t *succ, struct stages_problem *out) {
    size_t n = (size_t)columns;
    *out = (struct stages_problem){.layers = units,
                                   .devices = s->p.devices,
                                   .micro_batches = micro_batches,
                                   .use_all = true,
                                   .max_stages = s->max_groups,
                                   .num_configs = (int)n,
                                   .num_choices = (int)n,
                                   .charge = STAGES_CHARGE_RECEIVER,
                                   .dense_time = time,
                                   .dense_succ = succ};
    out->configs = mem_array(n, sizeof *out->configs);
    out->choices = mem_array(n, sizeof *out->choices);
    for (int c = 0; c < (int)n; c++) {
        out->configs[c] = (struct stages_config){.submesh = c, .config = c};
        out->choices[c].config = c;
    }
}
