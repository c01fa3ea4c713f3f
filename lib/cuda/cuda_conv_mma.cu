/* Convolutions of bf16 and f16 on the tensor cores, with sums in floats.
 *
 * A block of four warps makes a tile of 128 x 64 of the result (cuda_conv.h), a warp 32 rows of it. 32 of
 * the contracted dim at a time come into shared memory by asynchronous copies of 16 bytes, which is
 * eight channels that lie together; while the warps multiply one such step the next one is under way.
 * What is outside of a map arrives as zeros. */
#include "cuda/cuda_conv.h"
#include "cuda/cuda_mma.h"

enum {
    ROWS = 128,    /* of the tile */
    COLUMNS = 64,  /* of the tile */
    DEEP = 32,     /* of the contracted dim at a time */
    THREADS = 128, /* of a block: a warp for each 32 rows */
    CHUNK = 8,     /* elements of a copy */
    PAD = 8        /* of a row in shared memory, as tiles of cuda_mma.h have it */
};

/* Tiles lie as their operands do in memory: `by_depth`, a row holds one number of the contracted dim. */
template <typename T, bool BY_DEPTH, int SIZE> struct operand_tile {
    enum {
        WIDTH = BY_DEPTH ? SIZE : (int)DEEP,
        HEIGHT = BY_DEPTH ? (int)DEEP : SIZE,
        COPIES = SIZE * DEEP / CHUNK / THREADS /* of each thread */
    };
    alignas(16) T at[HEIGHT * (WIDTH + PAD)];
};

/* A's 16 x 16 from a tile whose rows hold one depth each: rows r .. r + 15 of A are its columns. */
template <int WIDTH, typename T>
CUDA_DEVICE void load_turned(uint32_t (&a)[4], const T *tile, int r, int depth) {
    const int lane = threadIdx.x & 31;
    load_transposed(a, tile + (depth + (lane & 7) + (lane >> 4) * 8) * (WIDTH + PAD) + r +
                           (lane >> 3 & 1) * 8);
}

/* ---- where operands lie: of 8 elements, along the rows of the tile; NULL: zeros --------------------- */

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
    CUDA_MEMBER void put_pair(int64_t row, int64_t column, float v0, float v1) const {
        *(uint32_t *)(y + row * s.cout + column) = pack_pair<T>(v0, v1);
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
    CUDA_MEMBER void put_pair(int64_t row, int64_t column, float v0, float v1) const {
        *(uint32_t *)(dx + row * s.cin + column) = pack_pair<T>(v0, v1);
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
    CUDA_MEMBER void put_pair(int64_t row, int64_t column, float v0, float v1) const {
        float *to = part + (blockIdx.z * s.kh * s.kw * s.cin + row) * s.cout + column;
        to[0] = v0;
        to[1] = v1;
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
        copy_chunk(&s.a.at[line * (a_tile::WIDTH + PAD) + at], from ? from : f.b(0, 0),
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
        copy_chunk(&s.b.at[line * (b_tile::WIDTH + PAD) + at],
                   f.b(there ? depth : 0, there ? column : 0), there);
    }
}

/* c += this step, for the warp's 32 rows. */
template <typename F>
CUDA_DEVICE void multiply(const struct step<F> &s, float (&c)[2][COLUMNS / 8][4]) {
    typedef typename F::type T;
    const int first = (int)threadIdx.x / WARP * 32;
#pragma unroll
    for (int k = 0; k < DEEP; k += 16) {
        uint32_t a[2][4], b[4];
#pragma unroll
        for (int i = 0; i < 2; i++)
            if constexpr (F::A_BY_DEPTH)
                load_turned<ROWS>(a[i], s.a.at, first + 16 * i, k);
            else
                load_rows<DEEP>(a[i], s.a.at, first + 16 * i, k);
#pragma unroll
        for (int j = 0; j < COLUMNS / 16; j++) {
            if constexpr (F::B_BY_DEPTH)
                load_block<COLUMNS>(b, s.b.at, k, 16 * j);
            else
                load_columns<DEEP>(b, s.b.at, 16 * j, k);
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
                    f.put_pair(row, column, c[i][j][2 * half], c[i][j][2 * half + 1]);
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
    return c->args->dtype != DTYPE_f32 && s->cin % CHUNK == 0 && s->cout % CHUNK == 0 &&
           lies;
}

bool cuda_conv_mma(struct cuda_call *c, const struct kernel_conv *s, const void *x,
                   const void *w, void *y) {
    if (!fits(c, s, aligned(x, w, y)))
        return false;
    CUDA_HALF(c->args->dtype, T, {
        const struct forward<T> f = { *s, (const T *)x, (const T *)w, (T *)y };
        launch(c, s->batch * s->oh * s->ow, s->cout, s->kh * s->kw * s->cin, 1, f);
    });
    return true;
}

bool cuda_conv_mma_dx(struct cuda_call *c, const struct kernel_conv *s, const void *dy,
                      const void *w, void *dx) {
    if (!fits(c, s, aligned(dy, w, dx)))
        return false;
    CUDA_HALF(c->args->dtype, T, {
        const struct data<T> f = { *s, (const T *)dy, (const T *)w, (T *)dx };
        launch(c, s->batch * s->ih * s->iw, s->cin, s->kh * s->kw * s->cout, 1, f);
    });
    return true;
}

bool cuda_conv_mma_dw(struct cuda_call *c, const struct kernel_conv *s, int64_t parts,
                      const void *x, const void *dy, float *part) {
    if (!fits(c, s, aligned(x, dy)))
        return false;
    CUDA_HALF(c->args->dtype, T, {
        const struct weights<T> f = { *s, (const T *)x, (const T *)dy, part };
        launch(c, s->kh * s->kw * s->cin, s->cout, s->batch * s->oh * s->ow, parts, f);
    });
    return true;
}
