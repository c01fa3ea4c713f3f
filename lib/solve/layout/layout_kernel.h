/* layout_kernel.h - search among the values that the bound says are cheap.
 *
 * Where the bound is near the optimum, nearly all values of a good choice are among those
 * whose own bound is only a little above that of the whole. The problem without the others,
 * its kernel, shrinks to a small one, on which branch and bound goes far ("kernel search",
 * Angelelli, Mansini and Speranza, 2010).
 */
#ifndef WEFT_SOLVE_LAYOUT_KERNEL_H
#define WEFT_SOLVE_LAYOUT_KERNEL_H

#include "solve/layout/layout_bb.h"
#include "solve/layout/layout_lns.h"

struct layout_kernel {
    struct layout_core core;
    bool live;      /* there is something to search */
    bool large;     /* it was dropped: too many variables were left */
    int vars;       /* that are left */
    int64_t upper;  /* only cheaper answers count */
    int64_t target; /* 0, or as layout_kernel_aim had it */
    double deadline_s;
    int ease;         /* spend 1 / ease of the usual effort; 0: all */
    int32_t *y;       /* (core.p->n_nodes) out of the search: strategies, if found */
    int64_t value;    /* out: its cost, if found */
    bool found, done; /* out: a cheaper one was found; all was searched */
};

/* Makes the kernel of d's core without the values whose bound exceeds the whole bound by
 * more than `reach`, except for those of keep[0..d->n-1] (-1: none). The last sweep of d
 * must be current. Release the kernel. */
void layout_kernel_make(struct layout_kernel *k, struct layout_dual *d, int64_t reach,
                        const int *keep);

/* Returns the reach at which about `open` variables of a kernel have more than one
 * value. keep: as for layout_kernel_make; NULL: none. */
int64_t layout_kernel_reach(struct layout_dual *d, const int *keep, int open);

/* Makes the kernel of all values that an answer cheaper than `target` can use. If it is
 * searched in vain, the optimum is not below the target. Release the kernel. */
void layout_kernel_aim(struct layout_kernel *k, struct layout_dual *d, int64_t target);

/* Makes the kernel in which each variable has the values that it has in one of the n
 * choices x[] over the variables of w's core. Set `upper`; the strategies of `y` are
 * then values of w's core. Release the kernel. */
void layout_kernel_mix(struct layout_kernel *k, const struct layout_whole *w,
                       const int *const *x, int n);

/* Releases the kernel and marks it as too large. */
void layout_kernel_drop(struct layout_kernel *k);
void layout_kernel_run(struct layout_kernel *k);
void layout_kernel_release(struct layout_kernel *k);

#endif
