#include "common/rng.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

enum {
    KNOWN_WORDS = 1 << 16, /* remembered; then all are forgotten */
    KNOWN_BYTES = 64,      /* of a word that is */
};

void tokenizer_destroy(struct tokenizer *t) {
    if (!t)
        return;
    arr_release(&t->tokens);
    hashtable_release(&t->by_bytes);
    arr_release(&t->hashed);
    free(t->merges.slot);
    arr_release(&t->added);
    free(t->kinds);
    arr_release(&t->room.symbols);
    arr_release(&t->room.heap);
    hashtable_release(&t->known.table);
    arr_release(&t->known.words);
    arr_release(&t->known.text);
    arr_release(&t->known.ids);
    arr_release(&t->prefixed);
    nfc_destroy(t->nfc);
    free(t->normal.p);
    arena_release(&t->arena);
    free(t);
}

int64_t tokenizer_vocab(const struct tokenizer *t) {
    return t->tokens.n;
}

int64_t tokenizer_added(const struct tokenizer *t, const char *content) {
    for (int64_t i = 0; i < t->added.n; i++)
        if (!strcmp(t->added.p[i].content, content))
            return t->added.p[i].id;
    return -1;
}

const char *tokenizer_bytes(const struct tokenizer *t, int64_t id, int64_t *n) {
    if (id < 0 || id >= t->tokens.n || !t->tokens.p[id].bytes)
        return NULL;
    *n = t->tokens.p[id].n;
    return t->tokens.p[id].bytes;
}

/* ---- words ----------------------------------------------------------------------------- */

struct span {
    const char *bytes;
    int64_t n;
};

static bool same_bytes(const void *entries, int64_t i, const void *key) {
    const struct tokenizer *t = entries;
    const struct span *k = key;
    const struct token *token = &t->tokens.p[t->hashed.p[i]];
    return token->n == k->n && !memcmp(token->bytes, k->bytes, (size_t)k->n);
}

int32_t tokenizer_of_bytes(const struct tokenizer *t, const char *bytes, int64_t n) {
    const struct span key = {bytes, n};
    int64_t i =
        hashtable_find(&t->by_bytes, hash_bytes(bytes, (size_t)n, 0), same_bytes, t, &key);
    return i < 0 ? -1 : t->hashed.p[i];
}

static bool same_word(const void *entries, int64_t i, const void *key) {
    const struct known *known = entries;
    const struct known_word *word = &known->words.p[i];
    const struct span *k = key;
    return word->bytes == k->n &&
           !memcmp(known->text.p + word->text, k->bytes, (size_t)k->n);
}

static void merge_new(struct tokenizer *t, struct span s, struct token_ids *ids) {
    const int32_t whole = t->ignore_merges ? tokenizer_of_bytes(t, s.bytes, s.n) : -1;
    if (whole >= 0) {
        arr_push(ids, whole);
        return;
    }
    const int64_t first = ids->n;
    for (int64_t i = 0; i < s.n; i++)
        arr_push(ids, t->byte_id[(unsigned char)s.bytes[i]]);
    ids->n = first + merge_word(&t->merges, &t->room, ids->p + first, s.n);
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
        merge_new(t, s, ids);
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
    merge_new(t, s, ids);
    remember(known, s, ids->p + first, ids->n - first);
}

static void encode_words(struct tokenizer *t, struct span s, struct token_ids *ids) {
    if (t->prefix_space && s.bytes[0] != ' ') {
        t->prefixed.n = 0;
        arr_push(&t->prefixed, ' ');
        for (int64_t i = 0; i < s.n; i++)
            arr_push(&t->prefixed, s.bytes[i]);
        s = (struct span){t->prefixed.p, t->prefixed.n};
    }
    const char *end = s.bytes + s.n;
    for (const char *at = s.bytes, *next; at < end; at = next) {
        next = split_word(t->pattern, t->kinds, at, end);
        encode_word(t, (struct span){at, next - at}, ids);
    }
}

/* ---- added tokens ----------------------------------------------------------------------- */

/* The longest added token of this kind that begins at s. */
static const struct added *added_at(const struct tokenizer *t, bool normalized,
                                    const char *s, int64_t left) {
    for (int64_t i = 0; i < t->added.n; i++) {
        const struct added *a = &t->added.p[i];
        if (a->normalized == normalized && a->n <= left &&
            !memcmp(s, a->content, (size_t)a->n))
            return a;
    }
    return NULL;
}

static bool is_space(const struct tokenizer *t, const char *s, int *bytes) {
    const unsigned char kind = t->kinds[utf8_point(s, bytes)];
    return kind == UNICODE_SPACE || kind == UNICODE_NEWLINE;
}

/* Where the white space before `s` begins, not before `least`. */
static const char *space_before(const struct tokenizer *t, const char *least,
                                const char *s) {
    for (const char *p = s; p > least; s = p) {
        int bytes;
        do
            p--;
        while (p > least && (*p & 0xc0) == 0x80);
        if (!is_space(t, p, &bytes))
            break;
    }
    return s;
}

static const char *space_behind(const struct tokenizer *t, const char *s, const char *end) {
    for (int bytes; s < end && is_space(t, s, &bytes); s += bytes)
        ;
    return s;
}

static void encode_between(struct tokenizer *t, bool normalized, struct span s,
                           struct token_ids *ids);

static void encode_part(struct tokenizer *t, bool normalized, const char *from,
                        const char *to, struct token_ids *ids) {
    struct span s = {from, to - from};
    if (s.n == 0)
        return;
    if (normalized) {
        encode_words(t, s, ids);
        return;
    }
    if (t->nfc && nfc_may_change(s.bytes, s.n)) {
        nfc_compose(t->nfc, s.bytes, s.n, &t->normal);
        s = (struct span){t->normal.p, t->normal.n};
    }
    encode_between(t, true, s, ids);
}

/* First those that are looked for in the text as it is, then in what is left the others. */
static void encode_between(struct tokenizer *t, bool normalized, struct span s,
                           struct token_ids *ids) {
    const char *from = s.bytes, *at = from, *end = from + s.n;
    while (at < end) {
        const struct added *a = t->begins[normalized][(unsigned char)*at]
                                    ? added_at(t, normalized, at, end - at)
                                    : NULL;
        if (!a) {
            at++;
            continue;
        }
        encode_part(t, normalized, from, a->lstrip ? space_before(t, from, at) : at, ids);
        arr_push(ids, a->id);
        at += a->n;
        from = at = a->rstrip ? space_behind(t, at, end) : at;
    }
    encode_part(t, normalized, from, end, ids);
}

int tokenizer_encode(struct tokenizer *t, const char *text, int64_t n,
                     struct token_ids *ids, struct err *err) {
    const int64_t bad = utf8_check(text, n);
    if (bad >= 0)
        return err_input(err, "byte %lld: expected text in UTF-8", (long long)bad);
    if (n > INT32_MAX)
        return err_input(err, "%lld bytes, expected at most %d", (long long)n, INT32_MAX);
    encode_between(t, false, (struct span){text, n}, ids);
    return 0;
}
