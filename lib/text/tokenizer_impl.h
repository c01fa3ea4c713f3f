/* tokenizer_impl.h - what a tokenizer is made of (private to lib/text). */
#ifndef WEFT_TOKENIZER_IMPL_H
#define WEFT_TOKENIZER_IMPL_H

#include "common/hashtable.h"
#include "common/mem.h"
#include "text/nfc.h"
#include "text/split.h"
#include "text/tokenizer.h"

#include <stdbool.h>

struct token {
    const char *bytes; /* in the arena; NULL: no token has this id */
    int64_t n;
};

/* A token that is looked for in the text before anything else. */
struct added {
    const char *content; /* in the arena */
    int64_t n;
    int32_t id;
    bool lstrip, rstrip; /* takes the white space before, behind it */
    bool normalized;     /* looked for in what is left between those that are not */
};

struct merge {
    int32_t left, right; /* ids; left < 0: a free slot */
    int32_t rank, id;    /* place in the list; what comes of it */
};

/* Open addressing, at most half full. */
struct merges {
    struct merge *slot;
    int64_t cap; /* a power of two */
};

/* NULL where the two are not merged. */
const struct merge *merges_find(const struct merges *m, int32_t left, int32_t right);
/* Room for n. */
void merges_init(struct merges *m, int64_t n);
/* A pair that is there already gets the later rank, as the library does it. */
void merges_put(struct merges *m, struct merge merge);

struct symbol {
    int32_t id; /* < 0: merged into the one before */
    int32_t before, behind;
};
struct candidate {
    int32_t rank, at, id;
};
/* Room for a word while it is merged. */
struct merging {
    ARR(struct symbol) symbols;
    ARR(struct candidate) heap;
};

/* Replaces n ids of one word, in place, by what they merge into. Returns how many are left. */
int64_t merge_word(const struct merges *m, struct merging *room, int32_t *ids, int64_t n);

/* Words that were merged before. */
struct known_word {
    int64_t text, ids; /* where they begin in the two arrays */
    int32_t bytes, n;
};
struct known {
    struct hashtable table;
    ARR(struct known_word) words;
    ARR(char) text;
    struct token_ids ids;
};

struct tokenizer {
    struct arena arena;
    ARR(struct token) tokens; /* by id */
    struct hashtable by_bytes;
    ARR(int32_t) hashed; /* entry of by_bytes to id */
    int32_t byte_id[256];
    struct merges merges;
    ARR(struct added) added; /* longer ones first */
    bool begins[2][256]; /* does an added token begin with the byte: others, normalized */
    enum split_pattern pattern;
    bool prefix_space;  /* put before what does not begin with one */
    bool ignore_merges; /* a word that is a token is this token */
    unsigned char *kinds;
    struct merging room;
    struct known known;
    ARR(char) prefixed;
    struct nfc *nfc; /* NULL: texts stay as they are */
    struct nfc_text normal;
};

/* The id of the token of these bytes, or -1. */
int32_t tokenizer_of_bytes(const struct tokenizer *t, const char *bytes, int64_t n);

#endif
