/* The three instructions of convolutions (cuda_convolution.h). */
#include "cuda/cuda_convolution.h"

static int convolve(struct cuda_call *c, const struct convolution *v) {
    struct cuda_convolutions *others = c->dev->convolutions;
    const int rc = others ? others->run(c, v) : 1;
    return rc > 0 ? cuda_convolution_own(c, v) : rc;
}

CUDA_FUNCTION(conv2d) {
    const struct convolution v = {KERNEL_FORWARD, CONV_OF(n), {in->x, in->w}, out->y};
    return convolve(c, &v);
}

CUDA_FUNCTION(conv2d_dx) {
    const struct convolution v = {KERNEL_DATA, CONV_OF(n), {in->dy, in->w}, out->dx};
    return convolve(c, &v);
}

CUDA_FUNCTION(conv2d_dw) {
    const struct convolution v = {KERNEL_WEIGHTS, CONV_OF(n), {in->x, in->dy}, out->dw};
    return convolve(c, &v);
}
