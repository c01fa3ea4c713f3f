/* Steps of the optimizer and the norm of the gradient: one pass over the state of many tensors, in floats
 * (cuda_multi.h). Blocks share out the elements of all tensors alike. */
#include "cuda/cuda_multi.h"
#include "cuda/cuda_sum.h"

/* ---- many tensors ------------------------------------------------------------------------- */

/* first[i]: the first block of tensor i. A block has `share` elements, whole vectors. */
struct tensors {
    int count;
    unsigned first[CUDA_MULTI_MOST + 1];
    int64_t share;
    struct cuda_multi_tensor of[CUDA_MULTI_MOST];
};

enum { SHARE = BLOCK * 8 }; /* elements; a share is a multiple of it */

/* At most so many blocks, and as many more as there are tensors. */
static struct tensors share_out(const struct cuda_multi *m, int64_t blocks) {
    struct tensors t;
    int64_t all = 0;
    for (int i = 0; i < m->count; i++)
        all += m->tensor[i].n;
    const int64_t each = (all + blocks - 1) / blocks;
    t.count = m->count;
    t.share = (each + SHARE - 1) / SHARE * SHARE;
    t.first[0] = 0;
    for (int i = 0; i < m->count; i++) {
        t.of[i] = m->tensor[i];
        t.first[i + 1] = t.first[i] + blocks_of(m->tensor[i].n, t.share);
    }
    return t;
}

/* The tensor of this block, the elements that the block has, and whether they may be read as vectors. */
struct part {
    int tensor;
    int64_t begin, n, head;
};
CUDA_DEVICE struct part part_of(const struct tensors &t) {
    struct part part;
    int low = 0, high = t.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (t.first[middle] <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    const struct cuda_multi_tensor &x = t.of[low];
    part.tensor = low;
    part.begin = (int64_t)(blockIdx.x - t.first[low]) * t.share;
    part.n = x.n - part.begin < t.share ? x.n - part.begin : t.share;
    const uintptr_t all = (uintptr_t)x.g | (uintptr_t)x.p | (uintptr_t)x.m |
                          (uintptr_t)x.v | (uintptr_t)x.rounded;
    part.head = all % VECTOR == 0 ? 0 : part.n;
    return part;
}

/* Calls f(j, lanes) for the block's elements of its tensor, a vector of floats at a time. */
template <typename F> CUDA_DEVICE void each_of_part(const struct part &part, F f) {
    each_of<vector_of<float>::N>(part.n, part.head, threadIdx.x, blockDim.x,
                                 [&](int64_t j, auto lanes) { f(part.begin + j, lanes); });
}

/* ---- the norm ----------------------------------------------------------------------------- */

/* Squares in double; four sums side by side, as a vector has numbers. */
CUDA_KERNEL void sum_squares(struct tensors t, double *sums) {
    const struct part part = part_of(t);
    const float *g = t.of[part.tensor].g;
    double sum[4] = {0, 0, 0, 0};
    each_of_part(part, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L];
        load(g + j, lanes, v);
#pragma unroll
        for (int i = 0; i < L; i++)
            sum[i % 4] += (double)v[i] * (double)v[i];
    });
    const double all = block_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    if (threadIdx.x == 0)
        sums[blockIdx.x] = t.of[part.tensor].by * all;
}

/* How the squares are cut follows from the sizes of the tensors alone. */
static int launch_squares(struct cuda_call *c, const struct cuda_multi *m) {
    const struct tensors t = share_out(m, CUDA_WORKSPACE_SUMS - CUDA_MULTI_MOST);
    struct device_args args = {};
    struct cuda_call finish = *c;
    args.counts = true;
    finish.args = &args;
    if (workspace_holds(c, t.first[t.count] * (int64_t)sizeof(double)) < 0)
        return -1;
    CUDA_LAUNCH(sum_squares, t.first[t.count], BLOCK, 0, c->stream, t,
                (double *)c->workspace);
    return cuda_sum_finish(&finish, t.first[t.count], &m->scalars->norm_squared, NULL, 1);
}

