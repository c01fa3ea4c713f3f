/* tokens.h - files of tokens read as one stream (private to lib/data).
 *
 * A file whose name ends in ".bin" holds 16-bit little-endian tokens, with llm.c's header
 * of 256 int32 (magic 20240520, version 1, number of tokens) or without one (nanoGPT). Of
 * any other file each byte is a token. A file of nanoGPT is not taken for one of
 * llm.c: the magic would be the token ids 55432, 308, and GPT-2's end at 50256.
 *
 *     struct token_stream s;
 *     if (token_stream_open(&s, "a.bin,b.bin", vocab, &err) < 0) ...
 *     if (token_stream_read(&s, first, count, out, &err) < 0) ...
 *     token_stream_close(&s);
 */
#ifndef WEFT_TOKENS_H
#define WEFT_TOKENS_H

#include "common/err.h"
#include "data/datafile.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOKEN_HEADER = 1024 }; /* bytes of the header of llm.c */

/* Where the tokens of one file are. */
struct token_view {
    int64_t offset; /* of the first token, bytes */
    int64_t tokens;
    int width;          /* bytes of a token: 1 or 2 */
    const char *format; /* "text", "nanoGPT tokens", "llm.c tokens" */
};

/* Finds the tokens in a file of `size` bytes that begins with `head` (TOKEN_HEADER bytes, or all of
 * a smaller file); `binary` says that its name ends in ".bin". Messages begin with the place in
 * the file. Returns 0 or -1 (EXIT_INPUT). */
int token_view_parse(struct token_view *view, const unsigned char *head, int64_t size,
                     bool binary, int64_t vocab, struct err *err);

/* Index of the first of n 16-bit tokens whose id is not below vocab, or n. */
int64_t token_find_beyond(const unsigned char *p, int64_t n, int64_t vocab);

struct token_shard {
    struct datafile file;
    struct token_view view;
    int64_t begin; /* index in the stream of its first token */
};

struct token_stream {
    struct token_shard *shard; /* owned */
    int64_t shards;
    int64_t tokens; /* of all shards */
    int64_t vocab;  /* all ids are below */
};

/* Opens FILE or FILE,FILE,... (a file whose own name has a comma is one file) and checks all ids.
 * Returns 0 or -1 with the stream closed. */
int token_stream_open(struct token_stream *s, const char *source, int64_t vocab,
                      struct err *err);
void token_stream_close(struct token_stream *s); /* a zeroed one is fine */

/* Reads count tokens from first on (both inside the stream), across shards. Returns 0, or -1
 * (EXIT_SYSTEM) where a file cannot be read any more or was changed. */
int token_stream_read(const struct token_stream *s, int64_t first, int64_t count,
                      int32_t *out, struct err *err);

/* Adds to *hash what the files hold, as datafile_hash. Returns 0 or -1. */
int token_stream_hash(const struct token_stream *s, uint64_t *hash, struct err *err);

#endif
