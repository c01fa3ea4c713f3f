/* solve_doc.c - the members of a document, one after the other. */
#include "solve/solve_doc.h"

#include "common/json.h"
#include "common/progress.h"

#include <math.h>
#include <string.h>

static const struct solve_part *find_part(const struct solve_part *parts, const char *key) {
    for (; parts && parts->key; parts++)
        if (!strcmp(parts->key, key))
            return parts;
    return NULL;
}

/* A document that names its problem is not given to another solver. */
static int check_problem(const json_t *value, const char *problem, struct err *err) {
    const char *named = json_string_value(value);
    if (!named)
        return err_input(err, "problem: expected a string, got %s", json_type_name(value));
    if (strcmp(named, problem) != 0)
        return err_input(err, "problem: this is a %.40s problem, not a %s problem", named,
                         problem);
    return 0;
}

static int take_member(struct json_stream *s, const char *key, const char *problem,
                       const struct solve_part *part, void *to, json_t *doc,
                       struct err *err) {
    if (json_object_get(doc, key))
        return err_input(err, "%s: this key stands here a second time", key);
    json_t *value = NULL;
    if (!part)
        value = json_stream_tree(s, err);
    else if (part->take(to, s, err) == 0)
        value = json_null();
    if (!value)
        return -1;
    json_object_set_new(doc, key, value);
    return strcmp(key, "problem") ? 0 : check_problem(value, problem, err);
}

json_t *solve_doc_read(struct json_stream *s, const char *problem,
                       const struct solve_part *parts, void *to, struct err *err) {
    char key[64];
    json_t *doc = json_object();
    int type = json_stream_type(s, err);
    int more = type < 0              ? -1
               : type != JSON_OBJECT ? err_input(err, "expected an object, got %s",
                                                 json_stream_type_name(type))
                                     : json_stream_enter(s, '{', err);
    while (more >= 0 && (more = json_stream_key(s, key, sizeof key, err)) > 0)
        more = take_member(s, key, problem, find_part(parts, key), to, doc, err);
    if (more == 0 && json_stream_end(s, err) == 0)
        return doc;
    json_decref(doc);
    return NULL;
}

struct solve_limits solve_doc_left(const struct solve_limits *limits, double start_s) {
    struct solve_limits left = *limits;
    if (left.time_budget_s > 0)
        left.time_budget_s = fmax(left.time_budget_s - (now_s() - start_s), 1e-9);
    return left;
}
