/* cudnn_sheet.h - inside the fake of cuDNN: descriptions as it keeps them, and tensors. */
#ifndef WEFT_FAKE_CUDNN_SHEET_H
#define WEFT_FAKE_CUDNN_SHEET_H

#include "cudnn.h"

#include "common/half.h"

#include <stdint.h>
#include <string.h>

enum { ATTRIBUTES = 8, BYTES = 256 };

struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t n;
    unsigned char value[BYTES];
};

struct sheet {
    cudnnBackendDescriptorType_t type;
    bool finished;
    struct attribute of[ATTRIBUTES];
    int n;
    enum fake_engine engine;   /* of a configuration and of an engine */
    const struct sheet *graph; /* of a configuration and of an engine */
};

static inline const struct attribute *attribute_of(const struct sheet *s,
                                                   cudnnBackendAttributeName_t name) {
    for (int i = 0; i < s->n; i++)
        if (s->of[i].name == name)
            return &s->of[i];
    return NULL;
}

static inline const void *value_of(const struct sheet *s,
                                   cudnnBackendAttributeName_t name) {
    const struct attribute *a = attribute_of(s, name);
    return a ? a->value : NULL;
}

static inline const struct sheet *part_of(const struct sheet *s,
                                          cudnnBackendAttributeName_t name) {
    struct sheet *part = NULL;
    const void *value = value_of(s, name);
    if (value)
        memcpy(&part, value, sizeof part);
    return part;
}

/* Outer, channels, height, width; or batch, heads, rows, columns. */
struct tensor {
    cudnnDataType_t type;
    int64_t size[4], stride[4], id, alignment;
    bool is_virtual, by_value;
};

static inline struct tensor tensor_of(const struct sheet *s) {
    struct tensor t;
    memcpy(&t.type, value_of(s, CUDNN_ATTR_TENSOR_DATA_TYPE), sizeof t.type);
    memcpy(t.size, value_of(s, CUDNN_ATTR_TENSOR_DIMENSIONS), sizeof t.size);
    memcpy(t.stride, value_of(s, CUDNN_ATTR_TENSOR_STRIDES), sizeof t.stride);
    memcpy(&t.id, value_of(s, CUDNN_ATTR_TENSOR_UNIQUE_ID), sizeof t.id);
    memcpy(&t.alignment, value_of(s, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT), sizeof t.alignment);
    t.is_virtual = value_of(s, CUDNN_ATTR_TENSOR_IS_VIRTUAL) != NULL;
    t.by_value = value_of(s, CUDNN_ATTR_TENSOR_IS_BY_VALUE) != NULL;
    return t;
}

/* An element by its place in memory. */
static inline double load_at(cudnnDataType_t type, const void *p, int64_t i) {
    switch ((int)type) {
    case CUDNN_DATA_BFLOAT16: return bf16_widen(((const uint16_t *)p)[i]);
    case CUDNN_DATA_HALF: return f16_widen(((const uint16_t *)p)[i]);
    default: return ((const float *)p)[i];
    }
}

static inline void store_at(cudnnDataType_t type, void *p, int64_t i, double x) {
    switch ((int)type) {
    case CUDNN_DATA_BFLOAT16: ((uint16_t *)p)[i] = bf16_narrow((float)x); break;
    case CUDNN_DATA_HALF: ((uint16_t *)p)[i] = f16_narrow((float)x); break;
    default: ((float *)p)[i] = (float)x;
    }
}

/* cudnn.c: notes what is wrong, and answers so. */
cudnnStatus_t fake_cudnn_wrong(const char *what);
/* cudnn.c: the address under which the pack has the tensor; NULL, and wrong, where it has none. */
void *fake_cudnn_address(const struct sheet *pack, const struct tensor *t);

/* cudnn_graph.c: runs operations one behind the other: products of matrices, sums and maxima over dims, what is
 * done to each number, other views of what lies in memory. What is virtual is kept while it runs, rounded to its
 * type. */
cudnnStatus_t fake_cudnn_graph(const struct sheet *graph, const struct sheet *pack);

#endif
