/* graph.h - the strategy graph: what every op costs under every layout, and what it
 * costs or saves to have ops that share a tensor in one stage.
 *
 * A node is an op of a distinct block (all instances of a repeat share it); its
 * strategies are its layouts. A load is what something asks of a stage: times, and
 * bytes by when they are held. The load of a node is that of the op compiled as a
 * stage of its own. The load of an edge is that of its ops compiled together, less
 * their own loads. So the load of a stage is the sum of its nodes and of the edges
 * inside it, and what crosses its ends needs no rule of its own. Everything is
 * compiled by the compiler, priced by lib/cost, and kept once for all that is equal: a
 * hundred layers cost as much as two.
 *
 *     struct graph g;
 *     graph_init(&g, &blocks, &cost, devices, OPTIMIZER_adamw, DTYPE_f32);
 *     const struct load *l = graph_node(&g, &setting, op, layouts);
 *     graph_release(&g);
 */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include "cost/cost.h"
#include "search/graph/blocks.h"
#include "search/graph/memo.h"
#include "search/graph/stage_mesh.h"

/* The parts of a load that add up. Times in microseconds: of one micro-batch, and of
 * the update before and after the gradient norm. Gradients that are reduced with
 * others in one collective are counted in elements, see struct load. */
#define LOADS(X)                                                                           \
    X(forward)                                                                             \
    X(backward)                                                                            \
    X(weights) /* their gradients, where the schedule has them apart */                    \
    X(before_norm)                                                                         \
    X(update)                                                                              \
    X(missing) /* instructions that the profile lacks */                                   \
    X(fixed)   /* bytes of parameters, gradients, optimizer state */                       \
    X(slot)    /* bytes kept per micro-batch in flight, by pool (program.h) */             \
    X(slot_weights)                                                                        \
    X(slot_between)                                                                        \
    X(across) /* bytes of the update's temporaries that live across the norm */            \
    X(filled) /* elements of gradients, set to zero in one go */
enum load_part {
#define X(id) LOAD_##id,
    LOADS(X)
#undef X
        LOAD_PARTS
};

/* Sets of mesh axes over which a stage reduces gradients, such as those of experts, dense
 * weights and norms. Sets beyond this many count as the last one. */
enum { LOAD_REDUCTIONS = 8 };

struct load {
    double v[LOAD_PARTS];
    /* Elements of gradients that are reduced over each set of mesh axes. The sets fit into
     * bytes and have an array of their own, because millions of loads are kept. */
    double elems[LOAD_REDUCTIONS];
    uint8_t over[LOAD_REDUCTIONS]; /* the set; 0 = the entry is free */
    /* The sets of mesh axes along which collectives run, bit i for set i. They do not add
     * up. */
    uint64_t groups;
    /* Bytes of temporaries: the most that are held at once in forward and backward,
     * and in the update in addition to those across the norm. These do not add up. */
    int64_t temp, update_temp;
    /* The time of the backward pass after its last message, in which ZeRO's gradients are
     * reduced. It does not add up either. */
    double behind_us;
};
void load_add(struct load *to, const struct load *l, double times);

/* What a stage has besides its layouts. */
struct setting {
    int devices;
    int64_t micro_batch;
    int first_rank; /* in its node */
    int zero;
    /* its own, or NULL: the usual one for this number of devices */
    const struct mesh *mesh;
    bool apart; /* weight gradients are computed separately */
    /* what is gathered in the forward pass is gathered again in the backward pass */
    bool regather;
};

struct graph {
    const struct blocks *b; /* borrowed */
    struct cost *cost;      /* borrowed */
    struct plan plan;       /* scratch: stage 0 is what is compiled */
    struct stage stages[2];
    struct compile_scratch scratch; /* for windows */
    int64_t compiled;               /* number of windows */
    double norm_us;                 /* of the gradient norm over all devices */
    bool norm_missing;              /* the profile lacks it */
    struct memo loads;              /* in the arena, or borrowed */
    struct arena arena;
    struct members *members; /* scratch of graph_edge: the ops of the edge */
};

/* devices: of the whole job. The blocks and the costs are borrowed. */
void graph_init(struct graph *g, const struct blocks *b, struct cost *cost, int devices,
                enum optimizer optimizer, enum dtype dtype);
void graph_release(struct graph *g);

/* Hashes a setting, chained into h like memo_mix. */
uint64_t graph_setting_hash(const struct setting *st, uint64_t h);

/* Returns the setting without ZeRO. Ops without parameters are compiled once, under this
 * one, because ZeRO only changes what is done with parameters. */
struct setting graph_without_zero(const struct setting *st);

/* Takes over what another graph for the same problem has compiled so far; that graph
 * must be released after this one. */
void graph_borrow(struct graph *g, const struct graph *from);

/* The loads that the functions below return stay valid until graph_release; layouts are by
 * node. graph_node: of an op of the deduplicated model alone. */
const struct load *graph_node(struct graph *g, const struct setting *st, int op,
                              const struct layout *layouts);
/* Compiles an op as graph_node does. Until the next window is compiled, the program is
 * valid, and its instructions can be priced by cost_instr with g->plan. */
void graph_compile(struct graph *g, const struct setting *st, int op,
                   const struct layout *layouts, struct stage_program *out);
/* The load of an edge in a stage of ops first .. end-1, all of the whole model. */
const struct load *graph_edge(struct graph *g, const struct setting *st,
                              const struct edge *e, int first, int end,
                              const struct layout *layouts);
/* What changes in the load of ops first .. end-1 of the deduplicated model if those with
 * recompute[node] are recomputed. */
const struct load *graph_recompute(struct graph *g, const struct setting *st, int first,
                                   int end, const bool *recompute,
                                   const struct layout *layouts);
/* The time of one collective over gradients or, if axes is 0, of filling them with
 * zeros. */
double graph_reduce_us(struct graph *g, const struct setting *st, unsigned axes,
                       double elems, bool *missing);

#endif
