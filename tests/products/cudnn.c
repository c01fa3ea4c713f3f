#include "cudnn_sheet.h"

#include <stdlib.h>

struct fake_cudnn fake_cudnn;

/* Where the fake of the runtime is linked too, convolutions wait for their turn on its streams. */
void fake_cuda_launch(cudaStream_t s, void (*run)(void *args), const void *args,
                      size_t bytes) __attribute__((weak));

struct cudnnContext {
    cudaStream_t stream;
};

cudnnStatus_t fake_cudnn_wrong(const char *what) {
    if (!fake_cudnn.wrong)
        fake_cudnn.wrong = what;
    return CUDNN_STATUS_BAD_PARAM;
}

/* ---- engines ------------------------------------------------------------------------------ */

#define NUMERICAL(note) (1u << CUDNN_NUMERICAL_NOTE_##note)
static const struct {
    unsigned numerical;
    bool compiled;
    int64_t workspace;
    double ms;
} engines[FAKE_ENGINES] = {
    [FAKE_TENSOR_CORE] = {NUMERICAL(TENSOR_CORE), false, 0, 2},
    [FAKE_ANY_ORDER] = {NUMERICAL(NONDETERMINISTIC), false, 1 << 20, 1},
    [FAKE_WINOGRAD] = {NUMERICAL(WINOGRAD), false, 0, 0.1},
    [FAKE_LARGE] = {0, false, (int64_t)1 << 32, 0.1},
    [FAKE_REFUSED] = {0, false, 0, 0.1},
    [FAKE_FAILING] = {0, false, 0, 0.1},
    [FAKE_PLAIN] = {0, false, 32 << 20, 4},
    [FAKE_COMPILED] = {NUMERICAL(TENSOR_CORE), true, 0, 3},
    [FAKE_COMPILED_TOO] = {0, true, 0, 0.1},
};

double fake_cudnn_ms(void) {
    double ms = 0;
    for (int i = 0; i < FAKE_ENGINES; i++)
        ms += engines[i].ms * fake_cudnn.runs[i];
    return ms;
}

/* ---- descriptors -------------------------------------------------------------------------- */

/* The type of an attribute and its count: where `may` is set at most so many, or it is not set at all. */
#define T(type) CUDNN_TYPE_##type
static const struct rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n;
    size_t size;
    bool may;
} rules[] = {
#define RULE(of, name, type, n, c_type)                                                    \
    {                                                                                      \
        CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, T(type), n, sizeof(c_type),    \
            false                                                                          \
    }
#define MAY(of, name, type, n, c_type)                                                     \
    { CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, T(type), n, sizeof(c_type), true }
#define PART(of, name) RULE(of, name, BACKEND_DESCRIPTOR, 1, cudnnBackendDescriptor_t)
#define PASS(of, name, x, w, y)                                                            \
    PART(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_##x),                  \
        PART(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_##w),              \
        PART(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_##y),              \
        PART(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_CONV_DESC),        \
        RULE(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_ALPHA, FLOAT, 1,   \
             float),                                                                       \
        RULE(OPERATION_CONVOLUTION_##of, OPERATION_CONVOLUTION_##name##_BETA, FLOAT, 1,    \
             float)
    RULE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, cudnnDataType_t),
    RULE(TENSOR, TENSOR_DIMENSIONS, INT64, 4, int64_t),
    RULE(TENSOR, TENSOR_STRIDES, INT64, 4, int64_t),
    RULE(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, int64_t),
    RULE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, int64_t),
    MAY(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, bool),
    MAY(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1, bool),
    RULE(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1, cudnnDataType_t),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_DESC),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_ADESC),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_BDESC),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_CDESC),
    RULE(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, cudnnReduceTensorOp_t),
    RULE(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1, cudnnDataType_t),
    PART(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC),
    PART(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC),
    PART(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC),
    PART(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC),
    PART(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC),
    RULE(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, cudnnPointwiseMode_t),
    RULE(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, cudnnDataType_t),
    MAY(POINTWISE, POINTWISE_AXIS, INT64, 1, int64_t),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC),
    MAY(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1,
        cudnnBackendDescriptor_t),
    MAY(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, 1,
        cudnnBackendDescriptor_t),
    RULE(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, cudnnDataType_t),
    RULE(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, cudnnConvolutionMode_t),
    RULE(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1, int64_t),
    RULE(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 2, int64_t),
    RULE(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 2, int64_t),
    RULE(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 2, int64_t),
    RULE(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 2, int64_t),
    PASS(FORWARD, FORWARD, X, W, Y),
    PASS(BACKWARD_DATA, BWD_DATA, DX, W, DY),
    PASS(BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
    MAY(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 32,
        cudnnBackendDescriptor_t),
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, cudnnHandle_t),
    PART(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH),
    RULE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, cudnnBackendHeurMode_t),
    PART(ENGINE, ENGINE_OPERATION_GRAPH),
    RULE(ENGINE, ENGINE_GLOBAL_INDEX, INT64, 1, int64_t),
    RULE(KNOB_CHOICE, KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE, 1, cudnnBackendKnobType_t),
    RULE(KNOB_CHOICE, KNOB_CHOICE_KNOB_VALUE, INT64, 1, int64_t),
    PART(ENGINECFG, ENGINECFG_ENGINE),
    PART(ENGINECFG, ENGINECFG_KNOB_CHOICES),
    PART(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG),
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, cudnnHandle_t),
    MAY(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 16, void *),
    MAY(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 16, int64_t),
    RULE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, void *),
};

