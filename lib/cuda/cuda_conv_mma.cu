/* Convolutions on the tensor cores, with sums in floats: of bf16, of f16, and of floats in TF32 where that is
 * asked for.
 *
 * A block of four warps makes a tile of 128 x 64 of the result (cuda_conv.h), a warp 32 rows of it. 64
 * bytes of the contracted dim at a time come into shared memory by asynchronous copies of 16 bytes, which
 * are channels that lie together; while the warps multiply one such step the next one is under way. What
 * is outside of a map arrives as zeros. */
#include "cuda/cuda_conv.h"
#include "cuda/cuda_mma.h"

enum {
    ROWS = 128,   /* of the tile */
    COLUMNS = 64, /* of the tile */
    THREADS = 128 /* of a block: a warp for each 32 rows */
};

/* In elements of T. */
template <typename T> struct step_of {
    enum {
        CHUNK = vector_of<T>::N, /* of a copy */
        DEEP = 4 * CHUNK         /* of the contracted dim at a time */
    };
};

/* Tiles lie as their operands do in memory: BY_DEPTH, a row holds one number of the contracted dim.
 * Rows have what is not used behind them, so that what a warp loads at once lies in different banks. */
template <typename T, bool BY_DEPTH, int SIZE> struct operand_tile {
    enum {
        WIDTH = BY_DEPTH ? SIZE : (int)step_of<T>::DEEP,
        HEIGHT = BY_DEPTH ? (int)step_of<T>::DEEP : SIZE,
        NEXT = WIDTH + (BY_DEPTH ? 8 : (int)step_of<T>::CHUNK),        /* from row to row */
        COPIES = SIZE * step_of<T>::DEEP / step_of<T>::CHUNK / THREADS /* of each thread */
    };
    alignas(16) T at[HEIGHT * NEXT];
};

/* Two of B in floats from a tile by depth. */
template <int SIZE>
CUDA_DEVICE void load_deep(uint32_t (&b)[4], const operand_tile<float, true, SIZE> &tile,
                           int depth, int c) {
    const int lane = threadIdx.x & 31, next = operand_tile<float, true, SIZE>::NEXT;
    const float *at = tile.at + (depth + (lane & 3)) * next + c + lane / 4;
    load_words(b, at, at + 4 * next);
}

/* A: rows r .. r + 15, numbers of the contracted dim from `depth` on. */
template <typename T, bool BY_DEPTH, int SIZE>
CUDA_DEVICE void load_a(uint32_t (&a)[4], const operand_tile<T, BY_DEPTH, SIZE> &tile,
                        int r, int depth) {
    const int lane = threadIdx.x & 31, next = operand_tile<T, BY_DEPTH, SIZE>::NEXT;
    if constexpr (!BY_DEPTH) {
        load_rows<step_of<T>::DEEP>(a, tile.at, r, depth);
    } else if constexpr (std::is_same_v<T, float>) {
        uint32_t b[4];
        load_deep(b, tile, depth, r);
        a[0] = b[0], a[1] = b[2], a[2] = b[1], a[3] = b[3];
    } else {
        load_transposed(a, tile.at + (depth + (lane & 7) + (lane >> 4) * 8) * next + r +
                               (lane >> 3 & 1) * 8);
    }
}

/* Two of B: columns c .. c + 7 and c + 8 .. c + 15. */
template <typename T, bool BY_DEPTH, int SIZE>
CUDA_DEVICE void load_b(uint32_t (&b)[4], const operand_tile<T, BY_DEPTH, SIZE> &tile,
                        int depth, int c) {
    if constexpr (!BY_DEPTH)
        load_columns<step_of<T>::DEEP>(b, tile.at, c, depth);
    else if constexpr (std::is_same_v<T, float>)
        load_deep(b, tile, depth, c);
    else
        load_block<SIZE>(b, tile.at, depth, c);
}

/* ---- where operands lie: of 16 bytes, along the rows of the tile; NULL: zeros --------------------- */

template <typename T> struct forward {
    typedef T type;
    enum { A_BY_DEPTH = false, B_BY_DEPTH = true };
    struct kernel_conv s;
    const T *x, *w;
    T *y;
    CUDA_MEMBER const T *a(int64_t row, int64_t k) const {
        const int64_t at = in_window(s, row, k);
        return at < 0 ? NULL : x + at;
    }
    CUDA_MEMBER const T *b(int64_t k, int64_t column) const {
        return w + k * s.cout + column;
    }
    CUDA_MEMBER void put(int64_t row, int64_t column, float v0, float v1) const {
        put_pair(y + row * s.cout + column, v0, v1);
    }
};

