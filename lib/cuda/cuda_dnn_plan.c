/* From a convolution to plans of cuDNN: descriptions, the engines that the heuristics list, and which of them
 * suit. If the library refuses a description that is no error: it has nothing to offer then. */
#include "cuda/cuda_dnn_impl.h"

enum {
    ALIGNMENT = 16, /* bytes of every address */
    CONFIGS = 64,   /* that are looked at, of each heuristic */
    COMPILED =
        1 /* plans that are compiled when they are made, at most: a second or so each */
};

/* ---- descriptions ------------------------------------------------------------------------- */

/* The GPU that it is for: the handle's, or, where there is none, the one that is described. */
static void set_device(struct dnn_descriptor *s, cudnnBackendAttributeName_t handle,
                       cudnnBackendAttributeName_t described) {
    if (s->d->handle)
        dnn_set(s, handle, CUDNN_TYPE_HANDLE, 1, &s->d->handle);
    else
        dnn_set_part(s, described, s->d->device);
}

static cudnnDataType_t library_type(enum dtype type) {
    return type == DTYPE_bf16  ? CUDNN_DATA_BFLOAT16
           : type == DTYPE_f16 ? CUDNN_DATA_HALF
                               : CUDNN_DATA_FLOAT;
}

/* Dims are said in the order outer, channels, height, width, wherever they lie. */
static cudnnBackendDescriptor_t tensor(const struct dnn *d, int64_t id, enum dtype type,
                                       int64_t outer, int64_t c, int64_t h, int64_t w,
                                       struct dnn_plans *plans) {
    const int64_t dims[] = {outer, c, h, w}, strides[] = {h * w * c, 1, w * c, c};
    const int64_t alignment = ALIGNMENT;
    const cudnnDataType_t of = library_type(type);
    struct dnn_descriptor s = dnn_descriptor(d, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    dnn_set(&s, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &of);
    dnn_set(&s, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    dnn_set(&s, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    dnn_set(&s, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    dnn_set(&s, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    return dnn_finish(&s, plans);
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
    struct dnn_descriptor s = dnn_descriptor(d, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    dnn_set_part(&s, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation(d, w, plans));
    if (d->handle)
        dnn_set(&s, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &d->handle);
    return dnn_finish(&s, plans);
}

/* ---- engines ------------------------------------------------------------------------------ */

/* What a heuristic lists, the best first, as configurations of engines. */
static int64_t list(const struct dnn *d, cudnnBackendDescriptor_t graph,
                    cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *configs,
                    struct dnn_plans *plans) {
    struct dnn_descriptor s = dnn_descriptor(d, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    dnn_set_part(&s, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    dnn_set(&s, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!d->handle)
        dnn_set_part(&s, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, d->device);
    const cudnnBackendDescriptor_t heuristic = dnn_finish(&s, plans);
    for (int i = 0; i < CONFIGS; i++)
        if (!(configs[i] = dnn_blank(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, plans)))
            return 0;
    return heuristic ? dnn_get(d, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, configs)
                     : 0;
}

/* What the library notes about an engine. */
enum {
    NUMERICAL = CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
    BEHAVIORS = CUDNN_BEHAVIOR_NOTE_TYPE_COUNT,
    NOTES = (int)NUMERICAL > (int)BEHAVIORS ? (int)NUMERICAL : (int)BEHAVIORS
};
_Static_assert(sizeof(cudnnBackendNumericalNote_t) == sizeof(int) &&
                   sizeof(cudnnBackendBehaviorNote_t) == sizeof(int),
               "notes of both sorts are ints");
struct notes {
    bool known;
    int64_t engine; /* its number */
    bool numerical[NUMERICAL];
    bool behavior[BEHAVIORS];
};

/* Sets of[NOTE] of the notes of one sort that the engine has; a newer library may have some without a
 * name here. */
static bool mark(const struct dnn *d, cudnnBackendDescriptor_t engine,
                 cudnnBackendAttributeName_t what, cudnnBackendAttributeType_t type,
                 int most, bool *of) {
    int notes[NOTES];
    int64_t n = 0;
    if (d->lib.cudnnBackendGetAttribute(engine, what, type, most, &n, notes) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < n && i < most; i++)
        if (notes[i] >= 0 && notes[i] < most)
            of[notes[i]] = true;
    return true;
}

static struct notes notes_of(const struct dnn *d, cudnnBackendDescriptor_t config,
                             struct dnn_plans *plans) {
    struct notes notes = {.known = false};
    cudnnBackendDescriptor_t engine = dnn_blank(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR, plans);
    notes.known = engine &&
                  dnn_get(d, config, CUDNN_ATTR_ENGINECFG_ENGINE,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine) == 1 &&
                  dnn_get(d, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                          &notes.engine) == 1 &&
                  mark(d, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                       CUDNN_TYPE_NUMERICAL_NOTE, NUMERICAL, notes.numerical) &&
                  mark(d, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                       BEHAVIORS, notes.behavior);
    return notes;
}

/* Of floats, tensor cores are TF32. */
static bool suits(const struct notes *n, const struct dnn_wish *w) {
    static const cudnnBackendNumericalNote_t never[] = {
        CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, CUDNN_NUMERICAL_NOTE_FFT,
        CUDNN_NUMERICAL_NOTE_WINOGRAD};
    bool good = n->known;
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        good &= !n->numerical[never[i]];
    if (w->type != DTYPE_f32 || !w->tf32)
        good &= !n->numerical[CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS];
    if (w->type == DTYPE_f32 && !w->tf32)
        good &= !n->numerical[CUDNN_NUMERICAL_NOTE_TENSOR_CORE];
    if (w->deterministic)
        good &= !n->numerical[CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC];
    return good;
}

/* Adds the engine's plan, unless the library refuses or it takes too much workspace. */
static void add(const struct dnn *d, const struct dnn_wish *w,
                cudnnBackendDescriptor_t config, struct dnn_plans *plans) {
    int64_t n = 0, bytes = 0;
    struct dnn_descriptor s = dnn_descriptor(d, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    dnn_set_part(&s, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    set_device(&s, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    const cudnnBackendDescriptor_t plan = dnn_finish(&s, plans);
    if (plan &&
        d->lib.cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                        CUDNN_TYPE_INT64, 1, &n,
                                        &bytes) == CUDNN_STATUS_SUCCESS &&
        bytes <= w->workspace_bytes) {
        plans->of[plans->n].plan = plan;
        plans->of[plans->n].config = config;
        plans->of[plans->n++].workspace_bytes = bytes;
    }
}

/* How often each of n engines stood in the list before. */
static void count_before(const struct notes *notes, int64_t n, int *before) {
    for (int64_t i = 0; i < n; i++) {
        before[i] = 0;
        for (int64_t k = 0; k < i; k++)
            before[i] += notes[k].engine == notes[i].engine;
    }
}

/* The list has an engine's variants one behind the other, up to eight of them, and another engine may be
 * twenty times as fast: of a gradient of weights with few channels and many places the first seven are of
 * one engine, and one that divides each sum into 78 parts comes eighth (64 x 56 x 56 x 64 on an H100: 970 us
 * by the fastest of the first six, and 52 by PyTorch, which tries all). So engines take turns. */
static void add_all(const struct dnn *d, const struct dnn_wish *w,
                    cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode, int most,
                    struct dnn_plans *plans) {
    cudnnBackendDescriptor_t configs[CONFIGS];
    struct notes notes[CONFIGS];
    int before[CONFIGS];
    const int64_t n = list(d, graph, mode, configs, plans);
    for (int64_t i = 0; i < n; i++)
        notes[i] = notes_of(d, configs[i], plans);
    count_before(notes, n, before);
    for (int turn = 0; turn < CONFIGS; turn++)
        for (int64_t i = 0; i < n && plans->n < most; i++) {
            if (before[i] != turn || !suits(&notes[i], w))
                continue;
            const bool compiles =
                notes[i].behavior[CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION];
            plans->compiled += compiles;
            if (!compiles || plans->compiled <= COMPILED)
                add(d, w, configs[i], plans);
        }
}

int dnn_plan(const struct dnn *d, const struct dnn_wish *w, int most,
             struct dnn_plans *out) {
    const cudnnBackendDescriptor_t graph = graph_of(d, w, out);
    most = most < DNN_PLANS ? most : DNN_PLANS;
    if (graph)
        add_all(d, w, graph, CUDNN_HEUR_MODE_A, most, out);
    if (graph && out->n < most)
        add_all(d, w, graph, CUDNN_HEUR_MODE_FALLBACK, most, out);
    return out->n;
}

int dnn_plan_named(const struct dnn *d, const struct dnn_wish *w, const char *name,
                   struct dnn_plans *out) {
    const cudnnBackendDescriptor_t graph = graph_of(d, w, out);
    const cudnnBackendDescriptor_t config =
        graph ? dnn_config_named(d, graph, name, out) : NULL;
    if (!config)
        return 0;
    const struct notes notes = notes_of(d, config, out);
    if (!suits(&notes, w))
        return -1;
    add(d, w, config, out);
    return out->n;
}

void dnn_forget(const struct dnn *d, struct dnn_plans *plans) {
    for (int64_t i = plans->parts.n - 1; i >= 0; i--)
        d->lib.cudnnBackendDestroyDescriptor(plans->parts.p[i]);
    arr_release(&plans->parts);
    *plans = (struct dnn_plans){.n = 0};
}
