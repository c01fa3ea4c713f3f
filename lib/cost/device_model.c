/* Reading and writing device models: see device_model.h. */
#include "cost/device_model.h"

#include "common/mem.h"
#include "model/model.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double never = 1e9;       /* no rate of any device is this low */
static const double least_cache = 1e4; /* nor is any cache this small */

/* ---- reading ----------------------------------------------------------------------- */

/* Reads a number per second; refuses the bare digits of a datasheet's Tflop/s or GB/s. */
static int json_rate(const json_t *o, const char *key, double *out, struct err *err) {
    if (json_num(o, key, 0, 1e30, out, err) < 0)
        return -1;
    if (*out > 0 && *out < never)
        return err_input(err, "%s: expected a number per second, as 3.35e12, got %g", key,
                         *out);
    return 0;
}

static int read_flops(const json_t *doc, struct chip *chip, struct err *err) {
    json_t *flops;
    if (json_object_member(doc, "flops", &flops, err) < 0)
        return -1;
    if (json_keys(flops, "f32 bf16 f16", err) < 0)
        return err_at(err, "flops");
    for (int t = 0; t < CLUSTER_DTYPES; t++) {
        const char *name = dtype_name((enum dtype)t);
        if (json_object_get(flops, name) &&
            json_rate(flops, name, &chip->flops[t], err) < 0)
            return err_at(err, "flops");
    }
    if (chip->flops[DTYPE_f32] <= 0)
        return err_input(err, "flops: f32: expected a number per second, got none");
    return 0;
}

/* A cache slower than the memory behind it would make times fall where sizes grow. */
static int read_cache(const json_t *doc, struct chip *chip, struct err *err) {
    json_t *cache;
    if (json_object_member(doc, "cache", &cache, err) < 0)
        return -1;
    if (json_keys(cache, "bytes bandwidth", err) < 0 ||
        json_num(cache, "bytes", least_cache, 1e12, &chip->cache_bytes, err) < 0 ||
        json_rate(cache, "bandwidth", &chip->cache_bandwidth, err) < 0)
        return err_at(err, "cache");
    if (chip->cache_bandwidth < chip->bandwidth)
        return err_input(err, "cache.bandwidth: %g is less than the memory's, %g",
                         chip->cache_bandwidth, chip->bandwidth);
    return 0;
}

/* Refuses the bare digits of "450 GB/s" or "80 GB": nothing is that slow or small. */
static int check_rate_or_bytes(const json_t *o, const char *key, struct err *err) {
    static const double least_ever = 1e6;
    const json_t *v = json_object_get(o, key);
    if (!json_is_number(v) || json_number_value(v) >= least_ever)
        return 0;
    return err_input(err, "%s: expected bytes, or bytes per second, as 4.5e11, got %g", key,
                     json_number_value(v));
}

/* The rest is checked against weft-cluster(5) when a cluster is made of the node. */
static int check_node(const json_t *doc, struct err *err) {
    const json_t *node = json_object_get(doc, "node"), *link;
    size_t i;
    if (!node)
        return 0;
    if (!json_is_object(node))
        return err_input(err, "node: expected an object, got %s", json_type_name(node));
    if (check_rate_or_bytes(node, "memory", err) < 0 ||
        check_rate_or_bytes(node, "host_bandwidth", err) < 0)
        return err_at(err, "node");
    json_array_foreach(json_object_get(node, "links"), i,
                       link) if (check_rate_or_bytes(link, "bandwidth", err) < 0) {
        err_at(err, "links[%d]", (int)i);
        return err_at(err, "node");
    }
    return 0;
}

static int read_chip(const json_t *doc, struct chip *chip, struct err *err) {
    return json_num(doc, "multiprocessors", 1, 1e6, &chip->multiprocessors, err) < 0 ||
                   read_flops(doc, chip, err) < 0 ||
                   json_rate(doc, "bandwidth", &chip->bandwidth, err) < 0 ||
                   read_cache(doc, chip, err) < 0
               ? -1
               : 0;
}

