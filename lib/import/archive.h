/* archive.h - a zip archive as torch.export.save writes it: entries that are stored as they are.
 *
 * The file is mapped and never unpacked; an entry that is compressed is refused when it is asked
 * for. Sizes beyond 4 GiB (zip64) are read, since archives hold weights. Format: PKWARE's
 * APPNOTE.TXT, 4.3.
 *
 *     struct archive a;
 *     if (archive_open(&a, "model.pt2", &err) < 0) ...
 *     const struct archive_entry *e = archive_find(&a, "models/model.json");
 *     if (e && archive_check(e, &err) == 0)
 *         parse(e->bytes, e->size);
 *     archive_close(&a);
 */
#ifndef WEFT_ARCHIVE_H
#define WEFT_ARCHIVE_H

#include "common/err.h"
#include "common/mem.h"

#include <stdbool.h>
#include <stdint.h>

struct archive_entry {
    const char *name;     /* without the folder that holds everything */
    const uint8_t *bytes; /* of the archive, borrowed */
    int64_t size;
    uint32_t crc;
    bool stored; /* else compressed or encrypted: bytes are not what was put in */
};

struct archive {
    const uint8_t *bytes;
    int64_t size;
    bool mapped;
    struct arena arena; /* names */
    ARR(struct archive_entry) entries;
};

/* Maps a file. Close it only when opening succeeded. */
int archive_open(struct archive *a, const char *path, struct err *err);
/* The same of bytes in memory, borrowed. */
int archive_parse(struct archive *a, const void *bytes, int64_t size, struct err *err);
void archive_close(struct archive *a);

/* Does a file begin as a zip archive does? False where it cannot be read. */
bool archive_is(const char *path);

/* The entry of this name, or NULL. */
const struct archive_entry *archive_find(const struct archive *a, const char *name);
/* The only entry whose name begins and ends so, or NULL where there are none or several. */
const struct archive_entry *archive_match(const struct archive *a, const char *begin,
                                          const char *end);
/* Is it stored, and what was put in? */
int archive_check(const struct archive_entry *e, struct err *err);

#endif
