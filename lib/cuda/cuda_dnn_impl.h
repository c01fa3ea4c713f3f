/* cuda_dnn_impl.h - cuDNN as the files that call it have it. */
#ifndef WEFT_CUDA_DNN_IMPL_H
#define WEFT_CUDA_DNN_IMPL_H

#include "cuda/cuda_dnn.h"
#include "cuda/cuda_library.h"

#include <cudnn.h>

/* What of cuDNN is called. */
#define DNN_LIBRARY(X)                                                                     \
    X(cudnnCreate)                                                                         \
    X(cudnnDestroy)                                                                        \
    X(cudnnSetStream)                                                                      \
    X(cudnnGetErrorString)                                                                 \
    X(cudnnBackendCreateDescriptor)                                                        \
    X(cudnnBackendDestroyDescriptor)                                                       \
    X(cudnnBackendSetAttribute)                                                            \
    X(cudnnBackendGetAttribute)                                                            \
    X(cudnnBackendFinalize)                                                                \
    X(cudnnBackendExecute)

struct dnn {
    struct {
        CUDA_LIBRARY_TABLE(DNN_LIBRARY)
    } lib;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t
        device; /* without a handle: the GPU that plans are for, described */
};

enum { DNN_X = 1, DNN_W, DNN_Y }; /* what tensors are called between us and the library */

#endif