static int read_params(const json_t *v, struct curve *c, struct err *err) {
    char known[128] = "from rows within";
    const struct curve_param *p = curve_params(c->form);
    for (int i = 0; p[i].name; i++)
        err_list(known, sizeof known, p[i].name);
    if (json_keys(v, known, err) < 0)
        return -1;
    for (int i = 0; p[i].name; i++)
        if (json_opt_num(v, p[i].name, p[i].least, p[i].most, &c->p[i], err) < 0)
            return -1;
    return json_num(v, "within", 0, 100, &c->within, err) < 0 ||
                   json_opt_int(v, "rows", 0, INT64_MAX, &c->rows, err) < 0
               ? -1
               : 0;
}

static int read_curve(const json_t *v, enum curve_form form, struct device_curve *out,
                      struct err *err) {
    const char *from = "";
    *out = (struct device_curve){.curve = curve_default(form), .given = true};
    if (read_params(v, &out->curve, err) < 0 || json_str(v, "from", &from, err) < 0)
        return -1;
    if (strlen(from) >= sizeof out->from)
        return err_input(err, "from: longer than %zu characters", sizeof out->from - 1);
    memcpy(out->from, from, strlen(from) + 1);
    return 0;
}

static int form_find(const char *name) {
    for (int f = 0; f < CURVE_FORM_COUNT; f++)
        if (!strcmp(curve_form_name((enum curve_form)f), name))
            return f;
    return -1;
}

/* Finds "linear.bf16", or "adamw", which means f32. */
static int op_find(const char *name, enum dtype *dtype) {
    char op[64];
    const char *dot = strchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) : strlen(name);
    int type = dot ? dtype_find(dot + 1) : (int)DTYPE_f32;
    if (n >= sizeof op || type < 0 || type >= CLUSTER_DTYPES)
        return -1;
    memcpy(op, name, n);
    op[n] = '\0';
    *dtype = (enum dtype)type;
    int code = opcode_find(op);
    if (code < 0)
        return -1;
    enum key_kind key = opcode_key((enum opcode)code);
    return key == KEY_SHAPE || key == KEY_CURVE ? code : -1;
}

static int read_curves(const json_t *doc, struct device_model *m, struct err *err) {
    json_t *curves, *v;
    const char *name;
    if (json_object_member(doc, "curves", &curves, err) < 0)
        return -1;
    json_object_foreach(curves, name, v) {
        enum dtype dtype = DTYPE_f32;
        int form = form_find(name), code = form < 0 ? op_find(name, &dtype) : -1;
        if (form < 0 && code < 0)
            return err_input(err, "curves: \"%.48s\" is neither a form nor an instruction",
                             name);
        struct device_curve *at = form >= 0 ? &m->forms[form] : &m->ops[code][dtype];
        enum curve_form f =
            form >= 0 ? (enum curve_form)form : curve_form_of((enum opcode)code);
        if (read_curve(v, f, at, err) < 0)
            return err_at(err, "curves.%.48s", name);
    }
    for (int f = 0; f < CURVE_FORM_COUNT; f++)
        if (!m->forms[f].given)
            return err_input(err, "curves: expected one for \"%s\"",
                             curve_form_name((enum curve_form)f));
    return 0;
}

/* Without bulk_us a link has one protocol: bulk and slow parameters stay at their least. */
static int read_link_params(const json_t *v, struct curve *c, struct err *err) {
    const struct curve_param *k = curve_params(CURVE_LINK);
    c->form = CURVE_LINK;
    for (int i = 0; k[i].name; i++) {
        bool bulk = json_object_get(v, "bulk_us") != NULL;
        c->p[i] = k[i].least;
        bool one = !strncmp(k[i].name, "bulk", 4) || !strcmp(k[i].name, "slow");
        if ((bulk || !one) && json_num(v, k[i].name, 0, k[i].most, &c->p[i], err) < 0)
            return -1;
        c->p[i] = fmax(c->p[i], k[i].least);
    }
    return 0;
}

static int read_link(const json_t *links, int cross, struct device_model *m,
                     struct err *err) {
    const char *key = cross ? "cross" : "node", *from = "";
    struct link_curve *l = &m->links[cross];
    json_t *v;
    if (json_object_member(links, key, &v, err) < 0)
        return -1;
    if (json_keys(
            v, "launch_us round_us bulk_us bulk_round_us slow reached message within from",
            err) < 0 ||
        json_num(v, "message", 1e-3, 1, &l->message, err) < 0 ||
        json_num(v, "within", 0, 100, &l->curve.within, err) < 0 ||
        json_str(v, "from", &from, err) < 0 || read_link_params(v, &l->curve, err) < 0)
        return err_at(err, "%s", key);
    snprintf(m->links_from[cross], sizeof m->links_from[cross], "%s", from);
    return 0;
}

