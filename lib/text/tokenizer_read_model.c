/* The model of a tokenizer.json: its tokens, and how they come together. */
#include "text/byte_chars.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

/* Null or nothing. */
static int expect_empty(const json_t *obj, const char *key, struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v) || (json_is_string(v) && !json_string_length(v)))
        return 0;
    return err_input(err, "%s: expected null", key);
}

/* ---- bytes as characters --------------------------------------------------------------------- */

/* Writes the bytes of a token's characters to out and returns how many; -1 where one is no byte. */
static int64_t bytes_of(const char *token, size_t size, char *out) {
    int64_t n = 0;
    for (const char *s = token; s < token + size;) {
        int length, byte = byte_of_char(utf8_point(s, &length));
        if (byte < 0)
            return -1;
        out[n++] = (char)byte;
        s += length;
    }
    return n;
}

int tokenizer_put_name(struct tokenizer *t, const char *name, int64_t id, bool found,
                       struct err *err) {
    const size_t size = strlen(name);
    if (t->kind != MODEL_BYTES)
        return tokenizer_put(t, name, size, id, found, err);
    char *bytes = mem_alloc(size + 1);
    const int64_t n = bytes_of(name, size, bytes);
    int rc = n < 0 ? tokenizer_put(t, name, size, id, false, err)
                   : tokenizer_put(t, bytes, (size_t)n, id, found, err);
    free(bytes);
    return rc;
}

/* ---- BPE ---------------------------------------------------------------------------------------- */

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
        if (tokenizer_put_name(t, name, i, true, err) < 0)
            return err_prefix(err, "vocab.%.40s", name);
    }
    return 0;
}

/* The tokens of single bytes: all of byte-level BPE, else those there are. */
static int find_bytes(struct tokenizer *t, struct err *err) {
    for (int b = 0; b < 256; b++) {
        const char byte = (char)b;
        char name[] = "<0x00>";
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        t->byte_id[b] = t->kind == MODEL_BYTES ? tokenizer_of_key(t, &byte, 1)
                                               : tokenizer_of_key(t, name, 6);
        if (t->byte_id[b] < 0 && t->kind == MODEL_BYTES)
            return err_input(err, "vocab: no token for the byte 0x%02x, expected all 256",
                             b);
    }
    return 0;
}

/* Writes the key of a token's name to out and returns its bytes; -1 where it can be none. */
static int64_t key_of(const struct tokenizer *t, const char *name, size_t size, char *out) {
    if (t->kind == MODEL_BYTES)
        return bytes_of(name, size, out);
    memcpy(out, name, size);
    return (int64_t)size;
}

/* The two parts of "a b" or of ["a", "b"], as keys in `room`; -1: it is neither. */
static int pair_of(const struct tokenizer *t, const json_t *merge, struct span part[2],
                   char *room) {
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
    const int64_t left = key_of(t, text[0], size[0], room);
    const int64_t right = left < 0 ? -1 : key_of(t, text[1], size[1], room + left);
    part[0] = (struct span){room, left};
    part[1] = (struct span){room + left, right};
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
    struct span part[2];
    char *room = mem_alloc(merge_size(merge) + 1);
    int rc = 0;
    if (pair_of(t, merge, part, room) < 0) {
        rc = err_input(err, "expected \"a b\" or [\"a\", \"b\"]%s",
                       t->kind == MODEL_BYTES ? ", of the characters of bytes" : "");
    } else {
        const struct pair m = {tokenizer_of_key(t, part[0].bytes, part[0].n),
                               tokenizer_of_key(t, part[1].bytes, part[1].n), rank,
                               tokenizer_of_key(t, room, part[0].n + part[1].n)};
        if (m.left < 0 || m.right < 0 || m.id < 0)
            rc = err_input(err, "%s is no token of the vocabulary",
                           m.left < 0    ? "its first part"
                           : m.right < 0 ? "its second part"
                                         : "what comes of it");
        else
            pairs_put(&t->merges, m);
    }
    free(room);
    return rc;
}

static int read_merges(struct tokenizer *t, const json_t *model, struct err *err) {
    json_t *list;
    if (json_array_member(model, "merges", &list, err) < 0)
        return -1;
    pairs_init(&t->merges, (int64_t)json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++)
        if (read_merge(t, json_array_get(list, i), (int32_t)i, err) < 0)
            return err_prefix(err, "merges[%d]", (int)i);
    return 0;
}

static bool ends_with_mark(struct span key) {
    return key.n >= MARK_BYTES && !memcmp(key.bytes + key.n - MARK_BYTES, MARK, MARK_BYTES);
}

static bool begins_with_mark(struct span key) {
    return key.n >= MARK_BYTES && !memcmp(key.bytes, MARK, MARK_BYTES);
}

/* Where no merge joins something else with a mark behind it, what is before the mark and what begins with it
 * are words of their own, which are remembered. */
static bool marks_cut(const struct tokenizer *t) {
    bool cut = !t->ignore_merges && tokenizer_of_key(t, MARK, MARK_BYTES) >= 0;
    for (int64_t i = 0; cut && i < t->merges.cap; i++) {
        const struct pair *m = &t->merges.slot[i];
        cut = m->left < 0 || ends_with_mark(t->tokens.p[m->left].key) ||
              !begins_with_mark(t->tokens.p[m->right].key);
    }
    return cut;
}

