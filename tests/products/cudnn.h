/* cudnn.h - a fake of cuDNN's graph API: what lib/cuda asks of it, in plain loops over
 * strides.
 *
 * It computes when a plan is executed, on memory of the host. It is strict: names, types and
 * counts of attributes, the order in which descriptions are finished, shapes that go
 * together, ids, alignments that were promised and the workspace are checked, and what is
 * wrong is an answer that the library would give. Its engines differ in what is noted about
 * them, in time and in workspace, and it knows how often each ran.
 *
 *     fake_cudnn.none = true;           // the heuristics list nothing
 */
#ifndef WEFT_FAKE_CUDNN_H
#define WEFT_FAKE_CUDNN_H

#include "cuda/cuda_dnn_impl.h"

#include <stdbool.h>

/* In the order in which the heuristic lists them. */
enum fake_engine {
    FAKE_TENSOR_CORE,
    FAKE_ANY_ORDER, /* not deterministic: the fastest */
    FAKE_WINOGRAD,
    FAKE_LARGE,   /* takes more workspace than there is */
    FAKE_REFUSED, /* when a plan is to be made of it */
    FAKE_PLAIN,   /* takes all the workspace that there is */
    FAKE_FAILING, /* when it runs */
    FAKE_COMPILED,
    FAKE_COMPILED_TOO, /* would be the fastest but for its compilation */
    FAKE_ENGINES
};

enum { FAKE_CUDNN_VERSION = 91900 };

extern struct fake_cudnn {
    bool none;               /* the heuristics list nothing */
    bool no_mixed;           /* nor where the result is of another type than operands */
    bool only_failing;       /* they list what fails when it runs */
    int runs[FAKE_ENGINES];  /* of each engine */
    int plans, opened, live; /* made; handles; descriptors that are not destroyed */
    int heuristics;          /* how often they were asked */
    size_t version;          /* of the library; 0 = FAKE_CUDNN_VERSION */
    cudaStream_t stream;     /* of the last run */
    const char *wrong;       /* the first thing that was not as it must be */
} fake_cudnn;

/* Milliseconds that all runs have taken. */
double fake_cudnn_ms(void);

/* Each function that is called, as fake_NAME. */
#define FAKE_CUDNN_DECLARE(name) extern __typeof__(name) fake_##name;
DNN_LIBRARY(FAKE_CUDNN_DECLARE)

#endif