static const struct rule *rule_of(cudnnBackendDescriptorType_t of,
                                  cudnnBackendAttributeName_t name) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].of == of && rules[i].name == name)
            return &rules[i];
    return NULL;
}

cudnnStatus_t fake_cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                cudnnBackendDescriptor_t *out) {
    struct sheet *s = calloc(1, sizeof *s);
    s->type = type;
    *out = s;
    fake_cudnn.live++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
    free(d);
    fake_cudnn.live--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
                                            cudnnBackendAttributeName_t name,
                                            cudnnBackendAttributeType_t type, int64_t n,
                                            const void *values) {
    struct sheet *s = d;
    const struct rule *r = rule_of(s->type, name);
    if (!r)
        return fake_cudnn_wrong("an attribute that the fake does not know");
    if (s->finished || value_of(s, name) || s->n == ATTRIBUTES)
        return fake_cudnn_wrong("an attribute that is set too late, or twice");
    if (type != r->type || n < 1 || n > r->n || (n != r->n && !r->may))
        return fake_cudnn_wrong("an attribute of another type or count");
    struct attribute *a = &s->of[s->n++];
    *a = (struct attribute){.name = name, .n = n};
    memcpy(a->value, values, r->size * (size_t)n);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && !part_of(s, name))
        return fake_cudnn_wrong("a part that is not there");
    return CUDNN_STATUS_SUCCESS;
}

/* ---- finishing ---------------------------------------------------------------------------- */

/* A pass by the operands of the forward pass. */
struct pass {
    cudnnBackendDescriptorType_t type;
    struct tensor x, w, y;
    int64_t stride[2], before[2], behind[2];
    float alpha, beta;
};

