/* Clusters: a synthetic string, after hwloc's ("node:4 gpu:8"), or a small JSON
 * document. */
#include "plan/cluster.h"

#include "common/json.h"
#include "common/opt.h"
#include "model/model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_COUNT = 1 << 20 };

struct cluster cluster_single_node(int64_t devices) {
    return (struct cluster){.nodes = 1, .devices_per_node = devices};
}

int64_t cluster_devices(const struct cluster *c) {
    return c->nodes * c->devices_per_node;
}

int64_t cluster_node_of(const struct cluster *c, int64_t rank) {
    return rank / c->devices_per_node;
}

/* ---- synthetic --------------------------------------------------------------------- */

static bool is_device_level(const char *name) {
    return !strcmp(name, "gpu") || !strcmp(name, "cpu") || !strcmp(name, "device");
}

/* One "name:count". */
static int read_level(struct cluster *c, const char *word, struct err *err) {
    const char *colon = strchr(word, ':');
    char name[16] = "";
    int64_t count = 0;
    size_t len = colon ? (size_t)(colon - word) : 0;
    if (len == 0 || len >= sizeof name || opt_parse_int(colon + 1, &count) < 0 ||
        count < 1 || count > MAX_COUNT)
        return err_input(err, "\"%.64s\": expected a level such as node:4 or gpu:8", word);
    memcpy(name, word, len);
    if (!strcmp(name, "node") && c->nodes == 0 && c->devices_per_node == 0)
        c->nodes = count;
    else if (is_device_level(name) && c->devices_per_node == 0)
        c->devices_per_node = count;
    else
        return err_input(
            err, "\"%.64s\": expected node:N and then gpu:N, cpu:N or device:N", word);
    return 0;
}

static int read_synthetic(struct cluster *c, const char *text, struct err *err) {
    char buf[256];
    if (strlen(text) >= sizeof buf)
        return err_input(err, "cluster: longer than %zu characters", sizeof buf - 1);
    memcpy(buf, text, strlen(text) + 1);
    char *save, *word = strtok_r(buf, " \t", &save);
    for (; word; word = strtok_r(NULL, " \t", &save))
        if (read_level(c, word, err) < 0)
            return err_prefix(err, "cluster");
    if (c->devices_per_node == 0)
        return err_input(err, "cluster: \"%.64s\" names no devices, as in \"node:4 gpu:8\"",
                         text);
    if (c->nodes == 0)
        c->nodes = 1;
    return 0;
}

/* ---- file -------------------------------------------------------------------------- */

/* Bytes as a number or as "28G". */
static int read_memory(const json_t *doc, int64_t *out, struct err *err) {
    const json_t *v = json_object_get(doc, "memory");
    if (!json_is_string(v))
        return json_opt_int(doc, "memory", 1, INT64_MAX, out, err);
    if (opt_parse_bytes(json_string_value(v), out) < 0 || *out < 1)
        return err_input(err, "memory: expected bytes such as \"28G\", got \"%.32s\"",
                         json_string_value(v));
    return 0;
}

static int read_document(struct cluster *c, const json_t *doc, struct err *err) {
    const char *device = "";
    if (json_keys(doc, "$schema format about nodes devices_per_node device memory flops",
                  err) < 0 ||
        json_format(doc, "weft-cluster/1", err) < 0 ||
        json_int(doc, "nodes", 1, MAX_COUNT, &c->nodes, err) < 0 ||
        json_int(doc, "devices_per_node", 1, MAX_COUNT, &c->devices_per_node, err) < 0 ||
        json_opt_str(doc, "device", &device, err) < 0 ||
        json_opt_num(doc, "flops", 0, 1e30, &c->flops, err) < 0 ||
        read_memory(doc, &c->memory_bytes, err) < 0)
        return -1;
    if (strlen(device) >= sizeof c->device)
        return err_input(err, "device: longer than %zu characters", sizeof c->device - 1);
    memcpy(c->device, device, strlen(device) + 1);
    return 0;
}

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
        err_input(err, "cluster \"%.64s\": not among the shipped clusters", name);
        return err_hint(
            err, "write \"node:4 gpu:8\", or a file of your own as ./%.64s.json", name);
    }
    return read_file(c, path, err);
}

int cluster_read(struct cluster *c, const char *ref, struct err *err) {
    *c = (struct cluster){0};
    if (is_path(ref))
        return read_file(c, ref, err);
    if (strchr(ref, ':') || !*ref)
        return read_synthetic(c, ref, err);
    return read_shipped(c, ref, err);
}
