/* xxh64.h - the 64-bit hash XXH64 (Y. Collet's specification), fed piece by piece.
 *
 * Several gigabytes a second, and the figure that `xxhsum -H64 FILE` prints.
 *
 *     struct xxh64 h;
 *     xxh64_begin(&h);
 *     xxh64_add(&h, p, n);          // any number of times
 *     uint64_t hash = xxh64_end(&h);
 */
#ifndef WEFT_XXH64_H
#define WEFT_XXH64_H

#include <stddef.h>
#include <stdint.h>

struct xxh64 {
    uint64_t lane[4];       /* of the whole 32-byte stripes so far */
    uint64_t total;         /* bytes so far */
    unsigned char rest[32]; /* the bytes behind the last whole stripe */
};

void xxh64_begin(struct xxh64 *h);
void xxh64_add(struct xxh64 *h, const void *p, size_t n);
uint64_t xxh64_end(const struct xxh64 *h); /* of all bytes so far; more may follow */

#endif
