/* structure.h - which ops of a model are equal, and which ranges of it repeat.
 *
 * Two ops are equal if the compiler treats them alike whatever their neighbours are: they
 * have the same kind, attributes and shapes, the same gradients are wanted, and the same
 * parameters are shared or frozen. A repeat is a range of ops in which op i and op
 * i + period are equal and read the same tensors, or tensors that lie equally far back.
 * Repeats are found in the graph, not in the file, so a model that was written out layer
 * by layer has them too; a graph without any is a list of single ops.
 *
 * An edge is what ops share: a tensor, with the op that makes it and those that read
 * it, or a parameter, with its first user and the others.
 *
 * The deduplicated model has the first, the second and the last instance of each
 * repeat, and all ops outside of repeats: what is computed for it holds for the whole
 * model.
 */
#ifndef WEFT_STRUCTURE_H
#define WEFT_STRUCTURE_H

#include "model/model.h"

struct repeat {
    int first, period, count; /* ops first .. first + period * count - 1 */
    /* Offset in an instance of the op in front of which the fewest elements pass. A block
     * of the file need not begin there: the first block may differ from the others. */
    int seam;
};

struct edge {
    int origin; /* the op that makes the tensor, or the first user of the parameter */
    int tensor, param;  /* one of them; the other is -1 */
    int n;              /* readers, or further users */
    const int *readers; /* ops, ascending, each once */
};

/* An edge with at least this many readers is long-lived: one more than the readers of a
 * kind that graph.c compiles together (MOST_ALIKE). */
enum { LONG_LIVED_READERS = 4 };
static inline bool edge_is_long_lived(const struct edge *e) {
    return e->tensor >= 0 && e->n >= LONG_LIVED_READERS;
}

struct structure {
    int n_ops;
    uint64_t *alike; /* [n_ops] the same number for equal ops */
    int n_repeats;
    struct repeat *repeats; /* in order; they do not overlap */
    int *repeat_of;         /* [n_ops] index of the repeat, or -1 */
    int n_edges;
    struct edge *edges; /* by origin */
    int *edges_of;      /* [n_ops + 1] edges of op i: edges_of[i] .. edges_of[i + 1] - 1 */
    int n_readers, *readers; /* of all edges */
};

/* marks: [n_ops] only ops with the same mark may be equal; NULL: all may. */
void structure_find(const struct model *m, const uint64_t *marks, struct structure *s);
void structure_release(struct structure *s);

/* A unit is an instance of a repeat, from seam to seam, or an op outside of repeats. These
 * return whether one begins with this op, and how many there are. */
bool structure_begins_unit(const struct structure *s, int op);
int structure_units(const struct structure *s);
/* The first op of the unit that this op is in, and of the next unit that begins at or
 * behind this op (n_ops if none does). */
int structure_unit_of(const struct structure *s, int op);
int structure_next_unit(const struct structure *s, int op);

/* The number of the instance, within its repeat, that an op is in. */
int structure_instance(const struct structure *s, int op);

/* Returns the last op that reads the edge; its origin if none does. */
static inline int edge_last(const struct edge *e) {
    return e->n ? e->readers[e->n - 1] : e->origin;
}
/* Returns the index of the first reader at or behind op `first`; e->n if there is none. */
int edge_reader_from(const struct edge *e, int first);

struct dedup {
    struct model *model; /* shares names and dims with the whole one */
    /* [ops of the whole model + 1] the op of the deduplicated model that stands for it;
     * at the end, the number of these */
    int *of;
    /* [ops of the whole model + 1] how many instances it is behind that op */
    int *left_out;
    /* [ops of the deduplicated model] one op of the whole model that it stands for */
    int *from;
    int n_nodes;  /* all instances of a repeat share their nodes */
    int *node_of; /* [ops of the deduplicated model] */
};
void dedup_make(const struct model *m, const struct structure *s, struct dedup *x);
void dedup_release(struct dedup *x);
/* Returns the next op, in a stage from `first` on, that may have another layout than the
 * ops before it: instances of a repeated layer have the same layouts, so one period is
 * enough. */
int structure_next_distinct(const struct structure *st, int first, int op);

#endif
