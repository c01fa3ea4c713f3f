/* Sums of rows: the gradient of a bias, and what other sums of columns end with. */
#include "cuda/cuda_columns.h"

template <typename T> struct plain {
    enum { COUNT = 1 };
    int64_t rows, n;
    const T *x;
    CUDA_MEMBER int64_t first(int64_t) const {
        return 0;
    }
    CUDA_MEMBER int64_t end(int64_t) const {
        return rows;
    }
    template <int L> CUDA_MEMBER int begin(int64_t, int64_t, int64_t) const {
        return 0;
    }
    template <int L>
    CUDA_MEMBER void add(int64_t row, int64_t column, lanes_of<L> lanes, int,
                         float (*sum)[L]) const {
        float v[L];
        load(x + row * n + column, lanes, v);
#pragma unroll
        for (int i = 0; i < L; i++)
            sum[0][i] += v[i];
    }
};

/* Rows of threads share out the chunks; blocks: x columns, y the first or the second sums. */
CUDA_KERNEL void finish(int64_t chunks, int64_t n, bool fresh, const float *part,
                        float *first, float *second) {
    const int64_t column = blockIdx.x * (int64_t)WARP + threadIdx.x;
    float sum[1][1] = {{0}}, *to = blockIdx.y ? second : first;
    if (column < n)
#pragma unroll 16
        for (int64_t i = threadIdx.y; i < chunks; i += COLUMN_ROWS)
            sum[0][0] += part[(i * gridDim.y + blockIdx.y) * n + column];
    rows_of_threads<1>(sum);
    if (threadIdx.y == 0 && column < n)
        to[column] = fresh ? sum[0][0] : to[column] + sum[0][0];
}

int cuda_columns_finish(struct cuda_call *c, int64_t chunks, int64_t n, float *first,
                        float *second) {
    CUDA_LAUNCH(finish, dim3(blocks_of(n, WARP), second ? 2 : 1), dim3(WARP, COLUMN_ROWS),
                0, c->stream, chunks, n, c->args->fresh, (const float *)c->workspace, first, second);
    return 0;
}

static int sum_rows(struct cuda_call *c, int64_t rows, int64_t n, const void *dy,
                    float *dp) {
    const int64_t chunks = cuda_workspace_chunks(rows, n, 1);
    if (rows * n == 0)
        return 0;
    CUDA_TYPED(c->args->dtype, T, {
        const plain<T> f = {rows, n, (const T *)dy};
        if (launch_columns<T>(c, chunks, rows, n, 1, aligned(dy), f) < 0)
            return -1;
    });
    return cuda_columns_finish(c, chunks, n, dp, NULL);
}

CUDA_FUNCTION(bias_dw) {
    return sum_rows(c, n->elems / n->inner, n->inner, in->dy, (float *)out->dp);
}

CUDA_FUNCTION(rows_dw) {
    return sum_rows(c, n->outer, n->rows * n->inner, in->dy,
                    (float *)out->dtable + c->args->first * n->inner);
}
