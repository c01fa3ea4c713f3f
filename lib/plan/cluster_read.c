/* Clusters in words: a synthetic string, after hwloc's ("node:4 gpu:8"), or a small JSON
 * document. What a document does not say of links gets one link without speeds: inside the
 * nodes, and between them. */
#include "common/opt.h"
#include "model/model.h"
#include "plan/cluster_kind.h"

#include <limits.h>
#include <string.h>

enum { MAX_COUNT = 1 << 20, CUBE_LANES = 6 };

/* ---- links ------------------------------------------------------------------------- */

static struct cluster_link plain_link(const char *level, int64_t size) {
    struct cluster_link l = {.size = size, .lanes = 1};
    memcpy(l.level, level, strlen(level) + 1);
    return l;
}

static int push_link(struct cluster_link *list, int *n, struct cluster_link l,
                     struct err *err) {
    if (*n == CLUSTER_MAX_LEVELS)
        return err_input(err, "links: more than %d levels", CLUSTER_MAX_LEVELS);
    list[(*n)++] = l;
    return 0;
}

/* One level; `open` is the last one of its kind, which has no size since it holds all. */
static int read_link(struct cluster_link *l, const json_t *v, const char *unit, bool open,
                     struct err *err) {
    const char *level = "";
    *l = (struct cluster_link){.lanes = 1};
    if (json_keys(v, "level devices nodes bandwidth lanes cube latency_us", err) < 0 ||
        json_str(v, "level", &level, err) < 0 ||
        json_opt_num(v, "bandwidth", 1, 1e18, &l->bandwidth, err) < 0 ||
        json_opt_int(v, "lanes", 1, MAX_COUNT, &l->lanes, err) < 0 ||
        json_opt_bool(v, "cube", &l->cube, err) < 0 ||
        json_opt_num(v, "latency_us", 0, 1e9, &l->latency_us, err) < 0 ||
        (!open && json_int(v, unit, 1, MAX_COUNT, &l->size, err) < 0))
        return -1;
    if (!*level || strlen(level) >= sizeof l->level)
        return err_input(err, "level: expected a name of at most %zu characters",
                         sizeof l->level - 1);
    for (int other = 0; other < 2; other++) {
        const char *key = other ? "nodes" : "devices";
        if (json_object_get(v, key) && (open || strcmp(key, unit)))
            return err_input(err, "%s: the level \"%.16s\" has none", key, level);
    }
    if (l->cube && (strcmp(level, "node") || l->lanes != CUBE_LANES))
        return err_input(err, "cube: only of the level \"node\", and with %d lanes",
                         CUBE_LANES);
    memcpy(l->level, level, strlen(level) + 1);
    return 0;
}

static bool is_node(const json_t *v) {
    const char *level = json_string_value(json_object_get(v, "level"));
    return level && !strcmp(level, "node");
}

/* Where the levels between nodes begin. */
static size_t node_end(const json_t *list) {
    size_t end = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (is_node(json_array_get(list, i)))
            end = i + 1;
    return end;
}

/* Entries first .. end - 1 into levels of growing units; the last holds `all`. */
static int read_links(const json_t *list, size_t first, size_t end, const char *unit,
                      int64_t all, struct cluster_link *out, int *n, struct err *err) {
    for (size_t i = first; i < end; i++) {
        struct cluster_link l;
        bool last = i + 1 == end;
        int64_t below = *n ? out[*n - 1].size : 1;
        if (read_link(&l, json_array_get(list, i), unit, last, err) < 0)
            return err_at(err, "links[%zu]", i);
        if (last)
            l.size = all;
        else if (l.size % below || (!strcmp(unit, "devices") && all % l.size))
            return err_input(err, "links[%zu].%s: %lld does not fit the levels around it",
                             i, unit, (long long)l.size);
        if (push_link(out, n, l, err) < 0)
            return -1;
    }
    return 0;
}

static int check_links(const json_t *list, struct err *err) {
    if (list && !json_is_array(list))
        return err_input(err, "links: expected an array, got %s", json_type_name(list));
    return 0;
}

