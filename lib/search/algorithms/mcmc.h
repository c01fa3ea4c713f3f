/* mcmc.h - what the files of mcmc share: random changes of a candidate.
 *
 *     struct rng r = {seed, 0};
 *     if (mcmc_propose(s, &r, &at, &next) && eval_legal(&s->eval, &next))
 *         use(pool_score(&s->pool, &next));
 */
#ifndef WEFT_MCMC_H
#define WEFT_MCMC_H

#include "search/state.h"

/* Makes *to from *from by one random change of anything that a candidate decides; false where
 * the change that was drawn changes nothing or is impossible. */
bool mcmc_propose(struct search *s, struct rng *r, const struct candidate *from,
                  struct candidate *to);

/* A random balanced pipeline in a uniform preset; false where what was drawn is impossible. */
bool mcmc_draw(struct search *s, struct rng *r, struct candidate *out);

/* A chain of so many changes from *c, at first hot enough to leave it, then cooled; *c and
 * *score become the best that it met, which is at least as good. */
void mcmc_refine(struct search *s, struct rng *r, int steps, struct candidate *c,
                 struct score *score);

#endif
