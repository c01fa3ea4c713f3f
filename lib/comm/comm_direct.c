/* Collectives by reading the peers' memory: nothing is staged.
 *
 * All start after lane_post, when every buffer is ready and its address known, and end with
 * a barrier, when nobody reads or writes it any more. An all-reduce gives each rank one
 * slice: it reads that slice of every buffer and writes the sum back to every buffer while
 * the lines are still in its cache, so memory is read once and written once, which is the
 * least there is.
 */
#include "comm/comm_impl.h"

#include <string.h>

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

void direct_all_reduce(struct comm_group *g, int64_t count) {
    int64_t slice = (count / g->n / 16 + 1) * 16; /* whole cache lines */
    int64_t lo = min64(count, g->me * slice), hi = min64(count, lo + slice);
    for (int p = 0; p < g->n; p++)
        g->dst[p] = (float *)(uintptr_t)g->src[p]; /* the peers lent it for writing */
    sum_in_order(g->src, g->n, g->dst, g->n, lo, hi);
    lane_sync(g);
}

/* Each rank starts at its right neighbour, so that not all read one buffer at a time. */
void direct_all_gather(struct comm_group *g, float *out, int64_t count) {
    for (int k = 1; k <= g->n; k++) {
        int p = (g->me + k) % g->n;
        if (out + p * count != g->src[p])
            memcpy(out + p * count, g->src[p], (size_t)count * sizeof *out);
    }
    lane_sync(g);
}

/* Only this rank reads or writes block `me`, so out may be that block of the own input. */
void direct_reduce_scatter(struct comm_group *g, float *out, int64_t count) {
    for (int p = 0; p < g->n; p++)
        g->src[p] += g->me * count;
    sum_in_order(g->src, g->n, &out, 1, 0, count);
    lane_sync(g);
}

void direct_all_to_all(struct comm_group *g, float *out, int64_t count) {
    for (int k = 1; k <= g->n; k++) {
        int p = (g->me + k) % g->n;
        memcpy(out + p * count, g->src[p] + g->me * count, (size_t)count * sizeof *out);
    }
    lane_sync(g);
}