template <typename T> struct data {
    typedef T type;
    enum { A_BY_DEPTH = false, B_BY_DEPTH = false };
    struct kernel_conv s;
    const T *dy, *w;
    T *dx;
    CUDA_MEMBER const T *a(int64_t row, int64_t k) const {
        const int64_t at = of_window(s, row, k);
        return at < 0 ? NULL : dy + at;
    }
    CUDA_MEMBER const T *b(int64_t k, int64_t column) const {
        const int64_t tap = quotient(k, s.cout);
        return w + (tap * s.cin + column) * s.cout + (k - tap * s.cout);
    }
    CUDA_MEMBER void put(int64_t row, int64_t column, float v0, float v1) const {
        put_pair(dx + row * s.cin + column, v0, v1);
    }
};

template <typename T> struct weights {
    typedef T type;
    enum { A_BY_DEPTH = true, B_BY_DEPTH = true };
    struct kernel_conv s;
    const T *x, *dy;
    float *part;
    CUDA_MEMBER const T *a(int64_t row, int64_t k) const {
        const int64_t at = in_window(s, k, row);
        return at < 0 ? NULL : x + at;
    }
    CUDA_MEMBER const T *b(int64_t k, int64_t column) const {
        return dy + k * s.cout + column;
    }
    CUDA_MEMBER void put(int64_t row, int64_t column, float v0, float v1) const {
        float *to = part + (blockIdx.z * s.kh * s.kw * s.cin + row) * s.cout + column;
        put_pair(to, v0, v1);
    }
};

/* ---- the product ---------------------------------------------------------------------------- */

/* The extents of a product, and the part of the contracted dim that this block adds up. */
struct extent {
    int64_t rows, columns, row, column, end;
};

template <typename F> struct step {
    operand_tile<typename F::type, F::A_BY_DEPTH, ROWS> a;
    operand_tile<typename F::type, F::B_BY_DEPTH, COLUMNS> b;
};

/* Begins to copy the operands from depth k on. */
template <typename F>
CUDA_DEVICE void begin_step(const F &f, const struct extent &e, int64_t k,
                            struct step<F> &s) {
    typedef typename F::type T;
    enum { CHUNK = step_of<T>::CHUNK };
    typedef operand_tile<T, F::A_BY_DEPTH, ROWS> a_tile;
    typedef operand_tile<T, F::B_BY_DEPTH, COLUMNS> b_tile;
#pragma unroll
    for (int i = 0; i < a_tile::COPIES; i++) {
        const int copy = i * THREADS + (int)threadIdx.x;
        const int line = copy / (a_tile::WIDTH / CHUNK),
                  at = copy % (a_tile::WIDTH / CHUNK) * CHUNK;
        const int64_t row = e.row + (F::A_BY_DEPTH ? at : line);
        const int64_t depth = k + (F::A_BY_DEPTH ? line : at);
        const T *from = row < e.rows && depth < e.end ? f.a(row, depth) : NULL;
        copy_chunk(&s.a.at[line * a_tile::NEXT + at], from ? from : f.b(0, 0),
                   from != NULL);
    }
#pragma unroll
    for (int i = 0; i < b_tile::COPIES; i++) {
        const int copy = i * THREADS + (int)threadIdx.x;
        const int line = copy / (b_tile::WIDTH / CHUNK),
                  at = copy % (b_tile::WIDTH / CHUNK) * CHUNK;
        const int64_t column = e.column + (F::B_BY_DEPTH ? at : line);
        const int64_t depth = k + (F::B_BY_DEPTH ? line : at);
        const bool there = column < e.columns && depth < e.end;
        copy_chunk(&s.b.at[line * b_tile::NEXT + at],
                   f.b(there ? depth : 0, there ? column : 0), there);
    }
}

