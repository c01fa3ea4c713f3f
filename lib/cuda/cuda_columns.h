/* cuda_columns.h - sums down the columns of a matrix: gradients of what is added to or multiplied with
 * every row.
 *
 * A block has 32 x 8 threads: its lanes take columns, a vector each, its eight rows of threads go down
 * a chunk of rows in turns. Sums of chunks stand in the workspace, [chunk][k][column] for k of COUNT
 * sums; what they become is the business of a second kernel. How rows are cut follows from the shape
 * alone, and all sums are in the order of the rows of threads and of the chunks.
 *
 *     const int64_t chunks = cuda_workspace_chunks(rows, n, 1);
 *     if (launch_columns<T>(c, chunks, rows, n, 1, aligned(x), plain<T>{rows, n, x}) < 0)
 *         return -1;
 *     return cuda_columns_finish(c, chunks, n, dst, NULL);
 *
 * What is summed up is a struct with
 *     enum { COUNT };
 *     first(group), end(group): the rows of a group
 *     begin<L>(group, row, column): what it wants to keep while it goes down L columns
 *     add(row, column, lanes, kept, sum[COUNT][L])
 */
#ifndef WEFT_CUDA_COLUMNS_H
#define WEFT_CUDA_COLUMNS_H

#include "cuda/cuda_block.h"

enum { COLUMN_ROWS = 8 }; /* of threads in a block */

/* The sums over the block's rows of threads, in its first one. */
template <int COUNT, int L> CUDA_DEVICE void rows_of_threads(float (*sum)[L]) {
    __shared__ float shown[COLUMN_ROWS][WARP * L];
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < L; i++)
            shown[threadIdx.y][i * WARP + threadIdx.x] = sum[k][i];
        __syncthreads();
        if (threadIdx.y == 0)
#pragma unroll
            for (int i = 0; i < L; i++)
                for (int r = 1; r < COLUMN_ROWS; r++)
                    sum[k][i] += shown[r][i * WARP + threadIdx.x];
    }
}

/* Blocks: x columns, y chunks, z groups. */
template <int L, typename F>
CUDA_KERNEL void column_sums(F f, int64_t chunk_rows, int64_t n, float *part) {
    enum { COUNT = F::COUNT };
    const int64_t column = (blockIdx.x * (int64_t)WARP + threadIdx.x) * L;
    const int64_t first = f.first(blockIdx.z) + blockIdx.y * chunk_rows;
    const int64_t stop = f.end(blockIdx.z);
    const int64_t end = first + chunk_rows < stop ? first + chunk_rows : stop;
    float sum[COUNT][L];
#pragma unroll
    for (int k = 0; k < COUNT; k++)
#pragma unroll
        for (int i = 0; i < L; i++)
            sum[k][i] = 0;
    if (column < n && first < end) {
        const auto base = f.template begin<L>(blockIdx.z, first, column);
#pragma unroll 4
        for (int64_t row = first + threadIdx.y; row < end; row += COLUMN_ROWS)
            f.add(row, column, lanes_of<L>(), base, sum);
    }
    rows_of_threads<COUNT>(sum);
    if (threadIdx.y == 0 && column < n) {
        float *to =
            part + (blockIdx.z * (int64_t)gridDim.y + blockIdx.y) * COUNT * n + column;
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            store(to + k * n, lanes_of<L>(), sum[k]);
    }
}

/* Rows of each chunk but the last. */
static inline int64_t column_rows(int64_t rows, int64_t chunks) {
    const int64_t each = (rows + chunks - 1) / chunks;
    return each > 0 ? each : 1;
}

/* T: the elements that F reads; vectors: whether it may read them as vectors; rows: of a group, at
 * most. */
template <typename T, typename F>
static int launch_columns(struct cuda_call *c, int64_t chunks, int64_t rows, int64_t n,
                          int64_t groups, bool vectors, F f) {
    enum { V = vector_of<T>::N };
    const dim3 block(WARP, COLUMN_ROWS);
    const int64_t each = column_rows(rows, chunks);
    float *part = (float *)c->workspace;
    if (workspace_holds(c, groups * chunks * F::COUNT * n * (int64_t)sizeof(float)) < 0)
        return -1;
    if (row_head<T>(n, vectors) == 0)
        CUDA_LAUNCH((column_sums<V, F>),
                    dim3(blocks_of(n, WARP * V), (unsigned)chunks, (unsigned)groups), block,
                    0, c->stream, f, each, n, part);
    else
        CUDA_LAUNCH((column_sums<1, F>),
                    dim3(blocks_of(n, WARP), (unsigned)chunks, (unsigned)groups), block, 0,
                    c->stream, f, each, n, part);
    return 0;
}

/* first[n] += the sums over the chunks in the workspace, [chunks][1 or 2][n]; second, unless NULL, += the
 * second sums. Where the call is fresh both are written. */
int cuda_columns_finish(struct cuda_call *c, int64_t chunks, int64_t n, float *first,
                        float *second);

#endif
