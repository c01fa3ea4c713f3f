/* overlap.h - plans whose gradients are summed, and parameters gathered, while others compute.
 *
 * It is a choice where the profile says that some of it is hidden so. Then stages are estimated as if
 * their gradients were reduced behind the last backward pass as far as that goes, floors (floors.h)
 * leave out what may be hidden, and what is judged is simulated with overlap and without.
 *
 *     s->hides = search_may_hide(s);
 *     if (s->hides)
 *         search_overlap_plan(s, &plan);
 */
#ifndef WEFT_OVERLAP_H
#define WEFT_OVERLAP_H

#include "search/search_impl.h"

/* May plans of this search have overlap that hides anything? */
bool search_may_hide(const struct search *s);
/* Is it a choice? Copies to hosts and back go on beside computation as well. */
bool search_may_overlap(const struct search *s);
/* Of reductions of gradients that take so long, what goes on behind a backward pass at most. */
double search_hidden_us(const struct search *s, double reduce_us, double backward_us);
/* Simulates the plan, which was without, with overlap; true, with that time and memory, if it is
 * faster so and fits. */
bool search_overlap_plan(struct search *s, struct search_plan *p);

#endif
