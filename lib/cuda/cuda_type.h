/* cuda_type.h - the types of elements in kernels: float, bf16 and f16 (device/kernel.h).
 *
 * A kernel is written once for elements of type T, in floats but for loads and stores, as on the CPU.
 * The conversions are those of common/half.h in integers: the same bits, and no header of CUDA, so
 * that a compiler for the CPU takes the same text.
 *
 *     template <typename T> CUDA_KERNEL void twice(int64_t n, const T *x, T *y) {
 *         int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
 *         if (i < n)
 *             put(y + i, 2 * get(x + i));
 *     }
 *     CUDA_TYPED(c->args->dtype, T, CUDA_LAUNCH(twice<T>, blocks, 256, 0, c->stream, n->elems,
 *                                               (const T *)in->x, (T *)out->y));
 */
#ifndef WEFT_CUDA_TYPE_H
#define WEFT_CUDA_TYPE_H

#include "cuda/cuda_kernel.h"

CUDA_BOTH uint32_t float_bits(float f) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(f);
#else
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
#endif
}

CUDA_BOTH float bits_float(uint32_t u) {
#ifdef __CUDA_ARCH__
    return __uint_as_float(u);
#else
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
#endif
}

/* A number in 32 bits. */
CUDA_BOTH float widen(float x) {
    return x;
}

CUDA_BOTH float widen(bf16 x) {
    return bits_float((uint32_t)x.bits << 16);
}

/* The bits moved to their places are the number times 2^-112, subnormal ones too. */
CUDA_BOTH float widen(f16 x) {
    float f = bits_float((uint32_t)(x.bits & 0x7fff) << 13) * 0x1p112f;
    uint32_t infinite = f >= 0x1p16f ? 0xffu << 23 : 0;
    return bits_float(float_bits(f) | infinite | (uint32_t)(x.bits & 0x8000) << 16);
}

/* A number of 32 bits rounded to T: to nearest, ties to even. */
template <typename T> CUDA_BOTH T narrow(float x);

template <> CUDA_BOTH float narrow<float>(float x) {
    return x;
}

template <> CUDA_BOTH bf16 narrow<bf16>(float x) {
    uint32_t u = float_bits(x), rounded = u + 0x7fff + (u >> 16 & 1);
    bf16 y = {(uint16_t)((x != x ? u | 1u << 22 : rounded) >> 16)};
    return y;
}

/* Of what is subnormal in f16 an addition rounds the bits that are too many. */
template <> CUDA_BOTH f16 narrow<f16>(float x) {
    const uint32_t one = 1u << 23, nan = 0x7e00, infinite = 0x7c00;
    uint32_t u = float_bits(x), sign = u & 1u << 31, h;
    u ^= sign;
    if (u >= (127 + 16) * one)
        h = u > 0xff * one ? nan : infinite;
    else if (u < (127 - 14) * one)
        h = float_bits(bits_float(u) + 0.5f) - float_bits(0.5f);
    else
        h = (u - (127 - 15) * one + 0xfff + (u >> 13 & 1)) >> 13;
    f16 y = {(uint16_t)(h | sign >> 16)};
    return y;
}

template <typename T> CUDA_BOTH float get(const T *p) {
    return widen(*p);
}

template <typename T> CUDA_BOTH void put(T *p, float x) {
    *p = narrow<T>(x);
}

/* Does `...`, with T the type of elements of this dtype. */
#define CUDA_TYPED(dtype, T, ...)                                                          \
    switch (dtype) {                                                                       \
    case DTYPE_bf16: {                                                                     \
        typedef bf16 T;                                                                    \
        __VA_ARGS__;                                                                       \
        break;                                                                             \
    }                                                                                      \
    case DTYPE_f16: {                                                                      \
        typedef f16 T;                                                                     \
        __VA_ARGS__;                                                                       \
        break;                                                                             \
    }                                                                                      \
    default: {                                                                             \
        typedef float T;                                                                   \
        __VA_ARGS__;                                                                       \
        break;                                                                             \
    }                                                                                      \
    }

/* The same of the types of 16 bits alone. */
#define CUDA_HALF(dtype, T, ...)                                                           \
    if ((dtype) == DTYPE_f16) {                                                            \
        typedef f16 T;                                                                     \
        __VA_ARGS__;                                                                       \
    } else {                                                                               \
        typedef bf16 T;                                                                    \
        __VA_ARGS__;                                                                       \
    }

#endif