static int read_links(const json_t *doc, struct device_model *m, struct err *err) {
    const json_t *links = json_object_get(doc, "links");
    if (!links)
        return 0;
    if (json_keys(links, "node cross", err) < 0 || read_link(links, 0, m, err) < 0 ||
        read_link(links, 1, m, err) < 0)
        return err_at(err, "links");
    m->has_links = true;
    return 0;
}

static int read_model(const json_t *doc, struct device_model *m, struct err *err) {
    const char *name = "", *about = NULL;
    if (json_keys(
            doc,
            "$schema format name about multiprocessors flops bandwidth cache node links curves",
            err) < 0 ||
        json_format(doc, "weft-device/1", err) < 0 ||
        json_str(doc, "name", &name, err) < 0 ||
        json_opt_str(doc, "about", &about, err) < 0)
        return -1;
    if (!*name || strlen(name) >= sizeof m->name)
        return err_input(err, "name: expected 1 to %zu characters", sizeof m->name - 1);
    memcpy(m->name, name, strlen(name) + 1);
    m->about = about ? mem_strdup(about) : NULL;
    m->node = json_incref(json_object_get(doc, "node"));
    if (read_chip(doc, &m->chip, err) < 0 || check_node(doc, err) < 0 ||
        read_links(doc, m, err) < 0)
        return -1;
    return read_curves(doc, m, err);
}

struct device_model *device_model_from_json(const json_t *doc, struct err *err) {
    struct device_model *m = mem_alloc(sizeof *m);
    if (!json_is_object(doc))
        err_input(err, "expected an object, got %s", json_type_name(doc));
    else if (read_model(doc, m, err) == 0)
        return m;
    device_model_destroy(m);
    return NULL;
}

void device_model_destroy(struct device_model *m) {
    if (!m)
        return;
    json_decref(m->node);
    free(m->about);
    free(m);
}

/* ---- by name ----------------------------------------------------------------------- */

/* Finds share/devices/NAME.json, cutting the name at its last '-' until there is one. */
static int find_shipped(const char *name, char *path, size_t n, struct err *err) {
    char file[CLUSTER_MAX_NAME + 8], stem[CLUSTER_MAX_NAME], list[512] = "";
    snprintf(stem, sizeof stem, "%s", name);
    while (*stem) {
        snprintf(file, sizeof file, "%s.json", stem);
        if (share_path("devices", file, path, n, NULL) == 0)
            return 0;
        char *dash = strrchr(stem, '-');
        *(dash ? dash : stem) = '\0';
    }
    share_list("devices", list, sizeof list);
    return err_input(err, "device \"%.64s\": not among the shipped devices (there are:%s)",
                     name, list);
}

static bool is_path(const char *ref) {
    size_t n = strlen(ref);
    return strchr(ref, '/') || (n > 5 && !strcmp(ref + n - 5, ".json"));
}

struct device_model *device_model_read(const char *ref, struct err *err) {
    char path[PATH_MAX];
    if (is_path(ref))
        snprintf(path, sizeof path, "%s", ref);
    else if (find_shipped(ref, path, sizeof path, err) < 0)
        return NULL;
    json_t *doc = json_read(path, err);
    struct device_model *m = doc ? device_model_from_json(doc, err) : NULL;
    if (doc && !m)
        err_prefix(err, "%s", path);
    json_decref(doc);
    return m;
}

struct device_model *device_model_plain(const char *name, const struct chip *chip) {
    struct device_model *m = mem_alloc(sizeof *m);
    snprintf(m->name, sizeof m->name, "%s", name);
    m->chip = *chip;
    for (int f = 0; f < CURVE_FORM_COUNT; f++) {
        m->forms[f] = (struct device_curve){.curve = curve_default((enum curve_form)f),
                                            .given = true};
        snprintf(m->forms[f].from, sizeof m->forms[f].from, "guessed");
    }
    return m;
}

