/* datafile.h - a regular, non-empty file that is read piece by piece (private to lib/data).
 *
 * Every read is checked: a file that is cut short, or whose disk fails, while a training uses it
 * is an error that says where. (Mapped, it would be a SIGBUS.)
 *
 *     struct datafile file;
 *     if (datafile_open(&file, "train.bin", &err) < 0) ...   // "train.bin: is a directory, ..."
 *     if (datafile_read(&file, at, n, bytes, &err) < 0) ...
 *     datafile_close(&file);
 */
#ifndef WEFT_DATAFILE_H
#define WEFT_DATAFILE_H

#include "common/err.h"

#include <stdint.h>
#include <string.h>

/* All binary formats here are little-endian and read in place (IDX swaps its header). */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "weft reads data on little-endian");

/* Numbers that may stand at any byte. */
static inline uint16_t load16(const unsigned char *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline int64_t load32(const unsigned char *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline int64_t load64(const unsigned char *p) {
    int64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

enum { DATAFILE_CHUNK = 1 << 16 }; /* bytes that readers take at a time */

struct datafile {
    char *path; /* owned; NULL when closed */
    int fd;
    int64_t size; /* bytes, when it was opened */
};

/* Opens a file. Errors (EXIT_INPUT) name it: missing, unreadable, a directory, not a regular file,
 * empty, still compressed with gzip. Returns 0 or -1 (*file is then closed). */
int datafile_open(struct datafile *file, const char *path, struct err *err);
void datafile_close(struct datafile *file); /* a zeroed one is fine */

/* Reads bytes [at, at+n), all inside file->size. Any number of threads may read. Returns 0, or -1
 * (EXIT_SYSTEM) where they cannot be read any more. */
int datafile_read(const struct datafile *file, int64_t at, int64_t n, void *out,
                  struct err *err);

/* Adds to *hash what the file holds: all of it, or of a large file, where that would take longer
 * than a start may, its size and 256 samples spread over it. Returns 0 or -1. */
int datafile_hash(const struct datafile *file, uint64_t *hash, struct err *err);

#endif
