/* tokenizer.json as a tokenizer: whatever is not known here is refused by its key. */
#include "common/rng.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ID = 1 << 24 }; /* ids are below: no vocabulary is near it */

/* ---- small things -------------------------------------------------------------------------- */

static int expect_null(const json_t *obj, const char *key, struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v))
        return 0;
    return err_input(err, "%s: expected null, got %s", key, json_type_name(v));
}

static int expect_false(const json_t *obj, const char *key, struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_false(v) || json_is_null(v))
        return 0;
    return err_input(err, "%s: expected false", key);
}

/* Null or nothing. */
static int expect_empty(const json_t *obj, const char *key, struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v) || (json_is_string(v) && !json_string_length(v)))
        return 0;
    return err_input(err, "%s: expected null", key);
}

static int expect_type(const json_t *obj, const char *want, struct err *err) {
    const char *type;
    if (json_str(obj, "type", &type, err) < 0)
        return -1;
    if (strcmp(type, want) != 0)
        return err_input(err, "type: \"%.40s\", expected \"%s\"", type, want);
    return 0;
}

/* ---- bytes as characters --------------------------------------------------------------------- */

/* GPT-2's bytes_to_unicode: printable bytes of Latin-1 are the characters of their numbers, the others
 * those from U+0100 on, in their order. -1: a character that is no byte. */
static int byte_of(uint32_t point) {
    if ((point > 0x20 && point < 0x7f) || (point > 0xa0 && point < 0x100 && point != 0xad))
        return (int)point;
    const int k = (int)point - 0x100;
    if (k < 0 || k > 67)
        return -1;
    return k <= 0x20 ? k : k <= 0x42 ? 0x7f + k - 0x21 : 0xad;
}

/* Writes the bytes of a token's characters to out and returns how many; -1 where one is no byte. */
static int64_t bytes_of(const char *token, size_t size, char *out) {
    int64_t n = 0;
    for (const char *s = token; s < token + size;) {
        int length, byte = byte_of(utf8_point(s, &length));
        if (byte < 0)
            return -1;
        out[n++] = (char)byte;
        s += length;
    }
    return n;
}

static bool same_bytes(const void *entries, int64_t i, const void *key) {
    const struct tokenizer *t = entries;
    const struct token *a = &t->tokens.p[t->hashed.p[i]], *b = key;
    return a->n == b->n && !memcmp(a->bytes, b->bytes, (size_t)a->n);
}

/* Gives an id its token. One whose characters are bytes is found by them, others stand for themselves. */
static int put_token(struct tokenizer *t, const char *name, size_t size, int64_t id,
                     bool found_by_bytes, struct err *err) {
    while (t->tokens.n <= id)
        arr_push(&t->tokens, (struct token){0});
    struct token *token = &t->tokens.p[id];
    if (token->bytes)
        return err_input(err, "%lld is the id of another token too", (long long)id);
    char *bytes = arena_alloc(&t->arena, size + 1);
    int64_t n = bytes_of(name, size, bytes);
    if (n < 0)
        memcpy(bytes, name, size);
    *token = (struct token){bytes, n < 0 ? (int64_t)size : n};
    if (n < 0 || !found_by_bytes)
        return 0;
    hashtable_put(&t->by_bytes, hash_bytes(bytes, (size_t)n, 0), same_bytes, t, token);
    arr_push(&t->hashed, (int32_t)id);
    return 0;
}

/* ---- model ------------------------------------------------------------------------------------ */

static int read_vocab(struct tokenizer *t, const json_t *model, struct err *err) {
    json_t *vocab;
    if (json_object_member(model, "vocab", &vocab, err) < 0)
        return -1;
    const char *name;
    json_t *id;
    json_object_foreach(vocab, name, id) {
        const int64_t i = json_is_integer(id) ? json_integer_value(id) : -1;
        if (i < 0 || i >= MAX_ID)
            return err_input(err, "vocab.%.40s: expected an id of 0 to %d", name,
                             MAX_ID - 1);
        if (put_token(t, name, strlen(name), i, true, err) < 0)
            return err_prefix(err, "vocab.%.40s", name);
    }
    for (int b = 0; b < 256; b++) {
        const char byte = (char)b;
        t->byte_id[b] = tokenizer_of_bytes(t, &byte, 1);
        if (t->byte_id[b] < 0)
            return err_input(err, "vocab: no token for the byte 0x%02x, expected all 256",
                             b);
    }
    return 0;
}

