/* stages_read.c - the documents of the stages problem: Alpa's dense tables (with or without
 * a format key) and the additive form, in which a stage's time and memory are sums over
 * layers.
 */
#include "solve/stages.h"

#include "common/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAYERS  20000
#define MAX_DEVICES 65536
#define MAX_CELLS   200000000 /* dense entries, and layers * devices */

static bool is_inf(const json_t *v) {
    return json_is_null(v) ||
           (json_is_string(v) && !strcmp(json_string_value(v), "Infinity"));
}

/* ---- dense tables ---------------------------------------------------------------- */

struct dense {
    const struct stages_problem *p;
    const char *name;
    int submeshes, configs;
    double *real; /* one of these two is filled */
    int32_t *whole;
    struct err *err;
};

static int dense_cell(struct dense *t, const json_t *v, int l, int k, int n, int c) {
    int64_t at = ((int64_t)l * t->p->layers + k) * t->p->num_configs + n * t->configs + c;
    if (k < l) /* no such stage; whatever stands there is ignored */
        return 0;
    double x = is_inf(v) ? INFINITY : json_is_number(v) ? json_number_value(v) : NAN;
    if (isnan(x) || (t->real && x < 0) || (isinf(x) && x < 0))
        return err_input(t->err, "%s[%d][%d][%d][%d]: expected %s", t->name, l, k, n, c,
                         t->real ? "a time (a finite number >= 0) or null"
                                 : "a number of successor stages or null");
    if (t->real)
        t->real[at] = x;
    else
        t->whole[at] = x < 0 ? -1 : x > t->p->layers ? t->p->layers : (int32_t)floor(x);
    return 0;
}

static const json_t *dense_row(struct dense *t, const json_t *a, int want,
                               const char *place) {
    if (!json_is_array(a))
        err_input(t->err, "%s%s: expected an array, got %s", t->name, place,
                  json_type_name(a));
    else if ((int)json_array_size(a) != want)
        err_input(t->err, "%s%s: expected %d entries, got %zu", t->name, place, want,
                  json_array_size(a));
    else
        return a;
    return NULL;
}

static int dense_read(struct dense *t, const json_t *a) {
    int layers = t->p->layers;
    char place[64] = "";
    if (!dense_row(t, a, layers, place))
        return -1;
    for (int l = 0; l < layers; l++) {
        const json_t *al = json_array_get(a, (size_t)l);
        snprintf(place, sizeof place, "[%d]", l);
        if (!dense_row(t, al, layers, place))
            return -1;
        for (int k = l; k < layers; k++) {
            const json_t *ak = json_array_get(al, (size_t)k);
            snprintf(place, sizeof place, "[%d][%d]", l, k);
            if (!dense_row(t, ak, t->submeshes, place))
                return -1;
            for (int n = 0; n < t->submeshes; n++) {
                const json_t *an = json_array_get(ak, (size_t)n);
                snprintf(place, sizeof place, "[%d][%d][%d]", l, k, n);
                if (!dense_row(t, an, t->configs, place))
                    return -1;
                for (int c = 0; c < t->configs; c++)
                    if (dense_cell(t, json_array_get(an, (size_t)c), l, k, n, c) < 0)
                        return -1;
            }
        }
    }
    return 0;
}

/* The number of configurations is the length of the innermost arrays. */
static int dense_configs(const json_t *cost) {
    const json_t *v = cost;
    for (int depth = 0; depth < 3; depth++)
        v = json_array_get(v, 0);
    return json_is_array(v) ? (int)json_array_size(v) : 0;
}

static int read_dense(struct stages_problem *p, const json_t *doc, int submeshes,
                      struct err *err) {
    json_t *cost, *succ = json_object_get(doc, "max_n_succ_stages");
    if (json_array_member(doc, "compute_cost", &cost, err) < 0)
        return -1;
    int configs = dense_configs(cost);
    if (configs < 1)
        return err_input(err, "compute_cost[0][0][0]: expected an array of times");
    int64_t cells = (int64_t)p->layers * p->layers;
    if (cells * submeshes > MAX_CELLS / configs)
        return err_input(err, "compute_cost: more than %d entries", MAX_CELLS);
    p->num_configs = submeshes * configs;
    p->configs = mem_array((size_t)p->num_configs, sizeof *p->configs);
    for (int i = 0; i < p->num_configs; i++)
        p->configs[i] =
            (struct stages_config){.submesh = i / configs, .config = i % configs};
    size_t total = (size_t)(cells * p->num_configs);
    p->dense_time = mem_array(total, sizeof *p->dense_time);
    p->dense_succ = mem_array(total, sizeof *p->dense_succ);
    struct dense t = {p, "compute_cost", submeshes, configs, p->dense_time, NULL, err};
    if (dense_read(&t, cost) < 0)
        return -1;
    if (!succ || json_is_null(succ)) {
        for (size_t i = 0; i < total; i++)
            p->dense_succ[i] = p->layers;
        return 0;
    }
    t = (struct dense){p,    "max_n_succ_stages", submeshes, configs,
                       NULL, p->dense_succ,       err};
    return dense_read(&t, succ);
}

