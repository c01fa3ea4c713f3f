/* Rows of heads, and behind each head that of another tensor which it has in common with its group. */
#include "device/cpu.h"
#include "kernel_impl.h"
#include "kernel_type.h"

#include <string.h>

CPU_FUNCTION(join) {
    const struct join_n s = *n;
    const T *x = in->x, *z = in->z;
    T *y = out->y;
    const int64_t first_head = a->first_head, width = s.dim + s.behind;
    KERNEL_SPLIT(s.rows, 1, s.rows * s.heads * width, {
        for (int64_t i = first * s.heads; i < end * s.heads; i++) {
            const int64_t few = (first_head + i % s.heads) / s.group;
            memcpy(y + i * width, x + i * s.dim, (size_t)s.dim * sizeof *y);
            memcpy(y + i * width + s.dim, z + (i / s.heads * s.few + few) * s.behind,
                   (size_t)s.behind * sizeof *y);
        }
    });
}

/* One head of z: the sum over those of the rank's heads that have it, which may be none. */
static void add_heads(const struct join_bwd_n *s, int64_t first_head, int64_t few,
                      const T *dy, T *dz) {
    const int64_t width = s->dim + s->behind;
    for (int64_t j = 0; j < s->behind; j++) {
        float sum = 0;
        for (int64_t h = few * s->group; h < (few + 1) * s->group; h++)
            if (h >= first_head && h < first_head + s->heads)
                sum += get(dy + (h - first_head) * width + s->dim + j);
        put(dz + j, sum);
    }
}

CPU_FUNCTION(join_bwd) {
    const struct join_bwd_n s = *n;
    const T *dy = in->dy;
    T *dx = out->dx, *dz = out->dz;
    const int64_t first_head = a->first_head, width = s.dim + s.behind;
    KERNEL_SPLIT(s.rows, 1, s.rows * s.heads * width, {
        for (int64_t i = first * s.heads; i < end * s.heads; i++)
            memcpy(dx + i * s.dim, dy + i * width, (size_t)s.dim * sizeof *dx);
        for (int64_t i = first * s.few; i < end * s.few; i++)
            add_heads(&s, first_head, i % s.few, dy + i / s.few * s.heads * width,
                      dz + i * s.behind);
    });
}
