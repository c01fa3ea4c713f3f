/* Cross-entropy over a vocabulary that may be split over ranks: a block takes a row.
 *
 * One pass over the logits (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018):
 * each thread keeps the maximum of what it saw and the sum of exponentials relative to it. The
 * gradient is one more pass, in the place of the logits where the plan has it so. Rows of an odd
 * vocabulary begin anywhere: vectors begin behind the first few logits of such a row.
 *
 * Targets below 0, and the one that is to be ignored, do not count: their rows have no loss and no
 * gradient. */
#include "cuda/cuda_row.h"
#include "cuda/cuda_sum.h"

enum { ROW_THREADS = 512 };

CUDA_DEVICE bool row_counts(int32_t target, int32_t ignore) {
    return target >= 0 && target != ignore;
}

/* The target's logit if it is among first..first+n-1, else 0. */
template <typename T>
CUDA_DEVICE float target_logit(int64_t n, int64_t first, const T *x, int32_t target) {
    const int64_t at = target - first;
    return at >= 0 && at < n ? get(x + at) : 0;
}

/* What is known of a row, or of one rank's part of it: its maximum, and the sum of exp(x - max). In every
 * thread. */
template <typename T> CUDA_DEVICE float2 scan_row(int64_t n, const T *x) {
    float max = -INFINITY, sum = 0;
    each_in_row<T>(n, head_of(n, x), [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L], top = max;
        load(x + j, lanes, v);
#pragma unroll
        for (int i = 0; i < L; i++)
            top = fmaxf(top, v[i]);
        if (top > max) { /* also from -infinity, where there is no sum yet */
            sum = max == -INFINITY ? 0 : sum * expf(max - top);
            max = top;
        }
        if (max > -INFINITY)
#pragma unroll
            for (int i = 0; i < L; i++)
                sum += expf(v[i] - max);
    });
    float2 r;
    r.x = block_max(max);
    r.y = block_sum(max == -INFINITY ? 0 : sum * expf(max - r.x));
    return r;
}

/* Of every gridDim-th row; part has the sum of their losses for each block. */
template <typename T>
CUDA_KERNEL void cross_entropy(int64_t rows, int64_t n, int32_t ignore, const T *logits,
                               const int32_t *target, float *lse, double *part) {
    double loss = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        double exact = 0;
        if (row_counts(target[row], ignore)) {
            const float2 r = scan_row(n, logits + row * n);
            exact = r.x + log((double)r.y);
            loss += exact - target_logit(n, 0, logits + row * n, target[row]);
        }
        if (threadIdx.x == 0)
            lse[row] = (float)exact;
    }
    if (threadIdx.x == 0)
        part[blockIdx.x] = loss;
}

CUDA_FUNCTION(cross_entropy) {
    if (n->rows == 0)
        return 0;
    const unsigned blocks = cuda_sum_blocks(c, n->rows, 1);
    if (!blocks)
        return -1;
    CUDA_TYPED(c->args->dtype, T,
               CUDA_LAUNCH(cross_entropy<T>, blocks, row_threads<T>(n->n, ROW_THREADS), 0,
                           c->stream, n->rows, n->n, c->args->ignore, (const T *)in->logits,
                           (const int32_t *)in->targets, (float *)out->lse,
                           (double *)c->workspace));
    return cuda_sum_finish(c, blocks, &c->args->scalars->loss_sum, c->args->per_target, 1);
}

/* A row that does not count has a sum of 0, which no other has: its largest term is 1. */
template <typename T>
CUDA_KERNEL void cross_entropy_part(int64_t n, int64_t first, int32_t ignore,
                                    const T *logits, const int32_t *target, float *part) {
    const int64_t row = blockIdx.x;
    const T *x = logits + row * n;
    const bool counts = row_counts(target[row], ignore);
    float2 r;
    r.x = r.y = 0;
    if (counts)
        r = scan_row(n, x);
    if (threadIdx.x == 0) {
        part[3 * row] = r.x;
        part[3 * row + 1] = r.y;
        part[3 * row + 2] = counts ? target_logit(n, first, x, target[row]) : 0;
    }
}

