/* model.h - what the tests of the model reader and of the compiler share: models as short text.
 *
 * Documents are written with ' for ", so that they can stand in C.
 *
 *     struct model *m = model_of("{'format': 'weft-model/1', ...}", NULL, &err);
 *     ok(op_find(m, "fc1") >= 0, "there is fc1");
 */
#ifndef WEFT_TEST_MODEL_H
#define WEFT_TEST_MODEL_H

#include "model/model.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define UNUSED __attribute__((unused))

/* A document from text with single quotes; NULL with err set. */
UNUSED static json_t *json_of(const char *text, struct err *err) {
    size_t n = strlen(text);
    char *s = malloc(n + 1);
    memcpy(s, text, n + 1);
    for (char *q = s; (q = strchr(q, '\''));)
        *q = '"';
    json_t *doc = json_parse(s, n, "text", err);
    free(s);
    return doc;
}

UNUSED static struct model *model_of(const char *text, const char *set, struct err *err) {
    json_t *doc = json_of(text, err);
    struct model *m = doc ? model_from_json(doc, NULL, set, err) : NULL;
    json_decref(doc);
    return m;
}

/* The op of this name, or -1. */
UNUSED static int op_find(const struct model *m, const char *name) {
    for (int i = 0; i < m->n_ops; i++)
        if (!strcmp(m->ops[i].name, name))
            return i;
    return -1;
}

#endif