/* Ranks and nodes of the groups, and levels where nothing was said. */
static int complete(struct cluster *c, struct err *err) {
    int64_t node = 0, rank = 0;
    for (int i = 0; i < c->n_groups; i++) {
        struct cluster_group *g = &c->groups[i];
        g->first_node = node;
        g->first_rank = rank;
        node += g->nodes;
        rank += g->nodes * g->devices;
        if (!g->n_links)
            g->links[g->n_links++] = plain_link("node", g->devices);
    }
    if (node > MAX_COUNT)
        return err_input(err, "more than %d nodes", MAX_COUNT);
    if (!c->n_links && node > 1)
        c->links[c->n_links++] = plain_link("between", node);
    return 0;
}

/* ---- synthetic --------------------------------------------------------------------- */

/* Levels from the outermost in, each with how many of the next one it holds. */
enum { RACK, NODE, SWITCH, DEVICE, WORDS };

static int word_of(const char *name) {
    static const struct {
        const char *name;
        int word;
    } words[] = {{"rack", RACK},  {"node", NODE},  {"switch", SWITCH},
                 {"gpu", DEVICE}, {"cpu", DEVICE}, {"device", DEVICE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i].name, name))
            return words[i].word;
    return -1;
}

/* One "name:count"; *at is the word before it. */
static int read_level(int64_t count[WORDS], int *at, const char *text, struct err *err) {
    const char *colon = strchr(text, ':');
    char name[16] = "";
    int64_t n = 0;
    size_t len = colon ? (size_t)(colon - text) : 0;
    if (len == 0 || len >= sizeof name || opt_parse_int(colon + 1, &n) < 0 || n < 1 ||
        n > MAX_COUNT)
        return err_input(err, "\"%.64s\": expected a level such as node:4 or gpu:8", text);
    memcpy(name, text, len);
    int word = word_of(name);
    if (word <= *at)
        return err_input(err,
                         "\"%.64s\": expected rack:N, node:N, switch:N and gpu:N, cpu:N or "
                         "device:N, in this order",
                         text);
    count[ *at = word] = n;
    return 0;
}

/* "rack:2 node:4 switch:2 gpu:4": levels without a number of their own have one unit. */
static int read_synthetic(struct cluster *c, const char *text, struct err *err) {
    char buf[256];
    int64_t n[WORDS] = {1, 1, 1, 0};
    int at = -1;
    if (strlen(text) >= sizeof buf)
        return err_input(err, "cluster: longer than %zu characters", sizeof buf - 1);
    memcpy(buf, text, strlen(text) + 1);
    char *save, *word = strtok_r(buf, " \t", &save);
    for (; word; word = strtok_r(NULL, " \t", &save))
        if (read_level(n, &at, word, err) < 0)
            return err_prefix(err, "cluster");
    if (!n[DEVICE])
        return err_input(err, "cluster: \"%.64s\" names no devices, as in \"node:4 gpu:8\"",
                         text);
    if (n[RACK] * n[NODE] > MAX_COUNT || n[SWITCH] * n[DEVICE] > MAX_COUNT)
        return err_input(err, "cluster: \"%.64s\": more than %d nodes or devices of a node",
                         text, MAX_COUNT);
    struct cluster_group *g = &c->groups[c->n_groups++];
    *g = (struct cluster_group){.nodes = n[RACK] * n[NODE],
                                .devices = n[SWITCH] * n[DEVICE]};
    if (n[SWITCH] > 1)
        g->links[g->n_links++] = plain_link("switch", n[DEVICE]);
    g->links[g->n_links++] = plain_link("node", g->devices);
    if (n[RACK] > 1) {
        c->links[c->n_links++] = plain_link("rack", n[NODE]);
        c->links[c->n_links++] = plain_link("between", g->nodes);
    }
    return complete(c, err);
}

/* ---- document ---------------------------------------------------------------------- */

/* Bytes as a number or as "28G". */
static int read_bytes(const json_t *doc, const char *key, int64_t least, int64_t *out,
                      struct err *err) {
    const json_t *v = json_object_get(doc, key);
    if (!json_is_string(v))
        return json_opt_int(doc, key, least, INT64_MAX, out, err);
    if (opt_parse_bytes(json_string_value(v), out) < 0 || *out < least)
        return err_input(err, "%s: expected bytes such as \"28G\", got \"%.32s\"", key,
                         json_string_value(v));
    return 0;
}

