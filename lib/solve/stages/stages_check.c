/* stages_check.c - works a stages answer out again, from the two documents alone.
 *
 * Shares no code with the solver: it looks every stage up in the problem's JSON and tables, adds
 * times and memory up itself and compares with what the answer states.
 */
#include "solve/stages/stages.h"

#include <math.h>
#include <string.h>

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

/* Returns the scaled per-layer number of a configuration: its own array, or that of
 * "layers". */
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

static double cut_cost(const json_t *doc, int p, int layers) {
    const json_t *cut = json_object_get(json_object_get(doc, "cut"), "cost");
    return p <= 0 || p >= layers ? 0 : num(json_array_get(cut, (size_t)p - 1), 0);
}

/* Checks that the submesh has the stage's number of devices and that they are of its
 * class. */
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
    const char *class = json_string_value(json_object_get(m, "class"));
    const json_t *runs = json_object_get(doc, "devices");
    int from = 0;
    for (size_t i = 0; class && i < json_array_size(runs); i++) {
        const json_t *r = json_array_get(runs, i);
        int end = from + (int)num(json_object_get(r, "count"), 0);
        if (!strcmp(json_string_value(json_object_get(r, "class")), class) &&
            s->device >= from && s->device_end <= end)
            return 0;
        from = end;
    }
    return class ? err_no(err, "devices %d to %d are not all of class %s", s->device,
                          s->device_end - 1, class)
                 : 0;
}

static int total_devices(const json_t *doc) {
    const json_t *runs = json_object_get(doc, "devices");
    double n = runs ? 0 : num(json_object_get(doc, "num_devices"), 0);
    for (size_t i = 0; i < json_array_size(runs); i++)
        n += num(json_object_get(json_array_get(runs, i), "count"), 0);
    return (int)n;
}

static int read_stage(const json_t *v, struct stage *s) {
    return json_unpack((json_t *)v, "{s:[i,i], s:i, s:i, s:[i,i], s:i, s:F}", "layers",
                       &s->first, &s->end, "submesh", &s->submesh, "config", &s->config,
                       "devices", &s->device, &s->device_end, "successors", &s->successors,
                       "time", &s->time);
}

/* Computes what a stage adds to the sum and to the maximum. */
static int stage_cost(const struct stages_doc *whole, const struct stage *s, int layers,
                      double *w, double *m, struct err *err) {
    const json_t *doc = whole->rest;
    bool additive = json_object_get(doc, "configs") != NULL;
    const char *charge =
        json_string_value(json_object_get(json_object_get(doc, "cut"), "charge"));
    double t = 0, in = cut_cost(doc, s->first, layers), out = cut_cost(doc, s->end, layers);
    if ((additive ? additive_time(doc, s, &t, err) : dense_time(whole, s, &t, err)) < 0 ||
        check_devices(doc, s, err) < 0)
        return -1;
    charge = charge ? charge : "receiver";
    bool link = !strcmp(charge, "link");
    bool pays_in = !strcmp(charge, "receiver") || !strcmp(charge, "both");
    *w = t + (pays_in ? in : 0) + (strcmp(charge, "receiver") ? out : 0);
    *m = link ? fmax(t, out) : *w;
    return 0;
}

static int check_shape(const json_t *doc, int stages, int layer, int device, int used,
                       struct err *err) {
    bool all = !json_is_false(json_object_get(doc, "use_all_devices"));
    if (layer != (int)num(json_object_get(doc, "num_layers"), -1))
        return err_no(err, "the stages end at layer %d", layer);
    if (device > total_devices(doc) || (all && used != total_devices(doc)))
        return err_no(err, "%d of %d devices are used", used, total_devices(doc));
    if (stages > num(json_object_get(doc, "max_stages"), INFINITY))
        return err_no(err, "%d stages are too many", stages);
    return 0;
}

int stages_check(const struct stages_doc *whole, const json_t *answer, double *value,
                 struct err *err) {
    const json_t *doc = whole->rest;
    const json_t *list = json_object_get(answer, "stages");
    int n = (int)json_array_size(list), layer = 0, device = 0, used = 0;
    int layers = (int)num(json_object_get(doc, "num_layers"), -1);
    double sum = 0, max = 0, b = num(json_object_get(doc, "num_micro_batches"), 0);
    for (int i = 0; i < n; i++) {
        struct stage s;
        double w, m;
        if (read_stage(json_array_get(list, (size_t)i), &s) < 0)
            return err_no(err, "stages[%d] is not a stage", i);
        if (s.first != layer || s.end <= s.first || s.device < device ||
            s.successors != n - 1 - i)
            return err_no(err, "stages[%d] does not follow the one before", i);
        if (stage_cost(whole, &s, layers, &w, &m, err) < 0)
            return -1;
        layer = s.end;
        device = s.device_end;
        used += s.device_end - s.device;
        sum += w;
        max = fmax(max, m);
    }
    *value = sum + (b - 1) * max;
    if (check_shape(doc, n, layer, device, used, err) < 0)
        return -1;
    return 0;
}
