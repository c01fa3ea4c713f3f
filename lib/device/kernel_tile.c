/* Register tiles: one function body, compiled for every height and width of a tile.
 *
 * The loops over the tile have constant bounds in each copy, so the compiler unrolls them
 * and keeps C in registers. Six rows of four vectors take 24 registers, four for a row of B
 * and one for the element of A: ten loads feed 24 multiply-adds, within two loads a cycle.
 */
#include "kernel_tile.h"
#include "kernel_vec.h"

enum { TILE_VECS = TILE_COLS / VL };

/* rows and vecs are constants where it is inlined: all sums stay in registers. */
VEC void tile(const int rows, const int vecs, const struct tile_product *p) {
    const int64_t k = p->k, a_row = p->a_row, a_step = p->a_step, ldb = p->ldb;
    const int64_t ldc = p->ldc;
    const float *a = p->a, *b = p->b;
    float *c = p->c;
    vf sum[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vecs; j++)
            sum[i][j] = p->add ? v_load(c + i * ldc + j * VL) : v_set(0);
    for (int64_t l = 0; l < k; l++, a += a_step, b += ldb) {
        vf row[TILE_VECS];
#pragma GCC unroll 8
        for (int j = 0; j < vecs; j++)
            row[j] = v_load(b + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const vf x = v_set(a[i * a_row]);
#pragma GCC unroll 8
            for (int j = 0; j < vecs; j++)
                sum[i][j] = v_fma(x, row[j], sum[i][j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vecs; j++)
            v_store(c + i * ldc + j * VL, sum[i][j]);
}

/* One copy for each (rows, vecs). */
#define COPY(R, V)                                                                         \
    static void tile_##R##x##V(const struct tile_product *p) {                             \
        tile(R, V, p);                                                                     \
    }
#define COPIES(V) COPY(1, V) COPY(2, V) COPY(3, V) COPY(4, V) COPY(5, V) COPY(6, V)
#define NAMES(V)                                                                           \
    { tile_1x##V, tile_2x##V, tile_3x##V, tile_4x##V, tile_5x##V, tile_6x##V }

COPIES(1)
#if defined(__AVX512F__)
COPIES(2)
COPIES(3)
COPIES(4)
#endif

static void (*const copies[TILE_VECS][TILE_ROWS])(const struct tile_product *) = {
    NAMES(1),
#if defined(__AVX512F__)
    NAMES(2),
    NAMES(3),
    NAMES(4),
#endif
};

void kernel_tile(const struct tile_product *p) {
    copies[(p->cols - 1) / VL][p->rows - 1](p);
}
