/* units.h - a model as a row of units for the stages solver (lib/solve/stages/stages.h): what slicing
 * by the compiler's costs (slice.c) and by those of a source (source_slice.c) share. A column
 * is one way to run a stretch of units; it is a configuration of the solver, and a choice of
 * its own.
 */
#ifndef WEFT_UNITS_H
#define WEFT_UNITS_H

#include "search/state.h"
#include "solve/stages/stages.h"

/* Finds the ops where units begin, and the end of the last one. A unit is one or more instances
 * of blocks or single ops, as many as it takes for at most `most` units. bound: [most + 1].
 * Returns how many units there are. */
int units_find(const struct structure *st, int most, int *bound);
/* The same with blocks cut into parts where no more passes than between blocks; whole blocks if
 * there would be more than 2 `most` parts. If there are still too many, the lightest neighbours
 * are joined. */
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
