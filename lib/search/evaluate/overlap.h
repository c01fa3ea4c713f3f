/* overlap.h - plans that sum gradients and gather parameters beside computation.
 *
 * It is a choice where the profile says that collectives hide. Then estimates of stages hide
 * reductions behind the last backward pass as far as they fit, floors (floors.h) leave out what may
 * be hidden, and plans that are judged are simulated with overlap and without.
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
/* How much of reductions of gradients can hide behind a backward pass at most. */
double search_hidden_us(const struct search *s, double reduce_us, double backward_us);
/* Simulates a plan without overlap once more with it. True, with that time and memory, if it is
 * faster and fits. */
bool search_overlap_plan(struct search *s, struct search_plan *p);

#endif
