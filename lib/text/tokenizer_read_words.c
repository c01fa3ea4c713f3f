/* How a tokenizer.json cuts a text into words, and what it makes of tokens: pre_tokenizer and decoder. */
#include "text/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- pre-tokenizers of byte-level BPE ---------------------------------------------------------- */

static int read_byte_level(const json_t *doc, bool *prefix_space, bool *regex,
                           struct err *err) {
    bool trim = false;
    *prefix_space = *regex = true; /* where they are not said */
    if (tokenizer_expect_type(doc, "ByteLevel", err) < 0 ||
        json_keys(doc, "type add_prefix_space trim_offsets use_regex", err) < 0 ||
        json_opt_bool(doc, "add_prefix_space", prefix_space, err) < 0 ||
        json_opt_bool(doc, "trim_offsets", &trim, err) < 0)
        return -1;
    return json_opt_bool(doc, "use_regex", regex, err);
}

static int read_split(struct tokenizer *t, const json_t *doc, struct err *err) {
    json_t *pattern;
    const char *regex, *behavior;
    if (tokenizer_expect_type(doc, "Split", err) < 0 ||
        json_keys(doc, "type pattern behavior invert", err) < 0 ||
        json_str(doc, "behavior", &behavior, err) < 0 ||
        tokenizer_expect_false(doc, "invert", err) < 0 ||
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
static int read_split_bytes(struct tokenizer *t, const json_t *list, struct err *err) {
    bool prefix_space, regex;
    if (read_split(t, json_array_get(list, 0), err) < 0)
        return err_at(err, "pretokenizers[0]");
    if (read_byte_level(json_array_get(list, 1), &prefix_space, &regex, err) < 0)
        return err_at(err, "pretokenizers[1]");
    if (prefix_space || regex)
        return err_input(err, "pretokenizers[1].%s: expected false",
                         regex ? "use_regex" : "add_prefix_space");
    return 0;
}

/* ---- pre-tokenizers of SentencePiece's models -------------------------------------------------- */

/* What a pre-tokenizer and a decoder say alike: the mark, and where one is put before. */
static int read_metaspace(const json_t *doc, enum prepend_scheme *prepend, bool *split,
                          struct err *err) {
    static const char *const schemes[] = {"never", "first", "always"};
    const char *mark, *scheme = schemes[PREPEND_ALWAYS], *copy = NULL;
    bool put = true;
    if (json_keys(doc, "type replacement add_prefix_space prepend_scheme split str_rep",
                  err) < 0 ||
        json_str(doc, "replacement", &mark, err) < 0 ||
        json_opt_bool(doc, "add_prefix_space", &put, err) < 0 ||
        json_opt_str(doc, "prepend_scheme", &scheme, err) < 0 ||
        json_opt_bool(doc, "split", split, err) < 0 ||
        json_opt_str(doc, "str_rep", &copy, err) < 0)
        return -1;
    if (strcmp(mark, MARK) != 0)
        return err_input(err, "replacement: \"%.40s\", expected \"" MARK "\"", mark);
    for (int i = PREPEND_NEVER; i <= PREPEND_ALWAYS; i++)
        if (!strcmp(scheme, schemes[i])) {
            *prepend = put ? (enum prepend_scheme)i : PREPEND_NEVER;
            return 0;
        }
    return err_input(err, "prepend_scheme: \"%.40s\", expected always, first or never",
                     scheme);
}

static int read_marks(struct tokenizer *t, const json_t *doc, struct err *err) {
    t->kind = MODEL_CHARS;
    t->metaspace = t->mark_splits = true;
    if (tokenizer_expect_type(doc, "Metaspace", err) < 0)
        return -1;
    return read_metaspace(doc, &t->prepend, &t->mark_splits, err);
}

/* Gemma's Split at blanks, of which its normalizer leaves none. */
static int read_split_blanks(struct tokenizer *t, const json_t *doc, struct err *err) {
    json_t *pattern;
    const char *blank;
    t->kind = MODEL_CHARS;
    if (json_keys(doc, "type pattern behavior invert", err) < 0 ||
        json_object_member(doc, "pattern", &pattern, err) < 0)
        return -1;
    if (json_str(pattern, "String", &blank, err) < 0)
        return err_at(err, "pattern");
    if (strcmp(blank, " ") != 0 || !normalizer_takes_blanks(&t->normalizer))
        return err_input(err, "pattern.String: expected a blank, and a normalizer that "
                              "replaces blanks");
    return 0;
}

static int read_sequence(struct tokenizer *t, const json_t *doc, struct err *err) {
    json_t *list;
    if (json_keys(doc, "type pretokenizers", err) < 0 ||
        json_array_member(doc, "pretokenizers", &list, err) < 0)
        return -1;
    const char *type = json_string_value(json_object_get(json_array_get(list, 0), "type"));
    if (json_array_size(list) != 2)
        return err_input(err, "pretokenizers: expected Split and ByteLevel, or "
                              "WhitespaceSplit and Metaspace");
    if (!type || strcmp(type, "WhitespaceSplit") != 0)
        return read_split_bytes(t, list, err);
    t->space_splits = true;
    if (json_keys(json_array_get(list, 0), "type", err) < 0)
        return err_at(err, "pretokenizers[0]");
    return read_marks(t, json_array_get(list, 1), err) < 0 ? err_at(err, "pretokenizers[1]")
                                                           : 0;
}

int tokenizer_read_pre(struct tokenizer *t, const json_t *doc, struct err *err) {
    const char *type;
    bool regex;
    if (!doc || json_is_null(doc)) {
        t->kind = MODEL_CHARS;
        return 0;
    }
    if (json_str(doc, "type", &type, err) < 0)
        return -1;
    if (!strcmp(type, "Sequence"))
        return read_sequence(t, doc, err);
    if (!strcmp(type, "Metaspace"))
        return read_marks(t, doc, err);
    if (!strcmp(type, "Split"))
        return read_split_blanks(t, doc, err);
    if (strcmp(type, "ByteLevel") != 0)
        return err_input(err,
                         "type: \"%.40s\", expected ByteLevel, Metaspace, Split or "
                         "Sequence",
                         type);
    if (read_byte_level(doc, &t->prefix_space, &regex, err) < 0)
        return -1;
    if (!regex)
        return err_input(err, "use_regex: expected true where nothing else splits");
    return 0;
}

/* ---- decoder ------------------------------------------------------------------------------------- */

struct decoding {
    bool blanks, bytes; /* marks are blanks; "<0x41>" is a byte */
    bool fused;         /* what comes behind sees the whole text */
    bool drops;         /* the first token loses its marks */
    int64_t strip;      /* blanks that the text may lose at its beginning */
};

static int read_replace(struct decoding *d, const json_t *doc, struct err *err) {
    const char *content, *string;
    json_t *pattern;
    if (json_keys(doc, "type pattern content", err) < 0 ||
        json_str(doc, "content", &content, err) < 0 ||
        json_object_member(doc, "pattern", &pattern, err) < 0)
        return -1;
    if (json_str(pattern, "String", &string, err) < 0)
        return err_at(err, "pattern");
    if (strcmp(string, MARK) != 0 || strcmp(content, " ") != 0)
        return err_input(err,
                         "pattern.String: expected \"" MARK "\", and a blank as content");
    d->blanks = true;
    return 0;
}

static int read_strip(struct decoding *d, const json_t *doc, struct err *err) {
    const char *content;
    int64_t stop;
    if (json_keys(doc, "type content start stop", err) < 0 ||
        json_str(doc, "content", &content, err) < 0 ||
        json_int(doc, "start", 0, INT32_MAX, &d->strip, err) < 0 ||
        json_int(doc, "stop", 0, 0, &stop, err) < 0)
        return -1;
    if (strcmp(content, " ") != 0 || !d->fused)
        return err_input(err, "content: expected a blank, behind Fuse");
    return 0;
}

static int read_decoding(struct decoding *d, const json_t *doc, struct err *err) {
    const char *type;
    enum prepend_scheme prepend;
    bool split;
    if (json_str(doc, "type", &type, err) < 0)
        return -1;
    if (d->fused && strcmp(type, "Strip") != 0)
        return err_input(err, "type: \"%.40s\", expected Strip behind Fuse", type);
    if (!strcmp(type, "Replace"))
        return read_replace(d, doc, err);
    if (!strcmp(type, "Strip"))
        return read_strip(d, doc, err);
    if (!strcmp(type, "Metaspace")) {
        int rc = read_metaspace(doc, &prepend, &split, err);
        d->blanks = true;
        d->drops = rc == 0 && prepend != PREPEND_NEVER;
        return rc;
    }
    const bool bytes = !strcmp(type, "ByteFallback"), fuses = !strcmp(type, "Fuse");
    d->bytes |= bytes;
    d->fused |= fuses;
    if (!bytes && !fuses)
        return err_input(err,
                         "type: \"%.40s\", expected Metaspace, or a Sequence of Replace, "
                         "ByteFallback, Fuse and Strip",
                         type);
    return json_keys(doc, "type", err);
}

static struct span without_marks(struct arena *arena, struct span s, const char *instead) {
    char *out = arena_alloc(arena, (size_t)s.n + 1), *at = out;
    const char *end = s.bytes + s.n;
    for (const char *p = s.bytes; p < end;) {
        const bool mark = end - p >= MARK_BYTES && !memcmp(p, MARK, MARK_BYTES);
        if (!mark)
            *at++ = *p;
        else if (*instead)
            *at++ = *instead;
        p += mark ? MARK_BYTES : 1;
    }
    return (struct span){out, at - out};
}

static void decode(struct arena *arena, const struct decoding *d, struct token *token) {
    const struct span key = token->text; /* as it is so far */
    if (d->bytes && key.n == 6 && !memcmp(key.bytes, "<0x", 3) && key.bytes[5] == '>' &&
        strspn(key.bytes + 3, "0123456789ABCDEFabcdef") == 2) {
        const char byte = (char)strtol(key.bytes + 3, NULL, 16);
        char *text = arena_alloc(arena, 1);
        *text = byte;
        token->text = (struct span){text, 1};
    } else if (d->blanks) {
        token->text = without_marks(arena, key, " ");
    }
    token->first = token->text;
    if (d->drops)
        token->first = without_marks(arena, key, "");
    for (int64_t i = 0; i < d->strip && token->first.n && *token->first.bytes == ' '; i++)
        token->first = (struct span){token->first.bytes + 1, token->first.n - 1};
}

int tokenizer_read_decoder(struct tokenizer *t, const json_t *doc, struct err *err) {
    struct decoding d = {0};
    if (t->kind == MODEL_BYTES)
        return !doc || json_is_null(doc) ? 0 : tokenizer_expect_type(doc, "ByteLevel", err);
    const char *type = json_string_value(json_object_get(doc, "type"));
    if (type && !strcmp(type, "Sequence")) {
        json_t *list;
        if (json_keys(doc, "type decoders", err) < 0 ||
            json_array_member(doc, "decoders", &list, err) < 0)
            return -1;
        for (size_t i = 0; i < json_array_size(list); i++)
            if (read_decoding(&d, json_array_get(list, i), err) < 0)
                return err_at(err, "decoders[%d]", (int)i);
    } else if (read_decoding(&d, doc, err) < 0) {
        return -1;
    }
    for (int64_t i = 0; i < t->tokens.n; i++)
        if (t->tokens.p[i].key.bytes)
            decode(&t->arena, &d, &t->tokens.p[i]);
    return 0;
}
