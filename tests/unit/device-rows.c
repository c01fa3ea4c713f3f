/* Rows in front of others and one row of many, against the same written plainly; the gradients by what
 * each number is copied to. */
#include "device.h"

static void check_prepend(int64_t outer, int64_t rows, int64_t inner, int64_t front) {
    const int64_t all = rows + front, n = outer * all * inner;
    float *x = noise(outer * rows * inner, 1, 1), *table = noise(front * inner, 1, 2);
    float *y = floats(n), *dy = noise(n, 1, 3), *dx = floats(outer * rows * inner);
    float *dtable = noise(front * inner, 1, 4);
    double *want = doubles(n), *dx_want = doubles(outer * rows * inner);
    double *dtable_want = doubles(front * inner);
    for (int64_t i = 0; i < front * inner; i++)
        dtable_want[i] = dtable[i];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t r = 0; r < all; r++)
            for (int64_t j = 0; j < inner; j++) {
                const int64_t at = (o * all + r) * inner + j;
                const int64_t from = (o * rows + r - front) * inner + j;
                want[at] = r < front ? table[r * inner + j] : x[from];
                *(r < front ? &dtable_want[r * inner + j] : &dx_want[from]) += dy[at];
            }
    kernel_prepend(outer, rows, inner, front, x, table, y);
    kernel_prepend_bwd(outer, rows, inner, front, dy, dx, dtable);
    close_to(n, y, want, 0, "rows in front");
    close_to(outer * rows * inner, dx, dx_want, 0, "the gradient of those behind");
    close_to(front * inner, dtable, dtable_want, 1e-13, "the gradient of those in front");
    free(x), free(table), free(y), free(dy), free(dx), free(dtable);
    free(want), free(dx_want), free(dtable_want);
}

static void check_select(int64_t outer, int64_t rows, int64_t inner, int64_t at) {
    const int64_t n = outer * rows * inner;
    float *x = noise(n, 1, 1), *y = floats(outer * inner);
    float *dy = noise(outer * inner, 1, 2), *dx = floats(n);
    double *want = doubles(outer * inner), *dx_want = doubles(n);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < inner; j++) {
            want[o * inner + j] = x[(o * rows + at) * inner + j];
            dx_want[(o * rows + at) * inner + j] = dy[o * inner + j];
        }
    kernel_select(outer, rows, inner, at, x, y);
    kernel_select_dx(outer, rows, inner, at, dy, dx);
    close_to(outer * inner, y, want, 0, "one row");
    close_to(n, dx, dx_want, 0, "its gradient");
    free(x), free(y), free(dy), free(dx), free(want), free(dx_want);
}

static void all(void) {
    check_prepend(1, 1, 1, 1);
    check_prepend(3, 5, 7, 1);
    check_prepend(4, 2, 33, 6);
    check_prepend(2, 16, 64, 3);
    check_select(1, 1, 1, 0);
    check_select(3, 5, 7, 4);
    check_select(4, 2, 33, 0);
}

int main(void) {
    with_threads(all);
    return done_testing();
}
