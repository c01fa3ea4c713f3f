/* bound_impl.h - what the relaxations behind bound.h share: the space that is left
 * when the micro-batch and the kinds of devices are fixed, and the costs of ops in it. */
#ifndef WEFT_BOUND_IMPL_H
#define WEFT_BOUND_IMPL_H

#include "search/bound/op_bounds.h"

#include <stdlib.h>

enum {
    BOUND_DEVICES = 1024, /* with more, lower bounds take longer than a search */
    MOST_FLIGHTS = 32,    /* different numbers of micro-batches in flight */
    BYTE_DUALS = 10,
    RATES = 4,
};

/* Kinds of devices, each with its op_bounds. A group on several kinds counts as one on
 * the kind that is cheapest at the multipliers: on that kind it takes no more time and
 * memory than it really does. */
struct classes {
    int n;
    struct {
        struct op_bounds *op_bounds;
        int devices;
        double memory;
    } of[CLUSTER_MAX_GROUPS];
};

/* A straight line a + b T that bounds what a group can do in time T. */
struct line {
    double a, b;
};

struct relaxed {
    struct evaluate *ev;
    struct classes *classes;
    double m;      /* number of micro-batches */
    int most_size; /* of a group, in devices; 0: all */
    int64_t micro_batch;
    int groups, chunks;
    /* devices of a group, and their class */
    int n_sizes, sizes[BOUND_DEVICES], class[BOUND_DEVICES];
    /* [devices of a group] index of the size that they count as */
    int size_of[BOUND_DEVICES + 1];
    /* [size] the number of first-class devices that do as much */
    double share[BOUND_DEVICES];
    double devices; /* of the whole job, counted in first-class devices */
    int n_flights, flights[MOST_FLIGHTS];
    int n_duals;
    double byte_dual[BYTE_DUALS]; /* microseconds per byte */
    int n_ops;
    /* ranges of the deduplicated model that stand for several instances of a repeat */
    int n_stretches;
    struct {
        int first, end;
    } * repeated;
    /* [ops of the deduplicated model] number of ops of the model that each stands for */
    double *weight;
    struct place {
        int x, run;
        double times;
    } * places;      /* [ops of the model + 1] where the sum before an op is found */
    double *cost;    /* [size][flight][byte dual][op] microseconds over a step */
    double *forward; /* [size][op] the least forward time of a micro-batch */
    double *micro;   /* [size][op] the least time of a micro-batch, forward and backward */
    struct line *lines; /* [size][flight][byte dual * RATES] */
    double worth;       /* the sum of the duals over the whole model */
};

/* Fills everything except lines and worth; false if some op cannot be done on any
 * number of devices. */
bool relaxed_make(struct relaxed *r);
void relaxed_release(struct relaxed *r);

static inline double *costs_at(const struct relaxed *r, int size, int flight, int dual) {
    return r->cost +
           ((int64_t)(size * r->n_flights + flight) * r->n_duals + dual) * r->n_ops;
}

/* Returns the index of the largest of `flights` that a group with this many groups behind
 * it is sure to hold. */
int flight_at(const struct relaxed *r, int groups_behind);

/* ---- sums over stretches of the whole model ---------------------------------------------- */

/* Sums over ops of the deduplicated model: before each of them, and over one instance
 * of each repeat that stands for several. */
struct sums {
    double *until, *instance;
};
struct sums sums_make(const struct relaxed *r, const double *of_op);
/* Writes the same sums before each op of the whole model: [ops + 1]. */
void sums_write_out(const struct relaxed *r, const double *of_op, double *to);
static inline void sums_release(struct sums *s) {
    free(s->until);
}

static inline double sums_before(const struct relaxed *r, const struct sums *s, int op) {
    const struct place *p = &r->places[op];
    return p->times > 0 ? s->until[p->x] + p->times * s->instance[p->run] : s->until[p->x];
}

static inline double sums_between(const struct relaxed *r, const struct sums *s, int first,
                                  int end) {
    return sums_before(r, s, end) - sums_before(r, s, first);
}

#endif