/* ---- additive form -------------------------------------------------------------- */

/* obj[key], an array of L numbers >= 0, times scale. Absent: from `base` or zeros. */
static int read_vector(const json_t *obj, const char *key, int n, double scale,
                       const double *base, double **out, struct err *err) {
    const json_t *a = json_object_get(obj, key);
    *out = mem_array((size_t)n + 1, sizeof **out);
    if (a && (!json_is_array(a) || (int)json_array_size(a) != n))
        return err_input(err, "%s: expected an array of %d numbers", key, n);
    for (int i = 0; i < n; i++) {
        const json_t *v = a ? json_array_get(a, (size_t)i) : NULL;
        double x = v      ? (json_is_number(v) ? json_number_value(v) : NAN)
                   : base ? base[i]
                          : 0;
        if (!(x >= 0) || isinf(x * scale))
            return err_input(err, "%s[%d]: expected a finite number >= 0", key, i);
        (*out)[i] = x * scale;
    }
    return 0;
}

struct base {
    double *time, *state, *activation;
};

static int read_config(struct stages_problem *p, const json_t *v, int submeshes,
                       const struct base *b, struct stages_config *c, struct err *err) {
    int64_t submesh = 0;
    double ts = 1, ss = 1, as = 1;
    c->capacity = INFINITY;
    if (json_keys(v,
                  "submesh name time state activation time_scale state_scale "
                  "activation_scale fixed_time workspace capacity",
                  err) < 0 ||
        json_int(v, "submesh", 0, submeshes - 1, &submesh, err) < 0 ||
        json_opt_num(v, "time_scale", 0, 1e100, &ts, err) < 0 ||
        json_opt_num(v, "state_scale", 0, 1e100, &ss, err) < 0 ||
        json_opt_num(v, "activation_scale", 0, 1e100, &as, err) < 0 ||
        json_opt_num(v, "fixed_time", 0, 1e300, &c->fixed_time, err) < 0 ||
        json_opt_num(v, "workspace", 0, 1e300, &c->workspace, err) < 0 ||
        json_opt_num(v, "capacity", 0, 1e300, &c->capacity, err) < 0)
        return -1;
    c->submesh = (int)submesh;
    if (read_vector(v, "time", p->layers, ts, b->time, &c->time, err) < 0 ||
        read_vector(v, "state", p->layers, ss, b->state, &c->state, err) < 0 ||
        read_vector(v, "activation", p->layers, as, b->activation, &c->activation, err) < 0)
        return -1;
    return 0;
}

static int read_base(const json_t *doc, int n, struct base *b, struct err *err) {
    const json_t *v = json_object_get(doc, "layers");
    if (!v)
        return 0;
    if (json_keys(v, "time state activation", err) < 0 ||
        read_vector(v, "time", n, 1, NULL, &b->time, err) < 0 ||
        read_vector(v, "state", n, 1, NULL, &b->state, err) < 0 ||
        read_vector(v, "activation", n, 1, NULL, &b->activation, err) < 0)
        return err_at(err, "layers");
    return 0;
}

static int read_additive(struct stages_problem *p, const json_t *doc, int submeshes,
                         struct err *err) {
    json_t *list;
    struct base b = {0};
    if (json_array_member(doc, "configs", &list, err) < 0)
        return -1;
    p->num_configs = (int)json_array_size(list);
    if (p->num_configs < 1)
        return err_input(err, "configs: expected at least one");
    p->configs = mem_array((size_t)p->num_configs, sizeof *p->configs);
    int bad = read_base(doc, p->layers, &b, err);
    for (int i = 0; i < p->num_configs && !bad; i++) {
        struct stages_config *c = &p->configs[i];
        bad = read_config(p, json_array_get(list, (size_t)i), submeshes, &b, c, err);
        if (bad)
            err_at(err, "configs[%d]", i);
        c->config = i;
    }
    free(b.time);
    free(b.state);
    free(b.activation);
    return bad;
}

/* ---- devices, submeshes, cuts --------------------------------------------------- */

struct run {
    const char *class; /* NULL = unnamed */
    int first, count;
};

