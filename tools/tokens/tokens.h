/* tokens.h - the parts of weft-tokens: texts to ids, files of ids, ids to text, tokenizers. */
#ifndef WEFT_TOKENS_TOOL_H
#define WEFT_TOKENS_TOOL_H

#include "text/tokenizer.h"

struct tokens_options {
    const char *output, *begin, *end; /* NULL: not given */
    const char *lines;                /* the key of documents in lines of JSON, or NULL */
    bool ids, decode, raw, special;
    int64_t pack;  /* positions of a sequence that documents are packed into; 0: are not */
    int64_t train; /* tokens of a tokenizer to learn; 0: there is one */
    int64_t examples; /* positions of a sequence; 0: the files are no examples */
};

/* ---- tokens_encode.c ------------------------------------------------------------------------ */

/* Encodes each file as a document: to standard output, a line each, or to o->output. Returns 0 or -1. */
int tokens_encode(struct tokenizer *t, const struct tokens_options *o, char *const *files,
                  int n, struct err *err);

/* How messages name a file. */
const char *tokens_name(const char *path);
/* What stands around each text: what --begin and --end name, and inside of that what the post-processor puts there,
 * where --special asks for it. Returns 0 or -1; release it in any case. */
struct tokens_around {
    struct token_ids before, behind;
};
int tokens_around(const struct tokenizer *t, const struct tokens_options *o,
                  struct tokens_around *out, struct err *err);
void tokens_around_release(struct tokens_around *around);
/* Appends ids. */
void tokens_put(struct token_ids *ids, const struct token_ids *more);

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

/* Does the name end so? */
bool tokens_ends(const char *path, const char *end);

/* Writes ids below vocab as training reads them: a name that ends in .bin as llm.c has it, or raw as nanoGPT
 * has it, one in .u32 as 32 bits, one in .idx as Megatron-LM has it, with the .bin beside it. Returns 0 or
 * -1. */
int tokens_write(const char *path, bool raw, int64_t vocab, const struct token_ids *ids,
                 const struct document *documents, int64_t n, struct err *err);

/* Set in a token that is no target: TOKEN_MASK of data/tokens.h. */
#define TOKENS_MASK INT32_MIN

/* Writes sequences of masked ids, and one behind the last. Returns 0 or -1. */
int tokens_write_masked(const char *path, const struct token_ids *ids, struct err *err);

/* ---- tokens_pack.c -------------------------------------------------------------------------- */

/* Packs documents into sequences of seq masked tokens. Returns 0 or -1. */
int tokens_pack(const char *path, int64_t seq, const struct token_ids *ids,
                const struct document *documents, int64_t n, struct err *err);

#endif
