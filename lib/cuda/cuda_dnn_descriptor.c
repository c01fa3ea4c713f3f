/* Descriptions of cuDNN's graph API: made, given attributes, finished, and asked. */
#include "cuda/cuda_dnn_impl.h"

struct dnn_descriptor dnn_descriptor(const struct dnn *d,
                                     cudnnBackendDescriptorType_t type) {
    struct dnn_descriptor s = {.d = d};
    s.rc = d->lib.cudnnBackendCreateDescriptor(type, &s.at);
    return s;
}

void dnn_set(struct dnn_descriptor *s, cudnnBackendAttributeName_t what,
             cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    if (s->rc == CUDNN_STATUS_SUCCESS)
        s->rc = s->d->lib.cudnnBackendSetAttribute(s->at, what, type, n, values);
}

void dnn_set_part(struct dnn_descriptor *s, cudnnBackendAttributeName_t what,
                  cudnnBackendDescriptor_t part) {
    if (!part)
        s->rc = CUDNN_STATUS_NOT_SUPPORTED;
    dnn_set(s, what, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

cudnnBackendDescriptor_t dnn_finish(struct dnn_descriptor *s, struct dnn_plans *plans) {
    if (s->rc == CUDNN_STATUS_SUCCESS)
        s->rc = s->d->lib.cudnnBackendFinalize(s->at);
    if (s->at)
        arr_push(&plans->parts, s->at);
    return s->rc == CUDNN_STATUS_SUCCESS ? s->at : NULL;
}

cudnnBackendDescriptor_t dnn_blank(const struct dnn *d, cudnnBackendDescriptorType_t type,
                                   struct dnn_plans *plans) {
    const struct dnn_descriptor s = dnn_descriptor(d, type);
    if (s.rc != CUDNN_STATUS_SUCCESS)
        return NULL;
    arr_push(&plans->parts, s.at);
    return s.at;
}

int64_t dnn_get(const struct dnn *d, cudnnBackendDescriptor_t of,
                cudnnBackendAttributeName_t what, cudnnBackendAttributeType_t type,
                int64_t most, void *values) {
    int64_t n = 0;
    if (d->lib.cudnnBackendGetAttribute(of, what, type, most, &n, values) !=
        CUDNN_STATUS_SUCCESS)
        return 0;
    return n < most ? n : most;
}

cudnnDataType_t dnn_type(enum dtype type) {
    return type == DTYPE_bf16  ? CUDNN_DATA_BFLOAT16
           : type == DTYPE_f16 ? CUDNN_DATA_HALF
                               : CUDNN_DATA_FLOAT;
}

cudnnBackendDescriptor_t dnn_tensor(const struct dnn *d, const struct dnn_tensor *t,
                                    struct dnn_plans *plans) {
    const int64_t alignment = 16; /* bytes of every address */
    const bool yes = true;
    struct dnn_descriptor s = dnn_descriptor(d, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    dnn_set(&s, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type);
    dnn_set(&s, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, t->n);
    dnn_set(&s, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, t->stride);
    dnn_set(&s, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &t->id);
    dnn_set(&s, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (t->lies == DNN_VIRTUAL)
        dnn_set(&s, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (t->lies == DNN_VALUE)
        dnn_set(&s, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    return dnn_finish(&s, plans);
}
