/* What a tokenizer.json's post-processor puts around a text: templates, and the classes that BERT and RoBERTa have. */
#include "text/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

struct around {
    struct token_ids *before, *behind;
};

/* An id that the tokenizer has, or -1. */
static int32_t id_of(const struct tokenizer *t, const json_t *v, struct err *err) {
    const json_int_t i = json_is_integer(v) ? json_integer_value(v) : -1;
    return i >= 0 && i < tokenizer_vocab(t) ? (int32_t)i
                                            : err_input(err, "expected an id of 0 to %lld",
                                                        (long long)tokenizer_vocab(t) - 1);
}

/* Processors of a sequence put theirs around what those before them have put. */
static void put_first(struct token_ids *ids, const struct token_ids *more) {
    for (int64_t i = 0; i < more->n; i++)
        arr_push(ids, 0);
    if (more->n) {
        memmove(ids->p + more->n, ids->p, (size_t)(ids->n - more->n) * sizeof *ids->p);
        memcpy(ids->p, more->p, (size_t)more->n * sizeof *ids->p);
    }
}

/* The ids of a template's token. */
static int read_token(const struct tokenizer *t, const json_t *doc, const char *name,
                      struct token_ids *out, struct err *err) {
    const json_t *token = json_object_get(json_object_get(doc, "special_tokens"), name);
    json_t *ids;
    if (!token)
        return err_input(err, "special_tokens: expected \"%.40s\"", name);
    if (json_array_member(token, "ids", &ids, err) < 0)
        return err_at(err, "special_tokens.%.40s", name);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const int32_t id = id_of(t, json_array_get(ids, i), err);
        if (id < 0)
            return err_prefix(err, "special_tokens.%.40s.ids[%d]", name, (int)i);
        arr_push(out, id);
    }
    return 0;
}

/* "single": tokens, and among them the text, once. */
static int read_single(const struct tokenizer *t, const json_t *doc, const json_t *list,
                       struct token_ids parts[2], struct err *err) {
    bool behind = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i),
                     *token = json_object_get(one, "SpecialToken"),
                     *text = json_object_get(one, "Sequence");
        const char *name;
        if (!token == !text || (text && behind))
            return err_input(err, "single[%d]: expected %s", (int)i,
                             behind ? "a SpecialToken" : "a SpecialToken or a Sequence");
        behind |= text != NULL;
        if (token && (json_str(token, "id", &name, err) < 0 ||
                      read_token(t, doc, name, &parts[behind], err) < 0))
            return -1;
    }
    return behind ? 0 : err_input(err, "single: expected a Sequence");
}

static int read_template(const struct tokenizer *t, const json_t *doc, struct around a,
                         struct err *err) {
    struct token_ids parts[2] = {{0}};
    json_t *list;
    int rc = json_array_member(doc, "single", &list, err) < 0
                 ? -1
                 : read_single(t, doc, list, parts, err);
    if (rc == 0) {
        put_first(a.before, &parts[0]);
        for (int64_t i = 0; i < parts[1].n; i++)
            arr_push(a.behind, parts[1].p[i]);
    }
    free(parts[0].p);
    free(parts[1].p);
    return rc;
}

/* "cls" before and "sep" behind, each ["token", id]. */
static int read_classes(const struct tokenizer *t, const json_t *doc, struct around a,
                        struct err *err) {
    int32_t cls = id_of(t, json_array_get(json_object_get(doc, "cls"), 1), err);
    if (cls < 0)
        return err_prefix(err, "cls[1]");
    int32_t sep = id_of(t, json_array_get(json_object_get(doc, "sep"), 1), err);
    if (sep < 0)
        return err_prefix(err, "sep[1]");
    put_first(a.before, &(struct token_ids){.p = &cls, .n = 1});
    arr_push(a.behind, sep);
    return 0;
}

static int read_one(const struct tokenizer *t, const json_t *doc, struct around a,
                    struct err *err) {
    const char *type;
    if (json_str(doc, "type", &type, err) < 0)
        return -1;
    if (!strcmp(type, "TemplateProcessing"))
        return read_template(t, doc, a, err);
    if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing"))
        return read_classes(t, doc, a, err);
    return !strcmp(type, "ByteLevel") /* of places in the text alone */
               ? 0
               : err_input(err,
                           "type: \"%.40s\", expected TemplateProcessing, BertProcessing, "
                           "RobertaProcessing, ByteLevel or Sequence",
                           type);
}

static int read_all(const struct tokenizer *t, const json_t *doc, struct around a,
                    struct err *err) {
    const char *type = json_string_value(json_object_get(doc, "type"));
    json_t *list;
    if (!type || strcmp(type, "Sequence") != 0)
        return read_one(t, doc, a, err);
    if (json_array_member(doc, "processors", &list, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (read_one(t, json_array_get(list, i), a, err) < 0)
            return err_at(err, "processors[%d]", (int)i);
    return 0;
}

int tokenizer_around(const struct tokenizer *t, struct token_ids *before,
                     struct token_ids *behind, struct err *err) {
    before->n = behind->n = 0;
    if (!t->post || json_is_null(t->post))
        return 0;
    return read_all(t, t->post, (struct around){before, behind}, err) < 0
               ? err_at(err, "post_processor")
               : 0;
}