/* What is not named is not reserved. Without the object it is the table's (reserve.c), of memory that
 * is said. */
static int read_reserve(struct cluster_group *g, const json_t *doc, struct err *err) {
    const json_t *v = json_object_get(doc, "reserve");
    if (!v && g->memory_bytes)
        g->reserve = reserve_of_kind(g->device);
    if (!v)
        return 0;
    if (!g->memory_bytes)
        return err_input(err, "reserve: expected \"memory\" beside it");
    if (!json_is_object(v))
        return err_input(err, "reserve: expected an object, got %s", json_type_name(v));
    if (json_keys(v, "context libraries headroom collectives messages", err) < 0)
        return err_at(err, "reserve");
    for (int i = 0; i < RESERVE_COUNT; i++)
        if (read_bytes(v, reserve_name((enum reserve_part)i), 0, &g->reserve.bytes[i],
                       err) < 0)
            return err_at(err, "reserve");
    if (reserve_fixed(&g->reserve) >= g->memory_bytes)
        return err_input(err, "reserve: nothing is left of the memory");
    return 0;
}

/* One number is that of f32. */
static int read_flops(const json_t *doc, double *out, struct err *err) {
    const json_t *v = json_object_get(doc, "flops");
    if (!json_is_object(v))
        return json_opt_num(doc, "flops", 0, 1e30, &out[DTYPE_f32], err);
    if (json_keys(v, "f32 bf16 f16", err) < 0)
        return err_at(err, "flops");
    for (int t = 0; t < CLUSTER_DTYPES; t++)
        if (json_opt_num(v, dtype_name((enum dtype)t), 0, 1e30, &out[t], err) < 0)
            return err_at(err, "flops");
    return 0;
}

static int read_name(const json_t *doc, const char *key, char out[CLUSTER_MAX_NAME],
                     struct err *err) {
    const char *name = "";
    if (json_opt_str(doc, key, &name, err) < 0)
        return -1;
    if (strlen(name) >= CLUSTER_MAX_NAME)
        return err_input(err, "%s: longer than %d characters", key, CLUSTER_MAX_NAME - 1);
    memcpy(out, name, strlen(name) + 1);
    return 0;
}

static int read_device(struct cluster_group *g, const json_t *doc, struct err *err) {
    if (read_name(doc, "device", g->device, err) < 0 ||
        read_name(doc, "device_model", g->model, err) < 0 ||
        read_bytes(doc, "memory", 1, &g->memory_bytes, err) < 0 ||
        read_flops(doc, g->flops, err) < 0 ||
        json_opt_num(doc, "bandwidth", 1, 1e18, &g->bandwidth, err) < 0 ||
        json_opt_num(doc, "host_bandwidth", 1, 1e18, &g->host_bandwidth, err) < 0 ||
        json_opt_num(doc, "latency_us", 0, 1e9, &g->latency_us, err) < 0 ||
        json_opt_num(doc, "speed", 1e-3, 1, &g->speed, err) < 0)
        return -1;
    return read_reserve(g, doc, err);
}

/* The links inside the nodes of a group: its own, else those of the whole document. */
static int read_inside(struct cluster_group *g, const json_t *own, const json_t *all,
                       struct err *err) {
    if (check_links(own, err) < 0)
        return -1;
    if (own && node_end(own) != json_array_size(own))
        return err_input(err, "links: expected \"node\" as the last level of a group");
    const json_t *list = own ? own : all;
    return read_links(list, 0, node_end(list), "devices", g->devices, g->links, &g->n_links,
                      err);
}

static int read_group(struct cluster_group *g, const json_t *v, const json_t *links,
                      struct err *err) {
    const json_t *own = json_object_get(v, "links");
    if (json_keys(v,
                  "nodes devices device device_model memory reserve flops bandwidth "
                  "host_bandwidth latency_us speed links",
                  err) < 0 ||
        json_int(v, "nodes", 1, MAX_COUNT, &g->nodes, err) < 0 ||
        json_int(v, "devices", 1, MAX_COUNT, &g->devices, err) < 0 ||
        read_device(g, v, err) < 0)
        return -1;
    return read_inside(g, own, links, err);
}

