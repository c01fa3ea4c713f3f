/* indexed.h - many token sequences in a file, as Megatron-LM writes them (private to lib/data).
 *
 * FILE.bin holds the tokens of all sequences, FILE.idx says where each lies: the magic "MMIDIDX" and
 * two zeros; 64-bit version, 1; 8-bit type of the tokens (1 for 8 bits, 8 for 16, 4 for 32); 64-bit
 * numbers of sequences and of documents; then a 32-bit length of each sequence, in tokens, a 64-bit
 * place of each, in bytes, and 64-bit numbers of documents, which are not used. All little-endian.
 *
 *     struct indexed set = {0};
 *     if (indexed_open(&set, "inputs.idx", vocab, &err) < 0) ...
 *     struct token_run run;
 *     if (indexed_find(&set, i, &run, &err) < 0 ||
 *         token_file_read(&set.tokens, run.first, run.length, out, &err) < 0) ...
 *     indexed_close(&set);
 */
#ifndef WEFT_INDEXED_H
#define WEFT_INDEXED_H

#include "data/tokens.h"

enum { INDEXED_HEADER = 34 }; /* bytes */

struct indexed_view {
    int64_t items; /* sequences, > 0 */
    int width;     /* bytes of a token */
};

/* Reads the header of an index of `size` bytes from `head` (INDEXED_HEADER bytes, or all of a smaller
 * file). Messages begin with the place in the file. Returns 0 or -1 (EXIT_INPUT). */
int indexed_parse(struct indexed_view *view, const unsigned char *head, int64_t size,
                  struct err *err);

struct indexed {
    struct datafile index;
    struct indexed_view view;
    struct token_file tokens;
    int64_t longest; /* tokens */
};

/* A sequence among the tokens of the file. */
struct token_run {
    int64_t first, length; /* tokens; length > 0 */
};

/* Opens FILE.idx and the FILE.bin beside it; checks that every sequence lies in it and every id is
 * below vocab. Returns 0, or -1 closed. */
int indexed_open(struct indexed *s, const char *path, int64_t vocab, struct err *err);
void indexed_close(struct indexed *s); /* a zeroed one is fine */

/* Where sequence `item` lies. Returns 0, or -1 (EXIT_SYSTEM) where the index cannot be read any more
 * or was changed. */
int indexed_find(const struct indexed *s, int64_t item, struct token_run *run,
                 struct err *err);

/* Adds to *hash what both files hold, as datafile_hash. Returns 0 or -1. */
int indexed_hash(const struct indexed *s, uint64_t *hash, struct err *err);

#endif