/* What BPE of code points does with those that are no tokens. */
static int read_unknown(struct tokenizer *t, const json_t *model, struct err *err) {
    const char *unknown = NULL;
    const json_t *v = json_object_get(model, "unk_token");
    if (json_opt_bool(model, "byte_fallback", &t->byte_fallback, err) < 0 ||
        json_opt_bool(model, "fuse_unk", &t->fuse_unk, err) < 0 ||
        (!json_is_null(v) && json_opt_str(model, "unk_token", &unknown, err) < 0))
        return -1;
    if (!unknown)
        return 0;
    t->unk_id = tokenizer_of_key(t, unknown, (int64_t)strlen(unknown));
    return t->unk_id < 0
               ? err_input(err, "unk_token: \"%.40s\" is no token of the vocabulary",
                           unknown)
               : 0;
}

static int read_bpe(struct tokenizer *t, const json_t *model, struct err *err) {
    if (json_keys(model,
                  "type dropout unk_token continuing_subword_prefix end_of_word_suffix "
                  "fuse_unk byte_fallback ignore_merges vocab merges",
                  err) < 0 ||
        tokenizer_expect_null(model, "dropout", err) < 0 ||
        expect_empty(model, "continuing_subword_prefix", err) < 0 ||
        expect_empty(model, "end_of_word_suffix", err) < 0 ||
        json_opt_bool(model, "ignore_merges", &t->ignore_merges, err) < 0)
        return -1;
    if (t->kind == MODEL_BYTES && tokenizer_expect_false(model, "byte_fallback", err) < 0)
        return -1;
    if (read_vocab(t, model, err) < 0 || find_bytes(t, err) < 0 ||
        (t->kind == MODEL_CHARS && read_unknown(t, model, err) < 0) ||
        read_merges(t, model, err) < 0)
        return -1;
    t->cuts = t->kind == MODEL_CHARS && marks_cut(t);
    return 0;
}

/* ---- Unigram -------------------------------------------------------------------------------------- */

/* A score as the library has it, which takes the digits of a number as an integer, rounded, and scales it
 * by a power of ten, rounded again: often not the nearest double, and ties of two ways to cut a word hang on
 * it. A file has the fewest digits that tell a number from its neighbours. */
static double score_of(double x) {
    enum { EXACT = 22 }; /* powers of ten up to here are doubles */
    char buf[32];
    uint64_t digits = 0;
    int exponent = 0;
    bool fraction = false;
    const char *s = json_format_real(x < 0 ? -x : x, buf);
    for (; *s && *s != 'e' && *s != 'E'; s++) {
        fraction |= *s == '.';
        if (*s == '.')
            continue;
        digits = digits * 10 + (uint64_t)(*s - '0');
        exponent -= fraction;
    }
    exponent += *s ? atoi(s + 1) : 0;
    if (exponent < -EXACT || exponent > 0)
        return x;
    double power = 1;
    for (int i = 0; i < -exponent; i++)
        power *= 10;
    return (x < 0 ? -1 : 1) * ((double)digits / power);
}

static int read_piece(struct tokenizer *t, const json_t *piece, int64_t id,
                      struct err *err) {
    const char *name = json_string_value(json_array_get(piece, 0));
    const json_t *score = json_array_get(piece, 1);
    if (json_array_size(piece) != 2 || !name || !json_is_number(score))
        return err_input(err, "expected [\"token\", log-probability]");
    t->unigram.scores[id] = score_of(json_number_value(score));
    return tokenizer_put_name(t, name, id, true, err);
}

static int read_unigram(struct tokenizer *t, const json_t *model, struct err *err) {
    json_t *vocab;
    int64_t unknown;
    t->kind = MODEL_UNIGRAM;
    if (json_keys(model, "type unk_id vocab byte_fallback", err) < 0 ||
        json_opt_bool(model, "byte_fallback", &t->byte_fallback, err) < 0 ||
        json_array_member(model, "vocab", &vocab, err) < 0)
        return -1;
    const int64_t n = (int64_t)json_array_size(vocab);
    if (n < 1 || n >= MAX_ID)
        return err_input(err, "vocab: expected 1 to %d tokens", MAX_ID - 1);
    if (json_int(model, "unk_id", 0, n - 1, &unknown, err) < 0)
        return -1;
    t->unk_id = (int32_t)unknown;
    t->unigram.scores = mem_array((size_t)n, sizeof *t->unigram.scores);
    for (int64_t id = 0; id < n; id++)
        if (read_piece(t, json_array_get(vocab, (size_t)id), id, err) < 0)
            return err_prefix(err, "vocab[%lld]", (long long)id);
    unigram_init(t);
    return find_bytes(t, err);
}

/* ---- both ----------------------------------------------------------------------------------------- */

int tokenizer_read_model(struct tokenizer *t, const json_t *model, struct err *err) {
    const char *type = "BPE"; /* files of old versions of the library do not say it */
    t->unk_id = -1;
    if (json_opt_str(model, "type", &type, err) < 0)
        return -1;
    if (!strcmp(type, "Unigram") && t->kind != MODEL_BYTES)
        return read_unigram(t, model, err);
    if (strcmp(type, "BPE") != 0)
        return err_input(err, "type: \"%.40s\", expected \"BPE\"%s", type,
                         t->kind == MODEL_BYTES ? "" : " or \"Unigram\"");
    return read_bpe(t, model, err);
}
