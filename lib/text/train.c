#include "text/train.h"

#include "common/hashtable.h"
#include "common/mem.h"
#include "common/rng.h"
#include "text/byte_chars.h"
#include "text/normalize.h"
#include "text/split.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

/* A word of the texts, as it is by now. */
struct train_word {
    int64_t text, bytes; /* of the text that all words stand in */
    int64_t symbols, n;  /* of the symbols that all words stand in */
    int64_t count;
};

struct train_pair {
    int32_t left, right;
    int64_t count;
    ARR(int32_t) fresh; /* words that have it since the last merge */
};

/* A pair as it was when it was put into the heap. */
struct train_entry {
    int64_t count;
    int32_t left, right;
    int64_t pair;   /* its place among the pairs */
    int32_t *words; /* [n] in the arena: that had it first then */
    int64_t n;
};

struct bpe_trainer {
    unsigned char *kinds;
    struct hashtable by_text;
    ARR(struct train_word) words;
    ARR(char) text;
    ARR(int32_t) symbols;
    struct hashtable by_ids;
    ARR(struct train_pair) pairs;
    ARR(int64_t) fresh; /* pairs that have fresh words */
    ARR(struct train_entry) heap;
    struct arena arena;
    struct hashtable by_name;
    ARR(struct span) names; /* by id: of characters that are bytes */
};

struct bpe_trainer *bpe_trainer_create(void) {
    struct bpe_trainer *t = mem_alloc(sizeof *t);
    t->kinds = unicode_kinds();
    return t;
}

void bpe_trainer_destroy(struct bpe_trainer *t) {
    if (!t)
        return;
    for (int64_t i = 0; i < t->pairs.n; i++)
        arr_release(&t->pairs.p[i].fresh);
    free(t->kinds);
    hashtable_release(&t->by_text);
    arr_release(&t->words);
    arr_release(&t->text);
    arr_release(&t->symbols);
    hashtable_release(&t->by_ids);
    arr_release(&t->pairs);
    arr_release(&t->fresh);
    arr_release(&t->heap);
    hashtable_release(&t->by_name);
    arr_release(&t->names);
    arena_release(&t->arena);
    free(t);
}

/* ---- words --------------------------------------------------------------------------------- */

static bool same_text(const void *entries, int64_t i, const void *key) {
    const struct bpe_trainer *t = entries;
    const struct train_word *word = &t->words.p[i];
    const struct span *k = key;
    return word->bytes == k->n && !memcmp(t->text.p + word->text, k->bytes, (size_t)k->n);
}

static void count_word(struct bpe_trainer *t, struct span s) {
    int64_t i =
        hashtable_put(&t->by_text, hash_bytes(s.bytes, (size_t)s.n, 0), same_text, t, &s);
    if (i == t->words.n) {
        arr_push(&t->words, (struct train_word){.text = t->text.n, .bytes = s.n});
        for (int64_t k = 0; k < s.n; k++)
            arr_push(&t->text, s.bytes[k]);
    }
    t->words.p[i].count++;
}

int bpe_trainer_feed(struct bpe_trainer *t, const char *text, int64_t n, struct err *err) {
    const int64_t bad = utf8_check(text, n);
    if (bad >= 0)
        return err_input(err, "byte %lld: expected text in UTF-8", (long long)bad);
    for (const char *at = text, *end = text + n, *next; at < end; at = next) {
        next = split_word(SPLIT_GPT2, t->kinds, at, end);
        count_word(t, (struct span){at, next - at});
    }
    return 0;
}

/* ---- tokens -------------------------------------------------------------------------------- */

static bool same_name(const void *entries, int64_t i, const void *key) {
    const struct bpe_trainer *t = entries;
    const struct span *a = &t->names.p[i], *b = key;
    return a->n == b->n && !memcmp(a->bytes, b->bytes, (size_t)a->n);
}

