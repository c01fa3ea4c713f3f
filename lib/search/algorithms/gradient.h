/* gradient.h - what the files of gradient share: the shape of a pipeline as a problem that
 * lib/solve/relax/relax.h solves by descent.
 *
 *     struct gradient_shape *g = gradient_shape_make(ev, &candidate);
 *     ... relax_race(...) over g->relaxed ...
 *     gradient_decode(sp, g, &answer, &candidate);
 *     gradient_shape_free(g);
 */
#ifndef WEFT_GRADIENT_H
#define WEFT_GRADIENT_H

#include "search/state.h"
#include "solve/relax/relax.h"

enum {
    GRADIENT_UNITS = 64,  /* units at most; the ops are cut between them */
    GRADIENT_CHOICES = 8, /* layouts of a node at most */
};

/* Stages that have equal costs: the same number of devices, and the same layouts in the
 * candidate that the shape was made from. */
struct gradient_stage_type {
    const struct prefix *t;
    const struct candidate *c;
    int k;           /* one of these stages */
    double in_stage; /* instances of blocks in a stage, on average */
    /* The solver knows one memory limit for all stages: bytes are scaled by the memory
     * of the smallest device over that of the stage's own devices. */
    double scale;
    struct relax_costs costs;
    /* [nodes x GRADIENT_CHOICES]; number 0 is the layout of the candidate */
    struct layout *layouts;
    int *n_layouts; /* [nodes] */
};

/* Everything that a candidate decides except cuts, layouts and recompute: the number
 * and devices of its stages, micro-batch, schedule, ZeRO. */
struct gradient_shape {
    struct candidate c; /* a copy of the candidate */
    struct arena arena;
    struct relax_problem relaxed;
    int bound[GRADIENT_UNITS + 1]; /* the first op of every unit, and the end */
    int *class_of;                 /* [nodes] */
    int n_types, *type_of;         /* type_of: [stages] */
    struct gradient_stage_type *types;
};

struct gradient_shape *gradient_shape_make(struct evaluate *ev, const struct candidate *c);
void gradient_shape_free(struct gradient_shape *g);

/* Returns the first op of the unit that represents all units of a repeat: the second unit
 * if there are more than two, since the first and the last have other neighbours. */
int gradient_unit_of_repeat(const struct repeat *r);
/* Fills the layouts and costs of a type of stage. The units and classes of the shape
 * are already known (gradient_costs.c). */
void gradient_price(struct evaluate *ev, struct gradient_shape *g,
                    struct gradient_stage_type *type);

/* Writes the candidate that an answer for this shape stands for; it need not be legal. */
void gradient_decode(const struct space *sp, const struct gradient_shape *g,
                     const struct relax_answer *a, struct candidate *out);

#endif
