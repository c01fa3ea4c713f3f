/* Numbers of 16 bits to floats and back, and data that is narrower than what instructions take; one pass
 * over memory. */
#include "kernel_impl.h"
#include "kernel_vec.h"

#define CONVERSIONS(type)                                                                  \
    static void widen_range_##type(int64_t n, const type *x, float *y) {                   \
        int64_t i = 0;                                                                     \
        for (; i + VL <= n; i += VL)                                                       \
            v_store(y + i, widen_##type(half_load(x + i)));                                \
        if (i < n)                                                                         \
            v_store_n(y + i, n - i, widen_##type(half_load_n(x + i, n - i)));              \
    }                                                                                      \
    static void narrow_range_##type(int64_t n, const float *x, type *y) {                  \
        int64_t i = 0;                                                                     \
        for (; i + VL <= n; i += VL)                                                       \
            half_store(y + i, narrow_##type(v_load(x + i)));                               \
        if (i < n)                                                                         \
            half_store_n(y + i, n - i, narrow_##type(v_load_n(x + i, n - i)));             \
    }
CONVERSIONS(bf16)
CONVERSIONS(f16)

static void widen_range(int64_t n, enum dtype from, const void *x, int64_t at, float *y) {
    if (from == DTYPE_bf16)
        widen_range_bf16(n, (const bf16 *)x + at, y + at);
    else if (from == DTYPE_f16)
        widen_range_f16(n, (const f16 *)x + at, y + at);
    else
        memcpy(y + at, (const float *)x + at, (size_t)n * sizeof *y);
}

/* To y[at..at+n). */
static void narrow_range(int64_t n, enum dtype to, const float *x, void *y, int64_t at) {
    if (to == DTYPE_bf16)
        narrow_range_bf16(n, x, (bf16 *)y + at);
    else if (to == DTYPE_f16)
        narrow_range_f16(n, x, (f16 *)y + at);
    else
        memcpy((float *)y + at, x, (size_t)n * sizeof *x);
}

void kernel_widen(int64_t n, enum dtype from, const void *x, float *y) {
    KERNEL_SPLIT(n, VL, n, widen_range(end - first, from, x, first, y));
}

void kernel_narrow(int64_t n, enum dtype to, const float *x, void *y) {
    KERNEL_SPLIT(n, VL, n, narrow_range(end - first, to, x + first, y, first));
}

/* ---- data ----------------------------------------------------------------------------------- */

static void ids_of_bytes(int64_t n, const uint8_t *restrict x, int32_t *restrict y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
}

static void ids_of_u16(int64_t n, const uint16_t *restrict x, int32_t *restrict y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
}

static void values_of_bytes(int64_t n, const uint8_t *restrict x, float *restrict y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)x[i] / 255.0f;
}

/* To 16 bits by way of floats that stay in the cache. */
static void unpack_bytes(int64_t n, const uint8_t *x, enum dtype to, void *y, int64_t at) {
    enum { PIECE = 1024 };
    float piece[PIECE];
    for (int64_t i = 0, m; i < n && to != DTYPE_f32; i += m) {
        m = n - i < PIECE ? n - i : PIECE;
        values_of_bytes(m, x + i, piece);
        narrow_range(m, to, piece, y, at + i);
    }
    if (to == DTYPE_f32)
        values_of_bytes(n, x, (float *)y + at);
}

/* Numbers [at, at+n) of y. */
static void unpack_range(int64_t n, enum dtype from, const void *x, enum dtype to, void *y,
                         int64_t at) {
    if (to == DTYPE_i32 && from == DTYPE_u8)
        ids_of_bytes(n, (const uint8_t *)x + at, (int32_t *)y + at);
    else if (to == DTYPE_i32 && from == DTYPE_u16)
        ids_of_u16(n, (const uint16_t *)x + at, (int32_t *)y + at);
    else if (from == DTYPE_u8)
        unpack_bytes(n, (const uint8_t *)x + at, to, y, at);
    else if (to == DTYPE_i32) /* as it is */
        memcpy((int32_t *)y + at, (const int32_t *)x + at, (size_t)n * sizeof(int32_t));
    else
        narrow_range(n, to, (const float *)x + at, y, at);
}

void kernel_unpack(int64_t n, enum dtype from, const void *x, enum dtype to, void *y) {
    KERNEL_SPLIT(n, VL, n, unpack_range(end - first, from, x, to, y, first));
}
