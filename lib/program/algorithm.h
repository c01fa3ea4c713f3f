/* algorithm.h - the fastest algorithm found for what a GPU's library computes, as profiles
 * remember it and devices use it.
 */
#ifndef WEFT_ALGORITHM_H
#define WEFT_ALGORITHM_H

#include <stdint.h>

/* What a GPU's library computes, and the algorithm that was found fastest. It is plain
 * bytes, which may be copied and sent; weft-profile(5) says what the texts are. */
struct library_algorithm {
    char device[64];  /* what the GPU is, whatever name its rows of op have */
    char problem[16]; /* "product", "conv2d", "conv2d_dx", "conv2d_dw" */
    int64_t library;  /* version of the library: 130101 is 13.1.1; 0 = there is none */
    char shape[352];  /* numbers of the problem */
    char dtype[8], dtype_y[8]; /* of its operands, "tf32" among them; of its result */
    char algorithm[160];       /* in words of the library, which this version reads */
    int64_t workspace_bytes;   /* that the algorithm takes */
    double least_us;           /* least time of its trials */
};

#endif
