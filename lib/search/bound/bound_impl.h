/* bound_impl.h - what the relaxations behind bound.h share: the space that is left when one micro-batch
 * and kinds of devices are fixed, and what ops cost in it. */
#ifndef WEFT_BOUND_IMPL_H
#define WEFT_BOUND_IMPL_H

#include "search/bound/op_bounds.h"

#include <stdlib.h>

enum {
    BOUND_DEVICES = 1024, /* beyond, lower bounds take longer than a search */
    MOST_FLIGHTS = 32,    /* numbers of micro-batches in flight */
    BYTE_PRICES = 10,
    RATES = 4,
};

/* Kinds of devices, each with its op_bounds. A group on several kinds counts as one of the kind
 * that its price makes cheapest: on that it takes no more time and memory. */
struct classes {
    int n;
    struct {
        struct op_bounds *op_bounds;
        int devices;
        double memory;
    } of[CLUSTER_MAX_GROUPS];
};

/* A straight line that bounds what a group takes: a + b T. */
struct line {
    double a, b;
};

struct relaxed {
    struct evaluate *ev;
    struct classes *classes;
    double m;      /* micro-batches */
    int most_size; /* of a group, in devices; 0: all */
    int64_t micro_batch;
    int groups, chunks;
    int n_sizes, sizes[BOUND_DEVICES],
        class[BOUND_DEVICES]; /* devices of a group, their class */
    int size_of[BOUND_DEVICES +
                1]; /* by devices of a group: the size as which they count */
    /* of them, in devices of the first class that do as much */
    double share[BOUND_DEVICES];
    double devices; /* all of them, counted so */
    int n_flights, flights[MOST_FLIGHTS];
    int n_prices;
    double byte_price[BYTE_PRICES]; /* microseconds */
    int n_ops;
    int n_stretches; /* stretches of the deduplicated model that stand for several instances of a repeat */
    struct {
        int first, end;
    } * repeated;
    double
        *weight; /* [ops of the deduplicated model] ops of the model that it stands for */
    struct place {
        int x, run;
        double times;
    } * places;         /* [ops of the model + 1] where sums before an op are */
    double *cost;       /* [size][flight][byte price][op] over a step */
    double *forward;    /* [size][op] what it computes going forward at least */
    double *micro;      /* [size][op] of a micro-batch, forward and backward */
    struct line *lines; /* [size][flight][byte price * RATES] */
    double worth;       /* of the whole model */
};

/* Fills all but lines and worth; false where some op can be done on no number of devices. */
bool relaxed_make(struct relaxed *r);
void relaxed_release(struct relaxed *r);

static inline double *costs_at(const struct relaxed *r, int size, int flight, int price) {
    return r->cost +
           ((int64_t)(size * r->n_flights + flight) * r->n_prices + price) * r->n_ops;
}

/* The largest number of flights that a group with so many behind it holds at least. */
int flight_at(const struct relaxed *r, int groups_behind);

/* ---- sums over stretches of the whole model ---------------------------------------------- */

/* Of what ops of the deduplicated model have: before each of them; and of one instance of each run that stands for
 * several. */
struct sums {
    double *until, *instance;
};
struct sums sums_make(const struct relaxed *r, const double *of_op);
/* The same before each op of the whole model, [ops + 1]. */
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
