/* Rows in front of others, and one row of many. A thread takes an element: what is moved is little
 * beside the rest of a model. */
#include "cuda/cuda_block.h"

/* y has `front` rows of the table and `rows` of x in each sample; all counts are of elements. */
template <typename T>
CUDA_KERNEL void prepend(int64_t n, int64_t front, int64_t rows, const T *x, const T *table,
                         T *y) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    const int64_t sample = quotient(i, front + rows), at = i - sample * (front + rows);
    y[i] = at < front ? table[at] : x[sample * rows + at - front];
}

CUDA_FUNCTION(prepend) {
    const int64_t front = n->front * n->inner, rows = n->rows * n->inner;
    const int64_t all = n->outer * (front + rows);
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(prepend<T>, blocks_of(all, BLOCK), BLOCK, 0, c->stream, all,
                               front, rows, (const T *)in->x, (const T *)in->table,
                               (T *)out->y));
    return 0;
}

template <typename T>
CUDA_KERNEL void behind(int64_t n, int64_t front, int64_t rows, const T *dy, T *dx) {
    const int64_t i = grid_thread();
    if (i < n)
        dx[i] = dy[i + (quotient(i, rows) + 1) * front];
}

/* Samples are few: a thread adds up those of its element, in order. */
template <typename T>
CUDA_KERNEL void add_samples(int64_t n, int64_t samples, int64_t stride, const T *dy,
                             float *sum) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    float all = sum[i];
    for (int64_t k = 0; k < samples; k++)
        all += get(dy + k * stride + i);
    sum[i] = all;
}

CUDA_FUNCTION(prepend_bwd) {
    const int64_t front = n->front * n->inner, rows = n->rows * n->inner;
    const int64_t all = n->outer * rows;
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T, {
            CUDA_LAUNCH(behind<T>, blocks_of(all, BLOCK), BLOCK, 0, c->stream, all, front,
                        rows, (const T *)in->dy, (T *)out->dx);
            CUDA_LAUNCH(add_samples<T>, blocks_of(front, BLOCK), BLOCK, 0, c->stream, front,
                        n->outer, front + rows, (const T *)in->dy, (float *)out->dtable);
        });
    return 0;
}

/* All counts are of elements. */
template <typename T>
CUDA_KERNEL void one_row(int64_t n, int64_t rows, int64_t inner, int64_t at, const T *x,
                         T *y) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    const int64_t sample = quotient(i, inner);
    y[i] = x[sample * rows + at + i - sample * inner];
}

CUDA_FUNCTION(select) {
    const int64_t all = n->outer * n->inner;
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(one_row<T>, blocks_of(all, BLOCK), BLOCK, 0, c->stream, all,
                               n->rows * n->inner, n->inner, c->args->first * n->inner,
                               (const T *)in->x, (T *)out->y));
    return 0;
}

template <typename T>
CUDA_KERNEL void one_row_dx(int64_t n, int64_t rows, int64_t inner, int64_t at, const T *dy,
                            T *dx) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    const int64_t sample = quotient(i, rows), from = i - sample * rows - at;
    put(dx + i, from >= 0 && from < inner ? get(dy + sample * inner + from) : 0.0f);
}

CUDA_FUNCTION(select_dx) {
    const int64_t all = n->outer * n->rows * n->inner;
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(one_row_dx<T>, blocks_of(all, BLOCK), BLOCK, 0, c->stream,
                               all, n->rows * n->inner, n->inner, c->args->first * n->inner,
                               (const T *)in->dy, (T *)out->dx));
    return 0;
}

/* y [rows, heads, dim + behind]: element i is of a head of x, or behind it of the head of z that it has in
 * common with others. */
template <typename T>
CUDA_KERNEL void join_heads(int64_t n, struct join_n s, int64_t first_head, const T *x,
                            const T *z, T *y) {
    const int64_t i = grid_thread(), width = s.dim + s.behind;
    if (i >= n)
        return;
    const int64_t at = quotient(i, width), j = i - at * width;
    const int64_t row = quotient(at, s.heads);
    const int64_t few = quotient(first_head + at - row * s.heads, s.group);
    y[i] = j < s.dim ? x[at * s.dim + j] : z[(row * s.few + few) * s.behind + j - s.dim];
}

CUDA_FUNCTION(join) {
    const int64_t all = n->rows * n->heads * (n->dim + n->behind);
    if (all > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(join_heads<T>, blocks_of(all, BLOCK), BLOCK, 0, c->stream,
                               all, *n, c->args->first_head, (const T *)in->x,
                               (const T *)in->z, (T *)out->y));
    return 0;
}

template <typename T>
CUDA_KERNEL void front_of_heads(int64_t n, int64_t dim, int64_t width, const T *dy, T *dx) {
    const int64_t i = grid_thread();
    if (i >= n)
        return;
    const int64_t at = quotient(i, dim);
    dx[i] = dy[at * width + i - at * dim];
}

/* The sum over those of the rank's heads that have an element of z, which may be none. */
template <typename T>
CUDA_KERNEL void sum_behind(int64_t n, struct join_bwd_n s, int64_t first_head, const T *dy,
                            T *dz) {
    const int64_t i = grid_thread(), width = s.dim + s.behind;
    if (i >= n)
        return;
    const int64_t at = quotient(i, s.behind), j = i - at * s.behind;
    const int64_t row = quotient(at, s.few);
    const int64_t from = (at - row * s.few) * s.group - first_head;
    const int64_t end = from + s.group < s.heads ? from + s.group : s.heads;
    float sum = 0;
    for (int64_t h = from < 0 ? 0 : from; h < end; h++)
        sum += get(dy + (row * s.heads + h) * width + s.dim + j);
    put(dz + i, sum);
}

CUDA_FUNCTION(join_bwd) {
    const int64_t front = n->rows * n->heads * n->dim,
                  behind = n->rows * n->few * n->behind;
    if (front > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(front_of_heads<T>, blocks_of(front, BLOCK), BLOCK, 0,
                               c->stream, front, n->dim, n->dim + n->behind,
                               (const T *)in->dy, (T *)out->dx));
    if (behind > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(sum_behind<T>, blocks_of(behind, BLOCK), BLOCK, 0, c->stream,
                               behind, *n, c->args->first_head, (const T *)in->dy,
                               (T *)out->dz));
    return 0;
}
