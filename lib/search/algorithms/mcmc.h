/* mcmc.h - random changes of a candidate, which the files of mcmc and other algorithms
 * share.
 *
 *     struct rng r = {seed, 0};
 *     if (mcmc_propose(s, &r, &at, &next) && eval_legal(&s->eval, &next))
 *         use(pool_score(&s->pool, &next));
 */
#ifndef WEFT_MCMC_H
#define WEFT_MCMC_H

#include "search/state.h"

/* Makes *to from *from by one random change of anything that a candidate decides;
 * false if the change that was drawn changes nothing or is impossible. */
bool mcmc_propose(struct search *s, struct rng *r, const struct candidate *from,
                  struct candidate *to);

/* Draws a random balanced pipeline in a uniform preset; false if what was drawn is
 * impossible. */
bool mcmc_draw(struct search *s, struct rng *r, struct candidate *out);

/* Runs a chain of this many changes from *c that starts hot enough to leave it and
 * then cools. *c and *score become the best plan that it met, which may be the given
 * one. */
void mcmc_refine(struct search *s, struct rng *r, int steps, struct candidate *c,
                 struct score *score);

#endif
