/* tokenizer.h - tokenizers, as tokenizer.json of Hugging Face's library tokenizers describes them:
 * byte-level BPE, and SentencePiece's BPE and Unigram (Kudo and Richardson, arXiv:1808.06226).
 *
 * A text is cut at its added tokens, what is between them is normalized and cut into words. The bytes of a
 * word, or its code points, are merged pair by pair, the merge first in the list first (Sennrich, Haddow
 * and Birch, arXiv:1508.07909; over bytes: Radford et al., "Language Models are Unsupervised Multitask
 * Learners", 2.2); or a word is cut into its most likely tokens (Kudo, arXiv:1804.10959). What a
 * post-processor would add around a text is not added, but tokenizer_around says it.
 *
 *     struct tokenizer *t = tokenizer_read("tokenizer.json", &err);
 *     struct token_ids ids = {0};
 *     if (tokenizer_encode(t, "Hello world", 11, &ids, &err) < 0) ...
 *     for (int64_t i = 0; i < ids.n; i++)
 *         fwrite(tokenizer_bytes(t, ids.p[i], i == 0, &n), 1, (size_t)n, stdout);
 *     free(ids.p);
 *     tokenizer_destroy(t);
 */
#ifndef WEFT_TOKENIZER_H
#define WEFT_TOKENIZER_H

#include "common/json.h"

#include <stdbool.h>
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

/* What the post-processor, if there is one, puts before and behind a text: both lists, which the caller owns, are
 * written anew. Returns 0, or -1 (EXIT_INPUT) where it is none that is known here. */
int tokenizer_around(const struct tokenizer *t, struct token_ids *before,
                     struct token_ids *behind, struct err *err);

/* Appends the ids of n bytes of UTF-8. Words are remembered in *t: one thread at a time. Returns 0, or
 * -1 (EXIT_INPUT) with nothing appended where the text is not UTF-8. */
int tokenizer_encode(struct tokenizer *t, const char *text, int64_t n,
                     struct token_ids *ids, struct err *err);

/* The bytes of a token, *n of them, borrowed; they need not be whole code points. The first token of a text
 * may lack a blank that it has elsewhere. NULL: no such id. */
const char *tokenizer_bytes(const struct tokenizer *t, int64_t id, bool first, int64_t *n);

#endif
