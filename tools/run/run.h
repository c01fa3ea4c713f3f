/* run.h - the parts of weft-run: options and the training loop. */
#ifndef WEFT_RUN_H
#define WEFT_RUN_H

#include "exec/exec.h"

struct run_options {
    const char *data, *valid_data;
    double validation;
    int64_t steps, seed; /* seed < 0: 1, or that of the checkpoint */
    double lr, min_lr;   /* NAN = the default of the optimizer, a tenth of lr */
    int64_t warmup;      /* < 0: a tenth of the steps */
    double clip, weight_decay, beta1, beta2, momentum;
    int64_t valid_every, valid_batches;
    const char *save, *resume;
    int64_t save_every, keep;
    int64_t threads; /* 0 = a fair share */
    const char *trace;
    bool timing, explain, dry_run;
};

/* Trains; called by all ranks. Metrics on rank 0's stdout. */
int run_train(struct comm *comm, const struct program *g, const struct run_options *o,
              struct err *err);

#endif
