/* cuda_muon.h - the passes between the products that make a matrix orthogonal (cuda_orthogonal.c).
 *
 *     cuda_muon_normalize(c, rows, columns, ld, u, x);
 *     ... a = x x^T, b = a a ... cuda_muon_polynomial(c, rows, 1, a, b);
 *
 * Addresses are the device's. Both return 0 or -1.
 */
#ifndef WEFT_CUDA_MUON_H
#define WEFT_CUDA_MUON_H

#include "cuda/cuda_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x[rows, columns] = u over its norm; u has so many floats from row to row. The first of the workspace holds
 * the sums of the blocks. */
int cuda_muon_normalize(struct cuda_call *c, int64_t rows, int64_t columns, int64_t ld,
                        const float *u, float *x);
/* b[side, side], the square of a, becomes scale times the polynomial that a step multiplies with. */
int cuda_muon_polynomial(struct cuda_call *c, int64_t side, float scale, const float *a,
                         float *b);

#ifdef __cplusplus
}
#endif

#endif
