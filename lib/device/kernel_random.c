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

/* ---- normal numbers ----------------------------------------------------------------------
 *
 * Every bit of a parameter must be that of rng_normal, on all machines of a job. Its logarithm and
 * cosine take 40 ns of a core; here 8 numbers at once are found to within 2^-42 of the radius. Where
 * all that lies so near rounds to one float, rng_normal's value rounds to it too; where it does not,
 * which happens to one number in some thousands, rng_normal itself is asked. */

enum { LANES = 8 };
typedef float vf8 __attribute__((vector_size(32)));

/* Whole numbers of less than 2^51 as doubles: they are added to the lowest bits of 1.5 * 2^52. */
VEC vd to_double8(vi64 n) {
    return (vd)(n + 0x4338000000000000) - 0x1.8p52;
}

/* -2 ln(k / 2^33) for whole k below 2^33, to 2^-46 of it. k is 2^e m with m within a factor sqrt(2) of
 * 1; ln m is the series of the area tangent, cut where it is below 2^-50. */
VEC vd log8(vi64 k) {
    const int64_t middle = 0x3fe6a09e667f3bcd; /* the bits of sqrt(1/2) */
    vi64 bits = (vi64)to_double8(k);
    vi64 e = (bits - middle) >> 52;
    vd m = (vd)(bits - (e << 52));
    vd s = (m - 1) / (m + 1), z = s * s;
    vd p = z * (1.0 / 17) + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    p = p * z + 1;
    return -2 * (to_double8(e - 33) * 0x1.62e42fefa39efp-1 + 2 * s * p);
}

/* cos(2 pi w / 2^32) to 2^-48: the nearest quarter turn, and series of the cosine and sine of the
 * eighth of a turn at most that is left. */
VEC vd cos8(vi64 w) {
    vi64 quarter = (w + (1 << 29)) >> 30;
    vd t = to_double8(w - (quarter << 30)) * 0x1.921fb54442d18p-30, z = t * t;
    vd c = z * (-1.0 / 87178291200) + 1.0 / 479001600;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    c = c * z - 0.5;
    c = c * z + 1;
    vd s = z * (-1.0 / 1307674368000) + 1.0 / 6227020800;
    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    s = s * z * t + t;
    vi64 odd = -(quarter & 1), sign = ((quarter + 1) & 2) << 62;
    return (vd)((((vi64)c & ~odd) | ((vi64)s & odd)) ^ sign);
}

VEC vd sqrt8(vd a) {
#if defined(__AVX512F__)
    return (vd)_mm512_sqrt_pd((__m512d)a);
#else
    double t[LANES];
    memcpy(t, &a, sizeof t);
    for (int i = 0; i < LANES; i++)
        t[i] = sqrt(t[i]);
    memcpy(&a, t, sizeof a);
    return a;
#endif
}

/* rng_normal of 8 indices from `index` on; `key` as in rng_bits. */
static void normal8(uint64_t seed, uint64_t stream, uint64_t key, uint64_t index,
                    float out[LANES]) {
    const vu64 ramp = {0, 1, 2, 3, 4, 5, 6, 7};
    float high[LANES];
    vu64 bits = mix8_high(key + (index + ramp) * RNG_STEP);
    bits ^= bits >> 31;
    vd radius = sqrt8(log8((vi64)(bits >> 32) * 2 + 1));
    vd value = radius * cos8((vi64)(bits & 0xffffffff)), apart = radius * 0x1p-42;
    vf8 least = __builtin_convertvector(value - apart, vf8);
    vf8 most = __builtin_convertvector(value + apart, vf8);
    memcpy(out, &least, sizeof least);
    memcpy(high, &most, sizeof most);
    if (memcmp(out, high, sizeof high))
        for (int i = 0; i < LANES; i++)
            if (out[i] != high[i])
                out[i] = rng_normal(seed, stream, index + (uint64_t)i);
}

static void normal_row(int64_t n, float std, uint64_t seed, uint64_t stream, uint64_t index,
                       T *y) {
    const uint64_t key = rng_mix(seed ^ rng_mix(stream));
    float out[LANES];
    int64_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        normal8(seed, stream, key, index + (uint64_t)j, out);
        for (int i = 0; i < LANES; i++)
            put(y + j + i, std * out[i]);
    }
    for (; j < n; j++)
        put(y + j, std * rng_normal(seed, stream, index + (uint64_t)j));
}

void kernel_uniform(const struct kernel_box *box, float most, uint64_t seed,
                    uint64_t stream, T *y) {
    const struct box_rows r = box_rows(box);
    const int64_t n = r.outer * r.inner;
    KERNEL_SPLIT(n, VL, n, {
        for (int64_t at = first; at < end; at++) {
            const uint64_t index =
                box_row_index(&r, at / r.inner) + (uint64_t)(at % r.inner);
            put(y + at, most * (2 * rng_uniform(seed, stream, index) - 1));
        }
    });
}

void kernel_normal(const struct kernel_box *box, float std, uint64_t seed, uint64_t stream,
                   T *y) {
    const struct box_rows r = box_rows(box);
    const int64_t n = r.outer * r.inner;
    KERNEL_SPLIT(n, VL, 16 * n, {
        for (int64_t at = first, stop; at < end; at = stop) {
            int64_t i = at / r.inner, j = at % r.inner;
            stop = (i + 1) * r.inner < end ? (i + 1) * r.inner : end;
            normal_row(stop - at, std, seed, stream, box_row_index(&r, i) + (uint64_t)j,
                       y + at);
        }
    });
}
