/* cuda_unpack.h - data in the host's pinned memory, read by a kernel that widens it. */
#ifndef WEFT_CUDA_UNPACK_H
#define WEFT_CUDA_UNPACK_H

#include "cuda/cuda_impl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = x, n numbers of another type: see device_unpack. */
int cuda_unpack_kernel(struct cuda_call *c, int64_t n, const void *x, enum dtype from,
                       void *y, enum dtype to);

#ifdef __cplusplus
}
#endif

#endif
