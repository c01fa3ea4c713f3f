/* Dropout and initial parameters: random numbers by the element's index in the whole
 * tensor.
 *
 * common/rng.h makes a number out of (seed, stream, index); here its two mixing rounds are
 * done for eight indices at once, which gives the same 64 bits. A block is walked in the rows of
 * kernel_box.h.
 */
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include "common/rng.h"
#include "device/kernel_box.h"

VEC vu64 mix8(vu64 z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The top 24 bits of the numbers for counters c, c + step, ... c + 15 step. */
VEC vi draw16(uint64_t counter) {
    const vu64 ramp = {0,
                       RNG_STEP,
                       2 * RNG_STEP,
                       3 * RNG_STEP,
                       4 * RNG_STEP,
                       5 * RNG_STEP,
                       6 * RNG_STEP,
                       7 * RNG_STEP};
    typedef int32_t half __attribute__((vector_size(32)));
    union {
        half h[2];
        vi v;
    } out;
    out.h[0] = __builtin_convertvector(mix8(counter + ramp) >> 40, half);
    out.h[1] = __builtin_convertvector(mix8(counter + 8 * RNG_STEP + ramp) >> 40, half);
    return out.v;
}

/* Where the 24 bits reach `drop`, x * scale; zero elsewhere. */
static void dropout_row(int64_t n, uint64_t counter, int32_t drop, float scale, const T *x,
                        T *y) {
    int64_t j = 0;
    for (; j + VL <= n; j += VL, counter += VL * RNG_STEP) {
        vi keep = (vi)(draw16(counter) >= drop);
        v_store(y + j, (vf)(keep & (vi)(v_load(x + j) * scale)));
    }
    if (j < n) {
        vi keep = (vi)(draw16(counter) >= drop);
        v_store_n(y + j, n - j, (vf)(keep & (vi)(v_load_n(x + j, n - j) * scale)));
    }
}

/* By runs, or where there is only one by parts of it: either way an element draws by its own
 * index. */
void kernel_dropout(const struct kernel_box *box, float p, uint64_t seed, uint64_t stream,
                    const T *x, T *y) {
    const struct box_rows r = box_rows(box);
    const uint64_t key = rng_mix(seed ^ rng_mix(stream));
    const int32_t drop = dropout_bound(p);
    const float scale = dropout_scale(p);
    if (r.outer > 1)
        KERNEL_SPLIT(r.outer, 1, r.outer * r.inner, {
            for (int64_t i = first; i < end; i++)
                dropout_row(r.inner, key + box_row_index(&r, i) * RNG_STEP, drop, scale,
                            x + i * r.inner, y + i * r.inner);
        });
    else if (r.outer == 1)
        KERNEL_SPLIT(r.inner, VL, r.inner, {
            uint64_t index = box_row_index(&r, 0) + (uint64_t)first;
            dropout_row(end - first, key + index * RNG_STEP, drop, scale, x + first,
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
