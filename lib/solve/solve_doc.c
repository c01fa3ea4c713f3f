/* solve_doc.c - the members of a document, one after the other. */
#include "solve/solve_doc.h"

#include "common/json.h"

#include <math.h>
#include <string.h>

static const struct solve_part *find_part(const struct solve_part *parts, const char *key) {
    for (; parts && parts->key; parts++)
        if (!strcmp(parts->key, key))
            return parts;
    return NULL;
}

/* Checks that a document that names its problem was given to the right solver. */
static int check_problem(const json_t *value, const char *problem, struct err *err) {
    const char *named = json_string_value(value);
    if (!named)
        return err_input(err, "problem: expected a string, got %s", json_type_name(value));
    if (strcmp(named, problem) != 0)
        return err_input(err, "problem: this is a %.40s problem, not a %s problem", named,
                         problem);
    return 0;
}

static int next_object(struct json_stream *s, json_t **obj, struct err *err) {
    int more = json_stream_item(s, err);
    if (more <= 0)
        return more;
    *obj = json_stream_tree(s, err); /* its errors name their place */
    return *obj ? 1 : -1;
}

int solve_doc_objects(struct json_stream *s, const char *key, solve_object_fn *take,
                      void *to, struct err *err) {
    json_t *obj;
    int type = json_stream_type(s, err);
    if (type >= 0 && type != JSON_ARRAY)
        return err_input(err, "%s: expected an array, got %s", key,
                         json_stream_type_name(type));
    int more = type < 0 ? -1 : json_stream_enter(s, '[', err);
    for (int64_t at = 0; more >= 0 && (more = next_object(s, &obj, err)) > 0; at++) {
        if (!json_is_object(obj))
            more = err_input(err, "%s[%lld]: expected an object, got %s", key,
                             (long long)at, json_type_name(obj));
        else if (take(to, obj, err) < 0)
            more = err_at(err, "%s[%lld]", key, (long long)at);
        json_decref(obj);
    }
    return more;
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
    return !problem || strcmp(key, "problem") ? 0 : check_problem(value, problem, err);
}

json_t *solve_doc_members(struct json_stream *s, const char *problem,
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
    if (more == 0)
        return doc;
    json_decref(doc);
    return NULL;
}

json_t *solve_doc_read(struct json_stream *s, const char *problem,
                       const struct solve_part *parts, void *to, struct err *err) {
    json_t *doc = solve_doc_members(s, problem, parts, to, err);
    if (doc && json_stream_end(s, err) == 0)
        return doc;
    json_decref(doc);
    return NULL;
}

json_t *solve_answer(double value, double bound, const char *proof) {
    double gap = value > bound ? (value - bound) / fabs(bound) : 0;
    json_t *answer = json_object();
    json_object_set_new(answer, "value", json_real(value));
    json_object_set_new(answer, "bound", json_real(bound));
    /* Above a bound of zero the relative gap is infinite, which JSON cannot say. */
    json_object_set_new(answer, "gap", isfinite(gap) ? json_real(gap) : json_null());
    json_object_set_new(answer, "optimal", json_boolean(bound >= value));
    json_object_set_new(answer, "proof", json_string(proof));
    return answer;
}
