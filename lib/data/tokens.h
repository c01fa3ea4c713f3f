/* tokens.h - files of tokens read as one stream (private to lib/data).
 *
 * A file whose name ends in ".bin" holds little-endian tokens: of 16 bits (nanoGPT), or with llm.c's
 * header of 256 int32 (magic, version 1, number of tokens), whose magic says 16 or 32 bits. One that
 * ends in ".u32" holds 32-bit tokens, one that ends in ".m32" such as are no targets where TOKEN_MASK
 * is set: of fine-tuning, whose windows begin with an example each. Of any other file each byte is a
 * token. A file of nanoGPT is not taken for one of llm.c: the magic would be the token ids 55432, 308,
 * and GPT-2's end at 50256; nor is one of 32 bits for one of 16: every second token would be the upper
 * half of an id.
 *
 *     struct token_stream s;
 *     struct token_vocab vocab = {50257, ""};
 *     if (token_stream_open(&s, "a.bin,b.bin", vocab, &err) < 0) ...
 *     if (token_stream_read(&s, first, count, out, &err) < 0) ...
 *     token_stream_close(&s);
 */
#ifndef WEFT_TOKENS_H
#define WEFT_TOKENS_H

#include "common/dtype.h"
#include "common/err.h"
#include "data/datafile.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOKEN_HEADER = 1024 }; /* bytes of the header of llm.c */

/* Set in a token that no target is to be; without it, it is an id. */
#define TOKEN_MASK INT32_MIN

/* Where the tokens of one file are. */
struct token_view {
    int64_t offset; /* of the first token, bytes */
    int64_t tokens;
    int width; /* bytes of a token: 1, 2 or 4 */
    /* "text", "nanoGPT tokens", "llm.c tokens", "32-bit tokens", "masked tokens" */
    const char *format;
    bool masked; /* TOKEN_MASK may be set */
};

/* Ids are below size; `less` says what of the model's vocabulary is not counted in it, such as
 * " without ...", or "". Borrowed. */
struct token_vocab {
    int64_t size;
    const char *less;
    bool
        gaps; /* ids beyond it do not keep a file from being opened, only from being read there */
};

/* What the name of a file says of it. */
enum token_name { TOKEN_TEXT, TOKEN_BIN, TOKEN_U32, TOKEN_M32 };

/* Finds the tokens in a file of `size` bytes that begins with `head` (TOKEN_HEADER bytes, or all of
 * a smaller file). Messages begin with the place in the file. Returns 0 or -1 (EXIT_INPUT). */
int token_view_parse(struct token_view *view, const unsigned char *head, int64_t size,
                     enum token_name name, struct token_vocab vocab, struct err *err);

/* Index of the first of n tokens of `width` bytes whose id is not below vocab, or n. */
int64_t token_find_beyond(const unsigned char *p, int64_t n, int width, int64_t vocab);

/* A file, and where its tokens are. */
struct token_file {
    struct datafile file;
    struct token_view view;
    struct token_vocab vocab;
};

/* Reads all tokens of an open file once: ids of the vocabulary, and 16-bit ones that are not the
 * halves of 32-bit ones. Returns 0 or -1. */
int token_file_check(const struct token_file *f, struct err *err);

/* Reads count tokens from first on, both inside the file, with their masks. It may have changed since it
 * was checked: no id beyond the vocabulary gets through. Returns 0, or -1 (EXIT_SYSTEM). */
int token_file_read(const struct token_file *f, int64_t first, int64_t count, int32_t *out,
                    struct err *err);

struct token_shard {
    struct token_file tokens;
    int64_t begin; /* index in the stream of its first token */
};

struct token_stream {
    struct token_shard *shard; /* owned */
    int64_t shards;
    int64_t tokens; /* of all shards */
    struct token_vocab vocab;
};

/* Opens FILE or FILE,FILE,... (a file whose own name has a comma is one file) and checks all ids.
 * Returns 0 or -1 with the stream closed. */
int token_stream_open(struct token_stream *s, const char *source, struct token_vocab vocab,
                      struct err *err);
void token_stream_close(struct token_stream *s); /* a zeroed one is fine */

/* Reads count tokens from first on (both inside the stream), across shards. Returns 0, or -1
 * (EXIT_SYSTEM) where a file cannot be read any more or was changed. */
int token_stream_read(const struct token_stream *s, int64_t first, int64_t count,
                      int32_t *out, struct err *err);

/* The same as narrow as the files have them: u8 or u16; i32 where they hold 32 bits or do not agree. */
enum dtype token_stream_form(const struct token_stream *s);
int token_stream_packed(const struct token_stream *s, int64_t first, int64_t count,
                        void *out, struct err *err);

/* Adds to *hash what the files hold, as datafile_hash. Returns 0 or -1. */
int token_stream_hash(const struct token_stream *s, uint64_t *hash, struct err *err);

#endif
