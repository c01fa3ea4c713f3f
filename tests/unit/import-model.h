/* import-model.h - what the tests of programs of others share: is a file the model that it was made of?
 *
 *     same_as("tests/import/gpt2.pt2", "gpt", "layers=2,hidden=48,heads=4,seq=24,vocab=120,tied=1");
 */
#ifndef WEFT_TEST_IMPORT_MODEL_H
#define WEFT_TEST_IMPORT_MODEL_H

#include "import/import.h"
#include "model.h"
#include "model/weights.h"

static struct model *import_model(const char *path, struct err *err) {
    json_t *notes = NULL, *doc = import_exported(path, &notes, err);
    struct model *m = doc ? model_from_json(doc, NULL, NULL, err) : NULL;
    json_decref(notes);
    json_decref(doc);
    return m;
}

static int64_t count(const struct model *m) {
    int64_t n = 0;
    for (int p = 0; p < m->n_params; p++) {
        struct extents x = model_extents(m, &m->params[p].shape, 1);
        n += extents_count(&x);
    }
    return n;
}

/* How many ops of each kind. */
static void count_kinds(const struct model *m, int n[KIND_COUNT]) {
    memset(n, 0, sizeof *n * KIND_COUNT);
    for (int i = 0; i < m->n_ops; i++)
        n[m->ops[i].kind]++;
}

/* Reads the file and the model that it was made of; false where one of them is none. The caller's, if true. */
static bool both(const char *path, const char *family, const char *set, struct model **m,
                 struct model **want) {
    struct err err = {0};
    *m = import_model(path, &err);
    *want = *m ? model_load(family, set, &err) : NULL;
    return ok(*m && *want, "%s is a model: %s", path, err.msg);
}

static void same_as(const char *path, const char *family, const char *set) {
    struct err err = {0};
    struct model *m, *want;
    if (!both(path, family, set, &m, &want))
        return;
    int got[KIND_COUNT], kinds[KIND_COUNT];
    count_kinds(m, got);
    count_kinds(want, kinds);
    ok(!memcmp(got, kinds, sizeof got), "its ops are of the kinds of %s", family);
    ok(count(m) == count(want), "%lld parameters", (long long)count(m));
    ok(model_forward_flops(m, 3) == model_forward_flops(want, 3), "%.0f flops",
       model_forward_flops(m, 3));
    ok(m->n_blocks == want->n_blocks && m->n_repeats == 1, "%d blocks of one kind",
       m->n_blocks);
    struct weights *w = weights_of(m, &err);
    ok(w && w->n_parts >= m->n_params, "each parameter has its place in files: %s",
       err.msg);
    weights_destroy(w);
    model_destroy(m);
    model_destroy(want);
}

#endif