/* The id of a token of this name, which may be there already. */
static int32_t token_of(struct bpe_trainer *t, struct span a, struct span b) {
    char *bytes = arena_alloc(&t->arena, (size_t)(a.n + b.n) + 1);
    memcpy(bytes, a.bytes, (size_t)a.n);
    memcpy(bytes + a.n, b.bytes, (size_t)b.n);
    const struct span name = {bytes, a.n + b.n};
    int64_t id = hashtable_put(&t->by_name, hash_bytes(bytes, (size_t)name.n, 0), same_name,
                               t, &name);
    if (id == t->names.n)
        arr_push(&t->names, name);
    return (int32_t)id;
}

/* Ids of the added tokens, then of the bytes by the order of their characters. */
static void first_tokens(struct bpe_trainer *t, const char *const *added, int n) {
    enum { LAST_CHAR = 0x143 };
    const struct span nothing = {"", 0};
    int32_t id_of[256];
    for (int i = 0; i < n; i++)
        token_of(t, (struct span){added[i], (int64_t)strlen(added[i])}, nothing);
    for (uint32_t point = 0; point <= LAST_CHAR; point++) {
        if (byte_of_char(point) < 0)
            continue;
        struct nfc_text name = {0};
        nfc_text_point(&name, point);
        id_of[byte_of_char(point)] = token_of(t, (struct span){name.p, name.n}, nothing);
        free(name.p);
    }
    for (int64_t i = 0; i < t->words.n; i++) {
        struct train_word *word = &t->words.p[i];
        word->symbols = t->symbols.n;
        word->n = word->bytes;
        for (int64_t k = 0; k < word->bytes; k++)
            arr_push(&t->symbols, id_of[(unsigned char)t->text.p[word->text + k]]);
    }
}

/* ---- pairs --------------------------------------------------------------------------------- */

static bool same_ids(const void *entries, int64_t i, const void *key) {
    const struct bpe_trainer *t = entries;
    const struct train_pair *a = &t->pairs.p[i], *b = key;
    return a->left == b->left && a->right == b->right;
}

/* A pair is so much more frequent, in a word that has it now where it is more. */
static void change(struct bpe_trainer *t, int32_t left, int32_t right, int64_t by,
                   int64_t word) {
    const struct train_pair key = {.left = left, .right = right};
    const uint64_t ids = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    int64_t i = hashtable_put(&t->by_ids, rng_mix(ids), same_ids, t, &key);
    if (i == t->pairs.n)
        arr_push(&t->pairs, key);
    struct train_pair *pair = &t->pairs.p[i];
    pair->count += by;
    if (by < 0 || (pair->fresh.n && arr_last(&pair->fresh) == word))
        return;
    if (!pair->fresh.n)
        arr_push(&t->fresh, i);
    arr_push(&pair->fresh, (int32_t)word);
}

static void count_pairs(struct bpe_trainer *t) {
    for (int64_t i = 0; i < t->words.n; i++) {
        const struct train_word *word = &t->words.p[i];
        const int32_t *s = t->symbols.p + word->symbols;
        for (int64_t k = 0; k + 1 < word->n; k++)
            change(t, s[k], s[k + 1], word->count, i);
    }
}

/* Merges the pair wherever it stands in a word, from the left. */
static void merge_in(struct bpe_trainer *t, int64_t i, const struct train_entry *pair,
                     int32_t id) {
    struct train_word *word = &t->words.p[i];
    int32_t *s = t->symbols.p + word->symbols;
    int64_t n = 0;
    for (int64_t k = 0; k < word->n; k++) {
        if (s[k] != pair->left || k + 1 == word->n || s[k + 1] != pair->right) {
            s[n++] = s[k];
            continue;
        }
        if (n) {
            change(t, s[n - 1], pair->left, -word->count, i);
            change(t, s[n - 1], id, word->count, i);
        }
        if (k + 2 < word->n) {
            change(t, pair->right, s[k + 2], -word->count, i);
            change(t, id, s[k + 2], word->count, i);
        }
        s[n++] = id;
        k++;
    }
    word->n = n;
}

/* ---- the heap ------------------------------------------------------------------------------ */

static bool sooner(const struct train_entry *a, const struct train_entry *b) {
    if (a->count != b->count)
        return a->count > b->count;
    return a->left < b->left || (a->left == b->left && a->right < b->right);
}

