/* heap.h - inside the compiler: places for blocks of bytes that come and go, by best fit.
 *
 *     struct heap h = {0};
 *     int64_t at = heap_take(&h, 4096);
 *     heap_give(&h, at, 4096);
 *     heap_release(&h);            // h.top: the bytes that were needed
 */
#ifndef WEFT_HEAP_H
#define WEFT_HEAP_H

#include "common/mem.h"

#include <stdint.h>

/* A region in use up to `end`, except for holes: free bytes between live blocks, by offset,
 * none next to another or to the end. There are few of them even where thousands of blocks
 * live. */
struct hole {
    int64_t offset, bytes;
};
struct heap {
    ARR(struct hole) holes;
    int64_t end, top; /* now, and at most so far */
};
/* Takes that many bytes; returns where they begin. */
int64_t heap_take(struct heap *h, int64_t bytes);
void heap_give(struct heap *h, int64_t offset, int64_t bytes);
void heap_release(struct heap *h);

#endif
