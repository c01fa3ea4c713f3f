/* placement.h - layouts of ops and placements of tensors: the algebra that sharding rests on.
 *
 * A layout gives an op, per mesh axis, one dim of its iteration space or none. A placement gives
 * a tensor, per mesh axis, Shard(axis of the tensor), Replicate or Partial. The rules are those
 * of Mesh-TensorFlow (Shazeer et al. 2018), GSPMD (Xu et al. 2021) and PyTorch's DTensor,
 * derived from the op's maps alone:
 *
 *     operand, parameter that has the dim: Shard     else: Replicate
 *     result that has the dim:             Shard     else: Partial
 *     gradient of an operand:              Shard     else: Partial
 *     gradient wanted of a result:         Shard     else: Replicate
 *
 * and everything is Replicate on an axis that the op does not use, or that has one device. What
 * has one element for each group of several of a dim (axis_map) has the dim on those axes, from the
 * outermost on, that divide the number of groups; on the others it lacks it. Where a layout has a
 * ring, its dim stands in for one that the operand lacks.
 * Several mesh axes may split one axis of a tensor: the outer one takes the coarser cut.
 */
#ifndef WEFT_PLACEMENT_H
#define WEFT_PLACEMENT_H

#include "model/model.h"
#include "plan/mesh.h"

#include <string.h>

enum { PLACE_NONE = -1, PLACE_REPLICATE = -1, PLACE_PARTIAL = -2 };

/* mesh axis -> index into the op's iteration space, or PLACE_NONE. Entries beyond n_axes are
 * PLACE_NONE. */
struct layout {
    int8_t dim[MESH_MAX_AXES];
    /* A gathered dim of the space, or PLACE_NONE. Operands that have it are not whole on the axes
     * that split a dim which they lack, but cut along it, and their parts go round among the
     * devices of these axes (Liu et al., Ring Attention, 2023). */
    int8_t ring;
};

/* mesh axis -> axis of the tensor, PLACE_REPLICATE or PLACE_PARTIAL. Entries beyond n_axes, and
 * those of axes of size 1, are Replicate, so placements compare with placement_equal. */
struct placement {
    int8_t at[MESH_MAX_AXES];
};

static inline struct placement placement_replicate(void) {
    struct placement p;
    memset(p.at, PLACE_REPLICATE, sizeof p.at);
    return p;
}
static inline bool placement_equal(struct placement a, struct placement b) {
    return !memcmp(a.at, b.at, sizeof a.at);
}
/* Of an operand or parameter; also of a gradient that is wanted. */
struct placement placement_operand(const struct mesh *mesh, const struct layout *l,
                                   const struct axis_map *map);
/* Of a result; also of a gradient as it comes out. */
struct placement placement_result(const struct mesh *mesh, const struct layout *l,
                                  const struct axis_map *map);
/* Mesh axes at which the placement is `what`: an axis of the tensor, Replicate or Partial. */
static inline unsigned placement_axes(const struct mesh *mesh, struct placement p,
                                      int what) {
    unsigned set = 0;
    for (int a = 0; a < mesh->n_axes; a++)
        set |= (unsigned)(p.at[a] == what) << a;
    return set;
}
static inline unsigned placement_sharded_axes(const struct mesh *mesh, struct placement p) {
    unsigned set = 0;
    for (int a = 0; a < mesh->n_axes; a++)
        set |= (unsigned)(p.at[a] >= 0) << a;
    return set;
}

/* What one rank holds of a tensor, or sends of it. */
struct box {
    int64_t first[TENSOR_MAX_RANK], size[TENSOR_MAX_RANK];
};
struct box placement_box(const struct mesh *mesh, const struct extents *x,
                         struct placement p, const int coord[MESH_MAX_AXES]);
/* Local size along one axis of the tensor; local elements. Shards are even, so both are the
 * same on every rank. */
int64_t placement_size(const struct mesh *mesh, const struct extents *x, struct placement p,
                       int axis);
int64_t placement_elements(const struct mesh *mesh, const struct extents *x,
                           struct placement p);
/* The dim of the op's space along which a mesh axis cuts what has this map, or PLACE_NONE. */
int layout_cut(const struct layout *l, const struct axis_map *map, int axis);
/* The dim that may go round, or PLACE_NONE. */
int layout_ring(const struct op_space *space);
/* The first of these dims that the op can be split on: its index in the op's space, or
 * PLACE_NONE. */
int layout_choose(const struct op_space *space, const int *dims, int n);
/* Local size of dim k of an op's iteration space, which has n in all. */
int64_t layout_size(const struct mesh *mesh, const struct layout *l, int k, int64_t n);

/* Is the layout legal for the op: dims that it may split, even shards of every tensor that it
 * touches, whole groups of samples? batch: samples of a micro-batch. */
int layout_check(const struct model *m, const struct model_op *op, const struct mesh *mesh,
                 const struct layout *l, int64_t batch, struct err *err);

/* The same placement with no Partial: each such axis splits the first axis of the tensor that it
 * divides (half the bytes of a full reduction), else becomes Replicate. */
struct placement placement_resolve(const struct mesh *mesh, const struct extents *x,
                                   struct placement p);
/* Splits Replicate axes of p too (ZeRO): all of them the first axis of the tensor that they divide
 * together, so that one collective makes it whole; else each the first that it divides. */
struct placement placement_scatter(const struct mesh *mesh, const struct extents *x,
                                   struct placement p);
/* Of a parameter that is a matrix: the same placement, but Replicate on axes that cut rows or columns. Each
 * rank then has whole matrices. */
struct placement placement_matrices(const struct model_param *param, struct placement p);

#endif
