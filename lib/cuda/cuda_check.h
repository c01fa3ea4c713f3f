/* cuda_check.h - calls of CUDA and its libraries, checked.
 *
 * Every call is made inside one of these, which say 0, or -1 with what the library says about it:
 *
 *     if (cuda_check(cudaStreamSynchronize(stream), "waiting for the stream", err) < 0)
 *         return -1;
 */
#ifndef WEFT_CUDA_CHECK_H
#define WEFT_CUDA_CHECK_H

#include "common/err.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

/* `what`: in a message behind "CUDA: ". err may be NULL. */
int cuda_check(cudaError_t rc, const char *what, struct err *err);
int cuda_check_cublas(cublasStatus_t rc, const char *what, struct err *err);

#endif
