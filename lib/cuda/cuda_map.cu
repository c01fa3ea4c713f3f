/* Elementwise instructions: activations, sums, scalings, conversions.
 *
 * One kernel, map, calls a function of one element with vectors of 16 bytes; memory is what takes the
 * time. The formulas are those of lib/device/kernel_act.c: the tanh form of GELU is x times a logistic
 * function, 1 / (1 + e^-z), which does not cancel where 1 + tanh does.
 */
#include "cuda/cuda_block.h"

/* The operands of a map: up to three, and up to two results, any of which may be an operand. */
template <typename T> struct operands {
    const T *in[3];
    T *out[2];
};

template <typename T, int IN, int OUT, typename F>
CUDA_KERNEL void map(int64_t n, int64_t head, F f, operands<T> o) {
    each<T>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float in[IN][L], out[OUT][L];
#pragma unroll
        for (int k = 0; k < IN; k++)
            load(o.in[k] + j, lanes, in[k]);
#pragma unroll
        for (int i = 0; i < L; i++) {
            float x[IN], y[OUT];
#pragma unroll
            for (int k = 0; k < IN; k++)
                x[k] = in[k][i];
            f(x, y);
#pragma unroll
            for (int k = 0; k < OUT; k++)
                out[k][i] = y[k];
        }
#pragma unroll
        for (int k = 0; k < OUT; k++)
            store(o.out[k] + j, lanes, out[k]);
    });
}

template <int IN, int OUT, typename F>
static int launch_map(struct cuda_call *c, int64_t n, F f, const void *a, const void *b,
                      const void *d, void *y, void *z) {
    const bool vectors = aligned(a, b, d, y, z);
    if (n > 0)
        CUDA_TYPED(c->args->dtype, T, {
            const operands<T> o = {{(const T *)a, (const T *)b, (const T *)d},
                                   {(T *)y, (T *)z}};
            CUDA_LAUNCH((map<T, IN, OUT, F>), blocks_of(n, BLOCK * vector_of<T>::N), BLOCK,
                        0, c->stream, n, vectors ? 0 : n, f, o);
        });
    return 0;
}

/* ---- activations -------------------------------------------------------------------------- */

#define GELU_C 0.7978845608028654f /* sqrt(2 / pi) */

/* e^-z, kept finite so that e / (1 + e) is 1 and not NaN for very negative z. */
CUDA_DEVICE float exp_minus(float z) {
    return expf(fminf(87.0f, -z));
}

struct gelu {
    CUDA_MEMBER void operator()(const float *x, float *y) const {
        const float z = *x * fmaf(*x * *x, 2 * GELU_C * 0.044715f, 2 * GELU_C);
        *y = *x / (1 + exp_minus(z));
    }
};

/* x s(z(x)) has the derivative s + x s (1 - s) z'. */
struct gelu_slope {
    CUDA_MEMBER void operator()(const float *in, float *dx) const {
        const float x = fminf(100.0f, fmaxf(-100.0f, in[0])); /* 0 or 1 long before that */
        const float z = x * fmaf(x * x, 2 * GELU_C * 0.044715f, 2 * GELU_C);
        const float dz = fmaf(x * x, 6 * GELU_C * 0.044715f, 2 * GELU_C);
        const float e = exp_minus(z), s = 1 / (1 + e);
        *dx = fmaf(x * s * dz, e * s, s) * in[1];
    }
};

/* One that is no number comes through. */
struct relu {
    CUDA_MEMBER void operator()(const float *x, float *y) const {
        *y = *x > 0 || *x != *x ? *x : 0;
    }
};
struct relu_slope {
    CUDA_MEMBER void operator()(const float *in, float *dx) const {
        *dx = (in[0] > 0 ? 1.0f : 0.0f) * in[1];
    }
};

struct silu {
    CUDA_MEMBER void operator()(const float *x, float *y) const {
        *y = *x / (1 + exp_minus(*x));
    }
};
struct silu_slope {
    CUDA_MEMBER void operator()(const float *in, float *dx) const {
        const float e = exp_minus(in[0]), s = 1 / (1 + e);
        *dx = fmaf(in[0] * s, e * s, s) * in[1];
    }
};

struct sigmoid {
    CUDA_MEMBER void operator()(const float *x, float *y) const {
        *y = 1 / (1 + exp_minus(*x));
    }
};
struct sigmoid_slope {
    CUDA_MEMBER void operator()(const float *in, float *dx) const {
        const float e = exp_minus(in[0]), s = 1 / (1 + e);
        *dx = s * (e * s) * in[1];
    }
};