/* The two parts of "a b" or of ["a", "b"], as bytes in `room`; -1: it is neither. */
static int pair_of(const json_t *merge, struct token part[2], char *room) {
    const char *text[2];
    size_t size[2];
    if (json_is_string(merge)) {
        text[0] = json_string_value(merge);
        const char *blank = strchr(text[0], ' ');
        if (!blank || strchr(blank + 1, ' '))
            return -1;
        size[0] = (size_t)(blank - text[0]);
        text[1] = blank + 1;
        size[1] = strlen(text[1]);
    } else if (json_array_size(merge) == 2) {
        for (size_t i = 0; i < 2; i++) {
            const json_t *v = json_array_get(merge, i);
            text[i] = json_string_value(v);
            size[i] = json_string_length(v);
            if (!text[i])
                return -1;
        }
    } else {
        return -1;
    }
    const int64_t left = bytes_of(text[0], size[0], room);
    const int64_t right = left < 0 ? -1 : bytes_of(text[1], size[1], room + left);
    part[0] = (struct token){room, left};
    part[1] = (struct token){room + left, right};
    return left < 1 || right < 1 ? -1 : 0;
}

static size_t merge_size(const json_t *merge) {
    size_t n = json_string_length(merge);
    for (size_t i = 0; i < json_array_size(merge); i++)
        n += json_string_length(json_array_get(merge, i));
    return n;
}

static int read_merge(struct tokenizer *t, const json_t *merge, int32_t rank,
                      struct err *err) {
    struct token part[2];
    char *room = mem_alloc(merge_size(merge) + 1);
    int rc = 0;
    if (pair_of(merge, part, room) < 0) {
        rc = err_input(err,
                       "expected \"a b\" or [\"a\", \"b\"], of the characters of bytes");
    } else {
        const struct merge m = {tokenizer_of_bytes(t, part[0].bytes, part[0].n),
                                tokenizer_of_bytes(t, part[1].bytes, part[1].n), rank,
                                tokenizer_of_bytes(t, room, part[0].n + part[1].n)};
        if (m.left < 0 || m.right < 0 || m.id < 0)
            rc = err_input(err, "%s is no token of the vocabulary",
                           m.left < 0    ? "its first part"
                           : m.right < 0 ? "its second part"
                                         : "what comes of it");
        else
            merges_put(&t->merges, m);
    }
    free(room);
    return rc;
}

static int read_merges(struct tokenizer *t, const json_t *model, struct err *err) {
    json_t *list;
    if (json_array_member(model, "merges", &list, err) < 0)
        return -1;
    merges_init(&t->merges, (int64_t)json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++)
        if (read_merge(t, json_array_get(list, i), (int32_t)i, err) < 0)
            return err_prefix(err, "merges[%d]", (int)i);
    return 0;
}

static int read_model(struct tokenizer *t, const json_t *model, struct err *err) {
    /* Files of old versions of the library do not say the type. */
    if (json_object_get(model, "type") && expect_type(model, "BPE", err) < 0)
        return -1;
    if (json_keys(model,
                  "type dropout unk_token continuing_subword_prefix end_of_word_suffix "
                  "fuse_unk byte_fallback ignore_merges vocab merges",
                  err) < 0 ||
        expect_null(model, "dropout", err) < 0 ||
        expect_empty(model, "continuing_subword_prefix", err) < 0 ||
        expect_empty(model, "end_of_word_suffix", err) < 0 ||
        expect_false(model, "byte_fallback", err) < 0 ||
        json_opt_bool(model, "ignore_merges", &t->ignore_merges, err) < 0)
        return -1;
    return read_vocab(t, model, err) < 0 ? -1 : read_merges(t, model, err);
}

/* ---- added tokens ------------------------------------------------------------------------------ */

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
        expect_false(doc, "single_word", err) < 0 ||
        json_opt_bool(doc, "lstrip", &a.lstrip, err) < 0 ||
        json_opt_bool(doc, "rstrip", &a.rstrip, err) < 0 ||
        json_opt_bool(doc, "normalized", &a.normalized, err) < 0 ||
        json_opt_bool(doc, "special", &special, err) < 0)
        return -1;
    if (!*content)
        return err_input(err, "content: expected text");
    const json_t *known = json_object_get(vocab, content);
    if (known && json_integer_value(known) != id)
        return err_input(err, "id: %lld, the vocabulary has %lld", (long long)id,
                         (long long)json_integer_value(known));
    if (!known && put_token(t, content, strlen(content), id, false, err) < 0)
        return err_prefix(err, "id");
    if (a.normalized && t->nfc && nfc_may_change(content, (int64_t)strlen(content)))
        return err_input(err, "normalized: expected false for a token beyond U+02FF");
    a.content = arena_strdup(&t->arena, content);
    a.n = (int64_t)strlen(content);
    a.id = (int32_t)id;
    t->begins[a.normalized][(unsigned char)*content] = true;
    arr_push(&t->added, a);
    return 0;
}

