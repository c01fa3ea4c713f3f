/* cuda_product_impl.h - what is settled about a product that was seen. */
#ifndef WEFT_CUDA_PRODUCT_IMPL_H
#define WEFT_CUDA_PRODUCT_IMPL_H

#include "cuda/cuda_product.h"

#include "cuda/cuda_library.h"

#include <cublasLt.h>

/* What of cuBLASLt is called. */
#define PRODUCT_LIBRARY(X)                                                                 \
    X(cublasLtGetVersion)                                                                  \
    X(cublasLtCreate)                                                                      \
    X(cublasLtDestroy)                                                                     \
    X(cublasLtMatmulDescCreate)                                                            \
    X(cublasLtMatmulDescDestroy)                                                           \
    X(cublasLtMatmulDescSetAttribute)                                                      \
    X(cublasLtMatrixLayoutCreate)                                                          \
    X(cublasLtMatrixLayoutDestroy)                                                         \
    X(cublasLtMatrixLayoutSetAttribute)                                                    \
    X(cublasLtMatmulPreferenceCreate)                                                      \
    X(cublasLtMatmulPreferenceDestroy)                                                     \
    X(cublasLtMatmulPreferenceSetAttribute)                                                \
    X(cublasLtMatmulAlgoGetHeuristic)                                                      \
    X(cublasLtMatmulAlgoCheck)                                                             \
    X(cublasLtMatmul)

/* A product and how its operands are aligned: the library's kernels ask for both. */
struct product_key {
    struct cuda_product p;
    int align_a, align_b, align_y; /* bytes: 2, 4, 8 or 16 */
    int align_vector, align_aux;   /* the same, of what the epilogue has; else 0 */
    bool tf32;
};

struct product_entry {
    struct product_key key;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, y; /* the library's a is our b */
    bool known;                     /* there is an algorithm */
    bool none;                      /* there is not, or apart is the faster way */
    bool before;                    /* the algorithm is one that was known before */
    bool refused;                   /* that one failed: it is not taken again */
    cublasLtMatmulAlgo_t algo;
    int64_t workspace_bytes; /* of it, where it was chosen here */
    double us;               /* where it was measured; else 0 */
};

struct cuda_products {
    struct {
        CUDA_LIBRARY_TABLE(PRODUCT_LIBRARY)
    } lt;
    cublasLtHandle_t handle;
    bool tunes, tf32;
    bool fixed; /* nothing is tried: what is known counts, or the first choice */
    struct cuda_choices *choices; /* NULL, or what is known; borrowed */
    int64_t version;              /* of the library */
    int64_t n, cap;
    struct product_entry **entries;
    int64_t *slots; /* by hash: index + 1, 0 = empty; a power of two of them */
    int64_t n_slots;
};

static inline bool product_has_vector(enum cuda_epilogue e) {
    return e == PRODUCT_BIAS || e == PRODUCT_SUMS_A || e == PRODUCT_SUMS_B ||
           e == PRODUCT_GELU_BIAS || e == PRODUCT_GELU_AUX_BIAS;
}
static inline bool product_has_aux(enum cuda_epilogue e) {
    return e == PRODUCT_GELU_AUX || e == PRODUCT_GELU_AUX_BIAS || e == PRODUCT_DGELU;
}
/* Is there another way, which may be the faster one? */
static inline bool product_has_rival(enum cuda_epilogue e) {
    return e != PRODUCT_PLAIN && e != PRODUCT_BIAS;
}

/* What was settled about this product, or a new entry; NULL on failure. */
struct product_entry *product_entry(struct cuda_products *p, const struct cuda_product *q,
                                    const struct cuda_operands *o, struct err *err);

/* Sets entry->algo by the heuristic, or by trying what that offers. Returns 0, -1, or 1 where there is
 * none. */
int product_choose(struct cuda_products *p, struct product_entry *e,
                   const struct cuda_operands *o, void *workspace, int64_t workspace_bytes,
                   cudaStream_t stream, struct err *err);
/* The same, but what is known comes first, and what was found by trying is kept. */
int product_pick(struct cuda_products *p, struct product_entry *e,
                 const struct cuda_operands *o, void *workspace, int64_t workspace_bytes,
                 cudaStream_t stream, struct err *err);
/* Tells the library where the epilogue's vector and aux lie: it chooses by that, too. */
cublasStatus_t product_point(const struct cuda_products *p, const struct product_entry *e,
                             const struct cuda_operands *o);

/* cuda_product_known.c: sets entry->algo to what p->choices know, if the library does it so here, within
 * so much workspace; or entry->none, where apart is known to be the way. Counts in p->choices. */
bool product_known(const struct cuda_products *p, struct product_entry *e,
                   const struct cuda_operands *o, int64_t workspace_bytes);
/* The library failed with it after all: another is to be picked. */
void product_refuse(const struct cuda_products *p, struct product_entry *e);
/* Tells p->choices what was found by trying: entry->algo, or that apart is the way, in e->us. */
int product_found(const struct cuda_products *p, const struct product_entry *e,
                  struct err *err);

cublasStatus_t product_run(const struct cuda_products *p, const struct product_entry *e,
                           const cublasLtMatmulAlgo_t *algo, const struct cuda_operands *o,
                           void *workspace, int64_t workspace_bytes, cudaStream_t stream);

#endif
