/* tokens.h - the parts of weft-tokens: texts to ids, files of ids, ids to text, tokenizers. */
#ifndef WEFT_TOKENS_TOOL_H
#define WEFT_TOKENS_TOOL_H

#include "text/tokenizer.h"

struct tokens_options {
    const char *output, *begin, *end; /* NULL: not given */
    bool ids, decode;
    int64_t train;    /* tokens of a tokenizer to learn; 0: there is one */
    int64_t examples; /* positions of a sequence; 0: the files are no examples */
};

/* ---- tokens_encode.c ------------------------------------------------------------------------ */

/* Encodes each file as a document: to standard output, a line each, or to o->output. Returns 0 or -1. */
int tokens_encode(struct tokenizer *t, const struct tokens_options *o, char *const *files,
                  int n, struct err *err);

/* How messages name a file. */
const char *tokens_name(const char *path);
/* The id of an added token that an option names, or -1 for NULL. Returns 0 or -1. */
int tokens_find(const struct tokenizer *t, const char *option, const char *content,
                int64_t *id, struct err *err);

/* ---- tokens_examples.c ---------------------------------------------------------------------- */

/* Lines of {"prompt": TEXT, "answer": TEXT} as masked tokens, in o->output. Returns 0 or -1. */
int tokens_examples(struct tokenizer *t, const struct tokens_options *o, char *const *files,
                    int n, struct err *err);

/* ---- tokens_decode.c ------------------------------------------------------------------------ */

/* Writes the text of the ids in the files. Returns 0 or -1. */
int tokens_decode(const struct tokenizer *t, char *const *files, int n, struct err *err);

/* ---- tokens_train.c ------------------------------------------------------------------------- */

/* Learns a tokenizer of o->train tokens from the files, each a document, with what --begin and --end name as
 * its special tokens: to standard output or o->output. Returns 0 or -1. */
int tokens_train(const struct tokens_options *o, char *const *files, int n,
                 struct err *err);

/* ---- tokens_write.c ------------------------------------------------------------------------- */

struct document {
    int64_t first, n; /* among the ids of all */
};

/* Writes ids below vocab as training reads them: a name that ends in .bin as llm.c has it, one in .idx
 * as Megatron-LM has it, with the .bin beside it. Returns 0 or -1. */
int tokens_write(const char *path, int64_t vocab, const struct token_ids *ids,
                 const struct document *documents, int64_t n, struct err *err);

#endif
