/* tokenizer_impl.h - what a tokenizer is made of (private to lib/text). */
#ifndef WEFT_TOKENIZER_IMPL_H
#define WEFT_TOKENIZER_IMPL_H

#include "common/hashtable.h"
#include "common/mem.h"
#include "text/normalize.h"
#include "text/split.h"
#include "text/tokenizer.h"

#include <stdbool.h>

struct token {
    struct span key;   /* in the arena: what it is found by; NULL: no token has this id */
    struct span first; /* its text where it begins a text */
    struct span text;  /* its text elsewhere */
};

/* A token that is looked for in the text before anything else. */
struct added {
    const char *content; /* in the arena */
    struct span sought;  /* what is looked for: the content, normalized if so is the text */
    int32_t id;
    bool lstrip, rstrip; /* takes the white space before, behind it */
    bool normalized;     /* looked for in what is left between those that are not */
};

/* Two ids that merge, or in a trie a node and the byte behind it. */
struct pair {
    int32_t left, right; /* left < 0: a free slot */
    int32_t rank;        /* place in the list of merges; the token that ends here, or -1 */
    int32_t id;          /* what comes of it: an id; a node */
};

/* Open addressing, at most half full. */
struct pairs {
    struct pair *slot;
    int64_t cap; /* a power of two */
};

/* NULL where there is none of these two. */
struct pair *pairs_find(const struct pairs *m, int32_t left, int32_t right);
/* Room for n. */
void pairs_init(struct pairs *m, int64_t n);
/* A pair that is there already gets the later rank, as the library does it. */
void pairs_put(struct pairs *m, struct pair pair);

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
int64_t merge_word(const struct pairs *m, struct merging *room, int32_t *ids, int64_t n);

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

/* ---- Unigram (unigram.c) -------------------------------------------------------------------- */

/* The best way to cut the bytes before this one. */
struct unigram_end {
    double score;
    int32_t id, begin; /* of its last token; begin < 0: no way known */
};
struct unigram {
    double *scores;    /* of each id */
    double unknown;    /* the score of a code point that is no token */
    struct pairs trie; /* of the tokens' bytes, from node 0 */
    ARR(struct unigram_end) ends;
};

/* Builds the trie of the tokens, which have their scores. */
void unigram_init(struct tokenizer *t);
/* Appends the ids of a word, as the Viterbi algorithm finds them. */
void unigram_encode(struct tokenizer *t, struct span word, struct token_ids *ids);

/* ---- all of it ------------------------------------------------------------------------------- */

enum model_kind {
    MODEL_BYTES,   /* BPE of the bytes of words */
    MODEL_CHARS,   /* BPE of their code points */
    MODEL_UNIGRAM, /* the most likely tokens (Kudo, arXiv:1804.10959) */
};

/* Where Metaspace puts its mark before what does not begin with one. */
enum prepend_scheme { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };

struct tokenizer {
    struct arena arena;
    ARR(struct token) tokens; /* by id */
    struct hashtable by_key;
    ARR(int32_t) hashed;  /* entry of by_key to id */
    int32_t byte_id[256]; /* < 0: none */
    enum model_kind kind;
    struct pairs merges;
    struct unigram unigram;
    int32_t unk_id; /* < 0: none */
    bool byte_fallback, fuse_unk;
    bool cuts;               /* no merge reaches over a mark's beginning */
    ARR(struct added) added; /* longer ones first */
    bool begins[2][256]; /* does an added token begin with the byte: others, normalized */

    enum split_pattern pattern;  /* of MODEL_BYTES */
    bool prefix_space;           /* put before what does not begin with one */
    bool ignore_merges;          /* a word that is a token is this token */
    bool space_splits;           /* words end at white space, which is dropped */
    bool metaspace, mark_splits; /* marks stand for blanks; words begin with them */
    enum prepend_scheme prepend;

    json_t *post; /* "post_processor"; NULL: there is none */
    unsigned char *kinds;
    struct normalizer normalizer;
    struct merging room;
    struct known known;
    struct nfc_text prefixed;
};

/* Metaspace's mark for a blank, U+2581. */
#define MARK       "\xe2\x96\x81"
#define MARK_BYTES 3

/* The id of the token of this key, or -1. */
int32_t tokenizer_of_key(const struct tokenizer *t, const char *key, int64_t n);

/* Appends the ids of n > 0 bytes that stand between added tokens; first: they begin the text (words.c). */
void tokenizer_encode_words(struct tokenizer *t, struct span s, bool first,
                            struct token_ids *ids);

/* ---- parts of the reader ---------------------------------------------------------------------- */

enum { MAX_ID = 1 << 24 }; /* ids are below: no vocabulary is near it */

/* null, or nothing; false, null or nothing; "type" as it must be. Return 0 or -1. */
int tokenizer_expect_null(const json_t *obj, const char *key, struct err *err);
int tokenizer_expect_false(const json_t *obj, const char *key, struct err *err);
int tokenizer_expect_type(const json_t *obj, const char *want, struct err *err);

/* Gives an id its token, which is found by its key if asked; a name is a key, or of byte-level BPE the
 * characters of its bytes. Return 0 or -1. */
int tokenizer_put(struct tokenizer *t, const char *key, size_t size, int64_t id, bool found,
                  struct err *err);
int tokenizer_put_name(struct tokenizer *t, const char *name, int64_t id, bool found,
                       struct err *err);

/* "model" (tokenizer_read_model.c); "pre_tokenizer", which comes before it and tells bytes from code points;
 * "decoder", behind all tokens (tokenizer_read_words.c). Return 0 or -1. */
int tokenizer_read_model(struct tokenizer *t, const json_t *model, struct err *err);
int tokenizer_read_pre(struct tokenizer *t, const json_t *doc, struct err *err);
int tokenizer_read_decoder(struct tokenizer *t, const json_t *doc, struct err *err);

#endif
