/* predict.h - what weft-predict has found out, and the two forms in which it says so. */
#ifndef WEFT_PREDICT_H
#define WEFT_PREDICT_H

#include "cost/estimate.h"
#include "cost/simulate.h"

struct predict {
    struct plan *plan;
    struct cluster cluster;
    struct profile_times *times;
    struct program *program;
    struct cost cost;
    struct simulation sim;
    double estimate_us; /* the closed form, beside the simulated time */
};

/* "weft-prediction/1"; path "-" is stdout. */
int predict_write_json(const struct predict *p, const char *path, struct err *err);
/* A table for people. */
int predict_write_text(const struct predict *p, const char *path, struct err *err);

/* Floating point operations of a step: forward and twice as much backward, without what is
 * made again. */
double predict_flops(const struct predict *p);

#endif