/* The long form: groups of nodes that differ. */
static int read_groups(struct cluster *c, const json_t *doc, const json_t *links,
                       struct err *err) {
    json_t *groups;
    if (json_keys(doc, "$schema format about groups links", err) < 0 ||
        json_array_member(doc, "groups", &groups, err) < 0)
        return -1;
    size_t n = json_array_size(groups);
    if (n < 1 || n > CLUSTER_MAX_GROUPS)
        return err_input(err, "groups: expected 1 to %d, got %zu", CLUSTER_MAX_GROUPS, n);
    for (size_t i = 0; i < n; i++)
        if (read_group(&c->groups[c->n_groups++], json_array_get(groups, i), links, err) <
            0)
            return err_at(err, "groups[%zu]", i);
    return 0;
}

/* The short form: all nodes are alike. */
static int read_equal(struct cluster *c, const json_t *doc, const json_t *links,
                      struct err *err) {
    struct cluster_group *g = &c->groups[c->n_groups++];
    if (json_keys(doc,
                  "$schema format about nodes devices_per_node device device_model memory "
                  "reserve flops bandwidth host_bandwidth latency_us speed links",
                  err) < 0 ||
        json_int(doc, "nodes", 1, MAX_COUNT, &g->nodes, err) < 0 ||
        json_int(doc, "devices_per_node", 1, MAX_COUNT, &g->devices, err) < 0 ||
        read_device(g, doc, err) < 0)
        return -1;
    return read_inside(g, NULL, links, err);
}

/* What is inside nodes, then the levels between all of them. */
static int read_document(struct cluster *c, const json_t *doc, struct err *err) {
    const json_t *links = json_object_get(doc, "links");
    bool groups = json_object_get(doc, "groups");
    if (!json_is_object(doc))
        return err_input(err, "expected an object, got %s", json_type_name(doc));
    if (json_format(doc, "weft-cluster/1", err) < 0 || check_links(links, err) < 0 ||
        (groups ? read_groups : read_equal)(c, doc, links, err) < 0)
        return -1;
    int64_t nodes = 0;
    for (int i = 0; i < c->n_groups; i++)
        nodes += c->groups[i].nodes;
    if (read_links(links, node_end(links), json_array_size(links), "nodes", nodes, c->links,
                   &c->n_links, err) < 0)
        return -1;
    return complete(c, err);
}

int cluster_from_json(struct cluster *c, const json_t *doc, struct err *err) {
    const char *ref = json_string_value(doc);
    *c = (struct cluster){0};
    if (ref && !strcmp(ref, "-"))
        return err_input(err, "cluster: a plan cannot name standard input");
    return ref ? cluster_read(c, ref, err) : read_document(c, doc, err);
}

/* ---- writing ----------------------------------------------------------------------- */

static void set_number(json_t *o, const char *key, double v) {
    if (v > 0)
        json_object_set_new(o, key, json_real(v));
}

static void write_links(json_t *list, const struct cluster_link *l, int n,
                        const char *unit) {
    for (int i = 0; i < n; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "level", json_string(l[i].level));
        if (i + 1 < n)
            json_object_set_new(o, unit, json_integer(l[i].size));
        set_number(o, "bandwidth", l[i].bandwidth);
        if (l[i].lanes > 1)
            json_object_set_new(o, "lanes", json_integer(l[i].lanes));
        if (l[i].cube)
            json_object_set_new(o, "cube", json_true());
        set_number(o, "latency_us", l[i].latency_us);
        json_array_append_new(list, o);
    }
}

