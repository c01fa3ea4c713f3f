/* cuda_wgmma.h - products of bf16 or f16 by four warps together (wgmma, compute capability 9.0).
 *
 * The four warps of a warpgroup have 64 rows of the product, 16 each, in registers as cuda_mma.h says;
 * so what is written for one warp runs here, and only the products and the tiles differ. The right
 * operand, and the left one where it is not in registers, are read from shared memory as descriptors
 * say (PTX ISA, "asynchronous warpgroup level matrix shared memory layout"): panels of 64 columns,
 * whose rows are 128 bytes; of a row the chunks of 16 bytes change places by the row's number modulo 8.
 *
 * A product is under way until product_wait; its operands and results are left alone so long.
 */
#ifndef WEFT_CUDA_WGMMA_H
#define WEFT_CUDA_WGMMA_H

#include "cuda/cuda_attention_mma.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "compute capability 9.0 is compiled for as sm_90a, which has wgmma"
#endif

/* A tile of so many rows, in panels. */
template <typename T, int DIM, int ROWS> struct alignas(1024) panels_of {
#if defined(WEFT_EMULATE) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    enum { HERE = 1 };
#else
    enum { HERE = 0 };
#endif
    enum { NEXT = 64 };
    T at[ROWS * DIM];

    /* Rows that are a multiple of 8 apart have their chunks in the same places. */
    CUDA_MEMBER int place(int r, int c) const {
        return (c / 64 * ROWS + r) * 64 + ((c % 64 / 8) ^ (r & 7)) * 8;
    }
};

/* What the hardware reads from `at` on: groups of eight rows 1024 bytes apart; panels, where columns
 * of the product are those of the tile, `panel` bytes apart. */
CUDA_DEVICE uint64_t descriptor(const void *at, int panel) {
#ifdef WEFT_EMULATE
    const uint64_t address = (uint64_t)((const char *)at - (const char *)emu_shared());
#else
    const uint64_t address = shared_address(at);
#endif
    const uint64_t leading = panel / 16, stride = 1024 / 16, swizzle = 1;
    return (address & 0x3ffff) >> 4 | leading << 16 | stride << 32 | swizzle << 62;
}

#ifdef WEFT_EMULATE
#include "emulate_wgmma.h"
#else

#define FOUR(c, i)    "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define SIXTEEN(c, i) FOUR(c, i), FOUR(c, i + 1), FOUR(c, i + 2), FOUR(c, i + 3)
#define NAMES_32                                                                           \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "    \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define NAMES_64                                                                           \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "    \
    "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "     \
    "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "     \
    "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

/* The instruction names the type of its operands. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WGMMA(T, shape, operands, ...)                                                     \
    if constexpr (std::is_same_v<T, f16>)                                                  \
        asm volatile("{.reg .pred p; setp.eq.b32 p, 0, 0; "                                \
                     "wgmma.mma_async.sync.aligned." shape ".f32.f16.f16 " operands ";}"   \
                     : __VA_ARGS__);                                                       \
    else                                                                                   \
        asm volatile("{.reg .pred p; setp.eq.b32 p, 0, 0; "                                \
                     "wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 " operands ";}" \
                     : __VA_ARGS__)
#else
#define WGMMA(...)
#endif

/* C += A B^T: 16 columns of rows of tiles. */
template <typename T>
CUDA_DEVICE void wgmma_rows(float (&c)[8][4], uint64_t a, uint64_t b) {
    WGMMA(T, "m64n64k16", NAMES_32 ", %32, %33, p, 1, 1, 0, 0", SIXTEEN(c, 0), SIXTEEN(c, 4)
          : "l"(a), "l"(b));
}
template <typename T>
CUDA_DEVICE void wgmma_rows(float (&c)[16][4], uint64_t a, uint64_t b) {
    WGMMA(T, "m64n128k16", NAMES_64 ", %64, %65, p, 1, 1, 0, 0", SIXTEEN(c, 0),
          SIXTEEN(c, 4), SIXTEEN(c, 8), SIXTEEN(c, 12)
          : "l"(a), "l"(b));
}

