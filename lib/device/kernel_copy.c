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

static void copy_row(int64_t n, int64_t bytes, const void *src, int64_t src_step, void *dst,
                     int64_t dst_step) {
    if (src_step == 1 && dst_step == 1)
        memcpy(dst, src, (size_t)(n * bytes));
    else if (bytes == sizeof(uint16_t))
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i * dst_step] = ((const uint16_t *)src)[i * src_step];
    else
        for (int64_t i = 0; i < n; i++)
            ((float *)dst)[i * dst_step] = ((const float *)src)[i * src_step];
}

/* Rows first..end-1 of the block, columns lo..hi-1. */
static void copy_rows(const struct dims *m, int64_t first, int64_t end, int64_t lo,
                      int64_t hi, int64_t bytes, const char *src, char *dst) {
    const int32_t in = m->rank - 1;
    for (int64_t row = first; row < end; row++) {
        int64_t from = lo * m->src[in], to = lo * m->dst[in];
        int64_t rest = row;
        for (int32_t d = in - 1; d >= 0; d--) {
            int64_t at = rest % m->size[d];
            rest /= m->size[d];
            from += at * m->src[d];
            to += at * m->dst[d];
        }
        copy_row(hi - lo, bytes, src + from * bytes, m->src[in], dst + to * bytes,
                 m->dst[in]);
    }
}

void kernel_copy(int32_t rank, const int64_t *size, int64_t bytes, const void *src,
                 const int64_t *src_stride, void *dst, const int64_t *dst_stride) {
    assert(rank >= 0 && rank <= KERNEL_MAX_RANK && (bytes == 2 || bytes == 4));
    const struct dims m = merge(rank, size, src_stride, dst_stride);
    const int64_t columns = m.size[m.rank - 1];
    int64_t rows = 1;
    for (int32_t d = 0; d + 1 < m.rank; d++)
        rows *= m.size[d];
    if (rows > 1)
        KERNEL_SPLIT(rows, 1, rows * columns,
                     copy_rows(&m, first, end, 0, columns, bytes, src, dst));
    else if (rows == 1)
        KERNEL_SPLIT(columns, 16, columns,
                     copy_rows(&m, 0, 1, first, end, bytes, src, dst));
}

void kernel_move(int64_t bytes, const void *src, void *dst) {
    KERNEL_SPLIT(
        bytes, 64, bytes / (int64_t)sizeof(float),
        memcpy((char *)dst + first, (const char *)src + first, (size_t)(end - first)));
}