/* Where it is what the table says of the kind nothing is written, and files stay short. */
static void write_reserve(json_t *o, const struct cluster_group *g) {
    struct reserve usual = reserve_of_kind(g->device);
    if (!g->memory_bytes || !memcmp(&usual, &g->reserve, sizeof usual))
        return;
    json_t *list = json_object();
    for (int i = 0; i < RESERVE_COUNT; i++)
        if (g->reserve.bytes[i])
            json_object_set_new(list, reserve_name((enum reserve_part)i),
                                json_integer(g->reserve.bytes[i]));
    json_object_set_new(o, "reserve", list);
}

static void write_device(json_t *o, const struct cluster_group *g) {
    json_t *flops = json_object();
    if (*g->device)
        json_object_set_new(o, "device", json_string(g->device));
    if (*g->model)
        json_object_set_new(o, "device_model", json_string(g->model));
    if (g->memory_bytes)
        json_object_set_new(o, "memory", json_integer(g->memory_bytes));
    write_reserve(o, g);
    for (int t = 0; t < CLUSTER_DTYPES; t++)
        set_number(flops, dtype_name((enum dtype)t), g->flops[t]);
    if (json_object_size(flops))
        json_object_set(o, "flops", flops);
    json_decref(flops);
    set_number(o, "bandwidth", g->bandwidth);
    set_number(o, "host_bandwidth", g->host_bandwidth);
    set_number(o, "latency_us", g->latency_us);
    set_number(o, "speed", g->speed);
}

/* The short form where all nodes are alike, so that a plan stays readable. */
json_t *cluster_to_json(const struct cluster *c) {
    json_t *doc = json_object(), *links = json_array(), *groups = json_array();
    bool several = c->n_groups > 1;
    json_object_set_new(doc, "format", json_string("weft-cluster/1"));
    for (int i = 0; i < c->n_groups; i++) {
        const struct cluster_group *g = &c->groups[i];
        json_t *o = several ? json_object() : json_incref(doc);
        json_t *inside = several ? json_array() : json_incref(links);
        json_object_set_new(o, "nodes", json_integer(g->nodes));
        json_object_set_new(o, several ? "devices" : "devices_per_node",
                            json_integer(g->devices));
        write_device(o, g);
        write_links(inside, g->links, g->n_links, "devices");
        if (several) {
            json_object_set(o, "links", inside);
            json_array_append(groups, o);
        }
        json_decref(inside);
        json_decref(o);
    }
    write_links(links, c->links, c->n_links, "nodes");
    if (json_array_size(links))
        json_object_set(doc, "links", links);
    if (several)
        json_object_set(doc, "groups", groups);
    json_decref(links);
    json_decref(groups);
    return doc;
}

/* ---- the three ways to name one ---------------------------------------------------- */

static int read_file(struct cluster *c, const char *path, struct err *err) {
    json_t *doc = json_read(path, err);
    if (!doc)
        return -1;
    int rc = read_document(c, doc, err);
    json_decref(doc);
    return rc < 0 ? err_prefix(err, "%s", strcmp(path, "-") ? path : "standard input") : 0;
}

static bool is_path(const char *ref) {
    size_t n = strlen(ref);
    return strchr(ref, '/') || !strcmp(ref, "-") ||
           (n > 5 && !strcmp(ref + n - 5, ".json"));
}

static int read_shipped(struct cluster *c, const char *name, struct err *err) {
    char file[80], path[PATH_MAX];
    if (strlen(name) + sizeof ".json" > sizeof file ||
        (snprintf(file, sizeof file, "%s.json", name),
         share_path("clusters", file, path, sizeof path, NULL) < 0)) {
        char shipped[512] = "";
        share_list("clusters", shipped, sizeof shipped);
        err_input(err, "cluster \"%.64s\": not among the shipped clusters (there are:%s)",
                  name, shipped);
        return err_hint(
            err, "write \"node:4 gpu:8\", or a file of your own as ./%.64s.json", name);
    }
    return read_file(c, path, err);
}

int cluster_read(struct cluster *c, const char *ref, struct err *err) {
    *c = (struct cluster){0};
    if (is_path(ref))
        return read_file(c, ref, err);
    if (cluster_names_kind(ref))
        return cluster_read_kind(c, ref, err);
    if (strchr(ref, ':') || !*ref)
        return read_synthetic(c, ref, err);
    return read_shipped(c, ref, err);
}
