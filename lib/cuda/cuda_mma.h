/* cuda_mma.h - products of small blocks of bf16, f16 or TF32 on the tensor cores of a warp, and how their
 * operands come into shared memory (PTX: mma.sync, ldmatrix, cp.async; compute capability 8.0).
 *
 * All 32 lanes of a warp call these together. A block lies in their registers as PTX says; with
 * g = lane / 4 and t = lane % 4, a lane has
 *
 *     of A [16, 16]   a[0]: row g,     columns 2t, 2t+1      a[2]: row g,     columns 2t+8, 2t+9
 *                     a[1]: row g + 8, columns 2t, 2t+1      a[3]: row g + 8, columns 2t+8, 2t+9
 *     of B [16, 8]    b0:   rows 2t, 2t+1, column g          b1:   rows 2t+8, 2t+9, column g
 *     of C [16, 8]    c[0], c[1]: row g, columns 2t, 2t+1    c[2], c[3]: row g + 8
 *
 * So two neighbours of C, rounded, are a register of A: a product can go on with what the one
 * before it made (pack_pair).
 *
 * A register of TF32 is one float, of which the product reads 10 bits behind the first: those that are
 * loaded are rounded here. So A is [16, 8] and B [8, 8], with column t in the place of columns 2t, 2t+1,
 * and t+4 in that of 2t+8, 2t+9. As the order in which a product goes over what it contracts is free, what C
 * has in columns 2t and 2t+1 may be taken for columns t and t+4 of A, where B has its rows alike.
 *
 * Shared memory holds tiles of rows of DIM elements and 16 bytes that are not used: so the eight rows
 * that a matrix is loaded from lie in different banks, and all of a tile is at constant distances
 * from one address of a lane.
 *
 *     uint32_t a[4], b[4];
 *     load_rows<64>(a, q, 16 * m, 16 * k);             // A = Q[16 m .., 16 k ..]
 *     load_columns<64>(b, keys, 16 * n, 16 * k);        // B = K^T[16 k .., 16 n ..], 16 columns
 *     mma<bf16>(c, a, b[0], b[1]);
 */
#ifndef WEFT_CUDA_MMA_H
#define WEFT_CUDA_MMA_H

#include "cuda/cuda_block.h"

#include <type_traits>

#ifdef WEFT_EMULATE
#include "emulate_mma.h"
#else

/* Two floats rounded to T, bf16 or f16, the first in the lower half. */
template <typename T> CUDA_DEVICE uint32_t pack_pair(float first, float second) {
    uint32_t pair;
    if constexpr (std::is_same_v<T, f16>)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

/* 2^x with a relative error of 2^-22; what is below the normal floats is zero. */
CUDA_DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* A float rounded to TF32: to nearest, ties away from zero. */
CUDA_DEVICE uint32_t tf32_of(float x) {
    uint32_t y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}

/* C += A B, of bf16, f16, or TF32 where T is float. */
#define MMA(shape, type)                                                                   \
    asm("mma.sync.aligned." shape ".row.col.f32." type "." type ".f32 "                    \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                  \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                   \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <typename T>
CUDA_DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (std::is_same_v<T, float>)
        MMA("m16n8k8", "tf32");
    else if constexpr (std::is_same_v<T, f16>)
        MMA("m16n8k16", "f16");
    else
        MMA("m16n8k16", "bf16");
}
#undef MMA

CUDA_DEVICE uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Four matrices of eight rows of 16 bytes; lanes 8 i .. 8 i + 7 point to the rows of the i-th. A lane
 * gets four bytes of row lane / 4. */
CUDA_DEVICE void load_matrices(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* The same of the transposed matrices, of elements of 16 bits. */
CUDA_DEVICE void load_transposed(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* Begins to copy 16 bytes from global to shared memory, or to write zeros if not `there`. */
CUDA_DEVICE void copy_chunk(void *shared, const void *global, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(shared)), "l"(global), "r"(there ? 16 : 0)
                 : "memory");
}

/* The same of one float. */
CUDA_DEVICE void copy_float(float *shared, const float *global, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(shared_address(shared)), "l"(global), "r"(there ? 4 : 0)
                 : "memory");
}

/* The copies that this thread has begun since the last call become a group. */
CUDA_DEVICE void copy_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until all of the thread's groups but the last N have arrived; others see them after a barrier. */
template <int N> CUDA_DEVICE void copy_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif

/* What a product contracts at once: 16 of 16 bits, or 8 floats. */
template <typename T> struct depth_of {
    enum { N = 2 * vector_of<T>::N };
};

/* What was loaded is rounded where it is not of the product's type. */
template <typename T> CUDA_DEVICE void round_loaded(uint32_t (&r)[4]) {
    if constexpr (std::is_same_v<T, float>)
#pragma unroll
        for (int i = 0; i < 4; i++)
            r[i] = tf32_of(bits_float(r[i]));
}

