/* stages_read.c - the documents of the stages problem: Alpa's dense tables (with or without
 * a format key) and the additive form, in which a stage's time and memory are sums over
 * layers.
 */
#include "solve/stages/stages.h"

#include "common/mem.h"
#include "solve/solve_doc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEVICES 65536

/* ---- dense tables ---------------------------------------------------------------- */

/* Checks that the table has an array per layer and per submesh. */
static int check_table(const struct stages_problem *p, const struct stages_table *t,
                       int submeshes, struct err *err) {
    if (t->layers != p->layers)
        return err_input(err, "%s: expected %d entries, got %d", t->name, p->layers,
                         t->layers);
    if (t->submeshes != submeshes)
        return err_input(err, "%s[0][0]: expected %d entries, got %d", t->name, submeshes,
                         t->submeshes);
    return 0;
}

static int read_dense(struct stages_problem *p, const struct stages_doc *doc, int submeshes,
                      struct err *err) {
    const struct stages_table *cost = &doc->cost, *succ = &doc->succ;
    if (!cost->name)
        return err_input(err, "compute_cost: expected an array, got nothing");
    if (check_table(p, cost, submeshes, err) < 0)
        return -1;
    if (succ->name && check_table(p, succ, submeshes, err) < 0)
        return -1;
    if (succ->name && succ->configs != cost->configs)
        return err_input(err, "max_n_succ_stages[0][0][0]: expected %d entries, got %d",
                         cost->configs, succ->configs);
    p->num_configs = submeshes * cost->configs;
    p->configs = mem_array((size_t)p->num_configs, sizeof *p->configs);
    for (int i = 0; i < p->num_configs; i++)
        p->configs[i] = (struct stages_config){.submesh = i / cost->configs,
                                               .config = i % cost->configs};
    p->dense_time = cost->time.p;
    p->dense_succ = succ->name ? succ->succ.p : NULL;
    return 0;
}

/* ---- additive form -------------------------------------------------------------- */

/* Reads obj[key], an array of n numbers >= 0, times `scale`. Takes `base` or zeros if it is
 * absent. */
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

/* ---- submeshes --------------------------------------------------------------------- */

static int read_shape(const json_t *v, const char *key, int at, int *devices,
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
    *devices = (int)size;
    return 0;
}

/* Reads how many devices each submesh has. */
static int read_submeshes(const json_t *doc, int **list, int *n, struct err *err) {
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
        if (json_keys(v, "size name", err) < 0 ||
            json_int(v, "size", 1, MAX_DEVICES, &size, err) < 0)
            return err_at(err, "%s[%d]", key, i);
        (*list)[i] = (int)size;
    }
    return 0;
}

/* Makes a choice of every configuration that the row has room for. */
static void make_choices(struct stages_problem *p, const int *size) {
    p->choices = mem_array((size_t)p->num_configs, sizeof *p->choices);
    for (int i = 0; i < p->num_configs; i++) {
        int devices = size[p->configs[i].submesh];
        if (devices <= p->devices)
            p->choices[p->num_choices++] = (struct stages_choice){
                .config = i, .size = devices, .lo = devices, .hi = p->devices};
    }
}

/* Checks that no sum of the problem leaves the range of a double. */
static int check_range(const struct stages_problem *p, struct err *err) {
    double limit = 1e300 / (p->micro_batches + p->layers), most = 0;
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
    int64_t cells = stages_table_cell(p->layers, p->layers, p->layers) * p->num_configs;
    for (int64_t i = 0; i < cells && p->dense_time; i++)
        if (isfinite(p->dense_time[i]))
            most = fmax(most, p->dense_time[i]);
    if (most > limit)
        return err_input(err, "compute_cost: num_micro_batches times %g overflows", most);
    return 0;
}

static int read_sizes(struct stages_problem *p, const json_t *doc, struct err *err) {
    int64_t layers, devices, batches, stages = STAGES_MAX_LAYERS;
    p->use_all = true;
    if (json_int(doc, "num_layers", 1, STAGES_MAX_LAYERS, &layers, err) < 0 ||
        json_int(doc, "num_devices", 1, MAX_DEVICES, &devices, err) < 0 ||
        json_int(doc, "num_micro_batches", 1, INT64_C(1) << 50, &batches, err) < 0 ||
        json_opt_bool(doc, "use_all_devices", &p->use_all, err) < 0 ||
        json_opt_int(doc, "max_stages", 1, STAGES_MAX_LAYERS, &stages, err) < 0)
        return -1;
    p->layers = (int)layers;
    p->devices = (int)devices;
    p->micro_batches = (double)batches;
    p->max_stages = (int)stages;
    return 0;
}

static int read_problem(struct stages_problem *p, const struct stages_doc *d,
                        struct err *err) {
    int *submeshes = NULL, num_submeshes = 0, bad = -1;
    const json_t *doc = d->rest;
    if (json_object_get(doc, "format") &&
        (json_format(doc, "weft-problem/1", err) < 0 ||
         json_keys(doc,
                   "format problem name comment num_layers num_devices "
                   "num_micro_batches use_all_devices max_stages submeshes "
                   "submesh_shapes num_configs compute_cost max_n_succ_stages layers "
                   "configs",
                   err) < 0))
        return -1;
    if (read_sizes(p, doc, err) == 0 &&
        read_submeshes(doc, &submeshes, &num_submeshes, err) == 0) {
        if ((int64_t)p->layers * p->devices > STAGES_MAX_CELLS)
            bad = err_input(err,
                            "num_devices: %d layers on %d devices exceed this solver's "
                            "table of %d cells",
                            p->layers, p->devices, STAGES_MAX_CELLS);
        else if (json_object_get(doc, "configs"))
            bad = read_additive(p, doc, num_submeshes, err);
        else
            bad = read_dense(p, d, num_submeshes, err);
    }
    if (!bad) {
        make_choices(p, submeshes);
        bad = check_range(p, err);
    }
    free(submeshes);
    return bad;
}

static int take_cost(void *to, struct json_stream *s, struct err *err) {
    return stages_table_times(&((struct stages_doc *)to)->cost, s, err);
}

static int take_successors(void *to, struct json_stream *s, struct err *err) {
    return stages_table_successors(&((struct stages_doc *)to)->succ, s, err);
}

int stages_read(struct stages_problem *p, struct stages_doc *doc, struct json_stream *s,
                struct err *err) {
    static const struct solve_part parts[] = {
        {"compute_cost", take_cost}, {"max_n_succ_stages", take_successors}, {0}};
    *p = (struct stages_problem){0};
    *doc = (struct stages_doc){0};
    doc->rest = solve_doc_read(s, "stages", parts, doc, err);
    if (doc->rest && read_problem(p, doc, err) == 0)
        return 0;
    stages_release(p);
    stages_doc_release(doc);
    return s->failed ? -1 : err_prefix(err, "%s", s->name);
}

void stages_doc_release(struct stages_doc *doc) {
    json_decref(doc->rest);
    stages_table_release(&doc->cost);
    stages_table_release(&doc->succ);
    *doc = (struct stages_doc){0};
}

void stages_release(struct stages_problem *p) {
    for (int i = 0; i < p->num_configs && p->configs; i++) {
        free(p->configs[i].time);
        free(p->configs[i].state);
        free(p->configs[i].activation);
    }
    free(p->configs);
    free(p->choices);
    *p = (struct stages_problem){0};
}
