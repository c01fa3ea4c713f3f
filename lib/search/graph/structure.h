/* structure.h - what in a model is alike, and which stretches of it repeat.
 *
 * Two ops are alike when the compiler treats them alike whatever their neighbours are: same
 * kind, attributes, shapes, and parameters shared or not. A run is a stretch of ops that
 * repeats: op i and op i + period are alike and read the same tensors, or tensors that lie
 * equally far back. Runs are found in the graph, not in the file, so a model that was written
 * out layer by layer has them too; a graph without any is a list of single ops.
 *
 * An edge is what ops share: a tensor with the op that makes it and those that read it, or
 * a parameter with its home and its other users.
 *
 * The deduplicated model is a model of the first, the second and the last instance of each run, and all
 * ops outside of repeats: what is worked out for it holds for the whole model.
 */
#ifndef WEFT_STRUCTURE_H
#define WEFT_STRUCTURE_H

#include "model/model.h"

struct repeat {
    int first, period, count; /* ops first .. first + period * count - 1 */
    /* From instance to instance, least passes in front of op `seam` of each. It need not be
     * where a block of the file begins: the first block may differ from the others. */
    int seam;
};

struct edge {
    int origin;         /* op that makes the tensor, or home of the parameter */
    int tensor, param;  /* one of them; the other -1 */
    int n;              /* readers, or further users */
    const int *readers; /* ops, ascending, each once */
};

/* An edge with many readers; graph.c tells no more of a kind apart. */
enum { LONG_LIVED_READERS = 4 };
static inline bool edge_is_long_lived(const struct edge *e) {
    return e->tensor >= 0 && e->n >= LONG_LIVED_READERS;
}

struct structure {
    int n_ops;
    uint64_t *alike; /* [n_ops] equal for ops that are alike */
    int n_repeats;
    struct repeat *repeats; /* in order, apart from each other */
    int *repeat_of;         /* [n_ops] or -1 */
    int n_edges;
    struct edge *edges; /* by origin */
    int *edges_of;      /* [n_ops + 1] edges of op i: edges_of[i] .. edges_of[i + 1] - 1 */
    int n_readers, *readers; /* of all edges */
};

/* marks: [n_ops] equal where ops may be alike; NULL: all of them may. */
void structure_find(const struct model *m, const uint64_t *marks, struct structure *s);
void structure_release(struct structure *s);

/* Units: instances of repeats, from seam to seam, and ops outside of them. Does one begin with this op?
 * How many are there? */
bool structure_begins_unit(const struct structure *s, int op);
int structure_units(const struct structure *s);
/* Where the unit begins that the op is in; where the first unit begins at or after the op, or
 * n_ops. */
int structure_unit_of(const struct structure *s, int op);
int structure_next_unit(const struct structure *s, int op);

/* The instance of its repeat that an op is in. */
int structure_instance(const struct structure *s, int op);

/* The first reader at or behind op `first`; e->n if there is none. */
int edge_reader_from(const struct edge *e, int first);

struct dedup {
    struct model *model; /* shares names and dims with the whole one */
    /* [ops of the whole model + 1] the op of the deduplicated model for it; behind the last op, their number */
    int *of;
    /* [likewise] instances of its repeat in front of it that the deduplicated model leaves out */
    int *left_out;
    int *from;    /* [ops of the deduplicated model] one op of the whole model that it is */
    int n_nodes;  /* ops that are told apart: one for all instances of a repeat */
    int *node_of; /* [ops of the deduplicated model] */
};
void dedup_make(const struct model *m, const struct structure *s, struct dedup *x);
void dedup_release(struct dedup *x);

#endif
