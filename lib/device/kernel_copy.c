/* Strided block copies: slices, joins and permutations of tensors.
 *
 * Dimensions that follow each other in both tensors are merged first; what is left is a
 * list of rows, copied with memcpy where they are contiguous on both sides.
 */
#include "kernel_impl.h"

#include <assert.h>
#include <string.h>

struct dims {
    int32_t rank; /* at least 1 */
    int64_t size[KERNEL_MAX_RANK], src[KERNEL_MAX_RANK], dst[KERNEL_MAX_RANK];
};

/* Drops dimensions of size 1 and joins those that are one in both tensors. */
static struct dims merge(int32_t rank, const int64_t *size, const int64_t *src,
                         const int64_t *dst) {
    struct dims m = {0};
    for (int32_t d = 0; d < rank; d++) {
        const int32_t last = m.rank - 1;
        if (size[d] == 1)
            continue;
        if (last >= 0 && m.src[last] == size[d] * src[d] &&
            m.dst[last] == size[d] * dst[d]) {
            m.size[last] *= size[d];
            m.src[last] = src[d];
            m.dst[last] = dst[d];
        } else {
            m.size[m.rank] = size[d];
            m.src[m.rank] = src[d];
            m.dst[m.rank++] = dst[d];
        }
    }
    if (m.rank == 0)
        m = (struct dims){1, {1}, {1}, {1}};
    return m;
}

static void copy_row(int64_t n, const float *src, int64_t src_step, float *dst,
                     int64_t dst_step, bool add) {
    if (src_step == 1 && dst_step == 1) {
        if (!add)
            memcpy(dst, src, (size_t)n * sizeof *dst);
        else
            for (int64_t i = 0; i < n; i++)
                dst[i] += src[i];
    } else if (add) {
        for (int64_t i = 0; i < n; i++)
            dst[i * dst_step] += src[i * src_step];
    } else {
        for (int64_t i = 0; i < n; i++)
            dst[i * dst_step] = src[i * src_step];
    }
}

/* Rows first..end-1 of the block, columns lo..hi-1. */
static void copy_rows(const struct dims *m, int64_t first, int64_t end, int64_t lo,
                      int64_t hi, const float *src, float *dst, bool add) {
    const int32_t in = m->rank - 1;
    for (int64_t row = first; row < end; row++) {
        const float *s = src + lo * m->src[in];
        float *t = dst + lo * m->dst[in];
        int64_t rest = row;
        for (int32_t d = in - 1; d >= 0; d--) {
            int64_t at = rest % m->size[d];
            rest /= m->size[d];
            s += at * m->src[d];
            t += at * m->dst[d];
        }
        copy_row(hi - lo, s, m->src[in], t, m->dst[in], add);
    }
}

void kernel_copy(int32_t rank, const int64_t *size, const float *src,
                 const int64_t *src_stride, float *dst, const int64_t *dst_stride,
                 bool add) {
    assert(rank >= 0 && rank <= KERNEL_MAX_RANK);
    const struct dims m = merge(rank, size, src_stride, dst_stride);
    const int64_t columns = m.size[m.rank - 1];
    int64_t rows = 1;
    for (int32_t d = 0; d + 1 < m.rank; d++)
        rows *= m.size[d];
    if (rows > 1)
        KERNEL_SPLIT(rows, 1, rows * columns,
                     copy_rows(&m, first, end, 0, columns, src, dst, add));
    else if (rows == 1)
        KERNEL_SPLIT(columns, 16, columns, copy_rows(&m, 0, 1, first, end, src, dst, add));
}

void kernel_move(int64_t bytes, const void *src, void *dst) {
    KERNEL_SPLIT(
        bytes, 64, bytes / (int64_t)sizeof(float),
        memcpy((char *)dst + first, (const char *)src + first, (size_t)(end - first)));
}
