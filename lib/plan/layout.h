/* layout.h - meshes, layouts, placements: the algebra that sharding rests on.
 *
 * A mesh is the devices of a stage as an n-dimensional grid of named axes, outermost (slowest
 * link) first; device r has the row-major coordinates of r. A layout gives an op, per axis, one
 * dim of its iteration domain or none. A placement gives a tensor, per axis, Shard(dim),
 * Replicate or Partial. The rules are those of Mesh-TensorFlow (Shazeer et al. 2018), GSPMD (Xu
 * et al. 2021) and PyTorch's DTensor, derived from dims alone:
 *
 *     operand, parameter with dim d: Shard(d)     without: Replicate
 *     result with dim d:             Shard(d)     without: Partial
 *     gradient of an operand:        Shard(d)     without: Partial
 *     gradient wanted of a result:   Shard(d)     without: Replicate
 *
 * and everything is Replicate on an axis that the op does not use. Several axes may split one
 * dim: the outer axis takes the coarser cut.
 */
#ifndef WEFT_LAYOUT_H
#define WEFT_LAYOUT_H

#include "model/model.h"

enum { MESH_MAX_AXES = 6, MESH_MAX_NAME = 16 };

struct mesh {
    int n_axes; /* 0 = one device */
    int size[MESH_MAX_AXES];
    char name[MESH_MAX_AXES][MESH_MAX_NAME];
};

int mesh_devices(const struct mesh *mesh);
/* Coordinates of device r, and back. */
void mesh_coords(const struct mesh *mesh, int r, int coord[MESH_MAX_AXES]);
int mesh_rank(const struct mesh *mesh, const int coord[MESH_MAX_AXES]);
int mesh_axis_find(const struct mesh *mesh, const char *name);
/* Product of the sizes of a set of axes (bit a = axis a). */
int mesh_group_size(const struct mesh *mesh, unsigned axes);
/* The members of r's group along `axes`, outermost axis slowest; returns the size. ranks has
 * room for mesh_group_size(mesh, axes). */
int mesh_group(const struct mesh *mesh, unsigned axes, int r, int *ranks);
/* Step between neighbouring devices of a group along `axes` (of its innermost axis). */
int mesh_group_stride(const struct mesh *mesh, unsigned axes);

/* Reads "dp:2 tp:4"; at most max_devices devices. */
int mesh_parse(const char *text, int64_t max_devices, struct mesh *mesh, struct err *err);
void mesh_format(const struct mesh *mesh, char *buf, size_t n);

enum { PLACE_NONE = -1, PLACE_REPLICATE = -1, PLACE_PARTIAL = -2 };

/* axis -> dim id, or PLACE_NONE. Entries beyond n_axes are PLACE_NONE. */
struct layout {
    int8_t dim[MESH_MAX_AXES];
};

/* axis -> dim id, PLACE_REPLICATE or PLACE_PARTIAL. Entries beyond n_axes are Replicate, so
 * placements compare with placement_equal. */
struct placement {
    int8_t at[MESH_MAX_AXES];
};

struct placement placement_replicate(void);
bool placement_equal(struct placement a, struct placement b);
/* Of an operand or parameter with these dims; also of a gradient that is wanted. */
struct placement placement_operand(const struct mesh *mesh, const struct layout *l,
                                   dimset dims);
/* Of a result with these dims; also of a gradient as it comes out. */
struct placement placement_result(const struct mesh *mesh, const struct layout *l,
                                  dimset dims);
/* Axes at which the placement is Partial / Replicate / Shard. */
unsigned placement_axes(const struct mesh *mesh, struct placement p, int what);
unsigned placement_sharded_axes(const struct mesh *mesh, struct placement p);
void placement_format(const struct model *m, const struct mesh *mesh, struct placement p,
                      char *buf, size_t n);

/* Sizes of the dims of one micro-batch: model sizes, with `batch` bound. */
struct dim_sizes {
    int64_t size[MODEL_MAX_DIMS];
};
struct dim_sizes dim_sizes_of(const struct model *m, int64_t batch);

/* A rank's block of a tensor: first[i], size[i] per dim of the shape. */
struct block {
    int64_t first[MODEL_MAX_RANK], size[MODEL_MAX_RANK];
};
struct block placement_block(const struct mesh *mesh, const struct shape *s,
                             const struct dim_sizes *sizes, struct placement p,
                             const int *coord);
/* Elements of a block (the same for every rank: shards are even). */
int64_t placement_elements(const struct mesh *mesh, const struct shape *s,
                           const struct dim_sizes *sizes, struct placement p);
/* Local size of one dim. */
int64_t placement_dim_size(const struct mesh *mesh, const struct dim_sizes *sizes,
                           struct placement p, int dim);

/* Checks a layout for an op: dims that it has and may split, one dim per axis, even shards. */
int layout_check(const struct model *m, const struct model_op *op, const struct mesh *mesh,
                 const struct layout *l, const struct dim_sizes *sizes, struct err *err);

/* ---- conversions ------------------------------------------------------------------- */

#define CONVERT_KINDS(X)                                                                   \
    X(all_gather, "all_gather")                                                            \
    X(all_reduce, "all_reduce")                                                            \
    X(reduce_scatter, "reduce_scatter")                                                    \
    X(all_to_all, "all_to_all")                                                            \
    X(slice, "slice")

enum convert_kind {
#define X(id, name) CONVERT_##id,
    CONVERT_KINDS(X)
#undef X
};
const char *convert_kind_name(enum convert_kind kind);

struct convert_step {
    enum convert_kind kind;
    unsigned axes; /* one axis; all_reduce may take several at once */
    int from, to;  /* dim that was split / will be split, or PLACE_* */
    struct placement before, after;
};

enum { CONVERT_MAX_STEPS = 2 * MESH_MAX_AXES };

/* The cheapest row of single-axis steps from one placement to another (Dijkstra over the few
 * placements in between; an axis may only be moved while it is the innermost one that splits
 * its dim). `to` has no Partial that `from` has not. Returns the number of steps; `cost`, if not
 * NULL, gets the bytes-like weight. */
int convert_path(const struct mesh *mesh, const struct shape *s,
                 const struct dim_sizes *sizes, struct placement from, struct placement to,
                 struct convert_step steps[CONVERT_MAX_STEPS], double *cost);

/* The same placement with no Partial: each such axis splits the first dim that it divides
 * (half the bytes of a full reduction), else becomes Replicate. */
struct placement placement_resolve(const struct mesh *mesh, const struct shape *s,
                                   const struct dim_sizes *sizes, struct placement p);
/* Splits Replicate axes of p too where a dim allows it (ZeRO). */
struct placement placement_scatter(const struct mesh *mesh, const struct shape *s,
                                   const struct dim_sizes *sizes, struct placement p);

#endif