static int by_length(const void *a, const void *b) {
    const struct added *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? 1 : -1;
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

/* ---- pre-tokenizer ------------------------------------------------------------------------------- */

static int read_byte_level(const json_t *doc, bool *prefix_space, bool *regex,
                           struct err *err) {
    bool trim = false;
    *prefix_space = *regex = true; /* where they are not said */
    if (expect_type(doc, "ByteLevel", err) < 0 ||
        json_keys(doc, "type add_prefix_space trim_offsets use_regex", err) < 0 ||
        json_opt_bool(doc, "add_prefix_space", prefix_space, err) < 0 ||
        json_opt_bool(doc, "trim_offsets", &trim, err) < 0)
        return -1;
    return json_opt_bool(doc, "use_regex", regex, err);
}

static int read_split(struct tokenizer *t, const json_t *doc, struct err *err) {
    json_t *pattern;
    const char *regex, *behavior;
    if (expect_type(doc, "Split", err) < 0 ||
        json_keys(doc, "type pattern behavior invert", err) < 0 ||
        json_str(doc, "behavior", &behavior, err) < 0 ||
        expect_false(doc, "invert", err) < 0 ||
        json_object_member(doc, "pattern", &pattern, err) < 0)
        return -1;
    if (strcmp(behavior, "Isolated") != 0)
        return err_input(err, "behavior: \"%.40s\", expected \"Isolated\"", behavior);
    if (json_str(pattern, "Regex", &regex, err) < 0)
        return err_at(err, "pattern");
    t->pattern = split_find(regex);
    if (t->pattern == SPLIT_NONE)
        return err_input(err,
                         "pattern.Regex: \"%.200s\", expected that of GPT-2, Qwen2 or "
                         "Llama 3",
                         regex);
    return 0;
}

/* Split and then ByteLevel, which only turns bytes into characters. */
static int read_sequence(struct tokenizer *t, const json_t *doc, struct err *err) {
    json_t *list;
    bool prefix_space, regex;
    if (expect_type(doc, "Sequence", err) < 0 ||
        json_keys(doc, "type pretokenizers", err) < 0 ||
        json_array_member(doc, "pretokenizers", &list, err) < 0)
        return -1;
    if (json_array_size(list) != 2)
        return err_input(err, "pretokenizers: expected Split and ByteLevel");
    if (read_split(t, json_array_get(list, 0), err) < 0)
        return err_at(err, "pretokenizers[0]");
    if (read_byte_level(json_array_get(list, 1), &prefix_space, &regex, err) < 0)
        return err_at(err, "pretokenizers[1]");
    if (prefix_space || regex)
        return err_input(err, "pretokenizers[1].%s: expected false",
                         regex ? "use_regex" : "add_prefix_space");
    return 0;
}

static int read_pre(struct tokenizer *t, const json_t *doc, struct err *err) {
    const char *type;
    bool regex;
    if (json_str(doc, "type", &type, err) < 0)
        return -1;
    if (!strcmp(type, "Sequence"))
        return read_sequence(t, doc, err);
    if (strcmp(type, "ByteLevel") != 0)
        return err_input(err, "type: \"%.40s\", expected ByteLevel or Sequence", type);
    if (read_byte_level(doc, &t->prefix_space, &regex, err) < 0)
        return -1;
    if (!regex)
        return err_input(err, "use_regex: expected true where nothing else splits");
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------------ */

static int read_decoder(const json_t *doc, struct err *err) {
    const json_t *decoder = json_object_get(doc, "decoder");
    if (!decoder || json_is_null(decoder))
        return 0;
    return expect_type(decoder, "ByteLevel", err) < 0 ? err_at(err, "decoder") : 0;
}

static int read_normalizer(struct tokenizer *t, const json_t *doc, struct err *err) {
    const json_t *normalizer = json_object_get(doc, "normalizer");
    if (!normalizer || json_is_null(normalizer))
        return 0;
    if (json_keys(normalizer, "type", err) < 0 || expect_type(normalizer, "NFC", err) < 0)
        return err_at(err, "normalizer");
    t->nfc = nfc_create();
    return 0;
}

static int read_document(struct tokenizer *t, const json_t *doc, struct err *err) {
    json_t *model, *pre;
    if (json_keys(doc,
                  "version truncation padding added_tokens normalizer pre_tokenizer "
                  "post_processor decoder model",
                  err) < 0 ||
        expect_null(doc, "truncation", err) < 0 || expect_null(doc, "padding", err) < 0 ||
        read_normalizer(t, doc, err) < 0 || read_decoder(doc, err) < 0 ||
        json_object_member(doc, "pre_tokenizer", &pre, err) < 0 ||
        json_object_member(doc, "model", &model, err) < 0)
        return -1;
    if (read_pre(t, pre, err) < 0)
        return err_at(err, "pre_tokenizer");
    if (read_model(t, model, err) < 0)
        return err_at(err, "model");
    return read_added(t, doc, err);
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