struct hyperbolic {
    CUDA_MEMBER void operator()(const float *x, float *y) const {
        *y = tanhf(*x);
    }
};
/* 1 - tanh^2 = 4 s (1 - s) with s = s(2x), which does not cancel far out. */
struct hyperbolic_slope {
    CUDA_MEMBER void operator()(const float *in, float *dx) const {
        const float e = exp_minus(2 * in[0]), s = 1 / (1 + e);
        *dx = 4 * s * (e * s) * in[1];
    }
};

struct relu2 {
    CUDA_MEMBER void operator()(const float *x, float *y) const {
        relu()(x, y);
        *y *= *y;
    }
};
struct relu2_slope {
    CUDA_MEMBER void operator()(const float *in, float *dx) const {
        *dx = 2 * fmaxf(0.0f, in[0]) * in[1];
    }
};

/* The share of a normal distribution below x. */
CUDA_DEVICE float normal_below(float x) {
    return 0.5f * erfcf(-0.7071067811865476f * x);
}

struct gelu_erf {
    CUDA_MEMBER void operator()(const float *x, float *y) const {
        *y = *x * normal_below(*x);
    }
};
struct gelu_erf_slope {
    CUDA_MEMBER void operator()(const float *in, float *dx) const {
        const float x = fminf(100.0f, fmaxf(-100.0f, in[0])); /* 0 or 1 long before that */
        const float bell = 0.3989422804014327f * expf(-0.5f * x * x);
        *dx = fmaf(x, bell, normal_below(x)) * in[1];
    }
};

#define ACTIVATION(id, f, slope)                                                           \
    CUDA_FUNCTION(id) {                                                                    \
        return launch_map<1, 1>(c, n->elems, f(), in->x, NULL, NULL, out->y, NULL);        \
    }                                                                                      \
    CUDA_FUNCTION(id##_dx) {                                                               \
        return launch_map<2, 1>(c, n->elems, slope(), in->x, in->dy, NULL, out->dx, NULL); \
    }
ACTIVATION(gelu, gelu, gelu_slope)
ACTIVATION(relu, relu, relu_slope)
ACTIVATION(silu, silu, silu_slope)
ACTIVATION(tanh, hyperbolic, hyperbolic_slope)
ACTIVATION(gelu_erf, gelu_erf, gelu_erf_slope)
ACTIVATION(relu2, relu2, relu2_slope)
ACTIVATION(sigmoid, sigmoid, sigmoid_slope)

/* y = cap tanh(x / cap). */
struct softcap {
    float cap;
    CUDA_MEMBER void operator()(const float *x, float *y) const {
        *y = cap * tanhf(*x / cap);
    }
};
struct softcap_slope {
    float cap;
    CUDA_MEMBER void operator()(const float *in, float *dx) const {
        const float scaled[] = {in[0] / cap, in[1]};
        hyperbolic_slope()(scaled, dx);
    }
};

CUDA_FUNCTION(softcap) {
    const struct softcap by = {c->args->scale};
    return launch_map<1, 1>(c, n->elems, by, in->x, NULL, NULL, out->y, NULL);
}

CUDA_FUNCTION(softcap_dx) {
    const struct softcap_slope by = {c->args->scale};
    return launch_map<2, 1>(c, n->elems, by, in->x, in->dy, NULL, out->dx, NULL);
}

struct swiglu {
    CUDA_MEMBER void operator()(const float *in, float *y) const {
        *y = in[0] / (1 + exp_minus(in[0])) * in[1];
    }
};
/* With s = sigmoid(x): dx = dy z (s + x s (1 - s)), dz = dy x s. */
struct swiglu_slopes {
    CUDA_MEMBER void operator()(const float *in, float *d) const {
        const float x = in[0], e = exp_minus(x), s = 1 / (1 + e);
        d[0] = fmaf(x * s, e * s, s) * in[1] * in[2];
        d[1] = x * s * in[2];
    }
};

CUDA_FUNCTION(swiglu) {
    return launch_map<2, 1>(c, n->elems, swiglu(), in->x, in->z, NULL, out->y, NULL);
}

CUDA_FUNCTION(swiglu_bwd) {
    return launch_map<3, 2>(c, n->elems, swiglu_slopes(), in->x, in->z, in->dy, out->dx,
                            out->dz);
}

