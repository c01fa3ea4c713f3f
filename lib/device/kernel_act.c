/* Activations and their derivatives.
 *
 * The tanh form of GELU is x times a logistic function: (1 + tanh u) / 2 = 1 / (1 + e^-2u),
 * so GELU and SiLU share one formula and need one exponential and one inverse. It is also
 * the accurate form: for large negative x, 1 + tanh u cancels and 1 / (1 + e^-2u) does not.
 */
#include "kernel_impl.h"
#include "kernel_tanh.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#define GELU_C 0.7978845608028654f /* sqrt(2 / pi) */

VEC vf gelu(vf x) {
    vf z = x * v_fma(x * x, v_set(2 * GELU_C * 0.044715f), v_set(2 * GELU_C));
    return x * v_inverse(1.0f + exp_minus(z));
}

/* x s(z(x)) has the derivative s + x s (1 - s) z'. */
VEC vf gelu_slope(vf x) {
    x = v_min(v_set(100.0f), v_max(v_set(-100.0f), x)); /* 0 or 1 long before that */
    vf xx = x * x;
    vf z = x * v_fma(xx, v_set(2 * GELU_C * 0.044715f), v_set(2 * GELU_C));
    vf dz = v_fma(xx, v_set(6 * GELU_C * 0.044715f), v_set(2 * GELU_C));
    vf e = exp_minus(z), s = v_inverse(1.0f + e);
    return v_fma(x * s * dz, e * s, s);
}

VEC vf silu(vf x) {
    return x * v_inverse(1.0f + exp_minus(x));
}

VEC vf silu_slope(vf x) {
    vf e = exp_minus(x), s = v_inverse(1.0f + e);
    return v_fma(x * s, e * s, s);
}

VEC vf sigmoid(vf x) {
    return v_inverse(1.0f + exp_minus(x));
}

VEC vf sigmoid_slope(vf x) {
    vf e = exp_minus(x), s = v_inverse(1.0f + e);
    return s * (e * s);
}

VEC vf relu(vf x) {
    return v_max(v_set(0.0f), x);
}

/* 1 where x > 0, else 0: the comparison's lanes are all ones or zero. */
VEC vf relu_slope(vf x) {
    return (vf)((vi)(x > 0.0f) & (vi)v_set(1.0f));
}

VEC vf relu2(vf x) {
    x = relu(x);
    return x * x;
}

VEC vf relu2_slope(vf x) {
    return 2.0f * relu(x);
}

/* ln of erfc(z) e^(zz) / t for t = 1 / (1 + z/2), z >= 0: Chebyshev's fit of Press et al., Numerical
 * Recipes, 1992. What comes of it is good to 1.2e-7 of the value, however small that is. */
VEC vf log_erfc(vf t) {
    static const float fit[] = {0.17087277f, -0.82215223f, 1.48851587f, -1.13520398f,
                                0.27886807f, -0.18628806f, 0.09678418f, 0.37409196f,
                                1.00002368f, -1.26551223f};
    vf p = v_set(fit[0]);
    for (int i = 1; i < 10; i++)
        p = v_fma(p, t, v_set(fit[i]));
    return p;
}

/* The share of a normal distribution below x, and e^(-xx/2). */
VEC vf normal_below(vf x, vf *bell) {
    const vf far = v_min(v_set(13.0f), v_max(x, -x)); /* the rest is 0 in a float */
    const vf t = v_inverse(v_fma(far, v_set(0.35355339059327373f), v_set(1.0f)));
    *bell = v_exp(-0.5f * far * far);
    const vf tail = 0.5f * t * *bell * v_exp(log_erfc(t));
    const vi below = (vi)(x < 0.0f);
    return (vf)((below & (vi)tail) | (~below & (vi)(1.0f - tail)));
}

VEC vf gelu_erf(vf x) {
    vf bell;
    return x * normal_below(x, &bell);
}

VEC vf gelu_erf_slope(vf x) {
    vf bell, below = normal_below(x, &bell);
    x = v_min(v_set(100.0f), v_max(v_set(-100.0f), x));
    return v_fma(x * v_set(0.3989422804014327f), bell, below);
}

/* One loop for each function of a vector: F(x), or F(x) * dy. */
#define MAP(NAME, F)                                                                       \
    static void NAME(int64_t n, const T *x, T *y) {                                        \
        int64_t i = 0;                                                                     \
        for (; i + VL <= n; i += VL)                                                       \
            v_store(y + i, F(v_load(x + i)));                                              \
        if (i < n)                                                                         \
            v_store_n(y + i, n - i, F(v_load_n(x + i, n - i)));                            \
    }
#define MAP_DX(NAME, F)                                                                    \
    static void NAME(int64_t n, const T *x, const T *dy, T *dx) {                          \
        int64_t i = 0;                                                                     \
        for (; i + VL <= n; i += VL)                                                       \
            v_store(dx + i, F(v_load(x + i)) * v_load(dy + i));                            \
        if (i < n)                                                                         \
            v_store_n(dx + i, n - i, F(v_load_n(x + i, n - i)) * v_load_n(dy + i, n - i)); \
    }

MAP(gelu_range, gelu)
MAP(relu_range, relu)
MAP(silu_range, silu)
MAP(tanh_range, tanh_of)
MAP(gelu_erf_range, gelu_erf)
MAP(relu2_range, relu2)
MAP(sigmoid_range, sigmoid)
MAP_DX(gelu_dx_range, gelu_slope)
MAP_DX(relu_dx_range, relu_slope)
MAP_DX(silu_dx_range, silu_slope)
MAP_DX(tanh_dx_range, tanh_slope)
MAP_DX(gelu_erf_dx_range, gelu_erf_slope)
MAP_DX(relu2_dx_range, relu2_slope)
MAP_DX(sigmoid_dx_range, sigmoid_slope)

