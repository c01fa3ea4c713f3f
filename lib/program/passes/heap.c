/* Best fit over the holes between live blocks. */
#include "program/passes/heap.h"

#include <stdlib.h>
#include <string.h>

static void heap_remove(struct heap *h, int64_t i) {
    memmove(h->holes.p + i, h->holes.p + i + 1,
            sizeof *h->holes.p * (size_t)(h->holes.n - 1 - i));
    h->holes.n--;
}

/* Best fit: the first of the smallest holes that hold the bytes, else the end. */
int64_t heap_take(struct heap *h, int64_t bytes) {
    int64_t best = -1, at = h->end;
    for (int64_t i = 0; i < h->holes.n; i++)
        if (h->holes.p[i].bytes >= bytes &&
            (best < 0 || h->holes.p[i].bytes < h->holes.p[best].bytes))
            best = i;
    if (best < 0) {
        h->end += bytes;
        h->top = h->end > h->top ? h->end : h->top;
        return at;
    }
    struct hole *hole = &h->holes.p[best];
    at = hole->offset;
    hole->offset += bytes;
    hole->bytes -= bytes;
    if (!hole->bytes)
        heap_remove(h, best);
    return at;
}

/* The first hole behind the offset. */
static int64_t heap_hole_behind(const struct heap *h, int64_t offset) {
    int64_t lo = 0, hi = h->holes.n;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (h->holes.p[mid].offset < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Joins the bytes with what is free on either side; at the region's end, that moves
 * back. */
void heap_give(struct heap *h, int64_t offset, int64_t bytes) {
    int64_t i = heap_hole_behind(h, offset);
    struct hole *p = h->holes.p, *before = i ? &p[i - 1] : NULL;
    if (before && before->offset + before->bytes == offset) {
        offset = before->offset;
        bytes += before->bytes;
        heap_remove(h, --i);
    }
    if (i < h->holes.n && offset + bytes == p[i].offset) {
        bytes += p[i].bytes;
        heap_remove(h, i);
    }
    if (offset + bytes == h->end) {
        h->end = offset;
        return;
    }
    arr_push(&h->holes, (struct hole){0, 0});
    memmove(h->holes.p + i + 1, h->holes.p + i,
            sizeof *h->holes.p * (size_t)(h->holes.n - 1 - i));
    h->holes.p[i] = (struct hole){offset, bytes};
}

void heap_release(struct heap *h) {
    arr_release(&h->holes);
}
