/* From what stands between added tokens to ids: words, those that are known already, and the model. */
#include "common/rng.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

#include <string.h>

enum {
    KNOWN_WORDS = 1 << 16, /* remembered; then all are forgotten */
    KNOWN_BYTES = 64,      /* of a word that is */
};

/* ---- a word ---------------------------------------------------------------------------- */

/* The code points of a word. One that is no token is its bytes, where they have tokens, or unknown, or
 * nothing; what is unknown waits for a code point that is a token, as in the library. */
static void put_points(const struct tokenizer *t, struct span s, struct token_ids *ids) {
    bool unknown = false;
    int bytes;
    for (const char *at = s.bytes, *end = at + s.n; at < end; at += bytes) {
        utf8_point(at, &bytes);
        const int32_t id = tokenizer_of_key(t, at, bytes);
        bool falls = t->byte_fallback && id < 0;
        for (int i = 0; falls && i < bytes; i++)
            falls = t->byte_id[(unsigned char)at[i]] >= 0;
        for (int i = 0; falls && i < bytes; i++)
            arr_push(ids, t->byte_id[(unsigned char)at[i]]);
        if (falls || (id < 0 && t->unk_id < 0))
            continue;
        if (unknown && (id >= 0 || !t->fuse_unk))
            arr_push(ids, t->unk_id);
        unknown = id < 0;
        if (id >= 0)
            arr_push(ids, id);
    }
    if (unknown)
        arr_push(ids, t->unk_id);
}

static void encode_new(struct tokenizer *t, struct span s, struct token_ids *ids) {
    if (t->kind == MODEL_UNIGRAM) {
        unigram_encode(t, s, ids);
        return;
    }
    const int32_t whole = t->ignore_merges ? tokenizer_of_key(t, s.bytes, s.n) : -1;
    if (whole >= 0) {
        arr_push(ids, whole);
        return;
    }
    const int64_t first = ids->n;
    if (t->kind == MODEL_CHARS)
        put_points(t, s, ids);
    else
        for (int64_t i = 0; i < s.n; i++)
            arr_push(ids, t->byte_id[(unsigned char)s.bytes[i]]);
    ids->n = first + merge_word(&t->merges, &t->room, ids->p + first, ids->n - first);
}

/* ---- known words ------------------------------------------------------------------------ */

static bool same_word(const void *entries, int64_t i, const void *key) {
    const struct known *known = entries;
    const struct known_word *word = &known->words.p[i];
    const struct span *k = key;
    return word->bytes == k->n &&
           !memcmp(known->text.p + word->text, k->bytes, (size_t)k->n);
}

static void remember(struct known *known, struct span s, const int32_t *ids, int64_t n) {
    arr_push(&known->words,
             (struct known_word){known->text.n, known->ids.n, (int32_t)s.n, (int32_t)n});
    for (int64_t i = 0; i < s.n; i++)
        arr_push(&known->text, s.bytes[i]);
    for (int64_t i = 0; i < n; i++)
        arr_push(&known->ids, ids[i]);
}

static void encode_word(struct tokenizer *t, struct span s, struct token_ids *ids) {
    struct known *known = &t->known;
    if (s.n > KNOWN_BYTES) {
        encode_new(t, s, ids);
        return;
    }
    if (known->words.n == KNOWN_WORDS) {
        hashtable_clear(&known->table);
        known->words.n = known->text.n = known->ids.n = 0;
    }
    int64_t i = hashtable_put(&known->table, hash_bytes(s.bytes, (size_t)s.n, 0), same_word,
                              known, &s);
    if (i < known->words.n) {
        const struct known_word *word = &known->words.p[i];
        for (int32_t j = 0; j < word->n; j++)
            arr_push(ids, known->ids.p[word->ids + j]);
        return;
    }
    const int64_t first = ids->n;
    encode_new(t, s, ids);
    remember(known, s, ids->p + first, ids->n - first);
}

/* ---- cutting ---------------------------------------------------------------------------- */

/* Into words that begin with a mark; of several marks in a row each begins one, or else the first. */
static void encode_marked(struct tokenizer *t, struct span s, bool each,
                          struct token_ids *ids) {
    const char *end = s.bytes + s.n;
    for (const char *at = s.bytes, *next; at < end; at = next) {
        next = at;
        if (!each)
            while (end - next >= MARK_BYTES && !memcmp(next, MARK, MARK_BYTES))
                next += MARK_BYTES;
        next += next == at;
        while (next < end &&
               (end - next < MARK_BYTES || memcmp(next, MARK, MARK_BYTES) != 0))
            next++;
        encode_word(t, (struct span){at, next - at}, ids);
    }
}

/* Metaspace: marks for blanks, and one before what begins with none. */
static struct span mark(struct tokenizer *t, struct span s, bool first) {
    struct nfc_text *out = &t->prefixed;
    const bool begins =
        *s.bytes == ' ' || (s.n >= MARK_BYTES && !memcmp(s.bytes, MARK, MARK_BYTES));
    out->n = 0;
    if (!begins && (t->prepend == PREPEND_ALWAYS || (t->prepend == PREPEND_FIRST && first)))
        nfc_text_put(out, MARK, MARK_BYTES);
    for (int64_t i = 0; i < s.n; i++)
        if (s.bytes[i] == ' ')
            nfc_text_put(out, MARK, MARK_BYTES);
        else
            arr_push(out, s.bytes[i]);
    return (struct span){out->p, out->n};
}

static void encode_piece(struct tokenizer *t, struct span s, bool first,
                         struct token_ids *ids) {
    if (t->metaspace)
        s = mark(t, s, first);
    if (t->mark_splits || t->cuts)
        encode_marked(t, s, t->mark_splits, ids);
    else
        encode_word(t, s, ids);
}

static void encode_bytes(struct tokenizer *t, struct span s, struct token_ids *ids) {
    if (t->prefix_space && s.bytes[0] != ' ') {
        t->prefixed.n = 0;
        arr_push(&t->prefixed, ' ');
        nfc_text_put(&t->prefixed, s.bytes, s.n);
        s = (struct span){t->prefixed.p, t->prefixed.n};
    }
    const char *end = s.bytes + s.n;
    for (const char *at = s.bytes, *next; at < end; at = next) {
        next = split_word(t->pattern, t->kinds, at, end);
        encode_word(t, (struct span){at, next - at}, ids);
    }
}

void tokenizer_encode_words(struct tokenizer *t, struct span s, bool first,
                            struct token_ids *ids) {
    if (t->kind == MODEL_BYTES) {
        encode_bytes(t, s, ids);
        return;
    }
    if (!t->space_splits) {
        encode_piece(t, s, first, ids);
        return;
    }
    const char *end = s.bytes + s.n;
    for (const char *at = s.bytes, *next; at < end; at = next) {
        int bytes;
        next = at = unicode_space_behind(t->kinds, at, end);
        while (next < end && !unicode_is_space(t->kinds, next, &bytes))
            next += bytes;
        if (next > at)
            encode_piece(t, (struct span){at, next - at},
                         first && at - s.bytes < t->normalizer.head, ids);
    }
}
