/* From a convolution to plans of cuDNN: its description as a graph of one operation. */
#include "cuda/cuda_dnn_impl.h"

/* Dims are said in the order outer, channels, height, width, wherever they lie. */
static cudnnBackendDescriptor_t tensor(const struct dnn *d, int64_t id, enum dtype type,
                                       int64_t outer, int64_t c, int64_t h, int64_t w,
                                       struct dnn_plans *plans) {
    const struct dnn_tensor t = {
        id, dnn_type(type), DNN_MEMORY, {outer, c, h, w}, {h * w * c, 1, w * c, c}};
    return dnn_tensor(d, &t, plans);
}

static cudnnBackendDescriptor_t windows(const struct dnn *d, const struct kernel_conv *c,
                                        struct dnn_plans *plans) {
    const int64_t dims = 2, dilations[] = {1, 1}, strides[] = {c->stride, c->stride},
                  paddings[] = {c->ph, c->pw};
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    struct dnn_descriptor s = dnn_descriptor(d, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    dnn_set(&s, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    dnn_set(&s, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    dnn_set(&s, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    dnn_set(&s, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
    dnn_set(&s, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    dnn_set(&s, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, paddings);
    dnn_set(&s, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, paddings);
    return dnn_finish(&s, plans);
}

/* What the passes' operations and their attributes are called. */
#define ATTRIBUTE(name, what) CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##what
#define OPERATION(type, name, x, w, y)                                                     \
    {                                                                                      \
        CUDNN_BACKEND_OPERATION_CONVOLUTION_##type##_DESCRIPTOR, ATTRIBUTE(name, ALPHA),   \
            ATTRIBUTE(name, BETA), ATTRIBUTE(name, CONV_DESC), ATTRIBUTE(name, x),         \
            ATTRIBUTE(name, w), ATTRIBUTE(name, y)                                         \
    }
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, windows, x, w, y;
} operations[] = {
    [KERNEL_FORWARD] = OPERATION(FORWARD, FORWARD, X, W, Y),
    [KERNEL_DATA] = OPERATION(BACKWARD_DATA, BWD_DATA, DX, W, DY),
    [KERNEL_WEIGHTS] = OPERATION(BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
};

/* The operation, whose result is written; or NULL. */
static cudnnBackendDescriptor_t operation(const struct dnn *d, const struct dnn_wish *w,
                                          struct dnn_plans *plans) {
    const struct kernel_conv *c = &w->s;
    const float one = 1, zero = 0;
    const enum dtype types[] = {
        w->pass == KERNEL_DATA ? w->type_to : w->type,
        w->pass == KERNEL_WEIGHTS ? w->type_to : w->type,
        w->pass == KERNEL_FORWARD ? w->type_to : w->type,
    };
    struct dnn_descriptor s = dnn_descriptor(d, operations[w->pass].type);
    dnn_set_part(&s, operations[w->pass].windows, windows(d, c, plans));
    dnn_set_part(&s, operations[w->pass].x,
                 tensor(d, DNN_X, types[0], c->batch, c->cin, c->ih, c->iw, plans));
    dnn_set_part(&s, operations[w->pass].w,
                 tensor(d, DNN_W, types[1], c->cout, c->cin, c->kh, c->kw, plans));
    dnn_set_part(&s, operations[w->pass].y,
                 tensor(d, DNN_Y, types[2], c->batch, c->cout, c->oh, c->ow, plans));
    dnn_set(&s, operations[w->pass].alpha, CUDNN_TYPE_FLOAT, 1, &one);
    dnn_set(&s, operations[w->pass].beta, CUDNN_TYPE_FLOAT, 1, &zero);
    return dnn_finish(&s, plans);
}

static cudnnBackendDescriptor_t graph_of(const struct dnn *d, const struct dnn_wish *w,
                                         struct dnn_plans *plans) {
    const cudnnBackendDescriptor_t op = operation(d, w, plans);
    return dnn_graph(d, &op, 1, plans);
}

static struct dnn_rule rule_of(const struct dnn_wish *w) {
    return (struct dnn_rule){w->type, w->deterministic, w->tf32, w->workspace_bytes, 1};
}

int dnn_plan(const struct dnn *d, const struct dnn_wish *w, int most,
             struct dnn_plans *out) {
    const struct dnn_rule rule = rule_of(w);
    return dnn_engines(d, graph_of(d, w, out), &rule, most, out);
}

int dnn_plan_named(const struct dnn *d, const struct dnn_wish *w, const char *name,
                   struct dnn_plans *out) {
    const struct dnn_rule rule = rule_of(w);
    return dnn_engine_named(d, graph_of(d, w, out), &rule, name, out);
}

int dnn_run(const struct dnn *d, const struct dnn_plans *plans, int i,
            const struct dnn_operands *o, void *workspace, cudaStream_t stream,
            struct err *err) {
    const struct dnn_place at[] = {{DNN_X, o->x}, {DNN_W, o->w}, {DNN_Y, o->y}};
    return dnn_execute(d, plans->of[i].plan, at, 3, workspace, stream, err);
}
