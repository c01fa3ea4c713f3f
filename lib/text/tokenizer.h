/* tokenizer.h - byte-level BPE, as tokenizer.json of Hugging Face's library tokenizers describes it.
 *
 * A text is cut at its added tokens, what is between them into words by the model's pattern, and the
 * bytes of each word are merged pair by pair, the merge first in the list first (Sennrich, Haddow and
 * Birch, arXiv:1508.07909; over bytes: Radford et al., "Language Models are Unsupervised Multitask
 * Learners", 2.2). What a post-processor would add around a text is not added.
 *
 *     struct tokenizer *t = tokenizer_read("tokenizer.json", &err);
 *     struct token_ids ids = {0};
 *     if (tokenizer_encode(t, "Hello world", 11, &ids, &err) < 0) ...
 *     for (int64_t i = 0; i < ids.n; i++)
 *         fwrite(tokenizer_bytes(t, ids.p[i], &n), 1, (size_t)n, stdout);
 *     free(ids.p);
 *     tokenizer_destroy(t);
 */
#ifndef WEFT_TOKENIZER_H
#define WEFT_TOKENIZER_H

#include "common/json.h"

#include <stdint.h>

struct tokenizer;

struct token_ids {
    int32_t *p; /* owned */
    int64_t n, cap;
};

/* Reads a file, or a document that may be released afterwards. Whatever would change ids and is not
 * known here is refused by its key. Returns NULL with an error (EXIT_INPUT). */
struct tokenizer *tokenizer_read(const char *path, struct err *err);
struct tokenizer *tokenizer_from_json(const json_t *doc, struct err *err);
void tokenizer_destroy(struct tokenizer *t);

/* One more than the largest id. */
int64_t tokenizer_vocab(const struct tokenizer *t);
/* The id of an added token, such as "<|endoftext|>", or -1. */
int64_t tokenizer_added(const struct tokenizer *t, const char *content);

/* Appends the ids of n bytes of UTF-8. Words are remembered in *t: one thread at a time. Returns 0, or
 * -1 (EXIT_INPUT) with nothing appended where the text is not UTF-8. */
int tokenizer_encode(struct tokenizer *t, const char *text, int64_t n,
                     struct token_ids *ids, struct err *err);

/* The bytes of a token, *n of them, borrowed; they need not be whole code points. NULL: no such id. */
const char *tokenizer_bytes(const struct tokenizer *t, int64_t id, int64_t *n);

#endif
