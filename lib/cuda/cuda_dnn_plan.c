/* From a graph of operations to plans of cuDNN: the engines that the heuristics list, and which of them suit. If
 * the library refuses a description that is no error: it has nothing to offer then. */
#include "cuda/cuda_dnn_impl.h"

enum { CONFIGS = 64 /* that are looked at, of each heuristic */ };

cudnnBackendDescriptor_t dnn_graph(const struct dnn *d, const cudnnBackendDescriptor_t *ops,
                                   int64_t n, struct dnn_plans *plans) {
    struct dnn_descriptor s = dnn_descriptor(d, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    for (int64_t i = 0; i < n; i++)
        if (!ops[i])
            s.rc = CUDNN_STATUS_NOT_SUPPORTED;
    dnn_set(&s, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, ops);
    if (d->handle)
        dnn_set(&s, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &d->handle);
    return dnn_finish(&s, plans);
}

/* The GPU that it is for: the handle's, or, where there is none, the one that is described. */
static void set_device(struct dnn_descriptor *s, cudnnBackendAttributeName_t handle,
                       cudnnBackendAttributeName_t described) {
    if (s->d->handle)
        dnn_set(s, handle, CUDNN_TYPE_HANDLE, 1, &s->d->handle);
    else
        dnn_set_part(s, described, s->d->device);
}

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
static bool suits(const struct notes *n, const struct dnn_rule *w) {
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
static void add(const struct dnn *d, const struct dnn_rule *w,
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
static void add_all(const struct dnn *d, const struct dnn_rule *w,
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
            if (!compiles || plans->compiled <= w->compiled)
                add(d, w, configs[i], plans);
        }
}

int dnn_engines(const struct dnn *d, cudnnBackendDescriptor_t graph,
                const struct dnn_rule *w, int most, struct dnn_plans *out) {
    most = most < DNN_PLANS ? most : DNN_PLANS;
    if (graph)
        add_all(d, w, graph, CUDNN_HEUR_MODE_A, most, out);
    if (graph && out->n < most)
        add_all(d, w, graph, CUDNN_HEUR_MODE_FALLBACK, most, out);
    return out->n;
}

int dnn_engine_named(const struct dnn *d, cudnnBackendDescriptor_t graph,
                     const struct dnn_rule *w, const char *name, struct dnn_plans *out) {
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