static void push(struct bpe_trainer *t, struct train_entry e) {
    arr_push(&t->heap, e);
    struct train_entry *h = t->heap.p;
    int64_t i = t->heap.n - 1;
    for (int64_t up; i && sooner(&e, &h[up = (i - 1) / 2]); i = up)
        h[i] = h[up];
    h[i] = e;
}

static struct train_entry pop(struct bpe_trainer *t) {
    struct train_entry *h = t->heap.p, top = h[0], last = h[--t->heap.n];
    int64_t i = 0, n = t->heap.n;
    for (int64_t down; (down = 2 * i + 1) < n; i = down) {
        down += down + 1 < n && sooner(&h[down + 1], &h[down]);
        if (!sooner(&h[down], &last))
            break;
        h[i] = h[down];
    }
    h[i] = last;
    return top;
}

/* Puts the pairs of fresh words into the heap, with these words. */
static void push_fresh(struct bpe_trainer *t) {
    for (int64_t i = 0; i < t->fresh.n; i++) {
        struct train_pair *pair = &t->pairs.p[t->fresh.p[i]];
        if (pair->count > 0) {
            int32_t *words = arena_array(&t->arena, (size_t)pair->fresh.n, sizeof *words);
            memcpy(words, pair->fresh.p, (size_t)pair->fresh.n * sizeof *words);
            push(t, (struct train_entry){pair->count, pair->left, pair->right,
                                         t->fresh.p[i], words, pair->fresh.n});
        }
        arr_release(&pair->fresh);
    }
    t->fresh.n = 0;
}

/* ---- merging ------------------------------------------------------------------------------- */

static json_t *text_of(struct span name) {
    return json_stringn(name.bytes, (size_t)name.n);
}

/* The merges, as pairs of names. */
static json_t *merge_pairs(struct bpe_trainer *t, int64_t vocab) {
    json_t *merges = json_array();
    count_pairs(t);
    push_fresh(t);
    while (t->names.n < vocab && t->heap.n) {
        struct train_entry top = pop(t);
        const int64_t count = t->pairs.p[top.pair].count;
        if (count != top.count) { /* other merges took some of it, or all */
            top.count = count;
            if (count > 0)
                push(t, top);
            continue;
        }
        const struct span left = t->names.p[top.left], right = t->names.p[top.right];
        const int32_t id = token_of(t, left, right);
        json_array_append_new(merges, json_pack("[o,o]", text_of(left), text_of(right)));
        for (int64_t i = 0; i < top.n; i++)
            merge_in(t, top.words[i], &top, id);
        push_fresh(t);
    }
    return merges;
}

json_t *bpe_trainer_finish(struct bpe_trainer *t, int64_t vocab, const char *const *added,
                           int n) {
    first_tokens(t, added, n);
    json_t *merges = merge_pairs(t, vocab), *ids = json_object(), *list = json_array();
    for (int64_t id = 0; id < t->names.n; id++)
        json_object_setn_new(ids, t->names.p[id].bytes, (size_t)t->names.p[id].n,
                             json_integer(id));
    for (int i = 0; i < n; i++)
        json_array_append_new(list,
                              json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", i, "content",
                                        added[i], "single_word", 0, "lstrip", 0, "rstrip",
                                        0, "normalized", 0, "special", 1));
    return json_pack("{s:s,s:n,s:n,s:o,s:n,s:{s:s,s:b,s:b,s:b},s:n,s:{s:s,s:b,s:b,s:b},"
                     "s:{s:s,s:n,s:n,s:n,s:n,s:b,s:b,s:b,s:o,s:o}}",
                     "version", "1.0", "truncation", "padding", "added_tokens", list,
                     "normalizer", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space",
                     0, "trim_offsets", 1, "use_regex", 1, "post_processor", "decoder",
                     "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 1,
                     "use_regex", 1, "model", "type", "BPE", "dropout", "unk_token",
                     "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                     "byte_fallback", 0, "ignore_merges", 0, "vocab", ids, "merges",
                     merges);
}
