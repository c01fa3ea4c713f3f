/* Collectives by reading the peers' memory: nothing is staged.
 *
 * All begin after the meeting at which every buffer is ready and its address known, and end
 * with another, when nobody reads or writes it any more. An all-reduce gives each rank one
 * slice: it reads that slice of every buffer and writes the sum back to every buffer while
 * the lines are still in its cache, so memory is read once and written once, which is the
 * least there is. A step does a bite of that.
 */
#include "comm/comm_impl.h"

#include <string.h>

static enum step meet_again(struct mpi_group *m, struct comm_work *w) {
    (void)w;
    return lane_met(m) ? STEP_DONE : STEP_WAIT;
}

static enum step leave(struct mpi_group *m) {
    lane_arrive(m);
    m->step = meet_again;
    return STEP_MORE;
}

static enum step add_bite(struct mpi_group *m, struct comm_work *w) {
    int64_t slice = (w->count / m->n / 16 + 1) * 16; /* whole cache lines */
    int64_t lo = min64(w->count, m->me * slice) + m->at;
    int64_t hi = min64(w->count, (m->me + 1) * slice), end = min64(hi, lo + COMM_BITE);
    for (int p = 0; p < m->n; p++)
        m->dst[p] = (void *)(uintptr_t)m->src[p]; /* the peers lent it for writing */
    const struct sum sum = {w->dtype, NULL, m->src, m->n, m->dst, m->n, NULL};
    sum_in_order(&sum, lo, end);
    m->at += COMM_BITE;
    return end < hi ? STEP_MORE : leave(m);
}

/* Only this rank reads or writes block `me`, so out may be that block of the own input. */
static enum step scatter_bite(struct mpi_group *m, struct comm_work *w) {
    for (int p = 0; p < m->n && m->at == 0; p++)
        m->src[p] = (const char *)m->src[p] + m->me * w->count * size_of(w);
    int64_t end = min64(w->count, m->at + COMM_BITE);
    const struct sum sum = {w->dtype, NULL, m->src, m->n, &w->out, 1, NULL};
    sum_in_order(&sum, m->at, end);
    m->at = end;
    return end < w->count ? STEP_MORE : leave(m);
}

/* Each rank starts at its right neighbour, so that not all read one buffer at a time. */
static enum step copy_bite(struct mpi_group *m, struct comm_work *w) {
    int64_t bytes = w->count * dtype_size(w->dtype);
    int p = (m->me + m->k) % m->n;
    const char *from = (const char *)m->src[p];
    char *to = (char *)w->out + p * bytes;
    if (w->op == COMM_all_to_all)
        from += m->me * bytes;
    int64_t n = to == from ? bytes : min64(bytes - m->at, COMM_BITE * 4);
    if (to != from)
        memcpy(to + m->at, from + m->at, (size_t)n);
    m->at += n;
    if (m->at < bytes)
        return STEP_MORE;
    m->at = 0;
    return ++m->k <= m->n ? STEP_MORE : leave(m);
}

enum step direct_begin(struct mpi_group *m, struct comm_work *w) {
    m->at = 0;
    m->k = 1;
    m->step = w->op == COMM_all_reduce       ? add_bite
              : w->op == COMM_reduce_scatter ? scatter_bite
                                             : copy_bite;
    return m->step(m, w);
}
