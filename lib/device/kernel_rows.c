/* Rows in front of others, and one row of many: what moves along a sequence. Samples are shared out among
 * threads, columns where sums over samples are taken, so that a sum has one order. */
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <string.h>

static void copy(T *to, const T *from, int64_t n) {
    memcpy(to, from, (size_t)n * sizeof *to);
}

void kernel_prepend(int64_t outer, int64_t rows, int64_t inner, int64_t front, const T *x,
                    const T *table, T *y) {
    const int64_t mine = rows * inner, before = front * inner;
    KERNEL_SPLIT(outer, 1, outer * (mine + before), {
        for (int64_t o = first; o < end; o++) {
            copy(y + o * (mine + before), table, before);
            copy(y + o * (mine + before) + before, x + o * mine, mine);
        }
    });
}

static void add_samples(int64_t outer, int64_t stride, int64_t n, const T *dy, float *sum) {
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < n; j++)
            sum[j] += get(dy + o * stride + j);
}

void kernel_prepend_bwd(int64_t outer, int64_t rows, int64_t inner, int64_t front,
                        const T *dy, T *dx, float *dtable) {
    const int64_t mine = rows * inner, before = front * inner;
    KERNEL_SPLIT(outer, 1, outer * mine, {
        for (int64_t o = first; o < end; o++)
            copy(dx + o * mine, dy + o * (mine + before) + before, mine);
    });
    KERNEL_SPLIT(
        before, 16, outer * before,
        add_samples(outer, mine + before, end - first, dy + first, dtable + first));
}

void kernel_select(int64_t outer, int64_t rows, int64_t inner, int64_t at, const T *x,
                   T *y) {
    KERNEL_SPLIT(outer, 1, outer * inner, {
        for (int64_t o = first; o < end; o++)
            copy(y + o * inner, x + (o * rows + at) * inner, inner);
    });
}

void kernel_select_dx(int64_t outer, int64_t rows, int64_t inner, int64_t at, const T *dy,
                      T *dx) {
    KERNEL_SPLIT(outer, 1, outer * rows * inner, {
        for (int64_t o = first; o < end; o++) {
            memset(dx + o * rows * inner, 0, (size_t)(rows * inner) * sizeof *dx);
            copy(dx + (o * rows + at) * inner, dy + o * inner, inner);
        }
    });
}