struct geglu {
    CUDA_MEMBER void operator()(const float *in, float *y) const {
        gelu()(in, y);
        *y *= in[1];
    }
};
struct geglu_slopes {
    CUDA_MEMBER void operator()(const float *in, float *d) const {
        const float slope[] = {in[0], in[1] * in[2]};
        float y;
        gelu()(in, &y);
        gelu_slope()(slope, d);
        d[1] = y * in[2];
    }
};

CUDA_FUNCTION(geglu) {
    return launch_map<2, 1>(c, n->elems, geglu(), in->x, in->z, NULL, out->y, NULL);
}

CUDA_FUNCTION(geglu_bwd) {
    return launch_map<3, 2>(c, n->elems, geglu_slopes(), in->x, in->z, in->dy, out->dx,
                            out->dz);
}

/* ---- sums and scalings -------------------------------------------------------------------- */

struct add {
    CUDA_MEMBER void operator()(const float *in, float *y) const {
        *y = in[0] + in[1];
    }
};
struct scale {
    float alpha;
    CUDA_MEMBER void operator()(const float *x, float *y) const {
        *y = alpha * *x;
    }
};

CUDA_FUNCTION(add) {
    return launch_map<2, 1>(c, n->elems, add(), in->a, in->b, NULL, out->y, NULL);
}

CUDA_FUNCTION(scale) {
    const struct scale by = {c->args->scale};
    return launch_map<1, 1>(c, n->elems, by, in->x, NULL, NULL, out->y, NULL);
}

/* p is `inner` elements, again and again. Vectors do not cross its end: inner is a multiple of theirs,
 * or there are none. */
template <typename T>
CUDA_KERNEL void bias(int64_t n, int64_t inner, int64_t head, const T *x, const T *p,
                      T *y) {
    each<T>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float a[L], b[L];
        load(x + j, lanes, a);
        load(p + (j - quotient(j, inner) * inner), lanes, b);
#pragma unroll
        for (int i = 0; i < L; i++)
            a[i] += b[i];
        store(y + j, lanes, a);
    });
}

/* p begins at an element of its buffer. */
static int launch_bias(struct cuda_call *c, int64_t elems, int64_t inner, const void *x,
                       const void *p, int64_t begin, void *y) {
    if (elems > 0)
        CUDA_TYPED(c->args->dtype, T, {
            const T *from = (const T *)p + begin;
            const bool rows = row_head<T>(inner, aligned(x, from, y)) == 0;
            CUDA_LAUNCH(bias<T>, blocks_of(elems, BLOCK * vector_of<T>::N), BLOCK, 0,
                        c->stream, elems, inner, rows ? 0 : elems, (const T *)x, from,
                        (T *)y);
        });
    return 0;
}

CUDA_FUNCTION(bias) {
    return launch_bias(c, n->elems, n->inner, in->x, in->p, 0, out->y);
}

CUDA_FUNCTION(rows) {
    const int64_t inner = n->rows * n->inner;
    return launch_bias(c, n->outer * inner, inner, in->x, in->table,
                       c->args->first * n->inner, out->y);
}

/* ---- conversions -------------------------------------------------------------------------- */

/* A vector of floats is half a one of the other type. */
template <typename FROM, typename TO>
CUDA_KERNEL void convert(int64_t n, int64_t head, const FROM *x, TO *y) {
    enum { V = vector_of<float>::N };
    each_of<V>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        float v[decltype(lanes)::N];
        load(x + j, lanes, v);
        store(y + j, lanes, v);
    });
}

template <typename FROM, typename TO>
static void launch_convert(struct cuda_call *c, int64_t n, const void *x, void *y) {
    if (n > 0)
        CUDA_LAUNCH((convert<FROM, TO>), blocks_of(n, BLOCK * 8), BLOCK, 0, c->stream, n,
                    aligned(x, y) ? 0 : n, (const FROM *)x, (TO *)y);
}

/* cuda_optim.cu has the other way. */
CUDA_FUNCTION(widen) {
    switch (c->args->dtype) {
    case DTYPE_bf16: launch_convert<bf16, float>(c, n->elems, in->x, out->y); break;
    case DTYPE_f16: launch_convert<f16, float>(c, n->elems, in->x, out->y); break;
    default: CUDA_MOVE(c->stream, out->y, in->x, n->elems * 4);
    }
    return 0;
}
