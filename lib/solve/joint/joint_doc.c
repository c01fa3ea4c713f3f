/* joint_doc.c - Piper's documents, piece by piece: as they are, or as "instance" of
 * another. */
#include "solve/joint/joint_doc.h"

#include "solve/solve_doc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads a key of a JSON object that is a plain whole number >= 0. Returns -1 if it is
 * not. */
static int64_t key_number(const char *key) {
    int64_t v = strtoll(key, NULL, 10);
    char name[24];
    snprintf(name, sizeof name, "%lld", (long long)v);
    return v >= 0 && !strcmp(name, key) ? v : -1;
}

/* Reads the sync bytes per neighbour. */
static int read_sync(struct joint_doc *doc, const json_t *v, const char *key, int *n,
                     struct joint_sync **out, struct err *err) {
    json_t *obj, *x;
    const char *name;
    if (json_object_member(v, key, &obj, err) < 0)
        return -1;
    *out = arena_array(&doc->arena, json_object_size(obj) + 1, sizeof **out);
    *n = 0;
    json_object_foreach(obj, name, x) {
        double bytes = json_is_number(x) ? json_number_value(x) : NAN;
        if (key_number(name) < 0)
            return err_input(err, "%s: \"%.40s\" is not a neighbour of this node", key,
                             name);
        if (!(bytes >= 0 && bytes <= 1e200))
            return err_input(err, "%s.%.40s: expected bytes >= 0", key, name);
        (*out)[(*n)++] = (struct joint_sync){key_number(name), bytes};
    }
    return 0;
}

static int read_alternative(struct joint_doc *doc, const json_t *v,
                            struct joint_alternative *a, struct err *err) {
    const char *id;
    if (json_str(v, "id", &id, err) < 0 ||
        json_num(v, "timePerSample", 0, 1e200, &a->time, err) < 0 ||
        json_num(v, "parameterSize", 0, 1e200, &a->params, err) < 0 ||
        json_num(v, "memoryUsageA", 0, 1e200, &a->memory_a, err) < 0 ||
        json_num(v, "memoryUsageB", 0, 1e200, &a->memory_b, err) < 0 ||
        read_sync(doc, v, "syncTimeFw", &a->num_fw, &a->fw, err) < 0 ||
        read_sync(doc, v, "syncTimeBw", &a->num_bw, &a->bw, err) < 0)
        return -1;
    a->id = arena_strdup(&doc->arena, id);
    return 0;
}

/* Reads all alternatives of one tensor degree. */
static int read_degree(struct joint_doc *doc, struct joint_doc_node *node, const char *key,
                       const json_t *list, struct err *err) {
    int64_t t = key_number(key);
    if (t < 1 || t > JOINT_MOST_DEVICES)
        return err_input(err, "TMPCs: expected tensor degrees as keys, got \"%.40s\"", key);
    if (!json_is_array(list))
        return err_input(err, "TMPCs.%s: expected an array, got %s", key,
                         json_type_name(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        struct joint_alternative *a = &node->choices[node->n++];
        *a = (struct joint_alternative){.degree = (int)t, .at = (int)i};
        if (!json_is_object(v))
            return err_input(err, "TMPCs.%s[%zu]: expected an object, got %s", key, i,
                             json_type_name(v));
        if (read_alternative(doc, v, a, err) < 0)
            return err_at(err, "TMPCs.%s[%zu]", key, i);
    }
    return 0;
}

static int take_node(void *to, const json_t *v, struct err *err) {
    struct joint_doc *doc = to;
    struct joint_doc_node node = {0};
    json_t *all, *list;
    const char *key;
    size_t total = 0;
    if (doc->nodes.n == JOINT_MOST_NODES)
        return err_input(err, "id: more than %d nodes", JOINT_MOST_NODES);
    if (json_int(v, "id", 0, INT64_MAX, &node.id, err) < 0 ||
        json_object_member(v, "TMPCs", &all, err) < 0)
        return -1;
    for (int64_t i = 0; i < doc->nodes.n; i++)
        if (doc->nodes.p[i].id == node.id)
            return err_input(err, "id: %lld appears twice", (long long)node.id);
    json_object_foreach(all, key, list) total += json_array_size(list);
    node.choices = arena_array(&doc->arena, total + 1, sizeof *node.choices);
    json_object_foreach(all, key, list) {
        if (read_degree(doc, &node, key, list, err) < 0)
            return -1;
    }
    arr_push(&doc->nodes, node);
    return 0;
}

static int take_edge(void *to, const json_t *v, struct err *err) {
    struct joint_doc *doc = to;
    struct joint_doc_edge e;
    if (json_keys(v, "sourceId destId communicationCost", err) < 0 ||
        json_int(v, "sourceId", 0, INT64_MAX, &e.from, err) < 0 ||
        json_int(v, "destId", 0, INT64_MAX, &e.to, err) < 0 ||
        json_num(v, "communicationCost", 0, 1e200, &e.bytes, err) < 0)
        return -1;
    arr_push(&doc->edges, e);
    return 0;
}

static int take_nodes(void *to, struct json_stream *s, struct err *err) {
    return solve_doc_objects(s, "nodes", take_node, to, err);
}

static int take_edges(void *to, struct json_stream *s, struct err *err) {
    return solve_doc_objects(s, "edges", take_edge, to, err);
}

static int take_instance(void *to, struct json_stream *s, struct err *err) {
    static const struct solve_part parts[] = {
        {"nodes", take_nodes}, {"edges", take_edges}, {0}};
    struct joint_doc *doc = to;
    doc->instance = solve_doc_members(s, NULL, parts, doc, err);
    if (doc->instance)
        return 0;
    return s->failed ? -1 : err_at(err, "instance");
}

int joint_doc_read(struct joint_doc *doc, struct json_stream *s, struct err *err) {
    static const struct solve_part parts[] = {
        {"nodes", take_nodes}, {"edges", take_edges}, {"instance", take_instance}, {0}};
    *doc = (struct joint_doc){0};
    doc->rest = solve_doc_read(s, "joint", parts, doc, err);
    if (!doc->rest)
        return -1;
    if (!doc->instance)
        doc->instance = json_incref(doc->rest);
    return 0;
}

void joint_doc_release(struct joint_doc *doc) {
    json_decref(doc->rest);
    json_decref(doc->instance);
    arr_release(&doc->nodes);
    arr_release(&doc->edges);
    arena_release(&doc->arena);
    *doc = (struct joint_doc){0};
}
