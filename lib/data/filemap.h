/* filemap.h - a regular, non-empty file mapped read-only (private to lib/data).
 *
 *     struct filemap map;
 *     if (filemap_open(&map, "train.bin", &err) < 0) ...   // "train.bin: is a directory,
 * ..." use(map.bytes, map.size); filemap_close(&map);
 */
#ifndef WEFT_FILEMAP_H
#define WEFT_FILEMAP_H

#include "common/err.h"

#include <stdint.h>

/* All binary formats here are little-endian and read in place (IDX swaps its header). */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "weft reads data on little-endian");

struct filemap {
    const unsigned char *bytes; /* NULL when closed */
    int64_t size;
};

/* Maps a file. Errors (EXIT_INPUT) name it: missing, unreadable, a directory, not a
 * regular file, empty, still compressed with gzip. Returns 0 or -1 (*map is then closed).
 */
int filemap_open(struct filemap *map, const char *path, struct err *err);
void filemap_close(struct filemap *map); /* a zeroed one is fine */

#endif
