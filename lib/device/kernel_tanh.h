/* kernel_tanh.h - the hyperbolic tangent of 16 floats, and its slope. */
#ifndef WEFT_KERNEL_TANH_H
#define WEFT_KERNEL_TANH_H

#include "kernel_vec.h"

/* e^-z, kept finite so that e / (1 + e) is 1 and not NaN for very negative z. */
VEC vf exp_minus(vf z) {
    return v_exp(v_min(v_set(87.0f), -z));
}

/* tanh x = 2 s(2x) - 1 cancels near 0, where the odd series x - x^3/3 + 2x^5/15 - 17x^7/315 is
 * good to 1e-8 of x below 0.15. */
VEC vf tanh_of(vf x) {
    vf xx = x * x;
    vf series =
        v_fma(xx, v_fma(xx, v_set(-17.0f / 315), v_set(2.0f / 15)), v_set(-1.0f / 3));
    vf small = v_fma(x * xx, series, x);
    vf large = 2.0f * v_inverse(1.0f + exp_minus(2.0f * x)) - 1.0f;
    vi near = (vi)(xx < 0.0225f);
    return (vf)((near & (vi)small) | (~near & (vi)large));
}

/* 1 - tanh^2 = 4 s (1 - s) with s = s(2x), which does not cancel far out. */
VEC vf tanh_slope(vf x) {
    vf e = exp_minus(2.0f * x), s = v_inverse(1.0f + e);
    return 4.0f * s * (e * s);
}

#endif
