/* The name of a plan in a profile: the number of its engine, and the knobs with which the heuristic listed it,
 * as "30 2=1 12=0". The same version of the library makes the same plan of it; another one may number its
 * engines differently. */
#include "cuda/cuda_dnn_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { KNOBS = CUDNN_KNOB_TYPE_COUNTS };

struct knob {
    cudnnBackendKnobType_t type;
    int64_t value;
};

/* ---- to a name ---------------------------------------------------------------------------- */

static bool knob_of(const struct dnn *d, cudnnBackendDescriptor_t choice,
                    struct knob *out) {
    return dnn_get(d, choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                   &out->type) == 1 &&
           dnn_get(d, choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                   &out->value) == 1;
}

bool dnn_plan_name(const struct dnn *d, struct dnn_plans *plans, int i, char *buf,
                   size_t size) {
    const cudnnBackendDescriptor_t config = plans->of[i].config;
    cudnnBackendDescriptor_t choices[KNOBS];
    cudnnBackendDescriptor_t engine = dnn_blank(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR, plans);
    int64_t number;
    if (!engine ||
        !dnn_get(d, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                 &engine) ||
        !dnn_get(d, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number))
        return false;
    for (int k = 0; k < KNOBS; k++)
        if (!(choices[k] = dnn_blank(d, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, plans)))
            return false;
    const int64_t n = dnn_get(d, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS, choices);
    size_t at = (size_t)snprintf(buf, size, "%" PRId64, number);
    for (int64_t k = 0; k < n && at < size; k++) {
        struct knob knob;
        if (!knob_of(d, choices[k], &knob))
            return false;
        at += (size_t)snprintf(buf + at, size - at, " %d=%" PRId64, (int)knob.type,
                               knob.value);
    }
    return at < size;
}

/* ---- and back ----------------------------------------------------------------------------- */

/* Returns how many knobs; -1 where it is no name. */
static int parse(const char *name, int64_t *number, struct knob *knobs) {
    char *end;
    int n = 0;
    *number = strtoll(name, &end, 10);
    if (end == name)
        return -1;
    while (*end == ' ' && n < KNOBS) {
        const char *at = end + 1;
        knobs[n].type = (cudnnBackendKnobType_t)strtol(at, &end, 10);
        if (end == at || *end != '=')
            return -1;
        at = end + 1;
        knobs[n++].value = strtoll(at, &end, 10);
        if (end == at)
            return -1;
    }
    return *end ? -1 : n;
}

static cudnnBackendDescriptor_t engine_of(const struct dnn *d,
                                          cudnnBackendDescriptor_t graph, int64_t number,
                                          struct dnn_plans *plans) {
    struct dnn_descriptor s = dnn_descriptor(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    dnn_set_part(&s, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    dnn_set(&s, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
    if (!d->handle)
        dnn_set_part(&s, CUDNN_ATTR_ENGINE_DEVICEPROP, d->device);
    return dnn_finish(&s, plans);
}

static cudnnBackendDescriptor_t choice_of(const struct dnn *d, const struct knob *knob,
                                          struct dnn_plans *plans) {
    struct dnn_descriptor s = dnn_descriptor(d, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    dnn_set(&s, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob->type);
    dnn_set(&s, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &knob->value);
    return dnn_finish(&s, plans);
}

cudnnBackendDescriptor_t dnn_config_named(const struct dnn *d,
                                          cudnnBackendDescriptor_t graph, const char *name,
                                          struct dnn_plans *plans) {
    struct knob knobs[KNOBS];
    cudnnBackendDescriptor_t choices[KNOBS];
    int64_t number;
    const int n = parse(name, &number, knobs);
    if (n < 0)
        return NULL;
    struct dnn_descriptor s = dnn_descriptor(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    dnn_set_part(&s, CUDNN_ATTR_ENGINECFG_ENGINE, engine_of(d, graph, number, plans));
    for (int k = 0; k < n; k++)
        if (!(choices[k] = choice_of(d, &knobs[k], plans)))
            s.rc = CUDNN_STATUS_NOT_SUPPORTED;
    if (n)
        dnn_set(&s, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, n,
                choices);
    return dnn_finish(&s, plans);
}
