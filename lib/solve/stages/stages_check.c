/* stages_check.c - computes a stages answer again, from the two documents alone.
 *
 * Shares no code with the solver: it looks every stage up in the problem's JSON and tables,
 * adds up times and memory itself and compares with what the answer states.
 */
#include "solve/stages/stages.h"

#include <math.h>

#define TOL 1e-9

static double num(const json_t *v, double otherwise) {
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* Returns the index of [first][last][submesh][config] in a table, row by row. */
static int64_t place(const struct stages_table *t, int first, int last, int submesh,
                     int config) {
    int64_t at = last - first;
    for (int row = 0; row < first; row++)
        at += t->layers - row;
    return (at * t->submeshes + submesh) * t->configs + config;
}

/* Returns the scaled per-layer number of a configuration, from its own array or else from
 * that of "layers". */
static double layer_number(const json_t *doc, const json_t *c, const char *key,
                           const char *scale, int layer) {
    const json_t *own = json_object_get(c, key);
    const json_t *all = json_object_get(json_object_get(doc, "layers"), key);
    double x = num(json_array_get(own ? own : all, (size_t)layer), 0);
    return x * num(json_object_get(c, scale), 1);
}

struct stage {
    int first, end, submesh, config, device, device_end, successors;
    double time;
};

/* Adds up the time of a stage and checks that it fits. -1 with an error. */
static int additive_time(const json_t *doc, const struct stage *s, double *t,
                         struct err *err) {
    const json_t *c = json_array_get(json_object_get(doc, "configs"), (size_t)s->config);
    if (!c || (int)num(json_object_get(c, "submesh"), -1) != s->submesh)
        return err_no(err, "no configuration %d on submesh %d", s->config, s->submesh);
    double memory = num(json_object_get(c, "workspace"), 0), act = 0;
    double capacity = num(json_object_get(c, "capacity"), INFINITY);
    *t = num(json_object_get(c, "fixed_time"), 0);
    for (int l = s->first; l < s->end; l++) {
        *t += layer_number(doc, c, "time", "time_scale", l);
        memory += layer_number(doc, c, "state", "state_scale", l);
        act += layer_number(doc, c, "activation", "activation_scale", l);
    }
    memory += act * (s->successors + 1);
    if (memory > capacity * (1 + TOL))
        return err_no(err, "layers %d to %d take %g of %g bytes with %d successors",
                      s->first, s->end - 1, memory, capacity, s->successors);
    return 0;
}

static int dense_time(const struct stages_doc *doc, const struct stage *s, double *t,
                      struct err *err) {
    const struct stages_table *cost = &doc->cost, *succ = &doc->succ;
    if (s->first < 0 || s->end > cost->layers || s->submesh < 0 ||
        s->submesh >= cost->submeshes || s->config < 0 || s->config >= cost->configs)
        return err_no(err, "layers %d to %d have no time there", s->first, s->end - 1);
    int64_t at = place(cost, s->first, s->end - 1, s->submesh, s->config);
    *t = cost->time.p[at];
    if (isinf(*t))
        return err_no(err, "layers %d to %d cannot be a stage", s->first, s->end - 1);
    if (succ->name && succ->succ.p[at] < s->successors)
        return err_no(err, "layers %d to %d allow %d successors, not %d", s->first,
                      s->end - 1, succ->succ.p[at], s->successors);
    return 0;
}

/* Checks that the submesh has the stage's number of devices. */
static int check_devices(const json_t *doc, const struct stage *s, struct err *err) {
    const json_t *list = json_object_get(doc, "submeshes");
    if (!list)
        list = json_object_get(doc, "submesh_shapes");
    const json_t *m = json_array_get(list, (size_t)s->submesh);
    double size = num(json_object_get(m, "size"), 1);
    for (size_t i = 0; i < json_array_size(m); i++)
        size *= num(json_array_get(m, i), 0);
    if (!m || size != s->device_end - s->device)
        return err_no(err, "submesh %d does not have %d devices", s->submesh,
                      s->device_end - s->device);
    return 0;
}

static int read_stage(const json_t *v, struct stage *s) {
    return json_unpack((json_t *)v, "{s:[i,i], s:i, s:i, s:[i,i], s:i, s:F}", "layers",
                       &s->first, &s->end, "submesh", &s->submesh, "config", &s->config,
                       "devices", &s->device, &s->device_end, "successors", &s->successors,
                       "time", &s->time);
}

static int stage_time(const struct stages_doc *doc, const struct stage *s, double *t,
                      struct err *err) {
    bool additive = json_object_get(doc->rest, "configs") != NULL;
    if ((additive ? additive_time(doc->rest, s, t, err) : dense_time(doc, s, t, err)) < 0)
        return -1;
    return check_devices(doc->rest, s, err);
}

static int check_shape(const json_t *doc, int stages, int layer, int device, int used,
                       struct err *err) {
    bool all = !json_is_false(json_object_get(doc, "use_all_devices"));
    int devices = (int)num(json_object_get(doc, "num_devices"), 0);
    if (layer != (int)num(json_object_get(doc, "num_layers"), -1))
        return err_no(err, "the stages end at layer %d", layer);
    if (device > devices || (all && used != devices))
        return err_no(err, "%d of %d devices are used", used, devices);
    if (stages > num(json_object_get(doc, "max_stages"), INFINITY))
        return err_no(err, "%d stages are too many", stages);
    return 0;
}

int stages_check(const struct stages_doc *whole, const json_t *answer, double *value,
                 struct err *err) {
    const json_t *doc = whole->rest;
    const json_t *list = json_object_get(answer, "stages");
    int n = (int)json_array_size(list), layer = 0, device = 0, used = 0;
    double sum = 0, max = 0, b = num(json_object_get(doc, "num_micro_batches"), 0);
    for (int i = 0; i < n; i++) {
        struct stage s;
        double t = 0;
        if (read_stage(json_array_get(list, (size_t)i), &s) < 0)
            return err_no(err, "stages[%d] is not a stage", i);
        if (s.first != layer || s.end <= s.first || s.device < device ||
            s.successors != n - 1 - i)
            return err_no(err, "stages[%d] does not follow the one before", i);
        if (stage_time(whole, &s, &t, err) < 0)
            return -1;
        layer = s.end;
        device = s.device_end;
        used += s.device_end - s.device;
        sum += t;
        max = fmax(max, t);
    }
    *value = sum + (b - 1) * max;
    if (check_shape(doc, n, layer, device, used, err) < 0)
        return -1;
    return 0;
}
