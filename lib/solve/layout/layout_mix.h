/* layout_mix.h - swings from several starts, and the best mixture of where they ended.
 *
 * One swing (layout_swing.h) seldom beats a good choice as a whole, but nearly always does
 * in places. So each batch sets out from the present choice and from choices along the
 * messages of the dual, and the next one puts the ends of these swings and the present
 * choice together: the problem in which each variable keeps the values that it has in one
 * of them shrinks to some hundred variables, which branch and bound searches ("tour
 * merging", Cook and Seymour, 2003).
 *
 *     layout_mix_begin(&m, &whole, seed, swings, deadline_s);
 *     for (int job = 0; job < LAYOUT_MIX_JOBS; job++)
 *         layout_mix_run(&m, job);                  // in any order, on any thread
 *     layout_mix_add(&m, x);                        // meanwhile: a start for the next batch
 *     for (const int *x; (x = layout_mix_next(&m));)
 *         offer(x);                                 // choices that may be better
 *     layout_mix_end(&m);
 */
#ifndef WEFT_SOLVE_LAYOUT_MIX_H
#define WEFT_SOLVE_LAYOUT_MIX_H

#include "solve/layout/layout_kernel.h"
#include "solve/layout/layout_swing.h"

#define LAYOUT_MIX_SWINGS 5
#define LAYOUT_MIX_JOBS   (1 + LAYOUT_MIX_SWINGS)

/* Must be zeroed before the first batch. */
struct layout_mix {
    const struct layout_whole *w;
    struct layout_swing swing[LAYOUT_MIX_SWINGS];
    struct layout_kernel kernel;   /* the mixture */
    int *start[LAYOUT_MIX_SWINGS]; /* of this batch's swings; owned */
    int *added[LAYOUT_MIX_SWINGS]; /* for the next batch; owned */
    int n_added;
    int *end[LAYOUT_MIX_SWINGS]; /* of the last batch's swings; owned */
    int n_ends;
    int width;     /* ends that are put together at once */
    int *mixed;    /* (n_vars) what came out of the mixture */
    int64_t value; /* of mixed */
    double deadline_s;
    int given; /* choices that were handed out */
};

/* Begins a batch of so many swings around the present choice of w. */
void layout_mix_begin(struct layout_mix *m, const struct layout_whole *w, uint64_t seed,
                      int swings, double deadline_s);
void layout_mix_run(struct layout_mix *m, int job);

/* Takes x (n_vars), an allowed choice, over as a start of the next batch. Returns false
 * when there are enough; x is still the caller's then. Only one thread at a time may call
 * it. */
bool layout_mix_add(struct layout_mix *m, int *x);

/* Returns, after all jobs, a choice that may be better than the present one, or NULL
 * when there are no more. It belongs to m until layout_mix_end. */
const int *layout_mix_next(struct layout_mix *m);
void layout_mix_end(struct layout_mix *m);
void layout_mix_release(struct layout_mix *m);

#endif
