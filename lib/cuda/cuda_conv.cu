/* Convolution in its three passes (cuda_conv.h): on the tensor cores where they are for it, else in plain
 * arithmetic in floats, for every type of elements. Then a block makes a tile of 64 x 64 of the result, a
 * thread 4 x 4 numbers of it; operands come through shared memory, 16 of the contracted dim at a time. */
#include "cuda/cuda_columns.h"
#include "cuda/cuda_conv.h"
#include "cuda/cuda_convolution.h"

enum { TILE = CUDA_WORKSPACE_TILE, DEEP = 16, EACH = 4, SIDE = TILE / EACH };

template <typename T> struct forward {
    struct kernel_conv s;
    const T *x, *w;
    T *y;
    CUDA_MEMBER float a(int64_t row, int64_t k) const {
        const int64_t at = in_window(s, row, k);
        return at < 0 ? 0 : get(x + at);
    }
    CUDA_MEMBER float b(int64_t k, int64_t column) const {
        return get(w + k * s.cout + column);
    }
    CUDA_MEMBER void put_at(int64_t row, int64_t column, float v) const {
        put(y + row * s.cout + column, v);
    }
};

template <typename T> struct data {
    struct kernel_conv s;
    const T *dy, *w;
    T *dx;
    CUDA_MEMBER float a(int64_t row, int64_t k) const {
        const int64_t at = of_window(s, row, k);
        return at < 0 ? 0 : get(dy + at);
    }
    CUDA_MEMBER float b(int64_t k, int64_t column) const {
        const int64_t tap = quotient(k, s.cout);
        return get(w + (tap * s.cin + column) * s.cout + (k - tap * s.cout));
    }
    CUDA_MEMBER void put_at(int64_t row, int64_t column, float v) const {
        put(dx + row * s.cin + column, v);
    }
};

/* Parts of the places make sums of their own, which stand in the workspace. */
template <typename T> struct weights {
    struct kernel_conv s;
    const T *x, *dy;
    float *part;
    CUDA_MEMBER float a(int64_t row, int64_t k) const {
        const int64_t at = in_window(s, k, row);
        return at < 0 ? 0 : get(x + at);
    }
    CUDA_MEMBER float b(int64_t k, int64_t column) const {
        return get(dy + k * s.cout + column);
    }
    CUDA_MEMBER void put_at(int64_t row, int64_t column, float v) const {
        part[(blockIdx.z * s.kh * s.kw * s.cin + row) * s.cout + column] = v;
    }
};

/* Blocks: x tiles of rows, y tiles of columns, z parts of `deep` of the contracted dim. */
template <typename F>
CUDA_KERNEL void product(F f, int64_t rows, int64_t columns, int64_t contracted,
                         int64_t deep) {
    __shared__ float a[DEEP][TILE + 1],
        b[DEEP][TILE + 1]; /* + 1: other banks for every row */
    const int64_t row = blockIdx.x * (int64_t)TILE, column = blockIdx.y * (int64_t)TILE;
    const int64_t begin = blockIdx.z * deep;
    const int64_t end = begin + deep < contracted ? begin + deep : contracted;
    const int me = (int)threadIdx.x, across = me % SIDE, down = me / SIDE;
    float sum[EACH][EACH] = {{0}};
    for (int64_t k0 = begin; k0 < end; k0 += DEEP) {
        __syncthreads();
        for (int i = me; i < TILE * DEEP; i += SIDE * SIDE) {
            const int64_t r = row + i / DEEP, k = k0 + i % DEEP;
            a[i % DEEP][i / DEEP] = r < rows && k < end ? f.a(r, k) : 0;
        }
        for (int i = me; i < TILE * DEEP; i += SIDE * SIDE) {
            const int64_t n = column + i % TILE, k = k0 + i / TILE;
            b[i / TILE][i % TILE] = n < columns && k < end ? f.b(k, n) : 0;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEEP; k++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    sum[i][j] =
                        fmaf(a[k][down + i * SIDE], b[k][across + j * SIDE], sum[i][j]);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (row + down + i * SIDE < rows && column + across + j * SIDE < columns)
                f.put_at(row + down + i * SIDE, column + across + j * SIDE, sum[i][j]);
}

template <typename F>
static void launch_product(struct cuda_call *c, int64_t rows, int64_t columns,
                           int64_t contracted, int64_t parts, F f) {
    const dim3 grid(blocks_of(rows, TILE), blocks_of(columns, TILE), (unsigned)parts);
    if (rows * columns > 0)
        CUDA_LAUNCH(product<F>, grid, SIDE * SIDE, 0, c->stream, f, rows, columns,
                    contracted, (contracted + parts - 1) / parts);
}

static int run_forward(struct cuda_call *c, const struct convolution *v) {
    const struct kernel_conv s = v->s;
    const void *x = v->from[0], *w = v->from[1];
    if (cuda_conv_mma(c, &s, x, w, v->to))
        return 0;
    CUDA_TYPED(c->args->dtype, T, {
        const struct forward<T> f = { s, (const T *)x, (const T *)w, (T *)v->to };
        launch_product(c, s.batch * s.oh * s.ow, s.cout, s.kh * s.kw * s.cin, 1, f);
    });
    return 0;
}

static int run_data(struct cuda_call *c, const struct convolution *v) {
    const struct kernel_conv s = v->s;
    const void *dy = v->from[0], *w = v->from[1];
    if (cuda_conv_mma_dx(c, &s, dy, w, v->to))
        return 0;
    CUDA_TYPED(c->args->dtype, T, {
        const struct data<T> f = { s, (const T *)dy, (const T *)w, (T *)v->to };
        launch_product(c, s.batch * s.ih * s.iw, s.cin, s.kh * s.kw * s.cout, 1, f);
    });
    return 0;
}

static int run_weights(struct cuda_call *c, const struct convolution *v) {
    const struct kernel_conv s = v->s;
    const void *x = v->from[0], *dy = v->from[1];
    const int64_t rows = s.kh * s.kw * s.cin, places = s.batch * s.oh * s.ow;
    const int64_t parts = cuda_workspace_parts(rows, s.cout, places);
    if (rows * s.cout * places == 0)
        return 0;
    if (workspace_holds(c, parts * rows * s.cout * (int64_t)sizeof(float)) < 0)
        return -1;
    if (cuda_conv_mma_dw(c, &s, parts, x, dy, (float *)c->workspace))
        return cuda_columns_finish(c, parts, rows * s.cout, (float *)v->to, NULL);
    CUDA_TYPED(c->args->dtype, T, {
        const struct weights<T> f = {
            s, (const T *)x, (const T *)dy, (float *)c->workspace
        };
        launch_product(c, rows, s.cout, places, parts, f);
    });
    return cuda_columns_finish(c, parts, rows * s.cout, (float *)v->to, NULL);
}

int cuda_convolution_own(struct cuda_call *c, const struct convolution *v) {
    switch (v->pass) {
    case KERNEL_FORWARD: return run_forward(c, v);
    case KERNEL_DATA: return run_data(c, v);
    default: return run_weights(c, v);
    }
}
