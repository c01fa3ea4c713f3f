/* Linear layers: matrix products and the bias.
 *
 * The bias is laid down first and the product added to it: of floats, a product with a fused bias is no
 * faster and for some shapes half as fast (doc/kernels.md). That of 16 bits adds it itself.
 */
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

static void fill_rows(int64_t rows, int64_t n, const T *bias, T *y) {
    for (int64_t i = 0; i < rows; i++)
        memcpy(y + i * n, bias, (size_t)n * sizeof *y);
}

void kernel_linear(int64_t m, int64_t n, int64_t k, const T *x, const T *w, bool wt,
                   const T *bias, T *y) {
    struct kernel_product p = {.m = m,
                               .n = n,
                               .k = k,
                               .type = TYPE,
                               .a = {x, k, false},
                               .b = {w, wt ? k : n, wt},
                               .bias = bias,
                               .type_c = TYPE,
                               .c = y,
                               .ldc = n};
    if (bias && m > 0 && n > 0 && k > 0 && kernel_blas_half(&p))
        return;
    if (bias)
        KERNEL_SPLIT(m, 1, m * n, fill_rows(end - first, n, bias, y + first * n));
    p.bias = NULL;
    p.beta = bias ? 1 : 0;
    kernel_product(&p);
}

void kernel_linear_dx(int64_t m, int64_t n, int64_t k, const T *dy, const T *w, bool wt,
                      T *dx) {
    kernel_product(&(struct kernel_product){.m = m,
                                            .n = k,
                                            .k = n,
                                            .type = TYPE,
                                            .a = {dy, n, false},
                                            .b = {w, wt ? k : n, !wt},
                                            .type_c = TYPE,
                                            .c = dx,
                                            .ldc = k});
}

/* dw[k, n] of x and dy, or its transpose of dy and x: the first is turned. */
void kernel_linear_dw(int64_t m, int64_t n, int64_t k, const T *x, const T *dy, bool wt,
                      float beta, float *dw) {
    kernel_product(&(struct kernel_product){.m = wt ? n : k,
                                            .n = wt ? k : n,
                                            .k = m,
                                            .type = TYPE,
                                            .a = {wt ? dy : x, wt ? n : k, true},
                                            .b = {wt ? x : dy, wt ? k : n, false},
                                            .beta = beta,
                                            .type_c = DTYPE_f32,
                                            .c = dw,
                                            .ldc = wt ? k : n});
}

/* Eight rows at a time: eight streams for the prefetcher, an eighth of the traffic on dst,
 * and a tree of additions instead of a chain. */
static void column_sums_range(int64_t rows, int64_t n, int64_t first, int64_t end,
                              const T *x, float *dst) {
    int64_t i = 0;
    for (; i + 8 <= rows; i += 8) {
        const T *r = x + i * n;
        int64_t j = first;
        for (; j + VL <= end; j += VL) {
            vf a = v_load(r + j) + v_load(r + n + j);
            vf b = v_load(r + 2 * n + j) + v_load(r + 3 * n + j);
            vf c = v_load(r + 4 * n + j) + v_load(r + 5 * n + j);
            vf d = v_load(r + 6 * n + j) + v_load(r + 7 * n + j);
            v_store(dst + j, v_load(dst + j) + ((a + b) + (c + d)));
        }
        for (; j < end; j++) {
            const T *at = r + j;
            float a = get(at) + get(at + n), b = get(at + 2 * n) + get(at + 3 * n);
            float c = get(at + 4 * n) + get(at + 5 * n);
            float d = get(at + 6 * n) + get(at + 7 * n);
            dst[j] += (a + b) + (c + d);
        }
    }
    for (; i < rows; i++)
        for (int64_t j = first; j < end; j++)
            dst[j] += get(x + i * n + j);
}

void kernel_column_sums(int64_t rows, int64_t n, const T *x, float *dst) {
    KERNEL_SPLIT(n, VL, rows * n, column_sums_range(rows, n, first, end, x, dst));
}
