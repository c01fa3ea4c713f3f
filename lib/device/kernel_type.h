/* kernel_type.h - the type of elements that a file of kernels is compiled for.
 *
 * The Makefile compiles every file that includes this one three times: T is float, bf16 or f16,
 * TYPE its number, and kernel_add becomes the name that it has for the type (kernel_names.h).
 * Everything but loads (v_load, get) and stores (v_store, put) is in floats, so one text is right
 * for all of them:
 *
 *     void kernel_double(int64_t n, const T *x, T *y) {
 *         for (int64_t i = 0; i < n; i++)
 *             put(y + i, 2 * get(x + i));
 *     }
 */
#ifndef WEFT_KERNEL_TYPE_H
#define WEFT_KERNEL_TYPE_H

#include "device/kernel.h"
#include "device/kernel_vec.h"

#undef TYPED
#if defined(WEFT_bf16)
#define T           bf16
#define TYPE        DTYPE_bf16
#define TYPED(name) name##_bf16
#elif defined(WEFT_f16)
#define T           f16
#define TYPE        DTYPE_f16
#define TYPED(name) name##_f16
#else
#define T           float
#define TYPE        DTYPE_f32
#define TYPED(name) name
#endif

#endif