#define PASS_OF(name, X, W, Y)                                                             \
    do {                                                                                   \
        const struct sheet *c =                                                            \
            part_of(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC);              \
        p.x = tensor_of(part_of(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##X));       \
        p.w = tensor_of(part_of(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##W));       \
        p.y = tensor_of(part_of(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##Y));       \
        memcpy(p.stride, value_of(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),               \
               sizeof p.stride);                                                           \
        memcpy(p.before, value_of(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),                 \
               sizeof p.before);                                                           \
        memcpy(p.behind, value_of(c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),                \
               sizeof p.behind);                                                           \
        memcpy(&p.alpha, value_of(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA),    \
               sizeof p.alpha);                                                            \
        memcpy(&p.beta, value_of(op, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA),      \
               sizeof p.beta);                                                             \
    } while (0)

static struct pass pass_of(const struct sheet *op) {
    struct pass p = {.type = op->type};
    switch ((int)op->type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        PASS_OF(FORWARD, X, W, Y);
        break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        PASS_OF(BWD_DATA, DX, W, DY);
        break;
    default: PASS_OF(BWD_FILTER, X, DW, DY);
    }
    return p;
}

/* As they lie channels-last, which is what engines want. */
static bool packed(const struct tensor *t) {
    const int64_t *n = t->size, want[] = {n[2] * n[3] * n[1], 1, n[3] * n[1], n[1]};
    return !memcmp(want, t->stride, sizeof want) && n[0] > 0 && n[1] > 0 && n[2] > 0 &&
           n[3] > 0;
}

static cudnnStatus_t judge_pass(const struct sheet *op) {
    const struct pass p = pass_of(op);
    bool fits = p.x.size[0] == p.y.size[0] && p.x.size[1] == p.w.size[1] &&
                p.w.size[0] == p.y.size[1] && p.x.id != p.w.id && p.w.id != p.y.id &&
                p.x.id != p.y.id;
    for (int d = 0; d < 2; d++)
        fits &=
            p.y.size[2 + d] ==
            (p.x.size[2 + d] + p.before[d] + p.behind[d] - p.w.size[2 + d]) / p.stride[d] +
                1;
    if (!fits)
        return fake_cudnn_wrong("tensors that do not go together");
    return packed(&p.x) && packed(&p.w) && packed(&p.y) ? CUDNN_STATUS_SUCCESS
                                                        : fake_cudnn_wrong("a layout");
}

static cudnnStatus_t judge_windows(const struct sheet *s) {
    cudnnDataType_t sums;
    cudnnConvolutionMode_t mode;
    memcpy(&sums, value_of(s, CUDNN_ATTR_CONVOLUTION_COMP_TYPE), sizeof sums);
    memcpy(&mode, value_of(s, CUDNN_ATTR_CONVOLUTION_CONV_MODE), sizeof mode);
    if (sums != CUDNN_DATA_FLOAT)
        return fake_cudnn_wrong("sums that are not floats");
    return mode == CUDNN_CROSS_CORRELATION
               ? CUDNN_STATUS_SUCCESS
               : fake_cudnn_wrong("filters that are turned round");
}

/* Each engine has one knob, whose value tells it. */
enum { KNOB = CUDNN_KNOB_TYPE_TILE_SIZE, FIRST_ENGINE = 100, FIRST_VALUE = 7 };

static cudnnStatus_t judge_engine(struct sheet *s) {
    int64_t number;
    memcpy(&number, value_of(s, CUDNN_ATTR_ENGINE_GLOBAL_INDEX), sizeof number);
    if (number < FIRST_ENGINE || number >= FIRST_ENGINE + FAKE_ENGINES)
        return CUDNN_STATUS_NOT_SUPPORTED;
    s->engine = (enum fake_engine)(number - FIRST_ENGINE);
    s->graph = part_of(s, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t judge_config(struct sheet *s) {
    const struct sheet *engine = part_of(s, CUDNN_ATTR_ENGINECFG_ENGINE);
    const struct sheet *knob = part_of(s, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    cudnnBackendKnobType_t type;
    int64_t value;
    memcpy(&type, value_of(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE), sizeof type);
    memcpy(&value, value_of(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE), sizeof value);
    s->engine = engine->engine;
    s->graph = engine->graph;
    return (int)type == KNOB && value == FIRST_VALUE + (int64_t)s->engine
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t judge_plan(const struct sheet *s) {
    const struct sheet *config = part_of(s, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    fake_cudnn.plans++;
    if (!config->graph)
        return fake_cudnn_wrong("a configuration that is not finished");
    return config->engine == FAKE_REFUSED ? CUDNN_STATUS_NOT_SUPPORTED
                                          : CUDNN_STATUS_SUCCESS;
}

/* What a heuristic gives is finished; so is what is asked of it. */
static bool is_finished(const struct sheet *s) {
    return s->finished || s->graph;
}

cudnnStatus_t fake_cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
    struct sheet *s = d;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].of != s->type)
            continue;
        if (!value_of(s, rules[i].name) && rules[i].may)
            continue;
        if (!value_of(s, rules[i].name))
            return fake_cudnn_wrong("an attribute that is not set");
        if (rules[i].type == CUDNN_TYPE_BACKEND_DESCRIPTOR &&
            !is_finished(part_of(s, rules[i].name)))
            return fake_cudnn_wrong("a part that is not finished");
    }
    s->finished = true;
    switch ((int)s->type) {
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: return judge_windows(s);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return judge_pass(s);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: return judge_engine(s);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: return judge_config(s);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return judge_plan(s);
    default: return CUDNN_STATUS_SUCCESS;
    }
}

/* ---- asking ------------------------------------------------------------------------------- */

static bool is_convolution(const struct sheet *graph) {
    return attribute_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS)->n == 1;
}

static bool is_mixed(const struct sheet *graph) {
    const struct pass p = pass_of(part_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS));
    return p.x.type != p.w.type || p.w.type != p.y.type;
}

static cudnnStatus_t list(const struct sheet *s, int64_t most, int64_t *n,
                          cudnnBackendDescriptor_t *configs) {
    const struct sheet *graph = part_of(s, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    const bool mixed = is_convolution(graph) && is_mixed(graph);
    *n = 0;
    fake_cudnn.heuristics++;
    if (fake_cudnn.none || (mixed && fake_cudnn.no_mixed))
        return CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < FAKE_ENGINES && *n < most; i++) {
        if (fake_cudnn.only_failing && i != FAKE_FAILING)
            continue;
        struct sheet *config = configs[(*n)++];
        if (config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
            return fake_cudnn_wrong("a result that is no configuration");
        config->engine = (enum fake_engine)i;
        config->graph = graph;
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t notes(const struct sheet *s, int64_t most, int64_t *n,
                           cudnnBackendNumericalNote_t *out) {
    *n = 0;
    for (int i = 0; i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT && *n < most; i++)
        if (engines[s->engine].numerical >> i & 1)
            out[(*n)++] = (cudnnBackendNumericalNote_t)i;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t ask_workspace(const struct sheet *s, int64_t *out) {
    if (!s->finished)
        return fake_cudnn_wrong("a plan that is not finished");
    *out = engines[part_of(s, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine].workspace;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d,
                                            cudnnBackendAttributeName_t name,
                                            cudnnBackendAttributeType_t type, int64_t most,
                                            int64_t *n, void *out) {
    const struct sheet *s = d;
    (void)type;
    *n = 1;
    switch ((int)name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return list(s, most, n, out);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        (*(struct sheet **)out)->engine = s->engine;
        return s->graph ? CUDNN_STATUS_SUCCESS : fake_cudnn_wrong("no configuration");
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
        (*(struct sheet **)out)->engine = s->engine;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
        *(cudnnBackendKnobType_t *)out = (cudnnBackendKnobType_t)KNOB;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
        *(int64_t *)out = FIRST_VALUE + (int64_t)s->engine;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        *(int64_t *)out = FIRST_ENGINE + (int64_t)s->engine;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: return notes(s, most, n, out);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
        *n = engines[s->engine].compiled;
        if (*n)
            *(cudnnBackendBehaviorNote_t *)out = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: return ask_workspace(s, out);
    default: return fake_cudnn_wrong("a question that the fake does not know");
    }
}

/* ---- executing ---------------------------------------------------------------------------- */

static double load(const struct tensor *t, const void *p, int64_t a, int64_t b, int64_t c,
                   int64_t d) {
    return load_at(t->type, p,
                   a * t->stride[0] + b * t->stride[1] + c * t->stride[2] +
                       d * t->stride[3]);
}

static int64_t count(const struct tensor *t) {
    return t->size[0] * t->size[1] * t->size[2] * t->size[3];
}

struct place {
    const void *x, *w, *y;
};

/* Adds what each place of y, each channel and each tap have to do with each other; tensors are packed. */
static void convolve(const struct pass *p, const struct place *at, double *sum) {
    const int64_t *n = p->y.size, *taps = p->w.size;
    for (int64_t i = 0; i < count(&p->y) * taps[1] * taps[2] * taps[3]; i++) {
        const int64_t s = i % taps[3], r = i / taps[3] % taps[2],
                      c = i / taps[3] / taps[2] % taps[1];
        const int64_t j = i / taps[3] / taps[2] / taps[1], k = j % n[1];
        const int64_t w = j / n[1] % n[3], h = j / n[1] / n[3] % n[2],
                      b = j / n[1] / n[3] / n[2];
        const int64_t ih = h * p->stride[0] - p->before[0] + r;
        const int64_t iw = w * p->stride[1] - p->before[1] + s;
        if (ih < 0 || iw < 0 || ih >= p->x.size[2] || iw >= p->x.size[3])
            continue;
        const int64_t x_at = ((b * p->x.size[2] + ih) * p->x.size[3] + iw) * taps[1] + c;
        const int64_t w_at = ((k * taps[2] + r) * taps[3] + s) * taps[1] + c;
        switch ((int)p->type) {
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
            sum[j] += load(&p->x, at->x, b, c, ih, iw) * load(&p->w, at->w, k, c, r, s);
            break;
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
            sum[x_at] += load(&p->y, at->y, b, k, h, w) * load(&p->w, at->w, k, c, r, s);
            break;
        default:
            sum[w_at] += load(&p->x, at->x, b, c, ih, iw) * load(&p->y, at->y, b, k, h, w);
        }
    }
}

/* A plan that is executed. */
struct execution {
    struct pass pass;
    struct place at;
    void *workspace;
    size_t workspace_bytes;
};

static void compute(void *execution) {
    const struct execution *x = execution;
    const struct pass *p = &x->pass;
    const struct place *at = &x->at;
    if (x->workspace_bytes)
        memset(x->workspace, 0xff, x->workspace_bytes);
    const bool data =
        p->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    const bool forward = p->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
    const struct tensor *t = forward ? &p->y : data ? &p->x : &p->w;
    void *to = (void *)(uintptr_t)(forward ? at->y : data ? at->x : at->w);
    double *sum = calloc((size_t)count(t), sizeof *sum);
    convolve(p, at, sum);
    for (int64_t i = 0; i < count(t); i++)
        store_at(t->type, to, i, (double)p->alpha * sum[i]);
    free(sum);
}

void *fake_cudnn_address(const struct sheet *pack, const struct tensor *t) {
    const struct attribute *all = attribute_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    int64_t ids[16];
    void *pointers[16];
    if (!all)
        return NULL;
    memcpy(ids, all->value, sizeof ids);
    memcpy(pointers, value_of(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS),
           sizeof pointers);
    for (int i = 0; i < all->n; i++)
        if (ids[i] == t->id &&
            (t->by_value || (uintptr_t)pointers[i] % (uintptr_t)t->alignment == 0))
            return pointers[i];
    fake_cudnn_wrong("an id, or a promise about alignment");
    return NULL;
}

/* Gives a convolution to the stream. */
static cudnnStatus_t give(cudnnHandle_t h, const struct sheet *op, const struct sheet *pack,
                          struct execution *x) {
    const struct pass p = x->pass = pass_of(op);
    x->at = (struct place){fake_cudnn_address(pack, &p.x), fake_cudnn_address(pack, &p.w),
                           fake_cudnn_address(pack, &p.y)};
    if (!x->at.x || !x->at.w || !x->at.y)
        return fake_cudnn_wrong("operands that are not there");
    if (p.beta != 0)
        return fake_cudnn_wrong("a result that is added to");
    if (fake_cuda_launch)
        fake_cuda_launch(h->stream, compute, x, sizeof *x);
    else
        compute(x);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan,
                                       cudnnBackendDescriptor_t variants) {
    const struct sheet *pack = variants;
    const struct sheet *config = part_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    struct execution x = {.workspace_bytes = (size_t)engines[config->engine].workspace};
    memcpy(&x.workspace, value_of(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE),
           sizeof x.workspace);
    if (!pack->finished)
        return fake_cudnn_wrong("operands that are not finished");
    fake_cudnn.stream = h->stream;
    fake_cudnn.runs[config->engine]++;
    if (config->engine == FAKE_FAILING)
        return CUDNN_STATUS_EXECUTION_FAILED;
    if (is_convolution(config->graph))
        return give(h, part_of(config->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS), pack, &x);
    if (x.workspace_bytes)
        memset(x.workspace, 0xff, x.workspace_bytes);
    return fake_cudnn_graph(config->graph, pack);
}

/* ---- handles ------------------------------------------------------------------------------ */

size_t fake_cudnnGetVersion(void) {
    return fake_cudnn.version ? fake_cudnn.version : FAKE_CUDNN_VERSION;
}

cudnnStatus_t fake_cudnnCreate(cudnnHandle_t *h) {
    *h = calloc(1, sizeof **h);
    fake_cudnn.opened++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_cudnnDestroy(cudnnHandle_t h) {
    free(h);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t fake_cudnnSetStream(cudnnHandle_t h, cudaStream_t stream) {
    h->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

const char *fake_cudnnGetErrorString(cudnnStatus_t rc) {
    return rc == CUDNN_STATUS_SUCCESS ? "success" : "failure";
}
