/* predict.h - what weft-predict has found out, and the two forms in which it says so. */
#ifndef WEFT_PREDICT_H
#define WEFT_PREDICT_H

#include "cost/estimate.h"
#include "cost/runtime.h"
#include "cost/scenario.h"
#include "cost/simulate.h"
#include "cost/waterfall.h"

#include <stdio.h>

struct predict {
    struct plan *plan;
    struct cluster cluster;
    struct runtime *runtime;        /* whose code; NULL: weft's */
    struct cost_provider *provider; /* NULL: memory alone is asked for */
    struct program *program;
    struct cost cost;
    struct simulation sim;       /* of times, only with a provider */
    struct scenario *scenario;   /* what goes wrong; NULL: nothing */
    struct scenario_steps steps; /* under it */
    double estimate_us;          /* the closed form, beside the simulated time */
    bool falls;                  /* the waterfall is asked for */
    struct waterfall waterfall;
    int threads; /* of a rank, as far as its kind of device says */
};

/* "weft-prediction/1". */
json_t *predict_json(const struct predict *p);
/* A table for people. */
void predict_text(const struct predict *p, FILE *f);

/* Goodput under p->scenario (predict_scenario.c). */
json_t *predict_scenario_json(const struct predict *p);
void predict_scenario_text(const struct predict *p, FILE *f);

/* Where the time of a step goes (predict_waterfall.c). */
json_t *predict_waterfall_json(const struct predict *p);
void predict_waterfall_text(const struct predict *p, FILE *f);

/* Floating point operations of a step: forward and twice as much backward, without what
 * is recomputed. */
double predict_flops(const struct predict *p);

#endif
