/* Optimizer steps and the norm of the gradient: one pass over the state. */
#include "kernel_impl.h"
#include "kernel_vec.h"

struct adamw {
    struct kernel_adamw how;
    float m_fix, v_fix; /* 1/(1 - beta1^t) and the root of 1/(1 - beta2^t) */
};

VEC void adamw_step(const struct adamw *o, vf *p, vf g, vf *m, vf *v) {
    const struct kernel_adamw *how = &o->how;
    g *= how->grad_scale;
    *m = v_fma(v_set(how->beta1), *m, (1.0f - how->beta1) * g);
    *v = v_fma(v_set(how->beta2), *v, (1.0f - how->beta2) * g * g);
    vf step = (*m * o->m_fix) / v_fma(v_sqrt(*v), v_set(o->v_fix), v_set(how->eps));
    *p -= how->lr * v_fma(v_set(how->decay), *p, step);
}

static void adamw_range(const struct adamw *o, int64_t n, float *p, const float *g,
                        float *m, float *v) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf pp = v_load(p + i), mm = v_load(m + i), vv = v_load(v + i);
        adamw_step(o, &pp, v_load(g + i), &mm, &vv);
        v_store(p + i, pp);
        v_store(m + i, mm);
        v_store(v + i, vv);
    }
    if (i < n) {
        int64_t rest = n - i;
        vf pp = v_load_n(p + i, rest), mm = v_load_n(m + i, rest),
           vv = v_load_n(v + i, rest);
        adamw_step(o, &pp, v_load_n(g + i, rest), &mm, &vv);
        v_store_n(p + i, rest, pp);
        v_store_n(m + i, rest, mm);
        v_store_n(v + i, rest, vv);
    }
}

void kernel_adamw(const struct kernel_adamw *how, int64_t n, float *p, const float *g,
                  float *m, float *v) {
    const struct adamw o = {
        .how = *how,
        .m_fix = (float)(1.0 / (1.0 - pow(how->beta1, (double)how->t))),
        .v_fix = (float)sqrt(1.0 / (1.0 - pow(how->beta2, (double)how->t))),
    };
    KERNEL_SPLIT(n, VL, n,
                 adamw_range(&o, end - first, p + first, g + first, m + first, v + first));
}

static void sgd_range(int64_t n, float *p, const float *g, float *b, float grad_scale,
                      float lr, float momentum, float decay) {
    for (int64_t i = 0; i < n; i++) {
        b[i] = momentum * b[i] + (grad_scale * g[i] + decay * p[i]);
        p[i] -= lr * b[i];
    }
}

void kernel_sgd(int64_t n, float *p, const float *g, float *b, float grad_scale, float lr,
                float momentum, float decay) {
    KERNEL_SPLIT(n, 16, n,
                 sgd_range(end - first, p + first, g + first, b + first, grad_scale, lr,
                           momentum, decay));
}

static void lion_range(const struct kernel_adamw *how, int64_t n, float *p, const float *g,
                       float *m) {
    for (int64_t i = 0; i < n; i++) {
        const float d = how->grad_scale * g[i];
        const float c = how->beta1 * m[i] + (1.0f - how->beta1) * d;
        const float sign = (float)((c > 0) - (c < 0));
        m[i] = how->beta2 * m[i] + (1.0f - how->beta2) * d;
        p[i] -= how->lr * (sign + how->decay * p[i]);
    }
}

void kernel_lion(const struct kernel_adamw *how, int64_t n, float *p, const float *g,
                 float *m) {
    KERNEL_SPLIT(n, 16, n, lion_range(how, end - first, p + first, g + first, m + first));
}

/* 32 sums side by side hide the latency of the additions. */
static double sum_squares_range(int64_t n, const float *x) {
    enum { LANES = 32 };
    double sum[LANES] = {0}, total = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            sum[l] += (double)x[i + l] * (double)x[i + l];
    for (; i < n; i++)
        total += (double)x[i] * (double)x[i];
    for (int l = 0; l < LANES; l++)
        total += sum[l];
    return total;
}

double kernel_sum_squares(int64_t n, const float *x) {
    double slice[KERNEL_SLICES], total = 0;
    KERNEL_SPLIT(KERNEL_SLICES, 1, n, {
        for (int64_t s = first; s < end; s++) {
            int64_t lo = kernel_cut(n, VL, (int)s, KERNEL_SLICES);
            int64_t hi = kernel_cut(n, VL, (int)s + 1, KERNEL_SLICES);
            slice[s] = sum_squares_range(hi - lo, x + lo);
        }
    });
    for (int s = 0; s < KERNEL_SLICES; s++)
        total += slice[s];
    return total;
}
