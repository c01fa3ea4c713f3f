/* charsmap.h - the characters that SentencePiece puts for others (private to lib/text).
 *
 * What a model was trained with is kept as one block of bytes: the size of a trie, the trie as a double
 * array (Aoe, "An Efficient Digital Search Algorithm by Using a Double-Array Structure"; the units are those
 * of the library Darts-clone), and texts, each ended by a NUL, that its leaves point to.
 *
 *     struct charsmap map;
 *     if (charsmap_read(&map, base64, strlen(base64), &err) < 0) ...
 *     charsmap_apply(&map, "\xef\xbc\xa1", 3, &out);       // the wide A is A
 *     charsmap_release(&map);
 */
#ifndef WEFT_CHARSMAP_H
#define WEFT_CHARSMAP_H

#include "common/err.h"
#include "text/nfc.h"

struct charsmap {
    uint32_t *units; /* [n] */
    int64_t n;
    char *texts; /* [size], the last byte is NUL */
    int64_t size;
    int64_t ascii[128];     /* what each of them becomes, as charsmap_find has it */
    unsigned char *classes; /* of graphemes */
};

/* Reads a block in base64 (RFC 4648). Returns 0, or -1 (EXIT_INPUT) with nothing to release. */
int charsmap_read(struct charsmap *map, const char *base64, size_t length, struct err *err);
void charsmap_release(struct charsmap *map); /* a zeroed one is fine */

/* Puts into *out, in place of what it held, what n bytes of UTF-8 become. As the library tokenizers does it, a
 * grapheme of less than 6 bytes that begins with a key is replaced whole by what the shortest such key stands
 * for; of others each code point is. Returns how many bytes of it the library takes to begin where the text
 * does: what a code point became, or else 1. */
int64_t charsmap_apply(const struct charsmap *map, const char *text, int64_t n,
                       struct nfc_text *out);

#endif
