/* gradient.h - what the files of gradient share: a shape of pipeline in numbers that lib/solve/relax/relax.h
 * descends on.
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
    GRADIENT_UNITS = 64,  /* at most; cuts are between them */
    GRADIENT_CHOICES = 8, /* layouts of a node */
};

/* Stages that cost alike: equally many devices, the same layouts at the start. */
struct gradient_sort {
    const struct prefix *t;
    const struct candidate *c;
    int k;           /* one of the stages */
    double in_stage; /* instances of blocks in a stage, on average */
    /* of its bytes: the memory of the smallest device, as a share of its own */
    double scale;
    struct relax_costs costs;
    /* [nodes x GRADIENT_CHOICES]: number 0 is the one to begin with */
    struct layout *layouts;
    int *n_layouts; /* [nodes] */
};

/* What a candidate is besides cuts, layouts and recompute: number and devices of its stages,
 * micro-batch, schedule, ZeRO. */
struct gradient_shape {
    struct candidate c; /* its own */
    struct arena arena;
    struct relax_problem relaxed;
    int bound[GRADIENT_UNITS + 1]; /* ops */
    int *class_of;                 /* by node */
    int n_sorts, *sort_of;         /* [stages] */
    struct gradient_sort *sorts;
};

struct gradient_shape *gradient_shape_make(struct evaluate *ev, const struct candidate *c);
void gradient_shape_free(struct gradient_shape *g);

/* Where the unit begins that represents those of its repeat: one in the middle, if there is one. */
int gradient_unit_of_repeat(const struct repeat *r);
/* Fills the layouts and costs of a sort of a shape whose units and classes are known
 * (gradient_costs.c). */
void gradient_price(struct evaluate *ev, struct gradient_shape *g,
                    struct gradient_sort *sort);

/* The candidate that an answer for this shape means; it need not be legal. */
void gradient_decode(const struct space *sp, const struct gradient_shape *g,
                     const struct relax_answer *a, struct candidate *out);

#endif
