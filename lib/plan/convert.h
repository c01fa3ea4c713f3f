/* convert.h - how a tensor gets from one placement to another: a short row of collectives.
 *
 * Written as a person would: what agrees stays; what can be cut for nothing is cut first; sums
 * are scattered straight to where they are wanted; an axis that splits another axis of the
 * tensor than before moves by all-to-all; only what stands in the way is gathered, and cut again.
 *
 *     struct convert_step steps[CONVERT_MAX_STEPS];
 *     int n = convert_path(&mesh, &x, from, to, steps, NULL);
 *     for (int i = 0; i < n; i++) ... steps[i].kind, steps[i].axes ...
 *
 * A step moves all of its mesh axes at once: its group is mesh_group(axes), and chunk i of the
 * split axis belongs to member i. For this the axes are the innermost ones that split it.
 */
#ifndef WEFT_CONVERT_H
#define WEFT_CONVERT_H

#include "plan/placement.h"

#define CONVERT_KINDS(X)                                                                   \
    X(all_gather)     /* Shard -> Replicate */                                             \
    X(all_reduce)     /* Partial -> Replicate */                                           \
    X(reduce_scatter) /* Partial -> Shard */                                               \
    X(all_to_all)     /* Shard -> Shard of another axis */                                 \
    X(slice)          /* Replicate -> Shard, no communication */

enum convert_kind {
#define X(id) CONVERT_##id,
    CONVERT_KINDS(X)
#undef X
};

struct convert_step {
    enum convert_kind kind;
    unsigned axes; /* mesh axes of the group */
    int from, to;  /* axis of the tensor that was split, will be split, or PLACE_* */
    struct placement before, after;
};

/* A mesh axis moves at most twice: away from where it is, and to where it is wanted (once when
 * both are one step). No step undoes another, see convert.c. */
enum { CONVERT_MAX_STEPS = 2 * MESH_MAX_AXES };

/* Finds the steps and returns their number. `to` is Partial only where `from` is. `cost`, if not
 * NULL, gets the elements that a rank moves in all steps, and a little for each start. */
int convert_path(const struct mesh *mesh, const struct extents *x, struct placement from,
                 struct placement to, struct convert_step steps[CONVERT_MAX_STEPS],
                 double *cost);

#endif
