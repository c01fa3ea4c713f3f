/* cublaslt.h - a fake of cuBLASLt: what lib/cuda asks of it, in plain loops over column-major matrices.
 *
 * It computes when it is called, on memory of the host; beside the fake of the CUDA runtime
 * (tests/fake/cudart.h) when its turn comes on the stream. It is strict: leading dimensions, batches,
 * alignments that were promised and the workspace are checked, and what is wrong is an answer that the
 * library would give. It has a few algorithms that differ in nothing but their number, and knows how
 * often each ran.
 *
 *     fake_cublaslt.no_bias = true;     // the heuristic has none for the bias
 *     fake_cublaslt.plain = true;       // nor for any other epilogue
 */
#ifndef WEFT_FAKE_CUBLASLT_H
#define WEFT_FAKE_CUBLASLT_H

#include "cuda/cuda_product_impl.h"

#include <stdbool.h>

enum { FAKE_ALGORITHMS = 3, FAKE_VERSION = 130100 };

extern struct fake_cublaslt {
    bool no_bias;              /* the heuristic offers nothing for this epilogue */
    bool plain;                /* and nothing for the others */
    bool none;                 /* nor for products alone */
    cublasStatus_t no;         /* how it says so; 0 = CUBLAS_STATUS_NOT_SUPPORTED */
    bool no_preference;        /* alignments are a wrong value */
    int failing;               /* this algorithm, counted from 1, fails when it runs */
    bool left_error;           /* it did, and CUDA's last error tells of it */
    size_t version;            /* of the library; 0 = FAKE_VERSION */
    int runs[FAKE_ALGORITHMS]; /* of each algorithm */
    int epilogues;             /* runs with one that is neither none nor the bias alone */
    int heuristics, checks; /* how often the heuristic was asked, and algorithms checked */
    const char *wrong;      /* the first thing that was not as it must be */
} fake_cublaslt;

/* Each function that is called, as fake_NAME. */
#define FAKE_CUBLASLT_DECLARE(name) extern __typeof__(name) fake_##name;
PRODUCT_LIBRARY(FAKE_CUBLASLT_DECLARE)

#endif
