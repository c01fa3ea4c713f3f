/* straggler.h - which rank is slower than those that do the same.
 *
 *     struct beats *b = beats_open("/dev/shm/weft-keep-1/beats");
 *     struct straggler *s = straggler_create(beats_ranks(b));
 *     double ratio;
 *     int rank = straggler_look(s, b, &ratio);          // after a step; -1 = none
 *     straggler_destroy(s);
 *
 * Every STRAGGLER_STEPS steps the work of each rank in them, without its waiting, is held against the median of the
 * other ranks of its group. Means over so many steps, since a single step is anybody's chance.
 */
#ifndef WEFT_STRAGGLER_H
#define WEFT_STRAGGLER_H

#include "keep/beat.h"

enum { STRAGGLER_STEPS = 50 };
#define STRAGGLER_RATIO 1.3

struct straggler;

struct straggler *straggler_create(int ranks);
void straggler_destroy(struct straggler *s); /* NULL is fine */

/* The rank that took longest beside its peers in the last STRAGGLER_STEPS steps, if that was STRAGGLER_RATIO times as
 * long or more; *ratio says how much. -1 where there is none, or so many steps are not done yet. */
int straggler_look(struct straggler *s, struct beats *b, double *ratio);

/* How many times as long as the median of its group, itself among them, a rank has worked in the last STRAGGLER_STEPS
 * steps that were looked at: so the ratios of two ranks are to each other as their times. 0 where it is alone in its
 * group, or not so many were done. */
double straggler_ratio(struct straggler *s, struct beats *b, int rank);

#endif
