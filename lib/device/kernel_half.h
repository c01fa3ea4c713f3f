/* kernel_half.h - floats of 16 bits: they are kept in memory, never computed with.
 *
 * bf16 is the upper half of a float; f16 is IEEE's binary16. A vector of 16 is widened as it is
 * loaded and rounded to nearest, ties to even, as it is stored: NaN stays NaN, what is too large
 * becomes infinite. (With AVX512_BF16 numbers below 2^-126 become 0 in bf16.) A tail goes through
 * the same arithmetic as a full vector. With kernel_vec.h, which includes it, the only file that
 * knows an instruction set.
 */
#ifndef WEFT_KERNEL_HALF_H
#define WEFT_KERNEL_HALF_H

#include "device/kernel.h"

typedef uint16_t vh __attribute__((vector_size(32))); /* 16 of either */
typedef uint32_t vu __attribute__((vector_size(64)));

/* The first n lanes (0 <= n <= 16) from memory, zero in the others. */
VEC vh half_load_n(const void *p, int64_t n) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    return (vh)_mm256_maskz_loadu_epi16(V_MASK(n), p);
#else
    vh h = {0};
    memcpy(&h, p, (size_t)n * sizeof(uint16_t));
    return h;
#endif
}
VEC void half_store_n(void *p, int64_t n, vh h) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    _mm256_mask_storeu_epi16(p, V_MASK(n), (__m256i)h);
#else
    memcpy(p, &h, (size_t)n * sizeof(uint16_t));
#endif
}
VEC vh half_load(const void *p) {
    vh h;
    memcpy(&h, p, sizeof h);
    return h;
}
VEC void half_store(void *p, vh h) {
    memcpy(p, &h, sizeof h);
}

/* ---- bf16 --------------------------------------------------------------------------- */

VEC vf widen_bf16(vh h) {
#if defined(__AVX512F__)
    /* One instruction, which GCC 12 does not find: it goes through two halves. */
    return (vf)((vu)_mm512_cvtepu16_epi32((__m256i)h) << 16);
#else
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}
VEC vh narrow_bf16(vf v) {
#if defined(__AVX512BF16__)
    return (vh)_mm512_cvtneps_pbh((__m512)v);
#else
    const vu u = (vu)v, nan = (vu)(v != v), quiet = u | 0x400000u;
    const vu near = u + 0x7fffu + (u >> 16 & 1u);
    return __builtin_convertvector(((nan & quiet) | (~nan & near)) >> 16, vh);
#endif
}

/* ---- f16 ---------------------------------------------------------------------------- */

#if !defined(__F16C__)
/* Where the exponent has a value of its own, 2^112 makes up for the other bias, also of numbers
 * below 2^-14; infinity and NaN have the largest one. */
VEC float widen_one_f16(uint16_t h) {
    const uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
    float x;
    memcpy(&x, &magnitude, sizeof x);
    x *= 0x1p112f;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (h & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000u : bits;
    bits |= (uint32_t)(h & 0x8000) << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}
/* Below 2^-14 a number is rounded by adding one whose last place is that of the result; others
 * in their bits, where a carry goes on into the exponent. */
VEC uint16_t narrow_one_f16(float x) {
    uint32_t bits, result;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        result = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    } else if (magnitude >= 0x47800000u) { /* 2^16 */
        result = 0x7c00u;
    } else if (magnitude < 0x38800000u) { /* 2^-14 */
        float sum = fabsf(x) + 0.5f;
        memcpy(&result, &sum, sizeof result);
        result -= 0x3f000000u;
    } else {
        result = magnitude - 0x38000000u;
        result = (result + 0xfffu + (result >> 13 & 1u)) >> 13;
    }
    return (uint16_t)(sign | result);
}
#endif

VEC vf widen_f16(vh h) {
#if defined(__AVX512F__)
    return (vf)_mm512_cvtph_ps((__m256i)h);
#elif defined(__F16C__)
    union {
        vh h;
        __m128i half[2];
    } x = {h};
    union {
        __m256 half[2];
        vf v;
    } y = {{_mm256_cvtph_ps(x.half[0]), _mm256_cvtph_ps(x.half[1])}};
    return y.v;
#else
    vf v;
    for (int i = 0; i < VL; i++)
        v[i] = widen_one_f16(h[i]);
    return v;
#endif
}
VEC vh narrow_f16(vf v) {
#if defined(__AVX512F__)
    return (vh)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
    union {
        vf v;
        __m256 half[2];
    } x = {v};
    union {
        __m128i half[2];
        vh h;
    } y = {{_mm256_cvtps_ph(x.half[0], _MM_FROUND_TO_NEAREST_INT),
            _mm256_cvtps_ph(x.half[1], _MM_FROUND_TO_NEAREST_INT)}};
    return y.h;
#else
    vh h;
    for (int i = 0; i < VL; i++)
        h[i] = narrow_one_f16(v[i]);
    return h;
#endif
}

/* ---- loads and stores of any type --------------------------------------------------- */

#define HALF_ACCESS(type)                                                                  \
    VEC vf v_load_##type(const type *p) {                                                  \
        return widen_##type(half_load(p));                                                 \
    }                                                                                      \
    VEC vf v_load_n_##type(const type *p, int64_t n) {                                     \
        return widen_##type(half_load_n(p, n));                                            \
    }                                                                                      \
    VEC vf v_load_or_##type(const type *p, int64_t n, float rest) {                        \
        return v_keep_or(widen_##type(half_load_n(p, n)), n, rest);                        \
    }                                                                                      \
    VEC void v_store_##type(type *p, vf v) {                                               \
        half_store(p, narrow_##type(v));                                                   \
    }                                                                                      \
    VEC void v_store_n_##type(type *p, int64_t n, vf v) {                                  \
        half_store_n(p, n, narrow_##type(v));                                              \
    }
HALF_ACCESS(bf16)
HALF_ACCESS(f16)

#define OF_TYPE(function, p)                                                               \
    _Generic((p), const bf16 *: function##_bf16, bf16 *: function##_bf16,                  \
             const f16 *: function##_f16, f16 *: function##_f16, default: function##_f32)
#define v_load(p)             OF_TYPE(v_load, p)(p)
#define v_load_n(p, n)        OF_TYPE(v_load_n, p)(p, n)
#define v_load_or(p, n, rest) OF_TYPE(v_load_or, p)(p, n, rest)
#define v_store(p, v)         OF_TYPE(v_store, p)(p, v)
#define v_store_n(p, n, v)    OF_TYPE(v_store_n, p)(p, n, v)

/* One element. */
VEC float get_f32(const float *p) {
    return *p;
}
VEC void put_f32(float *p, float x) {
    *p = x;
}
VEC float get_bf16(const bf16 *p) {
    union {
        uint32_t bits;
        float x;
    } u = {(uint32_t)p->bits << 16};
    return u.x;
}
VEC void put_bf16(bf16 *p, float x) {
    union {
        float x;
        uint32_t bits;
    } u = {x};
    const uint32_t near = u.bits + 0x7fffu + (u.bits >> 16 & 1u);
    p->bits = (uint16_t)((x != x ? u.bits | 0x400000u : near) >> 16);
}
VEC float get_f16(const f16 *p) {
    return v_load_n_f16(p, 1)[0];
}
VEC void put_f16(f16 *p, float x) {
    v_store_n_f16(p, 1, v_set(x));
}
#define get(p)    OF_TYPE(get, p)(p)
#define put(p, x) OF_TYPE(put, p)(p, x)

#endif
