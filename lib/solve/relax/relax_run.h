/* relax_run.h - one descent: from random logits to probabilities that decide.
 *
 *     struct relax_run *r = relax_run_make(p, seed);
 *     for (int i = 0; i < 200; i++)
 *         relax_run_step(r, i / 200.0);
 *     relax_run_round(r, &answer);
 *     relax_run_free(r);
 */
#ifndef WEFT_SOLVE_RELAX_RUN_H
#define WEFT_SOLVE_RELAX_RUN_H

#include "solve/relax/relax.h"

struct relax_run;
struct relax_run *relax_run_make(const struct relax_problem *p, uint64_t seed);
void relax_run_free(struct relax_run *r);

/* Takes one step of the descent. done: the fraction of the steps taken so far, from 0 to
 * 1, by which it cools. */
void relax_run_step(struct relax_run *r, double done);

/* Rounds to the most probable cuts, options and choices. The arrays of the answer must be
 * allocated. */
void relax_run_round(struct relax_run *r, struct relax_answer *out);

#endif
