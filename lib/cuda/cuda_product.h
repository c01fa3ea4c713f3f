/* cuda_product.h - products of matrices by cuBLASLt.
 *
 * Matrices are row-major, as everywhere in weft. The library's are column-major: to it a row-major
 * matrix is its own transpose, so y = a b is asked for as y^T = b^T a^T, with the operands exchanged.
 * Sums are floats. How the library computes a product (its algorithm) is settled when the product is
 * first seen: what is known from before (cuda_choices), else the heuristic's first choice, or, where the
 * device tunes, the fastest of its choices. So is whether an epilogue that weft can do without is taken.
 */
#ifndef WEFT_CUDA_PRODUCT_H
#define WEFT_CUDA_PRODUCT_H

#include "cuda/cuda.h"
#include "cuda/cuda_impl.h"

/* What the library does to the product besides. Profiles keep the numbers. GELU is that of tanh. */
enum cuda_epilogue {
    PRODUCT_PLAIN,
    PRODUCT_BIAS,          /* y += vector, in each row */
    PRODUCT_SUMS_A,        /* vector = sums over k of op(a): [m] */
    PRODUCT_SUMS_B,        /* vector = sums over k of op(b): [n] */
    PRODUCT_GELU,          /* y = gelu of the product */
    PRODUCT_GELU_BIAS,     /* of the product and the bias */
    PRODUCT_GELU_AUX,      /* the same, and aux = what it is the GELU of */
    PRODUCT_GELU_AUX_BIAS, /* the same with the bias */
    PRODUCT_DGELU          /* y = the product times the slope of GELU at aux */
};

/* y[m,n] = op(a)[m,k] op(b)[k,n], or y += it: `batch` of them. */
struct cuda_product {
    enum dtype type, type_y; /* of a and b; of y: that or f32 */
    bool ta, tb;             /* a lies as [k,m], b as [n,k] */
    bool add;
    enum cuda_epilogue epilogue;
    int64_t m, n, k;
    int64_t lda, ldb, ldy;          /* elements from row to row */
    int64_t batch;                  /* at least 1 */
    int64_t step_a, step_b, step_y; /* elements from one to the next */
};

/* Addresses on the device. */
struct cuda_operands {
    const void *a, *b;
    void *y;
    void *vector; /* of the epilogue: of type a's for a bias, floats for sums */
    void *aux;    /* of the epilogue: [m,n] of y's type, rows as far apart as y's */
    bool fresh;   /* of a product that adds to y: y is written this time */
};

/* The library's handle, and what is settled about products that were seen. */
struct cuda_products *cuda_products_create(const struct cuda_device *dev, bool tunes,
                                           struct err *err);
void cuda_products_destroy(struct cuda_products *p);
/* What is known of products, and hears what is found; NULL: nothing. Borrowed. */
void cuda_products_know(struct cuda_products *p, struct cuda_choices *choices);
/* From here on new products are tried (operands are scratch), or are not. */
void cuda_products_tune(struct cuda_products *p, bool tunes);

/* Puts the product on the call's stream. `workspace` bytes at the end of the call's are free. Returns
 * 0, -1, or 1 where the library has no such product with this epilogue: never of PRODUCT_PLAIN. */
int cuda_product(struct cuda_call *c, const struct cuda_product *p,
                 const struct cuda_operands *o, void *workspace, int64_t workspace_bytes);

/* Two ways to the same results: the product with its epilogue, and what is left to do behind it; or without
 * it, and passes of weft's own. Both give to the stream of the call that they get, and return 0 or -1. */
struct cuda_rivals {
    int (*apart)(struct cuda_call *c, const void *arg);
    int (*behind)(struct cuda_call *c, const void *arg); /* NULL: nothing is left */
    const void *arg;
};

/* Goes one of them, which is settled when the product is first seen. What is known of it counts
 * (cuda_choices). Else, where the device tunes, both are tried, and what was found is kept; where it does
 * not, it is apart. Returns 1 with the epilogue, 0 apart, or -1. */
int cuda_product_either(struct cuda_call *c, const struct cuda_product *p,
                        const struct cuda_operands *o, void *workspace,
                        int64_t workspace_bytes, const struct cuda_rivals *rivals);

#endif
