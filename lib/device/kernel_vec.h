/* kernel_vec.h - vectors of 16 floats and the functions of them that kernels need.
 *
 * GCC's vector types give + - * / on any machine; what they lack (fused multiply-add,
 * masks, square root) is here, with AVX-512 or AVX2 where the compiler targets them. A tail of n
 * < 16 elements goes through the same arithmetic as a full vector (v_load_n, v_store_n), so an
 * element's bits do not depend on where a block of it begins.
 */
#ifndef WEFT_KERNEL_VEC_H
#define WEFT_KERNEL_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

/* Vectors never cross a real call: all functions of them are inlined. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

enum { VL = 16 };
typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint64_t vu64 __attribute__((vector_size(64))); /* 8 lanes */
typedef int64_t vi64 __attribute__((vector_size(64)));  /* 8 lanes */
typedef double vd __attribute__((vector_size(64)));     /* 8 lanes */

#define VEC static inline __attribute__((always_inline, unused))

VEC vf v_set(float x) {
    return (vf){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
VEC vf v_load_f32(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
VEC void v_store_f32(float *p, vf v) {
    memcpy(p, &v, sizeof v);
}

/* a * b + c, rounded once where the machine can. */
VEC vf v_fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    union {
        vf v;
        __m256 h[2];
    } x = {a}, y = {b}, z = {c};
    z.h[0] = _mm256_fmadd_ps(x.h[0], y.h[0], z.h[0]);
    z.h[1] = _mm256_fmadd_ps(x.h[1], y.h[1], z.h[1]);
    return z.v;
#else
    return a * b + c;
#endif
}

#if defined(__AVX512F__)
#define V_MASK(n) ((__mmask16)((1u << (n)) - 1))
/* The first n lanes (0 <= n <= 16) from memory, `rest` in the others. */
VEC vf v_load_or_f32(const float *p, int64_t n, float rest) {
    return (vf)_mm512_mask_loadu_ps((__m512)v_set(rest), V_MASK(n), p);
}
VEC void v_store_n_f32(float *p, int64_t n, vf v) {
    _mm512_mask_storeu_ps(p, V_MASK(n), (__m512)v);
}
/* The first n lanes of v, `rest` in the others. */
VEC vf v_keep_or(vf v, int64_t n, float rest) {
    return (vf)_mm512_mask_mov_ps((__m512)v_set(rest), V_MASK(n), (__m512)v);
}
/* The larger; a NaN in b comes through. */
VEC vf v_max(vf a, vf b) {
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}
VEC vf v_min(vf a, vf b) {
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
}
VEC vf v_sqrt(vf a) {
    return (vf)_mm512_sqrt_ps((__m512)a);
}
/* 1/a within 1e-7: an estimate and one Newton step, a third of the time of a division. */
VEC vf v_inverse(vf a) {
    vf r = (vf)_mm512_rcp14_ps((__m512)a);
    return r * v_fma(-a, r, v_set(2.0f));
}
VEC vf v_round(vf a) {
    return (vf)_mm512_roundscale_ps((__m512)a,
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a * 2^n for integral n. */
VEC vf v_ldexp(vf a, vf n) {
    return (vf)_mm512_scalef_ps((__m512)a, (__m512)n);
}
/* v in the lanes where the 16 numbers of a and b are at least `bound`, else zero. */
VEC vf v_where_reach(vu64 a, vu64 b, uint64_t bound, vf v) {
    const __m512i least = _mm512_set1_epi64((long long)bound);
    const __mmask16 keep = _mm512_kunpackb(_mm512_cmpge_epu64_mask((__m512i)b, least),
                                           _mm512_cmpge_epu64_mask((__m512i)a, least));
    return (vf)_mm512_maskz_mov_ps(keep, (__m512)v);
}
VEC float v_sum(vf a) {
    return _mm512_reduce_add_ps((__m512)a);
}
VEC float v_top(vf a) {
    return _mm512_reduce_max_ps((__m512)a);
}
#else
VEC vf v_load_or_f32(const float *p, int64_t n, float rest) {
    vf v = v_set(rest);
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
}
VEC void v_store_n_f32(float *p, int64_t n, vf v) {
    memcpy(p, &v, (size_t)n * sizeof *p);
}
VEC vf v_pick(vi mask, vf yes, vf no) {
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}
VEC vf v_keep_or(vf v, int64_t n, float rest) {
    const vi lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return v_pick((vi)(lane < (int32_t)n), v, v_set(rest));
}
VEC vf v_max(vf a, vf b) {
    return v_pick((vi)(a > b), a, b);
}
VEC vf v_min(vf a, vf b) {
    return v_pick((vi)(a < b), a, b);
}
VEC vf v_sqrt(vf a) {
    for (int i = 0; i < VL; i++)
        a[i] = sqrtf(a[i]);
    return a;
}
VEC vf v_inverse(vf a) {
    return 1.0f / a;
}
/* To the nearest integer, |a| < 2^22: adding 1.5 * 2^23 pushes the fraction out. */
VEC vf v_round(vf a) {
    volatile vf t = a + 0x1.8p23f; /* volatile: the compiler must not cancel the two */
    return t - 0x1.8p23f;
}
/* In two halves, so that the factors stay within the exponents of float. */
VEC vf v_ldexp(vf a, vf n) {
    vi e = __builtin_convertvector(n, vi);
    vi half = e >> 1;
    vf lo = (vf)((half + 127) << 23), hi = (vf)((e - half + 127) << 23);
    return a * lo * hi;
}
VEC vf v_where_reach(vu64 a, vu64 b, uint64_t bound, vf v) {
    typedef int32_t half __attribute__((vector_size(32)));
    union {
        half h[2];
        vi v;
    } keep = {{__builtin_convertvector(a >= bound, half),
               __builtin_convertvector(b >= bound, half)}};
    return (vf)(keep.v & (vi)v);
}
VEC float v_sum(vf a) {
    float t[VL];
    memcpy(t, &a, sizeof t);
    for (int w = VL / 2; w; w /= 2)
        for (int i = 0; i < w; i++)
            t[i] += t[i + w];
    return t[0];
}
VEC float v_top(vf a) {
    float top = a[0];
    for (int i = 1; i < VL; i++)
        top = a[i] > top ? a[i] : top;
    return top;
}
#endif

/* The first n lanes from memory, zero in the others. */
VEC vf v_load_n_f32(const float *p, int64_t n) {
    return v_load_or_f32(p, n, 0);
}

#include "kernel_half.h"

/* 2^r for |r| <= 1/2: minimax polynomial of degree 5, relative error 1.1e-7. */
VEC vf v_exp2_core(vf r) {
    vf p = v_set(0x1.5bba0ep-10f);
    p = v_fma(p, r, v_set(0x1.3cea88p-7f));
    p = v_fma(p, r, v_set(0x1.c6b752p-5f));
    p = v_fma(p, r, v_set(0x1.ebf9bcp-3f));
    p = v_fma(p, r, v_set(0x1.62e42ap-1f));
    return v_fma(p, r, v_set(1.0f));
}

/* 2^x, within 2 units of the last place; underflows to 0, overflows to infinity. */
VEC vf v_exp2(vf x) {
    x = v_min(v_set(129.0f), v_max(v_set(-151.0f), x));
    vf n = v_round(x);
    return v_ldexp(v_exp2_core(x - n), n);
}

/* The same for x that is not large: scores less their maximum. Never below 2^-126, because
 * arithmetic with denormal numbers takes a hundred times as long. */
VEC vf v_exp2_low(vf x) {
    x = v_max(v_set(-126.0f), x);
    vf n = v_round(x);
    return v_ldexp(v_exp2_core(x - n), n);
}

/* e^x, within 2 units of the last place; NaN stays NaN. ln 2 is subtracted in two pieces,
 * the first with few enough bits that n times it is exact (Cody and Waite 1980). */
VEC vf v_exp(vf x) {
    x = v_min(v_set(89.0f), v_max(v_set(-104.0f), x));
    vf n = v_round(x * 1.44269504f);
    vf r = v_fma(n, v_set(-0.693359375f), x);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    vf p = v_set(1.9875691500e-4f);
    p = v_fma(p, r, v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    p = v_fma(p, r, v_set(5.0000001201e-1f));
    return v_ldexp(v_fma(p, r * r, r) + 1.0f, n);
}

VEC vf zip_low(vf a, vf b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
                                   23);
}
VEC vf zip_high(vf a, vf b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
                                   30, 15, 31);
}

/* Zipping row i with row i + 8 rotates the 8 bits of an element's (row, column) by one;
 * four rounds exchange row and column. */
VEC void transpose16(vf r[VL]) {
    vf t[VL];
#pragma GCC unroll 4
    for (int round = 0; round < 4; round++) {
#pragma GCC unroll 8
        for (int i = 0; i < VL / 2; i++) {
            t[2 * i] = zip_low(r[i], r[i + VL / 2]);
            t[2 * i + 1] = zip_high(r[i], r[i + VL / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++)
            r[i] = t[i];
    }
}

#endif
