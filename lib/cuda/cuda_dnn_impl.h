/* cuda_dnn_impl.h - cuDNN as the files that call it have it. */
#ifndef WEFT_CUDA_DNN_IMPL_H
#define WEFT_CUDA_DNN_IMPL_H

#include "cuda/cuda_dnn.h"
#include "cuda/cuda_library.h"

#include <cudnn.h>

/* What of cuDNN is called. */
#define DNN_LIBRARY(X)                                                                     \
    X(cudnnGetVersion)                                                                     \
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

/* ---- cuda_dnn_descriptor.c: descriptions ------------------------------------------------------- */

/* A description under way, whose first failure counts. */
struct dnn_descriptor {
    const struct dnn *d;
    cudnnBackendDescriptor_t at;
    cudnnStatus_t rc;
};
struct dnn_descriptor dnn_descriptor(const struct dnn *d,
                                     cudnnBackendDescriptorType_t type);
void dnn_set(struct dnn_descriptor *s, cudnnBackendAttributeName_t what,
             cudnnBackendAttributeType_t type, int64_t n, const void *values);
/* Another description, finished; NULL fails. */
void dnn_set_part(struct dnn_descriptor *s, cudnnBackendAttributeName_t what,
                  cudnnBackendDescriptor_t part);
/* The finished description, among the parts; or NULL. */
cudnnBackendDescriptor_t dnn_finish(struct dnn_descriptor *s, struct dnn_plans *plans);
/* A description for the library to fill in, among the parts; or NULL. */
cudnnBackendDescriptor_t dnn_blank(const struct dnn *d, cudnnBackendDescriptorType_t type,
                                   struct dnn_plans *plans);
/* What it says of itself: at most so many values; returns how many, 0 where it does not say. */
int64_t dnn_get(const struct dnn *d, cudnnBackendDescriptor_t of,
                cudnnBackendAttributeName_t what, cudnnBackendAttributeType_t type,
                int64_t most, void *values);

/* ---- cuda_dnn_name.c ---------------------------------------------------------------------- */

/* The configuration of an engine that has this name; NULL where the library has no such one. */
cudnnBackendDescriptor_t dnn_config_named(const struct dnn *d,
                                          cudnnBackendDescriptor_t graph, const char *name,
                                          struct dnn_plans *plans);

#endif
