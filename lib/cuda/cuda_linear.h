/* cuda_linear.h - the products of linear layers, for those who give them an epilogue. */
#ifndef WEFT_CUDA_LINEAR_H
#define WEFT_CUDA_LINEAR_H

#include "cuda/cuda_product.h"

/* y = x w, without the bias; dx = dy w^T. Operands are, in turn, x and w, dy and w. */
struct cuda_product cuda_linear_product(const struct linear_n *n, enum dtype type);
struct cuda_product cuda_linear_dx_product(const struct linear_dx_n *n, enum dtype type);

/* The library has as much workspace as is planned for a product, though a stream may have more: what is
 * chosen with so much in one program can be taken in any other. */
static inline int64_t cuda_product_workspace(const struct cuda_call *c) {
    const int64_t planned = CUDA_WORKSPACE_PRODUCT;
    return c->workspace_bytes < planned ? c->workspace_bytes : planned;
}

#endif
