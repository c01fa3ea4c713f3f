/* Fuzzes the reader of plan files (libFuzzer). A plan that is accepted is legal: it survives
 * writing and reading, the compiler takes it, and the replay of all its ranks finds no fault.
 *
 * Bytes alone seldom make a plan; so most mutations change a plan as a plan: another axis (up to
 * six), other dims on it, exceptions, ZeRO, micro-batches. */
#include "common/rng.h"
#include "plan/plan.h"
#include "program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t max);

enum { MAX_DEVICES = 1024, MAX_OPS = 200, MAX_MICRO_BATCHES = 64 };

/* Files of this machine, and blocks repeated a million times, are not what is looked for. */
static bool wanted(const json_t *doc) {
    const char *ref = json_string_value(json_object_get(doc, "model"));
    const char *set = json_string_value(json_object_get(doc, "set"));
    const char *cluster = json_string_value(json_object_get(doc, "cluster"));
    if ((ref && (strchr(ref, '/') || strstr(ref, ".json"))) ||
        (cluster && !strchr(cluster, ':')))
        return false;
    const char *layers = set ? strstr(set, "layers=") : NULL;
    return !layers || strspn(layers + 7, "0123456789") < 3;
}

static void complain(const char *what, const struct err *err) {
    fprintf(stderr, "%s: %s\n", what, err->msg);
    abort();
}

