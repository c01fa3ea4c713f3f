/* Convolution in its three passes, as products of matrices whose elements are found where they lie (an
 * implicit product): no patches are stored. A block makes a tile of 64 x 64 of the result, a thread
 * 4 x 4 numbers of it; operands come through shared memory, 16 of the contracted dim at a time. Plain
 * arithmetic in floats for every type of elements: simple and right, where a library would be faster.
 *
 * pass       result [rows, columns]          contracted
 * forward    y      [places of y, cout]      taps, cin
 * data       dx     [places of x, cin]       taps, cout
 * weights    dw     [taps cin, cout]         places of y */
#include "cuda/cuda_columns.h"

#define CONV_OF(n)                                                                         \
    {                                                                                      \
        (n)->batch, (n)->ih, (n)->iw, (n)->cin, (n)->oh, (n)->ow, (n)->cout, (n)->kh,      \
            (n)->kw, (n)->stride, (n)->ph, (n)->pw                                         \
    }

enum { TILE = WORKSPACE_GPU_TILE, DEEP = 16, EACH = 4, SIDE = TILE / EACH };

/* A number as digits: high * n * m + middle * m + low. */
struct digits {
    int64_t high, middle, low;
};
CUDA_DEVICE struct digits digits_of(int64_t i, int64_t n, int64_t m) {
    struct digits d;
    const int64_t rest = quotient(i, m);
    d.low = i - rest * m;
    d.high = quotient(rest, n);
    d.middle = rest - d.high * n;
    return d;
}

/* x at tap (h, w) of channel c of the window of a place of y, or 0 outside. */
template <typename T>
CUDA_DEVICE float window(const struct kernel_conv &s, const T *x, int64_t place,
                         const struct digits &tap) {
    const struct digits at = digits_of(place, s.oh, s.ow);
    const int64_t h = at.middle * s.stride - s.ph + tap.high;
    const int64_t w = at.low * s.stride - s.pw + tap.middle;
    if (h < 0 || h >= s.ih || w < 0 || w >= s.iw)
        return 0;
    return get(x + ((at.high * s.ih + h) * s.iw + w) * s.cin + tap.low);
}

template <typename T> struct forward {
    struct kernel_conv s;
    const T *x, *w;
    T *y;
    CUDA_MEMBER float a(int64_t row, int64_t k) const {
        return window(s, x, row, digits_of(k, s.kw, s.cin));
    }
    CUDA_MEMBER float b(int64_t k, int64_t column) const {
        return get(w + k * s.cout + column);
    }
    CUDA_MEMBER void put_at(int64_t row, int64_t column, float v) const {
        put(y + row * s.cout + column, v);
    }
};

/* A place of x is in the window of (oh, ow) at tap (r, t) if oh * stride - ph + r is its row. */
template <typename T> struct data {
    struct kernel_conv s;
    const T *dy, *w;
    T *dx;
    CUDA_MEMBER float a(int64_t row, int64_t k) const {
        const struct digits tap = digits_of(k, s.kw, s.cout),
                            at = digits_of(row, s.ih, s.iw);
        const int64_t h = at.middle + s.ph - tap.high, v = at.low + s.pw - tap.middle;
        if (h < 0 || v < 0)
            return 0;
        const int64_t oh = quotient(h, s.stride), ow = quotient(v, s.stride);
        if (oh * s.stride != h || ow * s.stride != v || oh >= s.oh || ow >= s.ow)
            return 0;
        return get(dy + ((at.high * s.oh + oh) * s.ow + ow) * s.cout + tap.low);
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
        return window(s, x, k, digits_of(row, s.kw, s.cin));
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

CUDA_FUNCTION(conv2d) {
    const struct kernel_conv s = CONV_OF(n);
    CUDA_TYPED(c->args->dtype, T, {
        const struct forward<T> f = { s, (const T *)in->x, (const T *)in->w, (T *)out->y };
        launch_product(c, s.batch * s.oh * s.ow, s.cout, s.kh * s.kw * s.cin, 1, f);
    });
    return 0;
}

CUDA_FUNCTION(conv2d_dx) {
    const struct kernel_conv s = CONV_OF(n);
    CUDA_TYPED(c->args->dtype, T, {
        const struct data<T> f = { s, (const T *)in->dy, (const T *)in->w, (T *)out->dx };
        launch_product(c, s.batch * s.ih * s.iw, s.cin, s.kh * s.kw * s.cout, 1, f);
    });
    return 0;
}

CUDA_FUNCTION(conv2d_dw) {
    const struct kernel_conv s = CONV_OF(n);
    const int64_t rows = s.kh * s.kw * s.cin, places = s.batch * s.oh * s.ow;
    const int64_t parts = workspace_gpu_parts(rows, s.cout, places);
    if (rows * s.cout * places == 0)
        return 0;
    if (workspace_holds(c, parts * rows * s.cout * (int64_t)sizeof(float)) < 0)
        return -1;
    CUDA_TYPED(c->args->dtype, T, {
        const struct weights<T> f = {
            s, (const T *)in->x, (const T *)in->dy, (float *)c->workspace
        };
        launch_product(c, rows, s.cout, places, parts, f);
    });
    return cuda_columns_finish(c, parts, rows * s.cout, (float *)out->dw, NULL);
}
