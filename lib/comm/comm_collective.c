/* The collectives: each chooses among three ways.
 *
 * A few kilobytes are shown to everybody, who then works alone (one meeting). More than
 * that is read in place from the peers when all buffers lie in shared memory. All else goes
 * through MPI in segments. Sums are in rank order on all three.
 */
#include "comm/comm_impl.h"

#include <string.h>

static void copy(void *dst, const void *src, int64_t bytes) {
    if (dst != src && bytes)
        memmove(dst, src, (size_t)bytes);
}

/* What the largest member's buffer holds, in bytes. */
static int64_t shown_bytes(const struct mpi_group *m, const struct comm_work *w) {
    int64_t bytes = w->count * dtype_size(w->dtype);
    return w->op == COMM_reduce_scatter || w->op == COMM_all_to_all ? m->n * bytes : bytes;
}

/* Each meeting more costs a switch of ranks where they share cores, and little where they
 * do not; there a second one is cheaper than every rank reading all there is. */
static bool is_small(const struct mpi_group *m, const struct comm_work *w) {
    if (w->op == COMM_sum_double || w->op == COMM_max_double || w->op == COMM_barrier)
        return true;
    if (w->op == COMM_broadcast)
        return m->direct && w->count <= COMM_SMALL;
    int64_t most = m->direct && !m->comm->crowded ? COMM_SMALL / 8 : COMM_SMALL;
    return shown_bytes(m, w) <= most;
}

static double plus(double a, double b) {
    return a + b;
}

static double larger(double a, double b) {
    return b > a ? b : a;
}

static void fold(struct mpi_group *m, struct comm_work *w, double (*f)(double, double)) {
    double *x = w->out, v;
    for (int p = 0; p < m->n; p++)
        for (int64_t i = 0; i < w->count / (int64_t)sizeof v; i++) {
            memcpy(&v, (const char *)m->src[p] + i * (int64_t)sizeof v, sizeof v);
            x[i] = p == 0 ? v : f(x[i], v);
        }
}

/* Everybody's bytes are in m->src. */
static enum step finish_small(struct mpi_group *m, struct comm_work *w) {
    int64_t bytes = w->count * dtype_size(w->dtype);
    const struct sum sum = {w->dtype, NULL, m->src, m->n, &w->out, 1, NULL};
    switch (w->op) {
    case COMM_all_reduce: sum_in_order(&sum, 0, w->count); break;
    case COMM_reduce_scatter:
        for (int p = 0; p < m->n; p++)
            m->src[p] = (const char *)m->src[p] + m->me * bytes;
        sum_in_order(&sum, 0, w->count);
        break;
    case COMM_all_gather:
        for (int p = 0; p < m->n; p++)
            copy((char *)w->out + p * bytes, m->src[p], bytes);
        break;
    case COMM_all_to_all:
        for (int p = 0; p < m->n; p++)
            copy((char *)w->out + p * bytes, (const char *)m->src[p] + m->me * bytes,
                 bytes);
        break;
    case COMM_broadcast: copy(w->out, m->src[w->peer], bytes); break;
    case COMM_sum_double: fold(m, w, plus); break;
    case COMM_max_double: fold(m, w, larger); break;
    case COMM_barrier:
    case COMM_send:
    case COMM_recv: break;
    }
    return STEP_DONE;
}

/* One rank, or no elements. */
static enum step alone(struct mpi_group *m, struct comm_work *w) {
    if (m->n == 1 && (w->op == COMM_all_gather || w->op == COMM_reduce_scatter ||
                      w->op == COMM_all_to_all))
        copy(w->out, w->in, w->count * dtype_size(w->dtype));
    return STEP_DONE;
}

static enum step after_put(struct mpi_group *m, struct comm_work *w) {
    if (!lane_met(m))
        return STEP_WAIT;
    lane_take_in(m);
    return finish_small(m, w);
}

static enum step after_post(struct mpi_group *m, struct comm_work *w) {
    if (!lane_met(m))
        return STEP_WAIT;
    return lane_read_posts(m) ? direct_begin(m, w) : ring_begin(m, w);
}

/* Chooses the way: alone, small, through shared memory, or through MPI. */
enum step collective_begin(struct mpi_group *m, struct comm_work *w) {
    if (m->n == 1 || (w->count == 0 && w->op != COMM_barrier))
        return alone(m, w);
    if (is_small(m, w)) {
        int64_t bytes = shown_bytes(m, w);
        m->then = finish_small;
        if (!m->direct)
            return small_gather(m, w->in, (size_t)bytes);
        lane_put(m, w->in, w->op != COMM_broadcast || m->me == w->peer ? (size_t)bytes : 0);
        m->step = after_put;
        return STEP_MORE;
    }
    if (w->op == COMM_broadcast)
        return broadcast_begin(m, w);
    if (!m->direct)
        return ring_begin(m, w);
    lane_post(m, w->in);
    m->step = after_post;
    return STEP_MORE;
}
