#include "cuda/cuda_check.h"

int cuda_check(cudaError_t rc, const char *what, struct err *err) {
    if (rc == cudaSuccess)
        return 0;
    return err_system(err, "CUDA: %s: %s (%s)", what, cudaGetErrorString(rc),
                      cudaGetErrorName(rc));
}

/* The library's own text for it may be in a library that could not be opened. */
static const char *status_text(cublasStatus_t rc) {
    switch (rc) {
    case CUBLAS_STATUS_NOT_INITIALIZED: return "not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "out of memory";
    case CUBLAS_STATUS_INVALID_VALUE: return "a wrong value";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "not on this GPU";
    case CUBLAS_STATUS_MAPPING_ERROR: return "memory cannot be mapped";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "it could not be launched";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "internal error";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "not supported";
    case CUBLAS_STATUS_LICENSE_ERROR: return "no license";
    default: return "unknown error";
    }
}

int cuda_check_cublas(cublasStatus_t rc, const char *what, struct err *err) {
    if (rc == CUBLAS_STATUS_SUCCESS)
        return 0;
    return err_system(err, "cuBLASLt: %s: %s", what, status_text(rc));
}