static void (*const act_range[])(int64_t, const T *, T *) = {
    [KERNEL_GELU] = gelu_range,         [KERNEL_RELU] = relu_range,
    [KERNEL_SILU] = silu_range,         [KERNEL_TANH] = tanh_range,
    [KERNEL_GELU_ERF] = gelu_erf_range, [KERNEL_RELU2] = relu2_range,
    [KERNEL_SIGMOID] = sigmoid_range,
};
static void (*const act_dx_range[])(int64_t, const T *, const T *, T *) = {
    [KERNEL_GELU] = gelu_dx_range,         [KERNEL_RELU] = relu_dx_range,
    [KERNEL_SILU] = silu_dx_range,         [KERNEL_TANH] = tanh_dx_range,
    [KERNEL_GELU_ERF] = gelu_erf_dx_range, [KERNEL_RELU2] = relu2_dx_range,
    [KERNEL_SIGMOID] = sigmoid_dx_range,
};

void kernel_act(enum kernel_act act, int64_t n, const T *x, T *y) {
    KERNEL_SPLIT(n, VL, n, act_range[act](end - first, x + first, y + first));
}

void kernel_act_dx(enum kernel_act act, int64_t n, const T *x, const T *dy, T *dx) {
    KERNEL_SPLIT(n, VL, n,
                 act_dx_range[act](end - first, x + first, dy + first, dx + first));
}

/* ---- soft caps ------------------------------------------------------------------------------ */

static void softcap_range(int64_t n, float cap, const T *x, T *y) {
    const vf most = v_set(cap), over = v_set(1 / cap);
    for (int64_t i = 0; i < n; i += VL) {
        const int64_t lanes = n - i < VL ? n - i : VL;
        v_store_n(y + i, lanes, most * tanh_of(v_load_n(x + i, lanes) * over));
    }
}

static void softcap_dx_range(int64_t n, float cap, const T *x, const T *dy, T *dx) {
    const vf over = v_set(1 / cap);
    for (int64_t i = 0; i < n; i += VL) {
        const int64_t lanes = n - i < VL ? n - i : VL;
        v_store_n(dx + i, lanes,
                  tanh_slope(v_load_n(x + i, lanes) * over) * v_load_n(dy + i, lanes));
    }
}

void kernel_softcap(int64_t n, float cap, const T *x, T *y) {
    KERNEL_SPLIT(n, VL, n, softcap_range(end - first, cap, x + first, y + first));
}

void kernel_softcap_dx(int64_t n, float cap, const T *x, const T *dy, T *dx) {
    KERNEL_SPLIT(n, VL, n,
                 softcap_dx_range(end - first, cap, x + first, dy + first, dx + first));
}

/* ---- gates ---------------------------------------------------------------------------------- */

/* With s = sigmoid(x): dx = dy z (s + x s (1 - s)), dz = dy x s. */
VEC void swiglu_slopes(vf x, vf z, vf dy, vf *dx, vf *dz) {
    vf e = exp_minus(x), s = v_inverse(1.0f + e);
    *dz = x * s * dy;
    *dx = v_fma(x * s, e * s, s) * z * dy;
}

VEC void geglu_slopes(vf x, vf z, vf dy, vf *dx, vf *dz) {
    *dz = gelu(x) * dy;
    *dx = gelu_slope(x) * z * dy;
}

/* y = F(x) z, and what slopes says of both. */
#define GATE(NAME, F)                                                                      \
    static void NAME##_range(int64_t n, const T *x, const T *z, T *y) {                    \
        int64_t i = 0;                                                                     \
        for (; i + VL <= n; i += VL)                                                       \
            v_store(y + i, F(v_load(x + i)) * v_load(z + i));                              \
        if (i < n)                                                                         \
            v_store_n(y + i, n - i, F(v_load_n(x + i, n - i)) * v_load_n(z + i, n - i));   \
    }                                                                                      \
    static void NAME##_bwd_range(int64_t n, const T *x, const T *z, const T *dy, T *dx,    \
                                 T *dz) {                                                  \
        vf a, b;                                                                           \
        int64_t i = 0;                                                                     \
        for (; i + VL <= n; i += VL) {                                                     \
            NAME##_slopes(v_load(x + i), v_load(z + i), v_load(dy + i), &a, &b);           \
            v_store(dx + i, a);                                                            \
            v_store(dz + i, b);                                                            \
        }                                                                                  \
        if (i < n) {                                                                       \
            NAME##_slopes(v_load_n(x + i, n - i), v_load_n(z + i, n - i),                  \
                          v_load_n(dy + i, n - i), &a, &b);                                \
            v_store_n(dx + i, n - i, a);                                                   \
            v_store_n(dz + i, n - i, b);                                                   \
        }                                                                                  \
    }                                                                                      \
    void kernel_##NAME(int64_t n, const T *x, const T *z, T *y) {                          \
        KERNEL_SPLIT(n, VL, n,                                                             \
                     NAME##_range(end - first, x + first, z + first, y + first));          \
    }                                                                                      \
    void kernel_##NAME##_bwd(int64_t n, const T *x, const T *z, const T *dy, T *dx,        \
                             T *dz) {                                                      \
        KERNEL_SPLIT(n, VL, n,                                                             \
                     NAME##_bwd_range(end - first, x + first, z + first, dy + first,       \
                                      dx + first, dz + first));                            \
    }
GATE(swiglu, silu)
GATE(geglu, gelu)