/* ---- steps -------------------------------------------------------------------------------- */

/* Rounds p where that is wanted. */
template <typename T> CUDA_KERNEL void round_all(struct tensors t) {
    const struct part part = part_of(t);
    const struct cuda_multi_tensor &x = t.of[part.tensor];
    each_of_part(part, [&](int64_t j, auto lanes) {
        float p[decltype(lanes)::N];
        load(x.p + j, lanes, p);
        store((T *)x.rounded + j, lanes, p);
    });
}

struct adamw {
    float beta1, beta2, eps;
};

/* p -= lr (mhat / (sqrt(vhat) + eps) + decay p). What the number of updates makes of the betas is
 * worked out once per block, in double. T: of what is rounded. */
template <typename T>
CUDA_KERNEL void adamw(struct adamw o, const struct scalars *now, struct tensors t) {
    __shared__ float fix[2]; /* 1 / (1 - beta1^t) and the root of 1 / (1 - beta2^t) */
    if (threadIdx.x == 0) {
        fix[0] = (float)(1.0 / (1.0 - pow((double)o.beta1, (double)now->updates)));
        fix[1] = (float)sqrt(1.0 / (1.0 - pow((double)o.beta2, (double)now->updates)));
    }
    __syncthreads();
    const float m_fix = fix[0], v_fix = fix[1], lr = now->lr;
    const struct part part = part_of(t);
    const struct cuda_multi_tensor &x = t.of[part.tensor];
    const float grad_scale = x.by * now->grad_scale;
    each_of_part(part, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float gg[L], pp[L], mm[L], vv[L];
        load(x.g + j, lanes, gg);
        load(x.p + j, lanes, pp);
        load(x.m + j, lanes, mm);
        load(x.v + j, lanes, vv);
#pragma unroll
        for (int i = 0; i < L; i++) {
            const float d = gg[i] * grad_scale;
            mm[i] = fmaf(o.beta1, mm[i], (1 - o.beta1) * d);
            vv[i] = fmaf(o.beta2, vv[i], (1 - o.beta2) * d * d);
            const float step = mm[i] * m_fix / fmaf(sqrtf(vv[i]), v_fix, o.eps);
            pp[i] -= lr * fmaf(x.decay, pp[i], step);
        }
        store(x.p + j, lanes, pp);
        store(x.m + j, lanes, mm);
        store(x.v + j, lanes, vv);
        if (x.rounded)
            store((T *)x.rounded + j, lanes, pp);
    });
}

int cuda_multi_launch(struct cuda_call *c, const struct cuda_multi *m) {
    if (m->code == I_sum_squares)
        return launch_squares(c, m);
    const struct tensors t = share_out(m, BLOCKS);
    const struct adamw o = {m->beta1, m->beta2, m->eps};
    const unsigned blocks = t.first[t.count];
    if (m->code == I_narrow && m->dtype == DTYPE_bf16)
        CUDA_LAUNCH(round_all<bf16>, blocks, BLOCK, 0, c->stream, t);
    else if (m->code == I_narrow)
        CUDA_LAUNCH(round_all<f16>, blocks, BLOCK, 0, c->stream, t);
    else if (m->dtype == DTYPE_f16)
        CUDA_LAUNCH(adamw<f16>, blocks, BLOCK, 0, c->stream, o, m->scalars, t);
    else
        CUDA_LAUNCH(adamw<bf16>, blocks, BLOCK, 0, c->stream, o, m->scalars, t);
    return 0;
}

/* Launched alone, an instruction is a list of one: the same kernel, which captured regions have loaded. */
static int launch_one(struct cuda_call *c, enum opcode code, const union instr_n *n,
                      const union instr_src *in, const union instr_dst *out) {
    struct cuda_multi m;
    m.count = 0;
    return cuda_multi_take(&m, c, code, n, in, out) < 0 ? -1 : cuda_multi_give(&m, c);
}

