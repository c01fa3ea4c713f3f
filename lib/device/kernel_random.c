/* Dropout and initial parameters: random numbers by the element's index in the whole
 * tensor.
 *
 * common/rng.h makes a number out of (seed, stream, index); here its last mixing
 * round is done for 16 indices at once, as far as the bits that decide need it. A block is walked in the rows of
 * kernel_box.h.
 */
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include "common/rng.h"
#include "device/kernel_box.h"

/* rng_mix of 8 numbers but for its last shift, which leaves the upper 31 bits as they are. */
VEC vu64 mix8_high(vu64 z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return (z ^ (z >> 27)) * 0x94d049bb133111ebu;
}

/* v * scale where the numbers of counters c, c + step, ... c + 15 step reach `bound`, else zero. Their
 * top 24 bits decide, so the lower ones of `bound` are zero. */
VEC vf keep16(vf v, float scale, uint64_t counter, uint64_t bound) {
    const vu64 ramp = {0,
                       RNG_STEP,
                       2 * RNG_STEP,
                       3 * RNG_STEP,
                       4 * RNG_STEP,
                       5 * RNG_STEP,
                       6 * RNG_STEP,
                       7 * RNG_STEP};
    return v_where_reach(mix8_high(counter + ramp),
                         mix8_high(counter + 8 * RNG_STEP + ramp), bound, v * scale);
}

static void dropout_row(int64_t n, uint64_t counter, uint64_t bound, float scale,
                        const T *x, T *y) {
    int64_t j = 0;
    for (; j + VL <= n; j += VL, counter += VL * RNG_STEP)
        v_store(y + j, keep16(v_load(x + j), scale, counter, bound));
    if (j < n)
        v_store_n(y + j, n - j, keep16(v_load_n(x + j, n - j), scale, counter, bound));
}

/* By runs, or where there is only one by parts of it: either way an element draws by its own
 * index. */
void kernel_dropout(const struct kernel_box *box, float p, uint64_t seed, uint64_t stream,
                    const T *x, T *y) {
    const struct box_rows r = box_rows(box);
    const uint64_t key = rng_mix(seed ^ rng_mix(stream));
    const uint64_t bound = (uint64_t)dropout_bound(p) << 40; /* of all 64 bits */
    const float scale = dropout_scale(p);
    if (p >= 1)
        kernel_fill(r.outer * r.inner, 0, y);
    else if (r.outer > 1)
        KERNEL_SPLIT(r.outer, 1, r.outer * r.inner, {
            for (int64_t i = first; i < end; i++)
                dropout_row(r.inner, key + box_row_index(&r, i) * RNG_STEP, bound, scale,
                            x + i * r.inner, y + i * r.inner);
        });
    else if (r.outer == 1)
        KERNEL_SPLIT(r.inner, VL, r.inner, {
            uint64_t index = box_row_index(&r, 0) + (uint64_t)first;
            dropout_row(end - first, key + index * RNG_STEP, bound, scale, x + first,
                        y + first);
        });
}

/* The scalar function itself, with its logarithm and cosine in double: done once in a run,
 * and every bit of a parameter must be the same on all machines of a job. */
void kernel_normal(const struct kernel_box *box, float std, uint64_t seed, uint64_t stream,
                   T *y) {
    const struct box_rows r = box_rows(box);
    const int64_t n = r.outer * r.inner;
    KERNEL_SPLIT(n, VL, 16 * n, {
        for (int64_t at = first; at < end;) {
            int64_t i = at / r.inner, j = at % r.inner;
            int64_t stop = (i + 1) * r.inner < end ? (i + 1) * r.inner : end;
            uint64_t index = box_row_index(&r, i) + (uint64_t)j;
            for (; at < stop; at++)
                put(y + at, std * rng_normal(seed, stream, index++));
        }
    });
}