/* C += A B: 16 rows of a tile as they lie, A in registers. */
template <typename T>
CUDA_DEVICE void wgmma_block(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b) {
    WGMMA(T, "m64n64k16", NAMES_32 ", {%32, %33, %34, %35}, %36, p, 1, 1, 1", SIXTEEN(c, 0),
          SIXTEEN(c, 4)
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
template <typename T>
CUDA_DEVICE void wgmma_block(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b) {
    WGMMA(T, "m64n128k16", NAMES_64 ", {%64, %65, %66, %67}, %68, p, 1, 1, 1",
          SIXTEEN(c, 0), SIXTEEN(c, 4), SIXTEEN(c, 8), SIXTEEN(c, 12)
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef WGMMA

/* Before a product: what was written to its registers is there. After it: it is a group. */
CUDA_DEVICE void wgmma_begin(void) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
CUDA_DEVICE void wgmma_commit(void) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/* Until all groups but the last N are done. */
template <int N> CUDA_DEVICE void wgmma_wait(void) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}

/* What this thread wrote to shared memory is there for the products of others, after a barrier. */
CUDA_DEVICE void wgmma_publish(void) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* The compiler moves no use of x to before this place. */
CUDA_DEVICE void hold(float &x) {
    asm volatile("" : "+f"(x)::"memory");
}
#endif

template <typename T, int DIM, int ROWS>
CUDA_DEVICE void tiles_wait(const panels_of<T, DIM, ROWS> &) {
    copy_wait<0>();
    wgmma_publish();
}

/* S += A B^T: A is the rows of the warpgroup whose warp has row .. row + 15, B a tile of N rows. */
template <typename T, int DIM, int M, int N>
CUDA_DEVICE void product(int, const panels_of<T, DIM, M> &a, int row,
                         const panels_of<T, DIM, N> &b, float (&s)[1][N / 8][4]) {
    wgmma_begin();
#pragma unroll
    for (int e = 0; e < DIM; e += 16) {
        const int panel = e / 64, at = e % 64;
        wgmma_rows<T>(s[0], descriptor(a.at + (panel * M + row / 64 * 64) * 64 + at, 16),
                      descriptor(b.at + panel * N * 64 + at, 16));
    }
    wgmma_commit();
}

/* C += P B: B is a tile of N rows, P as pack() leaves it. */
template <typename T, int DIM, int N>
CUDA_DEVICE void add_product(const uint32_t (&p)[1][N / 16][4],
                             const panels_of<T, DIM, N> &b, float (&c)[1][DIM / 8][4]) {
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < N / 16; k++)
        wgmma_block<T>(c[0], p[0][k], descriptor(b.at + 16 * k * 64, N * 128));
    wgmma_commit();
}
template <typename T, int DIM, int N>
CUDA_DEVICE void add_product(int, const float (&p)[1][N / 8][4],
                             const panels_of<T, DIM, N> &b, int,
                             float (&c)[1][DIM / 8][4]) {
    uint32_t x[1][N / 16][4];
    pack<T>(p, x);
    add_product(x, b, c);
}

template <int N> CUDA_DEVICE void hold(float (&c)[1][N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            hold(c[0][n][i]);
}

/* Results of products that are given one after the other hold what is added to before the first one:
 * the compiler would write the second's while the first is under way, and wait for that. */
template <typename T, int DIM, int ROWS, typename... C>
CUDA_DEVICE void product_begin(const panels_of<T, DIM, ROWS> &, C &...results) {
    (hold(results), ...);
}

/* Until all products are done, and the results hold them. */
template <typename T, int DIM, int ROWS, typename... C>
CUDA_DEVICE void product_wait(const panels_of<T, DIM, ROWS> &, C &...results) {
    wgmma_wait<0>();
    (hold(results), ...);
}

#endif