static void check_plan(struct plan *p) {
    struct err err = {0};
    json_t *doc = plan_to_json(p);
    struct plan *q = plan_from_json(doc, &err);
    if (!q)
        complain("the plan written is refused", &err);
    json_t *again = plan_to_json(q);
    if (!json_equal(doc, again) || q->devices != p->devices)
        complain("the plan written is read as another", &err);
    plan_destroy(q);
    json_decref(again);
    json_decref(doc);
    if (p->devices > MAX_DEVICES || p->model->n_ops > MAX_OPS ||
        plan_micro_batches(p) > MAX_MICRO_BATCHES)
        return;
    struct program *g = program_compile(p, &err);
    if (!g) {
        if (!strstr(err.msg, "overflows"))
            complain("an accepted plan is not compiled", &err);
        return;
    }
    if (program_validate(g, &err) < 0)
        complain("an accepted plan has a faulty program", &err);
    program_destroy(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct err err = {0};
    json_t *doc = json_parse((const char *)bytes, size, "plan", &err);
    if (doc && wanted(doc)) {
        struct plan *p = plan_from_json(doc, &err);
        if (p)
            check_plan(p);
        else if (err.status != EXIT_INPUT || !err.msg[0])
            abort();
        plan_destroy(p);
    }
    json_decref(doc);
    return 0;
}

/* ---- mutations --------------------------------------------------------------------------- */

static const char *const dims[] = {"batch", "seq", "hidden", "heads",  "ffn",
                                   "vocab", "kv",  "inner",  "pixels", "classes"};
static const char *const ops[] = {
    "wte",         "wpe",         "layer.0", "layer.1", "layer.*.qkv", "layer.*.ln1",
    "layer.0-1.*", "layer.*.fc2", "ln",      "head",    "loss",        "*"};

#define PICK(r, list) (list)[rng_below(r, (int64_t)(sizeof(list) / sizeof *(list)))]

/* A dim, two in order of preference, or none. */
static json_t *random_dims(struct rng *r) {
    switch (rng_below(r, 4)) {
    case 0: return json_null();
    case 1: return json_pack("[s, s]", PICK(r, dims), PICK(r, dims));
    default: return json_string(PICK(r, dims));
    }
}

static void mutate_mesh(struct rng *r, struct mesh *mesh) {
    static const int sizes[] = {1, 2, 2, 2, 3, 4};
    int a = (int)rng_below(r, mesh->n_axes + 1);
    if (a == MESH_MAX_AXES)
        a--;
    if (a == mesh->n_axes)
        snprintf(mesh->name[mesh->n_axes++], MESH_MAX_NAME, "x%d", (int)rng_below(r, 1000));
    mesh->size[a] = PICK(r, sizes);
}

static json_t *member(json_t *obj, const char *key, json_t *(*make)(void)) {
    if (!json_object_get(obj, key))
        json_object_set_new(obj, key, make());
    return json_object_get(obj, key);
}

static void mutate_stage(struct rng *r, json_t *stage) {
    const char *text = json_string_value(json_object_get(stage, "mesh"));
    char buf[MESH_MAX_AXES * 32];
    struct mesh mesh;
    if (mesh_parse(text ? text : "", MAX_DEVICES, &mesh, NULL) < 0)
        return;
    if (!mesh.n_axes || rng_below(r, 4) == 0) {
        mutate_mesh(r, &mesh);
        mesh_format(&mesh, buf, sizeof buf);
        json_object_set_new(stage, "mesh", json_string(buf));
    }
    const char *axis = mesh.name[rng_below(r, mesh.n_axes)];
    switch (rng_below(r, 5)) {
    case 0:
        json_array_append_new(member(stage, "except", json_array),
                              json_pack("{s:[s], s:{s:o}}", "ops", PICK(r, ops), "layout",
                                        axis, random_dims(r)));
        break;
    case 1: json_array_remove(member(stage, "except", json_array), 0); break;
    case 2: json_object_set_new(stage, "zero", json_integer(rng_below(r, 4))); break;
    case 3: json_object_set_new(stage, "recompute", json_pack("[s]", PICK(r, ops))); break;
    default:
        json_object_set_new(member(stage, "layout", json_object), axis, random_dims(r));
    }
}

/* Numbers of groups for all stages, mostly such as schedules take; or for none. */
static void mutate_groups(struct rng *r, json_t *stages) {
    int64_t n = (int64_t)json_array_size(stages), groups = 1 + rng_below(r, n);
    int64_t round = rng_below(r, 4);
    for (int64_t s = 0; s < n; s++) {
        json_t *stage = json_array_get(stages, (size_t)s);
        if (round)
            json_object_set_new(
                stage, "group",
                json_integer(round > 1 ? s % groups : rng_below(r, groups + 1)));
        else
            json_object_del(stage, "group");
    }
}

/* Of some ops, mostly such as a plan may have; or none at all. */
static void mutate_pins(struct rng *r, json_t *doc) {
    json_t *pin = member(doc, "pin", json_object), *v;
    switch (rng_below(r, 6)) {
    case 0: json_object_clear(pin); return;
    case 1: v = json_pack("{s:i}", "zero", (int)rng_below(r, 2)); break;
    case 2:
        v = json_pack("{s:{s:i}}", "split", PICK(r, dims), 1 + (int)rng_below(r, 2));
        break;
    case 3: v = json_pack("{s:b}", "recompute", (int)rng_below(r, 2)); break;
    case 4: v = json_pack("{s:i}", "stage", (int)rng_below(r, 2)); break;
    default: v = json_pack("{s:s}", "stage", rng_below(r, 2) ? "begins" : "one");
    }
    json_object_set_new(pin, PICK(r, ops), v);
}

static void mutate_plan(struct rng *r, json_t *doc) {
    json_t *stages = json_object_get(doc, "stages");
    int64_t micro_batch = 1 + rng_below(r, 24);
    switch (rng_below(r, 10)) {
    case 0:
        json_object_set_new(doc, "micro_batch", json_integer(micro_batch));
        json_object_set_new(doc, "batch",
                            json_integer(micro_batch * (1 + rng_below(r, 4))));
        break;
    case 1: json_object_set_new(doc, "overlap", json_boolean(rng_below(r, 2))); break;
    case 2: {
        enum schedule schedule = (enum schedule)rng_below(r, SCHEDULE_COUNT);
        json_object_set_new(doc, "schedule", json_string(schedule_name(schedule)));
        break;
    }
    case 3: mutate_groups(r, stages); break;
    case 4: mutate_pins(r, doc); break;
    default:
        mutate_stage(r, json_array_get(stages, (size_t)rng_below(
                                                   r, (int64_t)json_array_size(stages))));
    }
}

static bool is_plan(const json_t *doc) {
    const json_t *stages = json_object_get(doc, "stages");
    for (size_t i = 0; i < json_array_size(stages); i++)
        if (!json_is_object(json_array_get(stages, i)))
            return false;
    return json_array_size(stages) > 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t max, unsigned seed) {
    struct rng r = {seed, 0};
    json_t *doc = json_parse((const char *)bytes, size, "plan", NULL);
    size_t n = 0;
    if (is_plan(doc) && rng_below(&r, 4)) {
        for (int64_t k = 1 + rng_below(&r, 4); k > 0; k--)
            mutate_plan(&r, doc);
        n = json_dumpb(doc, (char *)bytes, max, JSON_COMPACT);
    }
    json_decref(doc);
    return n && n <= max ? n : LLVMFuzzerMutate(bytes, size, max);
}
