/* units.h - a model as a row of units for the stages solver
 * (lib/solve/stages/stages.h). A column is one way of running a range of units; it is
 * both a configuration and a choice of the solver.
 */
#ifndef WEFT_UNITS_H
#define WEFT_UNITS_H

#include "search/state.h"
#include "solve/stages/stages.h"

/* Finds the ops at which units begin, and the end of the last one. A unit is one or
 * more instances of blocks or single ops, or a part of a block between two cuts
 * (space_is_cut); blocks are not divided if that makes more than 2 * `most` units. While
 * there are more than `most`, the lightest neighbours are joined. bound: [most + 1].
 * Returns the number of units. */
int units_find_parts(const struct space *sp, int most, int *bound);
/* Returns the number of cells of a table by range of units and column. */
size_t units_cells(int units, int64_t columns);
/* Returns the index of the first cell of the range first .. last. */
size_t units_cell(int first, int last, int units, int64_t columns);
/* Makes a problem with one micro-batch size, all devices, and columns that have no
 * sizes yet: the caller sets the numbers of devices of each choice. `time` and `succ`,
 * by cell, stay the caller's. Free it with stages_release. */
void units_problem(const struct space *sp, int units, int64_t columns, double micro_batches,
                   const double *time, const int16_t *succ, struct stages_problem *out);

#endif
