/* floors_impl.h - what the parts of op_bounds.h share: prices of instructions where links are best
 * (floors_links.c), what an op does alone (floors_ops.c), and its ways (op_bounds.c). */
#ifndef WEFT_OP_BOUNDS_IMPL_H
#define WEFT_OP_BOUNDS_IMPL_H

#include "search/bound/op_bounds.h"

enum { MOST_FIRST = 512 };

/* What of an op alone depends on its local sizes only. */
struct local {
    double forward_us, backward_us;
    double own; /* bytes that it keeps beside its operands */
    bool missing;
};

/* What no layout changes. */
struct trait {
    bool looked;
    unsigned keeps;  /* operands, as bits, */
    bool keeps_own;  /* and results */
    unsigned counts; /* of the operands that it keeps: those that no op before it counts */
    int maker[OP_BOUND_ITEMS]; /* op that made what it keeps; -1: it cannot be made again */
    int shares[OP_BOUND_ITEMS]; /* among so many the price of making it again is shared */
    double readers[KIND_MAX_SLOTS]; /* uses of an operand's tensor in the whole model */
    unsigned gives;                 /* operands, as bits: those that it gives a gradient, */
    unsigned later;                 /* and those whose tensor an op before it reads, too */
    bool read[KIND_MAX_SLOTS];      /* results that an op reads */
};

/* The ways of all ops that are alike in this, with one micro-batch. */
struct strategies {
    int n;
    struct op_bound_strategy *p;
    double forward_us; /* the least */
};

struct op_bounds {
    struct evaluate *ev;
    struct trait *traits; /* [ops of the deduplicated model] */
    struct memo locals, sums, shares, strategies;
    struct layout *at; /* [nodes] scratch */
    bool pinned;       /* what pins do to communication and memory is not looked into */
    int n_first, first[MOST_FIRST];
    struct device_class class; /* end 0: all devices */
};

/* ---- prices (floors_links.c) -------------------------------------------------------------- */

/* How many devices take part in a collective: as axes within nodes have it, and as those that lead to
 * other nodes do. */
struct reach {
    int near, far;
};

static inline int reach_size(struct reach g) {
    return g.near * g.far;
}

static inline struct reach reach_of(const struct mesh *mesh, unsigned near, unsigned axes) {
    return (struct reach){mesh_group_size(mesh, axes & near),
                          mesh_group_size(mesh, axes & ~near)};
}

/* Finds the ranks on which stages may begin, as far as costs depend on them. */
void op_bound_find_places(struct op_bounds *f);
/* What is computed on each device alone: the slowest kind that a group touches decides. */
double op_bound_own_us(struct op_bounds *f, const struct stage_program *sp,
                       const struct instr *ins, int devices, bool *missing);
/* Axes along which groups may lie within a node. */
unsigned op_bound_intra_node_axes(const struct op_bounds *f, const struct mesh *mesh);
/* The meshes that a stage may have; returns how many. */
int op_bound_meshes(int devices, struct mesh meshes[2]);
/* A sum is scattered, or shards gathered, over such groups: at once, or over some axes and then over the
 * others. */
double op_bound_steps_us(struct op_bounds *f, int devices, struct reach g, enum opcode code,
                         enum dtype dtype, double elems);
/* Parts of a sum become shards, or the whole. */
double op_bound_sum_us(struct op_bounds *f, int devices, struct reach g, enum dtype dtype,
                       double elems);
/* A gradient's part of those that are summed in one go. */
double op_bound_gradient_us(struct op_bounds *f, int devices, struct reach g, double elems);

/* ---- ops (floors_ops.c) ------------------------------------------------------------------- */

/* The first of its operands that is this tensor, or -1. */
int op_bound_operand(const struct model_op *o, int tensor);
const struct local *op_bound_local(struct op_bounds *f, int op, const struct mesh *mesh,
                                   const struct layout *l, int64_t micro_batch,
                                   int devices);
/* Finds the traits of an op; then who counts what is kept. */
void op_bound_find_traits(struct op_bounds *f, int op);
void op_bound_share_kept(struct op_bounds *f);

#endif