const struct device_curve *device_model_curve(const struct device_model *m,
                                              enum opcode code, enum dtype dtype) {
    static const int other[CLUSTER_DTYPES] = {
        [DTYPE_f32] = DTYPE_f32, [DTYPE_bf16] = DTYPE_f16, [DTYPE_f16] = DTYPE_bf16};
    int t = (int)dtype < CLUSTER_DTYPES ? (int)dtype : DTYPE_f32;
    const struct device_curve *ops = m->ops[code];
    if (ops[t].given)
        return &ops[t];
    if (ops[other[t]].given)
        return &ops[other[t]];
    /* Moving memory takes as long whatever the type of its bytes. */
    enum curve_form form = curve_form_of(code);
    for (t = 0; form == CURVE_MOVE && t < CLUSTER_DTYPES; t++)
        if (ops[t].given)
            return &ops[t];
    return &m->forms[form];
}

/* ---- writing ----------------------------------------------------------------------- */

/* Four digits say all that a fit knows. */
static json_t *rounded(double x) {
    double unit = x > 0 ? pow(10, floor(log10(x)) - 3) : 1;
    char text[32];
    snprintf(text, sizeof text, "%.4g", round(x / unit) * unit);
    return json_real(strtod(text, NULL));
}

static json_t *curve_json(const struct device_curve *c) {
    json_t *o = json_object();
    const struct curve_param *p = curve_params(c->curve.form);
    for (int i = 0; p[i].name; i++)
        json_object_set_new(o, p[i].name, rounded(c->curve.p[i]));
    json_object_set_new(o, "within", rounded(c->curve.within));
    if (c->curve.rows)
        json_object_set_new(o, "rows", json_integer(c->curve.rows));
    json_object_set_new(o, "from", json_string(c->from));
    return o;
}

static json_t *curves_json(const struct device_model *m) {
    json_t *o = json_object();
    char name[96];
    for (int f = 0; f < CURVE_FORM_COUNT; f++)
        if (m->forms[f].given)
            json_object_set_new(o, curve_form_name((enum curve_form)f),
                                curve_json(&m->forms[f]));
    for (int code = 0; code < OPCODE_COUNT; code++)
        for (int t = 0; t < CLUSTER_DTYPES; t++)
            if (m->ops[code][t].given)
                json_object_set_new(
                    o,
                    instr_name_format((enum opcode)code, (enum dtype)t, name, sizeof name),
                    curve_json(&m->ops[code][t]));
    return o;
}

static json_t *links_json(const struct device_model *m) {
    json_t *o = json_object();
    for (int cross = 0; cross < 2; cross++) {
        const struct link_curve *l = &m->links[cross];
        json_t *v = json_object();
        for (const struct curve_param *k = curve_params(CURVE_LINK); k->name; k++)
            json_object_set_new(v, k->name,
                                rounded(l->curve.p[k - curve_params(CURVE_LINK)]));
        json_object_set_new(v, "message", rounded(l->message));
        json_object_set_new(v, "within", rounded(l->curve.within));
        json_object_set_new(v, "from", json_string(m->links_from[cross]));
        json_object_set_new(o, cross ? "cross" : "node", v);
    }
    return o;
}

json_t *device_model_to_json(const struct device_model *m) {
    json_t *o = json_object(), *flops = json_object(), *cache = json_object();
    json_object_set_new(o, "format", json_string("weft-device/1"));
    json_object_set_new(o, "name", json_string(m->name));
    if (m->about)
        json_object_set_new(o, "about", json_string(m->about));
    json_object_set_new(o, "multiprocessors", json_real(m->chip.multiprocessors));
    for (int t = 0; t < CLUSTER_DTYPES; t++)
        if (m->chip.flops[t] > 0)
            json_object_set_new(flops, dtype_name((enum dtype)t),
                                json_real(m->chip.flops[t]));
    json_object_set_new(o, "flops", flops);
    json_object_set_new(o, "bandwidth", json_real(m->chip.bandwidth));
    json_object_set_new(cache, "bytes", json_real(m->chip.cache_bytes));
    json_object_set_new(cache, "bandwidth", json_real(m->chip.cache_bandwidth));
    json_object_set_new(o, "cache", cache);
    if (m->node)
        json_object_set(o, "node", m->node);
    if (m->has_links)
        json_object_set_new(o, "links", links_json(m));
    json_object_set_new(o, "curves", curves_json(m));
    return o;
}
