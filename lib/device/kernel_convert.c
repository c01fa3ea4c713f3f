/* Numbers of 16 bits to floats and back, one pass over memory. */
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

static void narrow_range(int64_t n, enum dtype to, const float *x, void *y, int64_t at) {
    if (to == DTYPE_bf16)
        narrow_range_bf16(n, x + at, (bf16 *)y + at);
    else if (to == DTYPE_f16)
        narrow_range_f16(n, x + at, (f16 *)y + at);
    else
        memcpy((float *)y + at, x + at, (size_t)n * sizeof *x);
}

void kernel_widen(int64_t n, enum dtype from, const void *x, float *y) {
    KERNEL_SPLIT(n, VL, n, widen_range(end - first, from, x, first, y));
}

void kernel_narrow(int64_t n, enum dtype to, const float *x, void *y) {
    KERNEL_SPLIT(n, VL, n, narrow_range(end - first, to, x, y, first));
}