/* To floats there is nothing to round. */
CUDA_FUNCTION(narrow) {
    union instr_n shape;
    union instr_src src;
    union instr_dst dst;
    shape.narrow = *n, src.narrow = *in, dst.narrow = *out;
    if (dtype_is_half(c->args->dtype))
        return launch_one(c, I_narrow, &shape, &src, &dst);
    CUDA_MOVE(c->stream, out->y, in->x, n->elems * 4);
    return 0;
}

CUDA_FUNCTION(sum_squares) {
    union instr_n shape;
    union instr_src src;
    union instr_dst dst;
    shape.sum_squares = *n, src.sum_squares = *in, dst.sum_squares = *out;
    return launch_one(c, I_sum_squares, &shape, &src, &dst);
}

CUDA_FUNCTION(adamw) {
    union instr_n shape;
    union instr_src src;
    union instr_dst dst;
    shape.adamw = *n, src.adamw = *in, dst.adamw = *out;
    return launch_one(c, I_adamw, &shape, &src, &dst);
}

/* Calls f(g, p, s) for each element of a gradient, its parameter and the one state that is kept of it. */
template <typename F>
CUDA_DEVICE void descend(int64_t n, int64_t head, const float *g, float *p, float *s, F f) {
    each<float>(n, head, grid_thread(), grid_threads(), [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float gg[L], pp[L], ss[L];
        load(g + j, lanes, gg);
        load(p + j, lanes, pp);
        load(s + j, lanes, ss);
#pragma unroll
        for (int i = 0; i < L; i++)
            f(gg[i], pp[i], ss[i]);
        store(p + j, lanes, pp);
        store(s + j, lanes, ss);
    });
}

/* b = momentum b + (g + decay p); p -= lr b. `by`: what g is multiplied by, here and below. */
CUDA_KERNEL void sgd(int64_t n, int64_t head, float momentum, float decay, float by,
                     const struct scalars *now, const float *g, float *p, float *b) {
    const float lr = now->lr, grad_scale = by * now->grad_scale;
    descend(n, head, g, p, b, [&](float gg, float &pp, float &bb) {
        bb = momentum * bb + (grad_scale * gg + decay * pp);
        pp -= lr * bb;
    });
}

CUDA_FUNCTION(sgd) {
    const int64_t head = aligned(in->g, out->p, out->b) ? 0 : n->elems;
    if (n->elems > 0)
        CUDA_LAUNCH(sgd, blocks_of(n->elems, BLOCK * 4), BLOCK, 0, c->stream, n->elems,
                    head, c->args->momentum, c->args->decay, device_grad_factor(c->args),
                    c->args->scalars, (const float *)in->g, (float *)out->p,
                    (float *)out->b);
    return 0;
}

/* p -= lr (sign(beta1 m + (1 - beta1) g) + decay p); m = beta2 m + (1 - beta2) g */
CUDA_KERNEL void lion(int64_t n, int64_t head, float beta1, float beta2, float decay,
                      float by, const struct scalars *now, const float *g, float *p,
                      float *m) {
    const float lr = now->lr, grad_scale = by * now->grad_scale;
    descend(n, head, g, p, m, [&](float gg, float &pp, float &mm) {
        const float d = grad_scale * gg, c = fmaf(beta1, mm, (1 - beta1) * d);
        mm = fmaf(beta2, mm, (1 - beta2) * d);
        pp -= lr * fmaf(decay, pp, (float)((c > 0) - (c < 0)));
    });
}

CUDA_FUNCTION(lion) {
    const int64_t head = aligned(in->g, out->p, out->m) ? 0 : n->elems;
    if (n->elems > 0)
        CUDA_LAUNCH(lion, blocks_of(n->elems, BLOCK * 4), BLOCK, 0, c->stream, n->elems,
                    head, c->args->beta1, c->args->beta2, c->args->decay,
                    device_grad_factor(c->args), c->args->scalars, (const float *)in->g,
                    (float *)out->p, (float *)out->m);
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
