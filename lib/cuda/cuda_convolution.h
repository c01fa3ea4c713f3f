/* cuda_convolution.h - the three passes of a convolution, and who does them.
 *
 * Weft's own kernels do all (cuda_conv.cu). Where a device has others too, these are asked
 * first, and may decline. Images are channels-last, weights [taps, taps, in, out], gradients
 * of weights floats, which are added to.
 */
#ifndef WEFT_CUDA_CONVOLUTION_H
#define WEFT_CUDA_CONVOLUTION_H

#include "cuda/cuda_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of a shape of instr.def (conv2d_n, conv2d_dx_n, conv2d_dw_n). */
#define CONV_OF(n)                                                                         \
    {                                                                                      \
        (n)->batch, (n)->ih, (n)->iw, (n)->cin, (n)->oh, (n)->ow, (n)->cout, (n)->kh,      \
            (n)->kw, (n)->stride, (n)->ph, (n)->pw                                         \
    }

/* An instruction; its addresses are the device's.
 * forward: y = x * w;  data: dx from dy, w;  weights: dw += from x, dy */
struct convolution {
    enum kernel_pass pass;
    struct kernel_conv s;
    const void *from[2]; /* x w, dy w, or x dy */
    void *to;            /* y, dx, or dw */
};

/* Gives weft's own kernels to the call's stream. Returns 0 or -1. */
int cuda_convolution_own(struct cuda_call *c, const struct convolution *v);

/* Others that do convolutions. A call of run(): 0, -1, or 1 where they leave this one to
 * weft's own kernels. */
struct cuda_convolutions {
    int (*run)(struct cuda_call *c, const struct convolution *v);
};
/* cuDNN and weft's own kernels, the faster one (cuda_conv_pick.c); asked: cuDNN wherever it
 * can, and an error where the library is missing. It is opened with the first convolution;
 * why it cannot be is put into `lacks`, of `size` bytes. */
struct cuda_convolutions *cuda_convolutions_create(bool asked, bool tunes, char *lacks,
                                                   size_t size);
void cuda_convolutions_destroy(struct cuda_convolutions *p);
/* What is known of convolutions, and hears what is found; NULL: nothing. Borrowed. */
struct cuda_choices;
void cuda_convolutions_know(struct cuda_convolutions *p, struct cuda_choices *choices);
/* From here on new convolutions are tried (operands are scratch), or are not. NULL: nothing
 * to do. */
void cuda_convolutions_tune(struct cuda_convolutions *p, bool tunes);

/* y[columns, rows] = x[rows, columns]^T of elements of 2 or 4 bytes; y += it, x of a type of
 * floats. */
void cuda_turn(struct cuda_call *c, int64_t rows, int64_t columns, int bytes, const void *x,
               void *y);
void cuda_turn_add(struct cuda_call *c, int64_t rows, int64_t columns, enum dtype dtype,
                   const void *x, float *y);
/* y[rows, taps, columns] = x[taps, rows, columns], the last tap first. */
void cuda_turn_taps(struct cuda_call *c, int64_t taps, int64_t rows, int64_t columns,
                    const float *x, float *y);

#ifdef __cplusplus
}
#endif

#endif