/* Two neighbours of a row. */
template <typename T> CUDA_DEVICE void put_pair(T *to, float first, float second) {
    if constexpr (std::is_same_v<T, float>)
        *(float2 *)to = {first, second};
    else
        *(uint32_t *)to = pack_pair<T>(first, second);
}

/* A tile of so many rows. */
template <typename T, int DIM, int ROWS> struct alignas(16) tile_of {
    enum { HERE = 1 };                     /* the compiler's target has its instructions */
    enum { NEXT = DIM + vector_of<T>::N }; /* elements from row to row */
    T at[ROWS * NEXT];

    CUDA_MEMBER int place(int r, int c) const {
        return r * NEXT + c;
    }
};

/* A: rows r .. r + 15 of the tile, columns from c on. */
template <int DIM, typename T>
CUDA_DEVICE void load_rows(uint32_t (&a)[4], const T *tile, int r, int c) {
    const int lane = threadIdx.x & 31;
    const int each = vector_of<T>::N;
    load_matrices(a, tile + (r + (lane & 15)) * (DIM + each) + c + (lane >> 4) * each);
    round_loaded<T>(a);
}

/* Two of B, whose columns are rows r .. r + 7 and r + 8 .. r + 15 of the tile, and whose rows are
 * columns from c on. b[0], b[1] are the first, b[2], b[3] the second. */
template <int DIM, typename T>
CUDA_DEVICE void load_columns(uint32_t (&b)[4], const T *tile, int r, int c) {
    const int lane = threadIdx.x & 31;
    const int each = vector_of<T>::N;
    load_matrices(b, tile + (r + (lane & 7) + (lane >> 4) * 8) * (DIM + each) + c +
                         (lane >> 3 & 1) * each);
    round_loaded<T>(b);
}

/* Two of B in floats: its rows t and t + 4 are what is at `first` and at `second`, and 8 columns on. */
CUDA_DEVICE void load_words(uint32_t (&b)[4], const float *first, const float *second) {
    b[0] = tf32_of(first[0]), b[1] = tf32_of(second[0]);
    b[2] = tf32_of(first[8]), b[3] = tf32_of(second[8]);
}

/* Two of B as they lie: rows from r on of the tile, columns c .. c + 7 and c + 8 .. c + 15. Rows of
 * floats are in the order that C's columns have as columns of A. */
template <int DIM, typename T>
CUDA_DEVICE void load_block(uint32_t (&b)[4], const T *tile, int r, int c) {
    const int lane = threadIdx.x & 31, next = DIM + vector_of<T>::N;
    if constexpr (std::is_same_v<T, float>) {
        const float *at = tile + (r + 2 * (lane & 3)) * next + c + lane / 4;
        load_words(b, at, at + next);
    } else {
        load_transposed(b, tile + (r + (lane & 15)) * next + c + (lane >> 4) * 8);
    }
}

/* Where a ROOM, with the alignment that it asks for, lies in the dynamic shared memory, and how much of
 * that it takes. */
template <typename ROOM> CUDA_DEVICE ROOM *room_in(char *shared) {
    const uintptr_t align = alignof(ROOM);
    return (ROOM *)(((uintptr_t)shared + align - 1) / align * align);
}
template <typename ROOM> constexpr size_t room_bytes(void) {
    return sizeof(ROOM) + alignof(ROOM) - 16; /* it is on 16 bytes as it is */
}

/* Begins to copy rows first .. first + ROWS - 1 of x, `stride` elements apart and `dim` long, into a
 * tile; zeros stand for rows from `rows` on and for columns from dim on. x lies on 16 bytes, and so does each
 * row. */
template <int THREADS, template <typename, int, int> class TILE, typename T, int DIM,
          int ROWS>
CUDA_DEVICE void tile_begin(TILE<T, DIM, ROWS> &tile, const T *x, int64_t stride, int first,
                            int rows, int dim) {
    const int chunk = vector_of<T>::N, chunks = DIM / chunk;
    const int each = THREADS / chunks; /* rows at a time */
    static_assert(THREADS % chunks == 0 && ROWS % each == 0, "each thread copies as much");
    const int r = (int)threadIdx.x / chunks, c = (int)threadIdx.x % chunks * chunk;
    const int there = c < dim ? rows - first - r : 0;
    const T *from = x + (there > 0 ? (first + r) * stride + c : 0);
    T *to = tile.at + tile.place(r, c);
#pragma unroll
    for (int i = 0; i < ROWS / each; i++) {
        copy_chunk(to + i * each * TILE<T, DIM, ROWS>::NEXT, from, i * each < there);
        if ((i + 1) * each < there)
            from += each * stride;
    }
}

/* Until the copies of all tiles have arrived; others see them after a barrier. */
template <typename T, int DIM, int ROWS>
CUDA_DEVICE void tiles_wait(const struct tile_of<T, DIM, ROWS> &) {
    copy_wait<0>();
}

#endif
