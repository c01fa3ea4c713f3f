/* Muon's momentum and step, and what stands between the products that make a matrix orthogonal. */
#include "cuda/cuda_muon.h"
#include "cuda/cuda_sum.h"

/* m = momentum m + g; u = g + momentum m, which may take g's place; g is multiplied by `times` first. */
CUDA_KERNEL void momentum(int64_t n, int64_t head, float by, float times,
                          const struct scalars *now, const float *g, float *u, float *m) {
    const float grad_scale = times * now->grad_scale;
    each<float>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float gg[L], mm[L];
        load(g + j, lanes, gg);
        load(m + j, lanes, mm);
#pragma unroll
        for (int i = 0; i < L; i++) {
            const float d = grad_scale * gg[i];
            mm[i] = by * mm[i] + d;
            gg[i] = d + by * mm[i];
        }
        store(m + j, lanes, mm);
        store(u + j, lanes, gg);
    });
}

CUDA_FUNCTION(momentum) {
    const int64_t head = aligned(in->g, out->u, out->m) ? 0 : n->elems;
    if (n->elems > 0)
        CUDA_LAUNCH(momentum, blocks_of(n->elems, BLOCK * 4), BLOCK, 0, c->stream, n->elems,
                    head, c->args->momentum, device_grad_factor(c->args), c->args->scalars,
                    (const float *)in->g, (float *)out->u, (float *)out->m);
    return 0;
}

/* p -= lr (o + decay p) */
CUDA_KERNEL void muon(int64_t n, int64_t head, float decay, const struct scalars *now,
                      const float *o, float *p) {
    const float lr = now->lr;
    each<float>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float oo[L], pp[L];
        load(o + j, lanes, oo);
        load(p + j, lanes, pp);
#pragma unroll
        for (int i = 0; i < L; i++)
            pp[i] -= lr * fmaf(decay, pp[i], oo[i]);
        store(p + j, lanes, pp);
    });
}

CUDA_FUNCTION(muon) {
    const int64_t head = aligned(in->o, out->p, out->p) ? 0 : n->elems;
    if (n->elems > 0)
        CUDA_LAUNCH(muon, blocks_of(n->elems, BLOCK * 4), BLOCK, 0, c->stream, n->elems,
                    head, c->args->decay, c->args->scalars, (const float *)in->o,
                    (float *)out->p);
    return 0;
}

/* ---- between products --------------------------------------------------------------------- */

/* Element i of a matrix with so many columns, of which rows lie ld apart. */
CUDA_DEVICE int64_t place(int64_t i, int64_t columns, int64_t ld) {
    return i / columns * ld + i % columns;
}

CUDA_KERNEL void squares(int64_t n, int64_t columns, int64_t ld, const float *u,
                         double *part) {
    double sum = 0;
    for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
        const double v = u[place(i, columns, ld)];
        sum += v * v;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

/* Each block adds up what the blocks of `squares` left, in the same order. */
CUDA_KERNEL void normalize(int64_t n, int64_t columns, int64_t ld, const float *u,
                           unsigned parts, const double *part, float *x) {
    double sum = 0;
    for (unsigned i = threadIdx.x; i < parts; i += blockDim.x)
        sum += part[i];
    const float by = (float)(1 / (sqrt(block_sum(sum)) + 1e-7));
    for (int64_t i = grid_thread(); i < n; i += grid_threads())
        x[i] = by * u[place(i, columns, ld)];
}

int cuda_muon_normalize(struct cuda_call *c, int64_t rows, int64_t columns, int64_t ld,
                        const float *u, float *x) {
    const int64_t n = rows * columns;
    const unsigned parts = cuda_sum_blocks(c, n, BLOCK * 4);
    if (!parts)
        return -1;
    CUDA_LAUNCH(squares, parts, BLOCK, 0, c->stream, n, columns, ld, u,
                (double *)c->workspace);
    CUDA_LAUNCH(normalize, blocks_of(n, BLOCK * 4), BLOCK, 0, c->stream, n, columns, ld, u,
                parts, (const double *)c->workspace, x);
    return 0;
}

CUDA_KERNEL void polynomial(int64_t side, float one, float linear, float square,
                            const float *a, float *b) {
    const int64_t n = side * side;
    for (int64_t i = grid_thread(); i < n; i += grid_threads())
        b[i] = square * b[i] + linear * a[i] + (i % (side + 1) == 0 ? one : 0);
}

int cuda_muon_polynomial(struct cuda_call *c, int64_t side, float scale, const float *a,
                         float *b) {
    const float by[3] = NEWTON_SCHULZ;
    CUDA_LAUNCH(polynomial, blocks_of(side * side, BLOCK * 4), BLOCK, 0, c->stream, side,
                scale * by[0], scale * by[1], scale * by[2], a, b);
    return 0;
}
