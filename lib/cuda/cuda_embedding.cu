/* Embedding: rows of a table by number, and the sum of gradients back into them.
 *
 * Backward, several rows may have one number, and their sum must not depend on who is first. So rows
 * are sorted by number: the place of a row is how many have a smaller number, or the same one and come
 * before it, which is counted. That takes the square of the rows, a few microseconds for thousands of
 * them, and needs no float's atomic; more rows go in parts one after the other. Then the rows of one
 * number stand together in their order, and a block adds them up. */
#include "cuda/cuda_row.h"

/* A block takes a row. */
template <typename T>
CUDA_KERNEL void embedding(int64_t vocab, int64_t n, int64_t head, const int32_t *id,
                           int64_t first, const T *table, T *y) {
    const int64_t row = blockIdx.x, at = id[row] - first;
    const bool here = at >= 0 && at < vocab;
    each_in_row<T>(n, head, [&](int64_t j, auto lanes) {
        float v[decltype(lanes)::N] = {0};
        if (here)
            load(table + at * n + j, lanes, v);
        store(y + row * n + j, lanes, v);
    });
}

CUDA_FUNCTION(embedding) {
    const bool vectors = aligned(in->table, out->y);
    if (n->rows > 0)
        CUDA_TYPED(c->args->dtype, T,
                   CUDA_LAUNCH(embedding<T>, (unsigned)n->rows,
                               row_threads<T>(n->width, BLOCK), 0, c->stream, n->vocab,
                               n->width, row_head<T>(n->width, vectors),
                               (const int32_t *)in->ids, c->args->first,
                               (const T *)in->table, (T *)out->y));
    return 0;
}

/* ---- backward ----------------------------------------------------------------------------- */

/* place[i] += of BLOCK rows, beginning with blockIdx.y * BLOCK, those that are to stand before row i. */
CUDA_KERNEL void count_before(int32_t rows, const int32_t *id, int32_t *place) {
    __shared__ int32_t other[BLOCK];
    const int32_t i = (int32_t)grid_thread(), from = (int32_t)blockIdx.y * BLOCK;
    const int32_t end = rows - from < BLOCK ? rows - from : (int32_t)BLOCK;
    if ((int32_t)threadIdx.x < end)
        other[threadIdx.x] = id[from + (int32_t)threadIdx.x];
    __syncthreads();
    if (i >= rows)
        return;
    const int32_t mine = id[i];
    int32_t before = 0;
    for (int32_t k = 0; k < end; k++)
        before += other[k] < mine || (other[k] == mine && from + k < i);
    atomicAdd(&place[i], before);
}

CUDA_KERNEL void sort_rows(int32_t rows, const int32_t *place, int32_t *order) {
    const int32_t i = (int32_t)grid_thread();
    if (i < rows)
        order[place[i]] = i;
}

/* The block of the first of the rows with one number adds them all up, in their order; a thread takes a
 * vector of floats. */
template <typename T>
CUDA_KERNEL void add_rows(int32_t rows, int64_t vocab, int64_t n, int64_t head,
                          const int32_t *id, const int32_t *order, int64_t first,
                          const T *dy, float *dtable) {
    const int32_t place = (int32_t)blockIdx.x, number = id[order[place]];
    const int64_t at = number - first;
    if (at < 0 || at >= vocab || (place > 0 && id[order[place - 1]] == number))
        return;
    int32_t end = place + 1;
    while (end < rows && id[order[end]] == number)
        end++;
    each_in_row<float>(n, head, [&](int64_t j, auto lanes) {
        enum { L = decltype(lanes)::N };
        float sum[L], v[L];
        load(dtable + at * n + j, lanes, sum);
#pragma unroll 4
        for (int32_t k = place; k < end; k++) {
            load(dy + order[k] * n + j, lanes, v);
#pragma unroll
            for (int i = 0; i < L; i++)
                sum[i] += v[i];
        }
        store(dtable + at * n + j, lanes, sum);
    });
}

/* `rows` of them, at most cuda_workspace_sorted(). */
template <typename T>
static void add_part(struct cuda_call *c, const struct embedding_dw_n *n, int64_t rows,
                     int64_t head, const int32_t *id, const T *dy, float *dtable) {
    const unsigned blocks = blocks_of(rows, BLOCK);
    int32_t *place = (int32_t *)c->workspace, *order = place + rows;
    CUDA_CLEAR(c->stream, place, rows * (int64_t)sizeof *place);
    CUDA_LAUNCH(count_before, dim3(blocks, blocks), BLOCK, 0, c->stream, (int32_t)rows, id,
                place);
    CUDA_LAUNCH(sort_rows, blocks, BLOCK, 0, c->stream, (int32_t)rows,
                (const int32_t *)place, order);
    CUDA_LAUNCH(add_rows<T>, (unsigned)rows, row_threads<float>(n->width, BLOCK), 0, c->stream,
                (int32_t)rows, n->vocab, n->width, head, id, (const int32_t *)order,
                c->args->first, dy, dtable);
}

CUDA_FUNCTION(embedding_dw) {
    const int64_t most = cuda_workspace_sorted(n->rows);
    const bool vectors = aligned(in->dy, out->dtable);
    if (workspace_holds(c, 2 * most * (int64_t)sizeof(int32_t)) < 0)
        return -1;
    CUDA_TYPED(c->args->dtype, T, {
        for (int64_t i = 0; i < n->rows; i += most)
            add_part<T>(c, n, n->rows - i < most ? n->rows - i : most,
                        row_head<float>(n->width, vectors), (const int32_t *)in->ids + i,
                        (const T *)in->dy + i * n->width, (float *)out->dtable);
    });
    return 0;
}
