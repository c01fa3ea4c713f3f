/* cuda_conv.h - the three passes of a convolution as products of matrices whose elements are found where
 * they lie (an implicit product): no patches are stored.
 *
 * pass       result [rows, columns]          contracted
 * forward    y      [places of y, cout]      taps, cin
 * data       dx     [places of x, cin]       taps, cout
 * weights    dw     [taps cin, cout]         places of y, in parts: their sums stand in the workspace
 */
#ifndef WEFT_CUDA_CONV_H
#define WEFT_CUDA_CONV_H

#include "cuda/cuda_block.h"

/* Where x has what tap k (of taps, cin) of the window of a place of y sees, or -1: outside. */
CUDA_DEVICE int64_t in_window(const struct kernel_conv &s, int64_t place, int64_t k) {
    const struct digits at = digits_of(place, s.oh, s.ow), tap = digits_of(k, s.kw, s.cin);
    const int64_t h = at.middle * s.stride - s.ph + tap.high;
    const int64_t w = at.low * s.stride - s.pw + tap.middle;
    if (h < 0 || h >= s.ih || w < 0 || w >= s.iw)
        return -1;
    return ((at.high * s.ih + h) * s.iw + w) * s.cin + tap.low;
}

/* Where dy has what tap k (of taps, cout) says of a place of x, or -1: none of its windows has the place
 * at this tap. One that begins at oh * stride - ph has it at h if that and the tap's row make h. */
CUDA_DEVICE int64_t of_window(const struct kernel_conv &s, int64_t place, int64_t k) {
    const struct digits at = digits_of(place, s.ih, s.iw), tap = digits_of(k, s.kw, s.cout);
    const int64_t h = at.middle + s.ph - tap.high, w = at.low + s.pw - tap.middle;
    if (h < 0 || w < 0)
        return -1;
    const int64_t oh = quotient(h, s.stride), ow = quotient(w, s.stride);
    if (oh * s.stride != h || ow * s.stride != w || oh >= s.oh || ow >= s.ow)
        return -1;
    return ((at.high * s.oh + oh) * s.ow + ow) * s.cout + tap.low;
}

/* The passes on the tensor cores (cuda_conv_mma.cu): of bf16 and f16, and of floats where TF32 is asked for, where
 * channels are multiples of 16 bytes and operands lie on 16 bytes; false where they are not. Gradients of weights: sums of `parts` parts of the
 * places, in part[parts][taps cin][cout]. */
bool cuda_conv_mma(struct cuda_call *c, const struct kernel_conv *s, const void *x,
                   const void *w, void *y);
bool cuda_conv_mma_dx(struct cuda_call *c, const struct kernel_conv *s, const void *dy,
                      const void *w, void *dx);
bool cuda_conv_mma_dw(struct cuda_call *c, const struct kernel_conv *s, int64_t parts,
                      const void *x, const void *dy, float *part);

#endif
