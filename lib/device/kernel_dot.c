#include "kernel_dot.h"
#include "kernel_impl.h"
#include "kernel_vec.h"

#if defined(__AVX512BF16__)

/* ---- by vectors -------------------------------------------------------------------------- */

enum { ROWS = 8, VECS = 2 };

/* 8 x 32 sums in registers: two vectors of pairs feed sixteen products. */
static void vectors(int64_t k, const bf16 *a, int64_t lda, const uint32_t *b, int64_t ldb,
                    float *c, int64_t ldc, bool add) {
    __m512 sum[ROWS][VECS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < VECS; j++)
            sum[i][j] = add ? _mm512_loadu_ps(c + i * ldc + j * VL) : _mm512_setzero_ps();
    for (int64_t l = 0; l < k; l += 2, b += ldb) {
        __m512bh pairs[VECS];
#pragma GCC unroll 2
        for (int j = 0; j < VECS; j++)
            pairs[j] = (__m512bh)_mm512_loadu_si512(b + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            int32_t pair;
            memcpy(&pair, a + i * lda + l, sizeof pair);
            const __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 2
            for (int j = 0; j < VECS; j++)
                sum[i][j] = _mm512_dpbf16_ps(sum[i][j], x, pairs[j]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 2
        for (int j = 0; j < VECS; j++)
            _mm512_storeu_ps(c + i * ldc + j * VL, sum[i][j]);
}

static void dot_vectors(const struct dot_product *p) {
    for (int64_t j = 0; j < p->n; j += VECS * VL)
        for (int64_t i = 0; i < p->m; i += ROWS)
            vectors(p->k, p->a + i * p->lda, p->lda, p->b + j, p->ldb,
                    p->c + i * p->ldc + j, p->ldc, p->add);
}

bool kernel_dot_known(void) {
    return true;
}

#else

bool kernel_dot_known(void) {
    return false;
}

static void dot_vectors(const struct dot_product *p) {
    (void)p;
}

#endif

/* ---- by tiles ---------------------------------------------------------------------------- */

#if defined(__AVX512BF16__) && defined(__AMX_BF16__)

/* What LDTILECFG reads: every tile has 16 rows of 64 bytes. */
struct tiles {
    uint8_t palette, start, none[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

/* The system lets a process use tiles that has asked; the product's library has, if it could. */
void kernel_dot_open(void) {
    static const struct tiles tiles = {.palette = 1,
                                       .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                       .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    if (kernel_blas_tiles())
        _tile_loadconfig(&tiles);
}

void kernel_dot_close(void) {
    if (kernel_blas_tiles())
        _tile_release();
}

/* 32 x 32 sums in four tiles. */
static void tiles(int64_t k, const bf16 *a, int64_t lda, const uint32_t *b, int64_t ldb,
                  float *c, int64_t ldc, bool add) {
    const size_t step_a = (size_t)lda * sizeof *a, step_b = (size_t)ldb * sizeof *b;
    const size_t step_c = (size_t)ldc * sizeof *c;
    if (add) {
        _tile_loadd(0, c, step_c);
        _tile_loadd(1, c + 16, step_c);
        _tile_loadd(2, c + 16 * ldc, step_c);
        _tile_loadd(3, c + 16 * ldc + 16, step_c);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t l = 0; l < k; l += DOT, a += DOT, b += DOT / 2 * ldb) {
        _tile_loadd(4, a, step_a);
        _tile_loadd(6, b, step_b);
        _tile_loadd(5, a + 16 * lda, step_a);
        _tile_loadd(7, b + 16, step_b);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, step_c);
    _tile_stored(1, c + 16, step_c);
    _tile_stored(2, c + 16 * ldc, step_c);
    _tile_stored(3, c + 16 * ldc + 16, step_c);
}

void kernel_dot(const struct dot_product *p) {
    if (!kernel_blas_tiles()) {
        dot_vectors(p);
        return;
    }
    for (int64_t i = 0; i < p->m; i += DOT)
        for (int64_t j = 0; j < p->n; j += DOT)
            tiles(p->k, p->a + i * p->lda, p->lda, p->b + j, p->ldb, p->c + i * p->ldc + j,
                  p->ldc, p->add);
}

#else

void kernel_dot_open(void) {
}

void kernel_dot_close(void) {
}

void kernel_dot(const struct dot_product *p) {
    dot_vectors(p);
}

#endif

/* ---- packing ----------------------------------------------------------------------------- */

void kernel_dot_rows(int64_t rows, int64_t dim, const bf16 *src, int64_t src_stride,
                     bf16 *dst) {
    const int64_t pad = kernel_dot_pad(dim), all = kernel_dot_pad(rows);
    for (int64_t i = 0; i < rows; i++, src += src_stride, dst += pad) {
        memcpy(dst, src, (size_t)dim * sizeof *dst);
        memset(dst + dim, 0, (size_t)(pad - dim) * sizeof *dst);
    }
    memset(dst, 0, (size_t)((all - rows) * pad) * sizeof *dst);
}

void kernel_dot_pairs(int64_t rows, int64_t columns, const bf16 *src, uint32_t *dst) {
    for (int64_t i = 0; i < rows; i += 2, src += 2 * columns, dst += columns)
        for (int64_t j = 0; j < columns; j += VL) {
            const vu low = __builtin_convertvector(half_load(src + j), vu);
            const vu high = __builtin_convertvector(half_load(src + columns + j), vu);
            const vu pair = low | high << 16;
            memcpy(dst + j, &pair, sizeof pair);
        }
}

/* Words of two elements are turned as floats are: 16 x 16 at a time. */
void kernel_dot_turn(int64_t rows, int64_t columns, const bf16 *src, uint32_t *dst,
                     int64_t ld) {
    for (int64_t i = 0; i < rows; i += VL)
        for (int64_t j = 0; j < columns; j += 2 * VL) {
            vf r[VL];
#pragma GCC unroll 16
            for (int k = 0; k < VL; k++)
                memcpy(&r[k], src + (i + k) * columns + j, sizeof r[k]);
            transpose16(r);
#pragma GCC unroll 16
            for (int k = 0; k < VL; k++)
                memcpy(dst + (j / 2 + k) * ld + i, &r[k], sizeof r[k]);
        }
}
