/* units.h - a model as a row of units for the stages solver (lib/solve/stages/stages.h). A column is
 * one way to run a stretch of units; it is a configuration of the solver, and a choice of its own.
 */
#ifndef WEFT_UNITS_H
#define WEFT_UNITS_H

#include "search/state.h"
#include "solve/stages/stages.h"

/* Finds the ops where units begin, and the end of the last one. A unit is one or more instances
 * of blocks or single ops, or a part of a block where no more passes than between blocks; there are
 * no parts where there would be more than 2 `most` of them. If there are still more than `most`
 * units, the lightest neighbours are joined. bound: [most + 1]. Returns how many units there are. */
int units_find_parts(const struct space *sp, int most, int *bound);
/* A table by stretch of units and column has so many cells, */
size_t units_cells(int units, int64_t columns);
/* and this is the first one of a stretch. */
size_t units_cell(int first, int last, int units, int64_t columns);
/* One micro-batch, all devices of the problem, columns that have no sizes yet: the caller says
 * which numbers of devices a choice has. `time`, `succ`: by cell; they stay the caller's. For
 * stages_release. */
void units_problem(const struct space *sp, int units, int64_t columns, double micro_batches,
                   const double *time, const int16_t *succ, struct stages_problem *out);

#endif
