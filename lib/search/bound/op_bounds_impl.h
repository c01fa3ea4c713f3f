/* op_bounds_impl.h - what the parts of op_bounds.h share: costs of instructions where
 * links are best (op_bounds_links.c), the costs of an op alone (op_bounds_ops.c), and
 * its strategies (op_bounds.c). */
#ifndef WEFT_OP_BOUNDS_IMPL_H
#define WEFT_OP_BOUNDS_IMPL_H

#include "search/bound/op_bounds.h"

enum { MOST_FIRST = 512 };

/* The costs of an op alone that depend on its local sizes only. */
struct local {
    double forward_us, backward_us;
    double own; /* bytes that it keeps besides its operands */
    bool missing;
};

/* Facts of an op that do not depend on layouts. */
struct trait {
    unsigned keeps; /* operands that it keeps, as bits */
    bool keeps_own; /* it keeps results */
    /* of the operands that it keeps, those that no op before it is charged for */
    unsigned counts;
    /* the op that made what it keeps; -1: it cannot be computed again */
    int maker[OP_BOUND_ITEMS];
    /* this many items share the cost of computing it again */
    int shares[OP_BOUND_ITEMS];
    double readers[KIND_MAX_SLOTS]; /* uses of an operand's tensor in the whole model */
    unsigned gives;                 /* operands that it gives a gradient, as bits */
    unsigned later;                 /* operands whose tensor an op before it also reads */
    bool read[KIND_MAX_SLOTS];      /* results that some op reads */
};

/* The strategies with one micro-batch, shared by all ops that are alike (spot_hash). */
struct strategies {
    int n;
    struct op_bound_strategy *p;
    double forward_us; /* the least of all strategies */
};

struct op_bounds {
    struct evaluate *ev;
    struct trait *traits; /* [ops of the deduplicated model] */
    struct memo locals, sums, shares, strategies;
    struct layout *at; /* [nodes] scratch */
    bool pinned; /* with pins, whose effects on communication and memory are not known */
    int n_first, first[MOST_FIRST];
    struct device_class class; /* end 0: all devices */
};

/* ---- costs (op_bounds_links.c) -------------------------------------------------------------- */

/* The devices that take part in a collective: along axes within nodes, and along axes
 * that lead to other nodes. */
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

/* Finds the first ranks of groups that costs can tell apart. */
void op_bound_find_places(struct op_bounds *f);
/* The time of an instruction on each device alone; a group is as slow as its slowest
 * kind of device. */
double op_bound_own_us(struct op_bounds *f, const struct stage_program *sp,
                       const struct instr *ins, int devices, bool *missing);
/* Returns the axes, as bits, along which groups may lie within a node. */
unsigned op_bound_intra_node_axes(const struct op_bounds *f, const struct mesh *mesh);
/* The meshes that a stage may have; returns how many. */
int op_bound_meshes(int devices, struct mesh meshes[2]);
/* The time of scattering a sum or gathering shards over such groups: in one
 * collective, or over some axes first and then over the others. */
double op_bound_steps_us(struct op_bounds *f, int devices, struct reach g, enum opcode code,
                         enum dtype dtype, double elems);
/* The time in which partial sums become shards, or the whole tensor, whichever is
 * less. */
double op_bound_sum_us(struct op_bounds *f, int devices, struct reach g, enum dtype dtype,
                       double elems);
/* A gradient's share of the collective that reduces several at once. */
double op_bound_gradient_us(struct op_bounds *f, int devices, struct reach g, double elems);

/* ---- ops (op_bounds_ops.c) ------------------------------------------------------------------- */

/* Returns the first operand that is this tensor, or -1. */
int op_bound_operand(const struct model_op *o, int tensor);
const struct local *op_bound_local(struct op_bounds *f, int op, const struct mesh *mesh,
                                   const struct layout *l, int64_t micro_batch,
                                   int devices);
/* Find the traits of an op and, once all ops have theirs, which op is charged for what is
 * kept. */
void op_bound_find_traits(struct op_bounds *f, int op);
void op_bound_share_kept(struct op_bounds *f);

#endif
