/* Sums, scalings and broadcasts: one pass over memory, threads over ranges.
 */
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <string.h>

static void add_range(int64_t n, const T *a, const T *b, T *y) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        v_store(y + i, v_load(a + i) + v_load(b + i));
    if (i < n)
        v_store_n(y + i, n - i, v_load_n(a + i, n - i) + v_load_n(b + i, n - i));
}

void kernel_add(int64_t n, const T *a, const T *b, T *y) {
    KERNEL_SPLIT(n, 16, n, add_range(end - first, a + first, b + first, y + first));
}

static void scale_range(int64_t n, float alpha, const T *x, T *y) {
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        v_store(y + i, alpha * v_load(x + i));
    if (i < n)
        v_store_n(y + i, n - i, alpha * v_load_n(x + i, n - i));
}

void kernel_scale(int64_t n, float alpha, const T *x, T *y) {
    KERNEL_SPLIT(n, 16, n, scale_range(end - first, alpha, x + first, y + first));
}

static void fill_range(int64_t n, float value, T *y) {
    if (value == 0)
        memset(y, 0, (size_t)n * sizeof *y);
    else
        for (int64_t i = 0; i < n; i++)
            put(y + i, value);
}

void kernel_fill(int64_t n, float value, T *y) {
    KERNEL_SPLIT(n, 16, n, fill_range(end - first, value, y + first));
}

/* Rows of x shorter than this are shared out as rows, longer ones as columns: a bias under
 * thousands of rows, a position table under a few samples. */
void kernel_add_param(int64_t outer, int64_t inner, const T *x, const T *p, T *y) {
    if (outer >= inner)
        KERNEL_SPLIT(outer, 1, outer * inner, {
            for (int64_t o = first; o < end; o++)
                add_range(inner, x + o * inner, p, y + o * inner);
        });
    else
        KERNEL_SPLIT(inner, 16, outer * inner, {
            for (int64_t o = 0; o < outer; o++)
                add_range(end - first, x + o * inner + first, p + first,
                          y + o * inner + first);
        });
}

void kernel_add_param_dw(int64_t outer, int64_t inner, const T *dy, float *dp) {
    kernel_column_sums(outer, inner, dy, dp);
}
