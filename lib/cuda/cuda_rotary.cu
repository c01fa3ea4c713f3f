/* Rotary positions: a block turns one position of some samples, all heads.
 *
 * Angles are made in double and reduced to half a turn before the sine, which then may be a float's:
 * positions go into the thousands, where a float's angle would be off by a thousandth. They stand
 * in shared memory for all samples and heads of the block. */
#include "cuda/cuda_block.h"

struct rotary {
    int64_t batch, seq, heads, dim, pairs, origin;
    struct rotary_angles angles;
    float sign; /* -1: back */
    bool listed;
    double slower[ROTARY_MOST_LISTED]; /* of the angles' list, which the host has */
};

CUDA_DEVICE void angle_of(const struct rotary &r, int64_t position, int64_t pair, float *c,
                          float *s) {
    const double frequency = r.listed ? rotary_plain(&r.angles, pair) / r.slower[pair]
                                      : rotary_frequency(&r.angles, pair);
    const double turns = (double)position * frequency * 0.15915494309189535;
    const float half_turns = (float)(2 * (turns - rint(turns)));
    *c = r.angles.gain * cospif(half_turns);
    *s = r.sign * r.angles.gain * sinpif(half_turns);
}

/* What of the heads at a position does not turn. */
template <typename T> CUDA_DEVICE void copy_rest(const struct rotary &r, const T *x, T *y) {
    const int64_t rest = r.dim - 2 * r.pairs;
    for (int64_t k = threadIdx.x; x != y && k < r.heads * rest; k += blockDim.x) {
        const int64_t head = quotient(k, rest), i = k - head * rest;
        y[head * r.dim + 2 * r.pairs + i] = x[head * r.dim + 2 * r.pairs + i];
    }
}

/* (a, b) becomes (a c - b s, b c + a s). Vectors do not cross the pairs of a head: those are a multiple
 * of theirs, or there are none. */
template <typename T>
CUDA_KERNEL void rotary(struct rotary r, bool vectors, const T *x, T *y) {
    CUDA_DYNAMIC(float, cosine); /* [pairs], then as many sines */
    float *sine = cosine + r.pairs;
    for (int64_t i = threadIdx.x; i < r.pairs; i += blockDim.x)
        angle_of(r, r.origin + blockIdx.x, i, &cosine[i], &sine[i]);
    __syncthreads();
    const int64_t turned = r.heads * r.pairs;
    for (int64_t b = blockIdx.y; b < r.batch; b += gridDim.y) {
        const int64_t row = (b * r.seq + blockIdx.x) * r.heads * r.dim;
        each<T>(turned, vectors ? 0 : turned, threadIdx.x, blockDim.x,
                [&](int64_t k, auto lanes) {
                    enum { L = decltype(lanes)::N };
                    const int64_t head = quotient(k, r.pairs), i = k - head * r.pairs;
                    const int64_t at = row + head * r.dim + i;
                    float p[L], q[L];
                    load(x + at, lanes, p);
                    load(x + at + r.pairs, lanes, q);
#pragma unroll
                    for (int l = 0; l < L; l++) {
                        const float a = p[l], d = q[l], co = cosine[i + l],
                                    si = sine[i + l];
                        p[l] = fmaf(a, co, -(d * si));
                        q[l] = fmaf(d, co, a * si);
                    }
                    store(y + at, lanes, p);
                    store(y + at + r.pairs, lanes, q);
                });
        copy_rest(r, x + row, y + row);
    }
}

CUDA_FUNCTION(rotary) {
    enum {
        SAMPLES = 4
    }; /* blocks of a position: their sines cost as much as a sample's heads */
    struct rotary r = {n->batch,
                       n->seq,
                       n->heads,
                       n->dim,
                       c->args->angles.turned / 2,
                       c->args->first,
                       c->args->angles,
                       n->back ? -1.0f : 1.0f,
                       c->args->angles.slower != NULL,
                       {0}};
    for (int64_t i = 0; r.listed && i < r.pairs; i++)
        r.slower[i] = c->args->angles.slower[i];
    const dim3 grid((unsigned)n->seq, blocks_up_to(n->batch, 1, SAMPLES));
    const bool vectors = aligned(in->x, out->y);
    if (n->batch * n->seq * n->heads * n->dim > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(rotary<T>, grid, BLOCK / 2, (size_t)n->dim * sizeof(float),
                               c->stream, r,
                               row_head<T>(r.pairs, vectors) == 0 &&
                                   row_head<T>(r.dim, vectors) == 0,
                               (const T *)in->x, (T *)out->y));
    return 0;
}
