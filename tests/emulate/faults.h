/* faults.h - kernels of faults.cu, each with one fault that the watcher has to find, and without it. */
#ifndef WEFT_EMULATE_FAULTS_H
#define WEFT_EMULATE_FAULTS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum fault {
    NO_SYNCTHREADS,  /* what another warp wrote to shared memory is read */
    LATE_WRITE,      /* written while another warp still reads */
    NO_SYNCWARP,     /* what another lane wrote is read: a shuffle is between */
    TWO_BLOCKS,      /* write an element */
    BLOCK_READS,     /* what another block writes */
    PLAIN_READ,      /* of what others count atomically */
    NO_WAIT,         /* a thread reads what its own copy writes */
    NO_BARRIER,      /* a thread reads what another's copy has written */
    EARLY_COPY,      /* begins into what others still read */
    CHANGED_SOURCE,  /* of a copy under way */
    NO_PRODUCT_WAIT, /* an operand of a product is overwritten too early */
    NO_PUBLISH,      /* of an operand */
    SHARED_GARBAGE,  /* is read */
    GLOBAL_GARBAGE,  /* is read */
    FAULTS
};

/* Runs it on x[FAULT_NUMBERS] and y[FAULT_NUMBERS]. */
enum { FAULT_NUMBERS = 128 };
void fault_run(enum fault fault, bool right, int *x, int *y);
/* A warp reads every stride-th of x[FAULT_NUMBERS] once, and writes as much of shared memory. */
void strides_run(int stride, const int *x);

#ifdef __cplusplus
}
#endif

#endif
