/* Relative positions before and after the kernels of attention (cuda_attention_near.h), and the row
 * sums of the backward pass.
 *
 * What a head adds is spread from buckets to distances once, so that a score costs one load. The
 * buckets come from the CPU's arithmetic, by value: a distance on the border of two must fall into
 * the same one. */
#include "cuda/cuda_attention_block.h"
#include "cuda/cuda_type.h"

/* Half of a head's distances: parameters of a kernel have 4 KB. */
struct buckets {
    uint16_t of[POSITION_MOST + 1];
};

template <typename T>
CUDA_KERNEL void spread(struct buckets half, int first, int count, int all, int heads,
                        const T *table, float *near, uint16_t *bucket) {
    const int i = blockIdx.x * (int)blockDim.x + (int)threadIdx.x, h = blockIdx.y;
    if (i >= count)
        return;
    near[h * all + first + i] = LOG2_E * get(table + half.of[i] * heads + h);
    if (h == 0)
        bucket[first + i] = half.of[i];
}

void attention_spread(const struct cuda_call *c, const struct attention_job *job,
                      const struct positions *p, float *near, uint16_t *bucket) {
    const int d = p->distance, heads = (int)p->heads;
    for (int first = 0; first <= d; first += d) {
        struct buckets half;
        memcpy(half.of, p->bucket + first, (size_t)(d + 1) * sizeof *half.of);
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(spread<T>, dim3(blocks_of(d + 1, 128), heads), 128, 0,
                               c->stream, half, first, d + 1, 2 * d + 1, heads,
                               (const T *)job->t.positions, near, bucket));
    }
}

/* dpositions[i] += the sum over n parts: a warp for each, lane by lane, then over the lanes. */
CUDA_KERNEL void collect(int n, int heads, int buckets, const float *parts,
                         float *dpositions) {
    const int i = blockIdx.x, h = i % heads, bucket = i / heads;
    float sum = 0;
    for (int k = threadIdx.x; k < n; k += 32)
        sum += parts[((int64_t)k * heads + h) * buckets + bucket];
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x == 0)
        dpositions[i] += sum;
}

void attention_collect(const struct cuda_call *c, const struct attention_job *job,
                       int queries) {
    const struct kernel_attention *t = &job->t;
    const int n = (int)t->batch * blocks_of(t->q_len, queries), heads = (int)t->heads;
    CUDA_LAUNCH(collect, (int)t->buckets * heads, 32, 0, c->stream, n, heads,
                (int)t->buckets, job->near.parts, job->dpositions);
}

enum { ROW_LANES = 8, ROWS = 256 / ROW_LANES /* of a block */ };

/* Eight lanes for each row of a head, vectors of 16 bytes where rows lie on them. */
template <typename T>
CUDA_KERNEL void row_sums(struct kernel_attention t, bool vectors, const T *o,
                          const T *dout, float *delta) {
    const int64_t row = blockIdx.x * (int64_t)ROWS + threadIdx.x / ROW_LANES;
    const int64_t h = row % t.heads, i = row / t.heads % t.q_len,
                  b = row / t.heads / t.q_len;
    const int64_t at = b * t.o_batch + i * t.o_seq + h * t.value;
    const bool there = b < t.batch;
    const int lane = (int)threadIdx.x % ROW_LANES;
    float sum = 0;
    if (there)
        each<T>(t.value, vectors ? 0 : t.value, lane, ROW_LANES,
                [&](int64_t e, auto lanes) {
                    float x[decltype(lanes)::N], y[decltype(lanes)::N];
                    load(o + at + e, lanes, x);
                    load(dout + at + e, lanes, y);
                    for (int k = 0; k < decltype(lanes)::N; k++)
                        sum = fmaf(x[k], y[k], sum);
                });
    for (int step = ROW_LANES / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (there && lane == 0)
        delta[(b * t.heads + h) * t.q_len + i] = sum;
}

void attention_delta(const struct cuda_call *c, const struct attention_job *job,
                     bool vectors) {
    const int64_t rows = job->t.batch * job->t.q_len * job->t.heads;
    CUDA_TYPED(c->args->dtype, T,
               CUDA_LAUNCH(row_sums<T>, (unsigned)((rows + ROWS - 1) / ROWS), 256, 0,
                           c->stream, job->t, vectors, (const T *)job->o,
                           (const T *)job->dout, job->delta));
}
