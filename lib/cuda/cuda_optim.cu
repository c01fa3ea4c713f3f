/* Steps of the optimizer and the norm of the gradient: one pass over the state, in floats. */
#include "cuda/cuda_sum.h"

/* ---- the norm ----------------------------------------------------------------------------- */

/* Squares in double; four sums side by side, as a vector has numbers. */
CUDA_KERNEL void sum_squares(int64_t n, int64_t head, const float *g, double *part) {
    double sum[4] = {0, 0, 0, 0};
    each<float>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L];
        load(g + j, lanes, v);
#pragma unroll
        for (int i = 0; i < L; i++)
            sum[i] += (double)v[i] * (double)v[i];
    });
    const double all = block_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    if (threadIdx.x == 0)
        part[blockIdx.x] = all;
}

CUDA_FUNCTION(sum_squares) {
    (void)out;
    if (n->elems == 0 || !c->args->counts)
        return 0;
    const unsigned blocks = cuda_sum_blocks(c, n->elems, BLOCK * 8);
    if (!blocks)
        return -1;
    CUDA_LAUNCH(sum_squares, blocks, BLOCK, 0, c->stream, n->elems,
                aligned(in->g) ? 0 : n->elems, (const float *)in->g,
                (double *)c->workspace);
    return cuda_sum_finish(c, blocks, &c->args->scalars->norm_squared, NULL, 1);
}

/* ---- steps -------------------------------------------------------------------------------- */

struct adamw {
    float beta1, beta2, eps, decay;
};

/* p -= lr (mhat / (sqrt(vhat) + eps) + decay p). What the number of updates makes of the betas is
 * worked out once per block, in double. */
CUDA_KERNEL void adamw(struct adamw o, int64_t n, int64_t head, const struct scalars *now,
                       const float *g, float *p, float *m, float *v) {
    __shared__ float fix[2]; /* 1 / (1 - beta1^t) and the root of 1 / (1 - beta2^t) */
    if (threadIdx.x == 0) {
        fix[0] = (float)(1.0 / (1.0 - pow((double)o.beta1, (double)now->updates)));
        fix[1] = (float)sqrt(1.0 / (1.0 - pow((double)o.beta2, (double)now->updates)));
    }
    __syncthreads();
    const float m_fix = fix[0], v_fix = fix[1], lr = now->lr, grad_scale = now->grad_scale;
    each<float>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float gg[L], pp[L], mm[L], vv[L];
        load(g + j, lanes, gg);
        load(p + j, lanes, pp);
        load(m + j, lanes, mm);
        load(v + j, lanes, vv);
#pragma unroll
        for (int i = 0; i < L; i++) {
            const float d = gg[i] * grad_scale;
            mm[i] = fmaf(o.beta1, mm[i], (1 - o.beta1) * d);
            vv[i] = fmaf(o.beta2, vv[i], (1 - o.beta2) * d * d);
            const float step = mm[i] * m_fix / fmaf(sqrtf(vv[i]), v_fix, o.eps);
            pp[i] -= lr * fmaf(o.decay, pp[i], step);
        }
        store(p + j, lanes, pp);
        store(m + j, lanes, mm);
        store(v + j, lanes, vv);
    });
}

CUDA_FUNCTION(adamw) {
    const struct adamw o = {c->args->beta1, c->args->beta2, c->args->opt_eps,
                            c->args->decay};
    const int64_t head = aligned(in->g, out->p, out->m, out->v) ? 0 : n->elems;
    if (n->elems > 0)
        CUDA_LAUNCH(adamw, blocks_up_to(n->elems, BLOCK * 4, BLOCKS), BLOCK, 0, c->stream,
                    o, n->elems, head, c->args->scalars, (const float *)in->g,
                    (float *)out->p, (float *)out->m, (float *)out->v);
    return 0;
}

/* b = momentum b + (g + decay p); p -= lr b */
CUDA_KERNEL void sgd(int64_t n, int64_t head, float momentum, float decay,
                     const struct scalars *now, const float *g, float *p, float *b) {
    const float lr = now->lr, grad_scale = now->grad_scale;
    each<float>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float gg[L], pp[L], bb[L];
        load(g + j, lanes, gg);
        load(p + j, lanes, pp);
        load(b + j, lanes, bb);
#pragma unroll
        for (int i = 0; i < L; i++) {
            bb[i] = momentum * bb[i] + (grad_scale * gg[i] + decay * pp[i]);
            pp[i] -= lr * bb[i];
        }
        store(p + j, lanes, pp);
        store(b + j, lanes, bb);
    });
}

CUDA_FUNCTION(sgd) {
    const int64_t head = aligned(in->g, out->p, out->b) ? 0 : n->elems;
    if (n->elems > 0)
        CUDA_LAUNCH(sgd, blocks_of(n->elems, BLOCK * 4), BLOCK, 0, c->stream, n->elems,
                    head, c->args->momentum, c->args->decay, c->args->scalars,
                    (const float *)in->g, (float *)out->p, (float *)out->b);
    return 0;
}

CUDA_KERNEL void running(int64_t n, float momentum, const float *s, float *p) {
    const int64_t i = grid_thread();
    if (i < n)
        p[i] += momentum * (s[i] - p[i]);
}

CUDA_FUNCTION(running) {
    if (n->elems > 0)
        CUDA_LAUNCH(running, blocks_of(n->elems, BLOCK), BLOCK, 0, c->stream, n->elems,
                    c->args->momentum, (const float *)in->s, (float *)out->p);
    return 0;
}
