/* tokenizer.json as a tokenizer: whatever is not known here is refused by its key. */
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

/* ---- added tokens ------------------------------------------------------------------------------ */

/* The id that the model has for a token, or -1. */
static int64_t id_in_model(const struct tokenizer *t, const json_t *vocab,
                           const char *content) {
    const json_t *id = json_object_get(vocab, content);
    return id ? json_integer_value(id)
           : t->kind == MODEL_UNIGRAM
               ? tokenizer_of_key(t, content, (int64_t)strlen(content))
               : -1;
}

/* What a text is searched for. Returns -1 where that is nothing. */
static int seek(struct tokenizer *t, struct added *a) {
    struct span s = {a->content, (int64_t)strlen(a->content)};
    if (a->normalized)
        s = normalizer_run(&t->normalizer, t->kinds, s);
    if (s.n == 0)
        return -1;
    char *sought = arena_alloc(&t->arena, (size_t)s.n);
    memcpy(sought, s.bytes, (size_t)s.n);
    a->sought = (struct span){sought, s.n};
    t->begins[a->normalized][(unsigned char)*sought] = true;
    return 0;
}

static int read_added_one(struct tokenizer *t, const json_t *doc, const json_t *vocab,
                          struct err *err) {
    int64_t id;
    const char *content;
    bool special = false;
    struct added a = {0};
    if (json_keys(doc, "id content single_word lstrip rstrip normalized special", err) <
            0 ||
        json_int(doc, "id", 0, MAX_ID - 1, &id, err) < 0 ||
        json_str(doc, "content", &content, err) < 0 ||
        tokenizer_expect_false(doc, "single_word", err) < 0 ||
        json_opt_bool(doc, "lstrip", &a.lstrip, err) < 0 ||
        json_opt_bool(doc, "rstrip", &a.rstrip, err) < 0 ||
        json_opt_bool(doc, "normalized", &a.normalized, err) < 0 ||
        json_opt_bool(doc, "special", &special, err) < 0)
        return -1;
    if (!*content)
        return err_input(err, "content: expected text");
    const int64_t known = id_in_model(t, vocab, content);
    if (known >= 0 && known != id)
        return err_input(err, "id: %lld, the vocabulary has %lld", (long long)id,
                         (long long)known);
    if (known < 0 && tokenizer_put_name(t, content, id, false, err) < 0)
        return err_prefix(err, "id");
    a.content = arena_strdup(&t->arena, content);
    a.id = (int32_t)id;
    if (seek(t, &a) < 0)
        return err_input(err, "normalized: nothing is left of \"%.40s\"", content);
    if (a.normalized && t->kind != MODEL_BYTES)
        t->tokens.p[id].text = a.sought; /* which the library decodes it to */
    arr_push(&t->added, a);
    return 0;
}

static int by_length(const void *a, const void *b) {
    const struct added *x = a, *y = b;
    if (x->sought.n != y->sought.n)
        return x->sought.n < y->sought.n ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int read_added(struct tokenizer *t, const json_t *doc, struct err *err) {
    const json_t *list = json_object_get(doc, "added_tokens");
    const json_t *vocab = json_object_get(json_object_get(doc, "model"), "vocab");
    if (list && !json_is_null(list) && !json_is_array(list))
        return err_input(err, "added_tokens: expected an array, got %s",
                         json_type_name(list));
    for (size_t i = 0; i < json_array_size(list); i++)
        if (read_added_one(t, json_array_get(list, i), vocab, err) < 0)
            return err_at(err, "added_tokens[%d]", (int)i);
    if (t->added.n)
        qsort(t->added.p, (size_t)t->added.n, sizeof *t->added.p, by_length);
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------------ */

static int read_document(struct tokenizer *t, const json_t *doc, struct err *err) {
    json_t *model;
    if (json_keys(doc,
                  "version truncation padding added_tokens normalizer pre_tokenizer "
                  "post_processor decoder model",
                  err) < 0 ||
        tokenizer_expect_null(doc, "truncation", err) < 0 ||
        tokenizer_expect_null(doc, "padding", err) < 0 ||
        json_object_member(doc, "model", &model, err) < 0)
        return -1;
    if (normalizer_read(&t->normalizer, &t->arena, json_object_get(doc, "normalizer"),
                        err) < 0)
        return err_at(err, "normalizer");
    if (tokenizer_read_pre(t, json_object_get(doc, "pre_tokenizer"), err) < 0)
        return err_at(err, "pre_tokenizer");
    if (tokenizer_read_model(t, model, err) < 0)
        return err_at(err, "model");
    if (read_added(t, doc, err) < 0)
        return -1;
    t->post = json_incref(json_object_get(doc, "post_processor"));
    return tokenizer_read_decoder(t, json_object_get(doc, "decoder"), err) < 0
               ? err_at(err, "decoder")
               : 0;
}

struct tokenizer *tokenizer_from_json(const json_t *doc, struct err *err) {
    struct tokenizer *t = mem_alloc(sizeof *t);
    t->kinds = unicode_kinds();
    if (read_document(t, doc, err) == 0)
        return t;
    tokenizer_destroy(t);
    return NULL;
}

struct tokenizer *tokenizer_read(const char *path, struct err *err) {
    json_t *doc = json_read(path, err);
    struct tokenizer *t = doc ? tokenizer_from_json(doc, err) : NULL;
    json_decref(doc);
    if (doc && !t)
        err_prefix(err, "%s", path);
    return t;
}
