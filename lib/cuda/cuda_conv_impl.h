/* cuda_conv_impl.h - what is settled about a convolution that was seen. */
#ifndef WEFT_CUDA_CONV_IMPL_H
#define WEFT_CUDA_CONV_IMPL_H

#include "cuda/cuda_convolution.h"
#include "cuda/cuda_dnn.h"

#include "common/hashtable.h"

/* Ways to do it: plan i of cuDNN, or */
enum { CONV_OWN = -1, CONV_PRODUCT = -2 };

struct conv_key {
    int64_t pass, dtype;
    struct kernel_conv s;
};

struct conv_entry {
    struct conv_key key;
    struct dnn_plans plans;
    enum dtype type_to; /* of the plans' result */
    int way;            /* that it is done */
    double us;          /* where it was measured; else 0 */
};

struct conv_picker {
    struct cuda_convolutions others; /* first: what the device knows of it */
    struct dnn *dnn; /* NULL before the first convolution, and where it is missing */
    bool missing;
    bool asked; /* for cuDNN: weft's kernels only where it has nothing */
    bool tunes;
    struct cuda_choices *choices; /* NULL, or what is known; borrowed */
    char *lacks;                  /* the caller's: why there is no cuDNN */
    size_t lacks_size;
    struct hashtable seen;
    ARR(struct conv_entry *) entries;
};

/* cuda_conv_known.c: windows of one tap, side by side: places are the rows of a matrix, channels its
 * columns. */
bool conv_is_product(const struct kernel_conv *s);
/* A gradient of images that cuDNN is asked for as a forward pass over dy, with padding at the other side and the
 * filter's taps in the other order. Of floats that are not rounded to TF32 its gradients of images have nothing but
 * the engine for all cases (9.19: 29 ms of 64 x 56 x 56 x 64 on an H100), and its forward passes a fast one (1.3). */
bool conv_mirrors(const struct conv_key *key, const struct cuda_call *c);
/* What cuDNN is asked for; sums of filters' gradients in floats. */
struct dnn_wish conv_wish(const struct conv_entry *e, const struct cuda_call *c);

/* Settles it as p->choices know it, if it can be done so here. Counts in p->choices. */
bool conv_known(const struct conv_picker *p, struct conv_entry *e,
                const struct cuda_call *c);
/* Tells p->choices how it was settled by trying, in e->us. Returns 0 or -1. */
int conv_found(const struct conv_picker *p, struct conv_entry *e,
               const struct cuda_call *c);

#endif
