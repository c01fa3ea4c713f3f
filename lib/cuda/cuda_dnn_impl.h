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

cudnnDataType_t dnn_type(enum dtype type);

/* A tensor of four dims, by strides in elements. */
struct dnn_tensor {
    int64_t id;
    cudnnDataType_t type;
    enum {
        DNN_MEMORY,
        DNN_VIRTUAL,
        DNN_VALUE
    } lies; /* never in memory; one number of the host's */
    int64_t n[4], stride[4];
};
cudnnBackendDescriptor_t dnn_tensor(const struct dnn *d, const struct dnn_tensor *t,
                                    struct dnn_plans *plans);

/* ---- cuda_dnn_plan.c: engines of a graph ---------------------------------------------------- */

/* Those that may be taken: of operands of this type, as dnn_wish says it. */
struct dnn_rule {
    enum dtype type;
    bool deterministic, tf32;
    int64_t workspace_bytes;
    int compiled; /* plans that are compiled when they are made, at most: a second or so each */
};
/* The finished operations as a graph; NULL where one of them is, or the library refuses. */
cudnnBackendDescriptor_t dnn_graph(const struct dnn *d, const cudnnBackendDescriptor_t *ops,
                                   int64_t n, struct dnn_plans *plans);
/* As dnn_plan() and dnn_plan_named() have it. NULL has no engines. */
int dnn_engines(const struct dnn *d, cudnnBackendDescriptor_t graph,
                const struct dnn_rule *w, int most, struct dnn_plans *out);
int dnn_engine_named(const struct dnn *d, cudnnBackendDescriptor_t graph,
                     const struct dnn_rule *w, const char *name, struct dnn_plans *out);

/* ---- cuda_dnn.c ----------------------------------------------------------------------------- */

/* Gives the plan to the stream, with n tensors by their ids. Returns 0, or -1 with what the library says. */
struct dnn_place {
    int64_t id;
    void *p; /* the device's; of a value the host's */
};
int dnn_execute(const struct dnn *d, void *plan, const struct dnn_place *at, int n,
                void *workspace, cudaStream_t stream, struct err *err);

/* ---- cuda_dnn_attention.c ------------------------------------------------------------------- */

/* Attention as a graph; NULL where the library refuses. */
cudnnBackendDescriptor_t dnn_attention_graph(const struct dnn *d,
                                             const struct dnn_attention *w,
                                             struct dnn_plans *plans);

/* ---- cuda_dnn_name.c ---------------------------------------------------------------------- */

/* The configuration of an engine that has this name; NULL where the library has no such one. */
cudnnBackendDescriptor_t dnn_config_named(const struct dnn *d,
                                          cudnnBackendDescriptor_t graph, const char *name,
                                          struct dnn_plans *plans);

#endif