CUDA_FUNCTION(cross_entropy_part) {
    if (n->rows > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(cross_entropy_part<T>, (unsigned)n->rows,
                               row_threads<T>(n->n, ROW_THREADS), 0, c->stream, n->n,
                               c->args->first, c->args->ignore, (const T *)in->logits,
                               (const int32_t *)in->targets, (float *)out->part));
    return 0;
}

/* A thread takes a row: of each part (maximum, sum of exponentials, target's logit). */
CUDA_DEVICE double finish_row(int64_t rows, int64_t parts, int64_t row, const float *part,
                              float *lse) {
    double max = -INFINITY, sum = 0, target = 0;
    for (int64_t p = 0; p < parts; p++)
        max = fmax(max, (double)part[3 * (p * rows + row)]);
    for (int64_t p = 0; p < parts; p++) {
        const float *q = part + 3 * (p * rows + row);
        sum += q[1] * exp(q[0] - max);
        target += q[2];
    }
    const double exact = sum == 0 ? 0 : max + log(sum);
    lse[row] = (float)exact;
    return exact - target;
}

CUDA_KERNEL void cross_entropy_finish(int64_t rows, int64_t parts, const float *part,
                                      float *lse, double *sums) {
    double loss = 0;
    for (int64_t row = grid_thread(); row < rows; row += grid_threads())
        loss += finish_row(rows, parts, row, part, lse);
    loss = block_sum(loss);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = loss;
}

CUDA_FUNCTION(cross_entropy_finish) {
    if (n->rows == 0)
        return 0;
    const unsigned blocks = cuda_sum_blocks(c, n->rows, BLOCK);
    if (!blocks)
        return -1;
    CUDA_LAUNCH(cross_entropy_finish, blocks, BLOCK, 0, c->stream, n->rows, n->parts,
                (const float *)in->part, (float *)out->lse, (double *)c->workspace);
    return cuda_sum_finish(c, blocks, &c->args->scalars->loss_sum, c->args->per_target, 1);
}

/* dlogits = (softmax - onehot) * scale; may stand where the logits do: a thread reads what it
 * writes, and nothing else of the row. */
template <typename T>
CUDA_KERNEL void cross_entropy_dx(int64_t n, int64_t first, int32_t ignore,
                                  const struct scalars *now, const double *per_target,
                                  const T *logits, const int32_t *target, const float *lse,
                                  T *dlogits) {
    const int64_t row = blockIdx.x, at = target[row] - first;
    const bool counts = row_counts(target[row], ignore);
    const float scale = (float)*per_target * now->loss_scale, all = lse[row];
    const T *x = logits + row * n;
    T *dx = dlogits + row * n;
    const int64_t head = head_of(n, x), same = head_of(n, dx);
    each_in_row<T>(n, head == same ? head : n, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float v[L];
        load(x + j, lanes, v);
#pragma unroll
        for (int i = 0; i < L; i++) {
            const float apart = v[i] - all; /* e^apart - 1 without cancelling */
            const float slope = j + i == at ? expm1f(apart) : expf(apart);
            v[i] = counts ? slope * scale : 0;
        }
        store(dx + j, lanes, v);
    });
}

CUDA_FUNCTION(cross_entropy_dx) {
    if (n->rows > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(cross_entropy_dx<T>, (unsigned)n->rows,
                               row_threads<T>(n->n, ROW_THREADS), 0, c->stream, n->n,
                               c->args->first, c->args->ignore, c->args->scalars,
                               c->args->per_target, (const T *)in->logits,
                               (const int32_t *)in->targets, (const float *)in->lse,
                               (T *)out->dlogits));
    return 0;
}