/* c += this step, for the warp's 32 rows. */
template <typename F>
CUDA_DEVICE void multiply(const struct step<F> &s, float (&c)[2][COLUMNS / 8][4]) {
    typedef typename F::type T;
    const int first = (int)threadIdx.x / WARP * 32;
#pragma unroll
    for (int k = 0; k < step_of<T>::DEEP; k += depth_of<T>::N) {
        uint32_t a[2][4], b[4];
#pragma unroll
        for (int i = 0; i < 2; i++)
            load_a(a[i], s.a, first + 16 * i, k);
#pragma unroll
        for (int j = 0; j < COLUMNS / 16; j++) {
            load_b(b, s.b, k, 16 * j);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                mma<T>(c[i][2 * j], a[i], b[0], b[1]);
                mma<T>(c[i][2 * j + 1], a[i], b[2], b[3]);
            }
        }
    }
}

/* Blocks: x tiles of rows, y tiles of columns, z parts of `deep` of the contracted dim. */
template <typename F>
CUDA_KERNEL void __launch_bounds__(THREADS, 3)
    product_mma(F f, int64_t rows, int64_t columns, int64_t contracted, int64_t deep) {
    enum { DEEP = step_of<typename F::type>::DEEP };
    __shared__ struct step<F> steps[2];
    const int64_t begin = blockIdx.z * deep, stop = begin + deep;
    const struct extent e = {rows, columns, blockIdx.x * (int64_t)ROWS,
                             blockIdx.y * (int64_t)COLUMNS,
                             stop < contracted ? stop : contracted};
    float c[2][COLUMNS / 8][4] = {{{0}}};
    int now = 0;
    begin_step(f, e, begin, steps[0]);
    copy_commit();
    for (int64_t k = begin; k < e.end; k += DEEP, now = !now) {
        if (k + DEEP < e.end)
            begin_step(f, e, k + DEEP, steps[!now]);
        copy_commit(); /* also of nothing, so that the last step is waited for as the others are */
        copy_wait<1>();
        __syncthreads();
        multiply(steps[now], c);
        __syncthreads();
    }
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int64_t row =
                    e.row + (int)threadIdx.x / WARP * 32 + 16 * i + 8 * half + lane / 4;
                const int64_t column = e.column + 8 * j + 2 * (lane % 4);
                if (row < rows && column < columns)
                    f.put(row, column, c[i][j][2 * half], c[i][j][2 * half + 1]);
            }
}

template <typename F>
static void launch(const struct cuda_call *c, int64_t rows, int64_t columns,
                   int64_t contracted, int64_t parts, F f) {
    if (rows * columns > 0)
        CUDA_LAUNCH(
            product_mma<F>,
            dim3(blocks_of(rows, ROWS), blocks_of(columns, COLUMNS), (unsigned)parts),
            THREADS, 0, c->stream, f, rows, columns, contracted,
            (contracted + parts - 1) / parts);
}

/* lies: operands are on 16 bytes. */
static bool fits(const struct cuda_call *c, const struct kernel_conv *s, bool lies) {
    const int64_t chunk = VECTOR / dtype_size(c->args->dtype);
    return (c->args->dtype != DTYPE_f32 || c->dev->tf32) && s->cin % chunk == 0 &&
           s->cout % chunk == 0 && lies;
}

bool cuda_conv_mma(struct cuda_call *c, const struct kernel_conv *s, const void *x,
                   const void *w, void *y) {
    if (!fits(c, s, aligned(x, w, y)))
        return false;
    CUDA_TYPED(c->args->dtype, T, {
        const struct forward<T> f = { *s, (const T *)x, (const T *)w, (T *)y };
        launch(c, s->batch * s->oh * s->ow, s->cout, s->kh * s->kw * s->cin, 1, f);
    });
    return true;
}

bool cuda_conv_mma_dx(struct cuda_call *c, const struct kernel_conv *s, const void *dy,
                      const void *w, void *dx) {
    if (!fits(c, s, aligned(dy, w, dx)))
        return false;
    CUDA_TYPED(c->args->dtype, T, {
        const struct data<T> f = { *s, (const T *)dy, (const T *)w, (T *)dx };
        launch(c, s->batch * s->ih * s->iw, s->cin, s->kh * s->kw * s->cout, 1, f);
    });
    return true;
}

bool cuda_conv_mma_dw(struct cuda_call *c, const struct kernel_conv *s, int64_t parts,
                      const void *x, const void *dy, float *part) {
    if (!fits(c, s, aligned(x, dy)))
        return false;
    CUDA_TYPED(c->args->dtype, T, {
        const struct weights<T> f = { *s, (const T *)x, (const T *)dy, part };
        launch(c, s->kh * s->kw * s->cin, s->cout, s->batch * s->oh * s->ow, parts, f);
    });
    return true;
}