static int read_runs(struct stages_problem *p, const json_t *doc, struct run **runs, int *n,
                     struct err *err) {
    const json_t *v = json_object_get(doc, "devices");
    int64_t count;
    if (!v) {
        if (json_int(doc, "num_devices", 1, MAX_DEVICES, &count, err) < 0)
            return -1;
        *runs = mem_alloc(sizeof **runs);
        (*runs)[0] = (struct run){NULL, 0, (int)count};
        *n = 1;
        p->devices = (int)count;
        return 0;
    }
    if (!json_is_array(v) || !json_array_size(v))
        return err_input(err, "devices: expected an array of {class, count}");
    *n = (int)json_array_size(v);
    *runs = mem_array((size_t)*n, sizeof **runs);
    for (int i = 0; i < *n; i++) {
        const json_t *r = json_array_get(v, (size_t)i);
        if (json_keys(r, "class count", err) < 0 ||
            json_str(r, "class", &(*runs)[i].class, err) < 0 ||
            json_int(r, "count", 1, MAX_DEVICES - p->devices, &count, err) < 0)
            return err_at(err, "devices[%d]", i);
        (*runs)[i].first = p->devices;
        (*runs)[i].count = (int)count;
        p->devices += (int)count;
    }
    return 0;
}

struct submesh {
    int size;
    const char *class; /* NULL = anywhere, also across classes */
};

static int read_shape(const json_t *v, const char *key, int at, struct submesh *s,
                      struct err *err) {
    int64_t size = 1;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *x = json_array_get(v, i);
        if (!json_is_integer(x) || json_integer_value(x) < 1 ||
            json_integer_value(x) > MAX_DEVICES || size > MAX_DEVICES)
            return err_input(err, "%s[%d][%zu]: expected a positive number of devices", key,
                             at, i);
        size *= json_integer_value(x);
    }
    if (!json_array_size(v) || size > MAX_DEVICES)
        return err_input(err, "%s[%d]: expected [hosts, devices per host]", key, at);
    s->size = (int)size;
    return 0;
}

static int read_submeshes(const json_t *doc, struct submesh **list, int *n,
                          struct err *err) {
    const char *key = json_object_get(doc, "submeshes") ? "submeshes" : "submesh_shapes";
    json_t *a;
    if (json_array_member(doc, key, &a, err) < 0)
        return -1;
    *n = (int)json_array_size(a);
    if (*n < 1 || *n > 4096)
        return err_input(err, "%s: expected 1 to 4096 of them", key);
    *list = mem_array((size_t)*n, sizeof **list);
    for (int i = 0; i < *n; i++) {
        const json_t *v = json_array_get(a, (size_t)i);
        int64_t size = 1;
        if (json_is_array(v)) {
            if (read_shape(v, key, i, &(*list)[i], err) < 0)
                return -1;
            continue;
        }
        if (json_keys(v, "size class name", err) < 0 ||
            json_int(v, "size", 1, MAX_DEVICES, &size, err) < 0 ||
            json_opt_str(v, "class", &(*list)[i].class, err) < 0)
            return err_at(err, "%s[%d]", key, i);
        (*list)[i].size = (int)size;
    }
    return 0;
}

/* One choice per configuration and run of devices that it may stand on. */
static int make_choices(struct stages_problem *p, const struct submesh *s,
                        const struct run *runs, int num_runs, struct err *err) {
    p->choices = mem_array((size_t)p->num_configs * (size_t)num_runs, sizeof *p->choices);
    for (int i = 0; i < p->num_configs; i++) {
        const struct submesh *m = &s[p->configs[i].submesh];
        bool known = !m->class;
        for (int r = 0; r < num_runs; r++) {
            int first = runs[r].first, count = runs[r].count;
            if (!m->class)
                first = 0, count = p->devices;
            else if (!runs[r].class || strcmp(runs[r].class, m->class))
                continue;
            known = true;
            struct stages_choice c = {i, m->size, p->devices - first - count + m->size,
                                      p->devices - first};
            if (c.lo <= c.hi)
                p->choices[p->num_choices++] = c;
            if (!m->class)
                break;
        }
        if (!known)
            return err_input(err, "submeshes[%d].class: no devices of class \"%s\"",
                             p->configs[i].submesh, m->class);
    }
    return 0;
}

