/* cuda_norm.h - norms with the sum of a residual in the same pass.
 *
 * The numbers are those of the instructions one behind the other, to the bit: sums are rounded to the type
 * before they are normed, gradients before they are added to.
 */
#ifndef WEFT_CUDA_NORM_H
#define WEFT_CUDA_NORM_H

#include "cuda/cuda_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* in->x = add->a + add->b, which is written, and its norm; rows are whole. The arguments are the norm's. */
int cuda_add_layernorm(struct cuda_call *c, const struct layernorm_n *n,
                       const struct add_src *add, const struct layernorm_src *in,
                       const struct layernorm_dst *out);
int cuda_add_rmsnorm(struct cuda_call *c, const struct rmsnorm_n *n,
                     const struct add_src *add, const struct rmsnorm_src *in,
                     const struct rmsnorm_dst *out);

/* The norm's gradients, and y = dx + g; dx is written, too, unless y has its place. */
int cuda_layernorm_bwd_add(struct cuda_call *c, const struct layernorm_bwd_n *n,
                           const struct layernorm_bwd_src *in,
                           const struct layernorm_bwd_dst *out, const void *g, void *y);
int cuda_rmsnorm_bwd_add(struct cuda_call *c, const struct rmsnorm_bwd_n *n,
                         const struct rmsnorm_bwd_src *in,
                         const struct rmsnorm_bwd_dst *out, const void *g, void *y);

#ifdef __cplusplus
}
#endif

#endif
