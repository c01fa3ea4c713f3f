/* layout_tree.h - a higher bound from a tree of decisions, the least bound first.
 *
 * Where the pairwise relaxation gives much away, deciding a single variable raises the
 * bound by a good part of that, whatever its value. So the node with the least bound is
 * divided by the values of one variable, again and again, and the least bound of all leaves
 * is a bound (best-first branch and bound, Land and Doig, 1960). Nodes keep only decisions
 * and bounds. Their messages begin at those of the dual as it stands by then, since any
 * messages give true bounds.
 *
 *     struct layout_tree t = {0};
 *     while (bound < upper) // and the dual is improved
 *         bound = layout_tree_grow(&t, &d, x, upper, 200, deadline_s);
 *     layout_tree_release(&t);
 */
#ifndef WEFT_SOLVE_LAYOUT_TREE_H
#define WEFT_SOLVE_LAYOUT_TREE_H

#include "solve/layout/layout_dual.h"

struct layout_leaf {
    int parent;    /* a leaf that was divided, -1: none */
    int var;       /* of the dual, -1: nothing is decided */
    int value;     /* that it takes */
    bool divided;  /* it is no leaf any more */
    int64_t bound; /* no choice with these decisions is cheaper */
};

/* Must be zeroed to begin with. Its variables are those of one dual, as layout_dual_init
 * made them. */
struct layout_tree {
    ARR(struct layout_leaf) leaf;
};

/* Grows the tree for about `sweeps` sweeps. x[0..d->n-1] is a good choice (-1: its value is
 * gone), which says where to look. Leaves with bounds from `upper` on are closed. The last
 * sweep of d must be current, and is so afterwards. Returns the least bound of all leaves,
 * `upper` at most. */
int64_t layout_tree_grow(struct layout_tree *t, struct layout_dual *d, const int *x,
                         int64_t upper, int sweeps, double deadline_s);
void layout_tree_release(struct layout_tree *t);

#endif