static int read_cut(struct stages_problem *p, const json_t *doc, struct err *err) {
    static const char *const names[] = {"receiver", "sender", "both", "link"};
    const json_t *v = json_object_get(doc, "cut");
    const char *charge = "receiver";
    double *x;
    if (!v)
        return 0;
    if (json_keys(v, "cost charge", err) < 0 || json_opt_str(v, "charge", &charge, err) < 0)
        return err_at(err, "cut");
    int bad = read_vector(v, "cost", p->layers - 1, 1, NULL, &x, err);
    p->cut = mem_array((size_t)p->layers + 1, sizeof *p->cut);
    memcpy(p->cut + 1, x, (size_t)(p->layers - 1) * sizeof *x);
    free(x);
    if (bad)
        return err_at(err, "cut");
    for (int i = 0; i < 4; i++)
        if (!strcmp(charge, names[i])) {
            p->charge = (enum stages_charge)i;
            return 0;
        }
    return err_input(err, "cut.charge: expected receiver, sender, both or link");
}

/* No sum of the problem may leave the range of a double. */
static int check_range(const struct stages_problem *p, struct err *err) {
    double limit = 1e300 / (p->micro_batches + p->layers), most = 0;
    for (int i = 0; i <= p->layers && p->cut; i++)
        if (p->cut[i] > limit)
            return err_input(err, "cut.cost[%d]: num_micro_batches times it overflows",
                             i - 1);
    for (int c = 0; c < p->num_configs && !p->dense_time; c++) {
        double sum = p->configs[c].fixed_time;
        for (int l = 0; l < p->layers; l++)
            sum += p->configs[c].time[l];
        if (sum > limit)
            return err_input(err,
                             "configs[%d].time: num_micro_batches times their sum "
                             "overflows",
                             c);
    }
    size_t total = (size_t)p->layers * (size_t)p->layers * (size_t)p->num_configs;
    for (size_t i = 0; i < total && p->dense_time; i++)
        if (isfinite(p->dense_time[i]))
            most = fmax(most, p->dense_time[i]);
    if (most > limit)
        return err_input(err, "compute_cost: num_micro_batches times %g overflows", most);
    return 0;
}

static int read_sizes(struct stages_problem *p, const json_t *doc, struct err *err) {
    int64_t layers, batches, stages = MAX_LAYERS;
    p->use_all = true;
    if (json_int(doc, "num_layers", 1, MAX_LAYERS, &layers, err) < 0 ||
        json_int(doc, "num_micro_batches", 1, INT64_C(1) << 50, &batches, err) < 0 ||
        json_opt_bool(doc, "use_all_devices", &p->use_all, err) < 0 ||
        json_opt_int(doc, "max_stages", 1, MAX_LAYERS, &stages, err) < 0)
        return -1;
    p->layers = (int)layers;
    p->micro_batches = (double)batches;
    p->max_stages = (int)stages;
    return 0;
}

int stages_read(struct stages_problem *p, const json_t *doc, struct err *err) {
    struct run *runs = NULL;
    struct submesh *submeshes = NULL;
    int num_runs = 0, num_submeshes = 0, bad = -1;
    *p = (struct stages_problem){0};
    if (!json_is_object(doc))
        return err_input(err, "expected an object, got %s", json_type_name(doc));
    if (json_object_get(doc, "format") &&
        (json_format(doc, "weft-problem/1", err) < 0 ||
         json_keys(doc,
                   "format problem name comment num_layers num_devices devices "
                   "num_micro_batches use_all_devices max_stages submeshes "
                   "submesh_shapes num_configs compute_cost max_n_succ_stages layers "
                   "configs cut",
                   err) < 0))
        return -1;
    if (read_sizes(p, doc, err) == 0 && read_runs(p, doc, &runs, &num_runs, err) == 0 &&
        read_submeshes(doc, &submeshes, &num_submeshes, err) == 0) {
        if ((int64_t)p->layers * p->devices > MAX_CELLS)
            bad = err_input(err,
                            "num_devices: %d layers on %d devices exceed this solver's "
                            "table of %d cells",
                            p->layers, p->devices, MAX_CELLS);
        else if (json_object_get(doc, "configs"))
            bad = read_additive(p, doc, num_submeshes, err);
        else
            bad = read_dense(p, doc, num_submeshes, err);
    }
    if (!bad && (make_choices(p, submeshes, runs, num_runs, err) < 0 ||
                 read_cut(p, doc, err) < 0 || check_range(p, err) < 0))
        bad = -1;
    free(runs);
    free(submeshes);
    if (bad)
        stages_release(p);
    return bad;
}

void stages_release(struct stages_problem *p) {
    for (int i = 0; i < p->num_configs && p->configs; i++) {
        free(p->configs[i].time);
        free(p->configs[i].state);
        free(p->configs[i].activation);
    }
    free(p->configs);
    free(p->choices);
    free(p->cut);
    free(p->dense_time);
    free(p->dense_succ);
    *p = (struct stages_problem){0};
}
