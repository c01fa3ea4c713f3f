/* Fuzzes the reader of plan files (libFuzzer). A plan that is accepted is legal: it survives
 * writing and reading, the compiler takes it, and the replay of all its ranks finds no fault. */
#include "plan/plan.h"
#include "program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { MAX_DEVICES = 64, MAX_OPS = 200, MAX_MICRO_BATCHES = 64 };

/* Files of this machine, and blocks repeated a million times, are not what is looked for. */
static bool wanted(const json_t *doc) {
    const char *ref = json_string_value(json_object_get(doc, "model"));
    const char *set = json_string_value(json_object_get(doc, "set"));
    if (ref && (strchr(ref, '/') || strstr(ref, ".json")))
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
    if (!q || q->devices != p->devices || q->n_stages != p->n_stages)
        complain("the plan written is refused or differs", &err);
    plan_destroy(q);
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
