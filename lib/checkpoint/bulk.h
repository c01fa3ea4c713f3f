/* bulk.h - large files written and read by several threads, a few MiB at a time, their XXH64 computed
 * beside that.
 *
 * A file is the same bytes whatever the number of threads: a piece goes to its own place, and the hash
 * takes the pieces in their order. What is to be written may lie where only a callback can read it, as
 * the memory of a GPU: then the calling thread fetches pieces into a few rooms, from which the others
 * write and hash them.
 *
 *     struct bulk_part parts[] = {{header, n, false}, {data, bytes, true}};   // the file, in order
 *     struct bulk_way way = {.threads = 4};
 *     if (bulk_write("a.safetensors", parts, 2, &way, &done, &err) < 0) ...     // written and synced
 *     if (bulk_hash("a.safetensors", size, &way, &hash, &err) < 0) ...
 */
#ifndef WEFT_BULK_H
#define WEFT_BULK_H

#include "common/dtype.h"
#include "common/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct bulk_part {
    const void *data; /* borrowed */
    int64_t bytes;
    bool numbers; /* floats, and where `fetch` fetches from; else bytes on the host */
    /* of the numbers at `data`; the file has them as f32, whose bytes are counted */
    enum dtype dtype;
};

/* How bytes are moved; all zero is right for one thread and memory of the host. */
struct bulk_way {
    int threads; /* at most, the calling one included; below 1 it alone */
    /* Copies bytes of a part's numbers to the host; called by the calling thread alone. NULL where they
     * are there. */
    int (*fetch)(void *ctx, void *to, const void *from, int64_t bytes, struct err *err);
    void *ctx;
    /* grows by the bytes that are done, for whoever wants to see it; or NULL */
    atomic_llong *done;
};

struct bulk_done {
    int64_t bytes; /* of the file */
    uint64_t hash; /* of all of it */
    bool finite;   /* no number is infinite or none */
};

/* Makes (or replaces) a file of the parts and syncs it to the disk; where that fails, there is no such
 * file. Returns 0, or -1 (EXIT_SYSTEM) with a message that names it. */
int bulk_write(const char *path, const struct bulk_part *parts, int64_t n,
               const struct bulk_way *way, struct bulk_done *out, struct err *err);

/* The hash of a file of so many bytes. Returns 0; or -1: EXIT_INPUT where it is shorter, EXIT_SYSTEM where
 * it cannot be read. */
int bulk_hash(const char *path, int64_t bytes, const struct bulk_way *way, uint64_t *hash,
              struct err *err);

/* Reads bytes at..at+n of an open file, which messages call `path`. Returns 0 or -1, as bulk_hash. */
int bulk_read_at(int fd, const char *path, void *to, int64_t n, int64_t at,
                 struct err *err);

#endif
