/* Clusters by kind and size: see cluster_kind.h. */
#include "plan/cluster_kind.h"

#include "common/opt.h"
#include "model/model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20 };

struct words {
    char kind[CLUSTER_MAX_NAME];
    int64_t nodes, devices;
    double net; /* bytes per second of one adapter; 0 = the usual one */
};

/* "16x8", or "8" for one node. */
static bool read_size(const char *text, int64_t *nodes, int64_t *devices) {
    char *end;
    *nodes = 1;
    *devices = strtoll(text, &end, 10);
    if (*end == 'x') {
        *nodes = *devices;
        *devices = strtoll(end + 1, &end, 10);
    }
    return end != text && !*end && *nodes >= 1 && *nodes <= MOST && *devices >= 1 &&
           *devices <= MOST;
}

/* Levels of "node:4 gpu:8" are no kinds. */
static bool is_level(const char *kind) {
    static const char *const levels[] = {"rack", "node", "switch", "gpu", "cpu", "device"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (!strcmp(kind, levels[i]))
            return true;
    return false;
}

/* The first word, split at its last colon. */
static bool first_word(const char *ref, char kind[CLUSTER_MAX_NAME], char *size, size_t n) {
    size_t len = strcspn(ref, " \t"), at = len;
    while (at > 0 && ref[at - 1] != ':')
        at--;
    if (at < 2 || at > CLUSTER_MAX_NAME || len - at >= n)
        return false;
    memcpy(kind, ref, at - 1);
    kind[at - 1] = '\0';
    memcpy(size, ref + at, len - at);
    size[len - at] = '\0';
    return true;
}

bool cluster_names_kind(const char *ref) {
    char kind[CLUSTER_MAX_NAME], size[64];
    return first_word(ref, kind, size, sizeof size) && !is_level(kind);
}

/* "net:200G": bits per second, as makers of networks count. */
static int read_net(const char *text, double *out, struct err *err) {
    double unit = 1;
    char *end = NULL;
    if (!strncmp(text, "net:", 4))
        *out = strtod(text + 4, &end);
    if (end && (*end == 'G' || *end == 'M' || *end == 'T'))
        unit = *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : 1e12;
    if (!end || unit == 1 || end[1] || !(*out > 0) || *out > 1e6)
        return err_input(
            err, "\"%.64s\": expected the bits per second of an adapter, as in net:400G",
            text);
    *out *= unit / 8;
    return 0;
}

static int read_words(const char *ref, struct words *w, struct err *err) {
    char size[64] = "";
    *w = (struct words){0};
    if (!first_word(ref, w->kind, size, sizeof size) ||
        !read_size(size, &w->nodes, &w->devices))
        return err_input(err, "\"%.64s\": expected KIND:NODESxDEVICES, as in h100:16x8",
                         ref);
    if (w->nodes > MOST / w->devices)
        return err_input(err, "\"%.64s\": more than %d devices", ref, MOST);
    const char *rest = ref + strcspn(ref, " \t");
    rest += strspn(rest, " \t");
    return *rest ? read_net(rest, &w->net, err) : 0;
}

/* ---- from the device's document to the cluster's ------------------------------------ */

/* Levels between nodes only where there are several; what was said of the network holds there. */
static json_t *links_of(const json_t *node, const struct words *w) {
    json_t *out = json_array(), *link;
    size_t i;
    json_array_foreach(json_object_get(node, "links"), i, link) {
        const char *level = json_string_value(json_object_get(link, "level"));
        bool between = level && strcmp(level, "node") != 0;
        json_t *copy = json_deep_copy(link);
        double lanes = json_number_value(json_object_get(link, "lanes"));
        if (between && w->net > 0)
            json_object_set_new(copy, "bandwidth",
                                json_real(w->net * (lanes > 1 ? lanes : 1)));
        if (!between || w->nodes > 1)
            json_array_append(out, copy);
        json_decref(copy);
    }
    return out;
}

static json_t *cluster_document(const json_t *device, const json_t *node,
                                const struct words *w) {
    static const char *const of_device[] = {"flops", "bandwidth"};
    static const char *const of_node[] = {"device", "memory", "host_bandwidth",
                                          "latency_us"};
    json_t *o = json_object(), *v;
    json_object_set_new(o, "format", json_string("weft-cluster/1"));
    json_object_set_new(o, "nodes", json_integer(w->nodes));
    json_object_set_new(o, "devices_per_node", json_integer(w->devices));
    json_object_set_new(o, "device_model", json_string(w->kind));
    for (size_t i = 0; i < sizeof of_device / sizeof *of_device; i++)
        if ((v = json_object_get(device, of_device[i])))
            json_object_set(o, of_device[i], v);
    for (size_t i = 0; i < sizeof of_node / sizeof *of_node; i++)
        if ((v = json_object_get(node, of_node[i])))
            json_object_set(o, of_node[i], v);
    json_object_set_new(o, "links", links_of(node, w));
    return o;
}

static int from_document(struct cluster *c, const json_t *device, const struct words *w,
                         struct err *err) {
    json_t *node;
    if (json_object_member(device, "node", &node, err) < 0)
        return -1;
    json_t *doc = cluster_document(device, node, w);
    int rc = cluster_from_json(c, doc, err);
    json_decref(doc);
    return rc;
}

int cluster_read_kind(struct cluster *c, const char *ref, struct err *err) {
    struct words w;
    char file[CLUSTER_MAX_NAME + 8], path[PATH_MAX], shipped[512] = "";
    *c = (struct cluster){0};
    if (read_words(ref, &w, err) < 0)
        return err_prefix(err, "cluster");
    snprintf(file, sizeof file, "%s.json", w.kind);
    if (strchr(w.kind, '/') || share_path("devices", file, path, sizeof path, NULL) < 0) {
        share_list("devices", shipped, sizeof shipped);
        err_input(err,
                  "cluster \"%.64s\": no such kind of device is shipped (there are:%s)",
                  ref, shipped);
        return err_hint(err, "write \"node:4 gpu:8\", or a file of your own");
    }
    json_t *doc = json_read(path, err);
    int rc = doc ? from_document(c, doc, &w, err) : -1;
    if (doc && rc < 0)
        err_prefix(err, "%s", path);
    json_decref(doc);
    return rc;
}
