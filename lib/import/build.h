/* build.h - inside the importer: from what a program does to the document of a model.
 *
 * In this order: the loss and what it needs, blocks that repeat, names, the document. */
#ifndef WEFT_BUILD_H
#define WEFT_BUILD_H

#include "import/follow.h"

/* A result that one instance of a block hands to the next. */
struct carried {
    int place; /* of the op in the block that makes it */
    int first; /* the op that makes what the first instance reads */
    bool lead,
        trail; /* a sum of one operand has to give it its name, before or in the block */
    const char *name, *inner;
};

/* Consecutive instances of one block. */
struct run {
    const char *prefix; /* "model.layers" */
    int64_t number;     /* of its first instance there: 0 */
    int begin;          /* of build.order */
    int ops, instances; /* ops in each */
    const char *name;   /* of the block */
    const char *count;  /* the size that says how many */
    ARR(struct carried) carried;
};

struct build {
    struct follow *t;
    ARR(int) order; /* the ops that matter, without inputs */
    ARR(struct run) runs;
    const char **dim; /* by class of atoms; NULL = no name yet */
    json_t *sizes;    /* names -> sizes of dims and counts of blocks */
    int *uses,
        *first;  /* by parameter: how many ops have all of it, and the first in the order */
    int batch;   /* class */
    int targets; /* the op that is the targets' input */
};

/* build_loss.c: the loss, and the ops that it needs. Refuses what has no op. */
int build_loss(struct build *b, struct err *err);
/* build_repeat.c */
void build_repeats(struct build *b);
/* The run that an op of the order stands in, or NULL. */
struct run *build_run_at(struct build *b, int at);
/* build_mend.c: dims that are two all along, where the kind of an op wants one. */
void build_mend(struct build *b);
/* build_names.c: dims, then ops and what they make. */
int build_names(struct build *b, struct err *err);
/* The name of an atom's dim. */
const char *build_dim(const struct build *b, int atom);
/* build_weights.c: the section, or NULL where a file cannot be described. */
json_t *build_weights(struct build *b);
/* The dims that an op has a parameter under. */
struct axis build_param_dims(struct build *b, int at, int slot);
/* What the program calls a parameter; NULL where it has none. */
static inline const char *build_path(const struct build *b, int param) {
    int value = b->t->params.p[param].value;
    return value < 0 ? NULL : b->t->p->values.p[value].path;
}
/* The parameters that stay as they begin, as patterns; NULL: there are none. */
json_t *build_frozen(const struct build *b);
/* What a parameter is called in its op. */
const char *build_slot(const struct found_op *op, int slot);
#endif
