/* Collectives through MPI messages: for groups on several nodes, and private buffers.
 *
 * A ring reduce-scatter adds the contributions to chunk c in an order that begins at rank
 * c+1; here the order must be the ranks' own. So the owner of a chunk receives the pieces
 * of all the others, segment by segment, and adds them in rank order: the same bytes on the
 * wire as a ring. Segments are received two deep, one while the other is added. All-gather
 * is the usual ring. An all-reduce is the one after the other, in place.
 */
#include "comm/comm_impl.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

static int64_t cut_len(const struct cut *c, int rank, int64_t from, int64_t most) {
    int64_t len = min64(c->total - rank * c->per, c->per) - from;
    return len < 0 ? 0 : min64(len, most);
}

static enum step fail(struct mpi_group *m, int rc) {
    m->rc = rc;
    return STEP_FAILED;
}

static enum step done(struct mpi_group *m, struct comm_work *w) {
    (void)m;
    (void)w;
    return STEP_DONE;
}

/* ---- sums ----------------------------------------------------------------------------- */

/* Where member p's part of segment s comes to stand. */
static char *slot_of(const struct mpi_group *m, const struct comm_work *w, int64_t s,
                     int p) {
    return (char *)m->stage + ((s & 1) * m->n + p) * m->seg * size_of(w);
}

/* Starts the exchange of segment s into half s & 1 of the stage: 2 n requests. */
static int start_segment(struct mpi_group *m, const struct comm_work *w, int64_t s) {
    const int size = (int)size_of(w);
    MPI_Request *req = m->req + (s & 1) * 2 * m->n;
    int64_t mine = cut_len(&m->cut, m->me, s * m->seg, m->seg);
    int rc = MPI_SUCCESS, tag = tag_of(m, TAG_PIECE);
    for (int p = 0; p < m->n && rc == MPI_SUCCESS; p++) {
        int64_t theirs = cut_len(&m->cut, p, s * m->seg, m->seg);
        const char *from =
            (const char *)w->in + (p * m->cut.per + s * m->seg) * (int64_t)size;
        if (p != m->me && mine)
            rc = MPI_Irecv(slot_of(m, w, s, p), (int)mine * size, MPI_BYTE, m->ranks[p],
                           tag, m->comm->world, &req[2 * p]);
        if (p != m->me && theirs && rc == MPI_SUCCESS)
            rc = MPI_Isend(from, (int)theirs * size, MPI_BYTE, m->ranks[p], tag,
                           m->comm->world, &req[2 * p + 1]);
    }
    return rc;
}

/* Where the sum of the own chunk goes. */
static char *own_sum(const struct mpi_group *m, const struct comm_work *w) {
    int64_t before = min64(w->count, m->me * m->cut.per);
    return (char *)w->out + (w->op == COMM_all_reduce ? before * size_of(w) : 0);
}

/* Adds up what segment s brought. */
static void add_segment(struct mpi_group *m, const struct comm_work *w, int64_t s) {
    for (int p = 0; p < m->n; p++)
        m->src[p] = slot_of(m, w, s, p);
    m->src[m->me] = (const char *)w->in + (m->me * m->cut.per + s * m->seg) * size_of(w);
    void *to = own_sum(m, w) + s * m->seg * size_of(w);
    const struct sum sum = {w->dtype, NULL, m->src, m->n, &to, 1, NULL};
    sum_in_order(&sum, 0, cut_len(&m->cut, m->me, s * m->seg, m->seg));
}

static int64_t segments(const struct mpi_group *m) {
    return (m->cut.per + m->seg - 1) / m->seg;
}

static enum step reduce_step(struct mpi_group *m, struct comm_work *w) {
    enum step came = requests_test(m, (int)(m->s & 1) * 2 * m->n, 2 * m->n);
    if (came != STEP_MORE)
        return came;
    add_segment(m, w, m->s++);
    int rc = m->s + 1 < segments(m) ? start_segment(m, w, m->s + 1) : MPI_SUCCESS;
    if (rc != MPI_SUCCESS)
        return fail(m, rc);
    return m->s < segments(m) ? STEP_MORE : m->then(m, w);
}

/* The sum of everyone's chunk `me` of w->in, then m->then. */
static enum step reduce_begin(struct mpi_group *m, struct comm_work *w) {
    m->s = 0;
    m->step = reduce_step;
    int rc = start_segment(m, w, 0);
    if (rc == MPI_SUCCESS && segments(m) > 1)
        rc = start_segment(m, w, 1);
    return rc == MPI_SUCCESS ? STEP_MORE : fail(m, rc);
}

/* ---- exchanges ------------------------------------------------------------------------ */

/* Sends to one rank and receives from another, the same number of bytes or fewer. */
static int start_hop(struct mpi_group *m, const char *out, int64_t out_bytes, int to,
                     char *in, int64_t in_bytes, int from) {
    int tag = tag_of(m, TAG_RING);
    int rc = MPI_Irecv(in, (int)in_bytes, MPI_BYTE, m->ranks[from], tag, m->comm->world,
                       &m->req[0]);
    return rc != MPI_SUCCESS ? rc
                             : MPI_Isend(out, (int)out_bytes, MPI_BYTE, m->ranks[to], tag,
                                         m->comm->world, &m->req[1]);
}

/* Round k of an all-gather: rank r sends chunk r-k right and gets r-k-1 from the left. */
static int gather_hop(struct mpi_group *m, struct comm_work *w) {
    int n = m->n, s = (m->me - m->k + n) % n, r = (m->me - m->k - 1 + 2 * n) % n;
    char *buf = w->out;
    return start_hop(m, buf + s * m->cut.per + m->at,
                     cut_len(&m->cut, s, m->at, COMM_PIECE), (m->me + 1) % n,
                     buf + r * m->cut.per + m->at, cut_len(&m->cut, r, m->at, COMM_PIECE),
                     (m->me + n - 1) % n);
}

/* Round k of an all-to-all: with the ranks k + 1 places to the right and to the left. */
static int swap_hop(struct mpi_group *m, struct comm_work *w) {
    int to = (m->me + m->k + 1) % m->n, from = (m->me - m->k - 1 + m->n) % m->n;
    int64_t bytes = min64(m->cut.per - m->at, COMM_PIECE);
    return start_hop(m, (const char *)w->in + to * m->cut.per + m->at, bytes, to,
                     (char *)w->out + from * m->cut.per + m->at, bytes, from);
}

static enum step hop(struct mpi_group *m, struct comm_work *w) {
    int rc = w->op == COMM_all_to_all ? swap_hop(m, w) : gather_hop(m, w);
    return rc == MPI_SUCCESS ? STEP_MORE : fail(m, rc);
}

/* n - 1 rounds, each in pieces of a size that MPI can count. */
static enum step hop_step(struct mpi_group *m, struct comm_work *w) {
    enum step came = requests_test(m, 0, 2);
    if (came != STEP_MORE)
        return came;
    m->at += COMM_PIECE;
    if (m->at >= m->cut.per) {
        m->at = 0;
        m->k++;
    }
    return m->k < m->n - 1 ? hop(m, w) : STEP_DONE;
}

/* Passes the chunks round; the own one stands in its place in w->out already. */
static enum step hops_begin(struct mpi_group *m, struct comm_work *w) {
    m->k = 0;
    m->at = 0;
    m->step = hop_step;
    return hop(m, w);
}

/* ---- the collectives ------------------------------------------------------------------ */

static enum step gather_sums(struct mpi_group *m, struct comm_work *w) {
    m->cut = (struct cut){w->count * size_of(w), m->cut.per * size_of(w)};
    return hops_begin(m, w);
}

static enum step all_reduce(struct mpi_group *m, struct comm_work *w) {
    m->cut = (struct cut){w->count, (w->count / m->n / 16 + 1) * 16};
    m->then = gather_sums;
    return reduce_begin(m, w);
}

static enum step reduce_scatter(struct mpi_group *m, struct comm_work *w) {
    m->then = done;
    m->cut = (struct cut){m->n * w->count, w->count};
    return reduce_begin(m, w);
}

/* Sums are by chains over nodes or by chunks; the rest copies its own share and passes shares
 * on. */
enum step ring_begin(struct mpi_group *m, struct comm_work *w) {
    if (!requests_stage(m))
        return STEP_FAILED;
    bool sums = w->op == COMM_all_reduce || w->op == COMM_reduce_scatter;
    if (m->several && sums)
        return chain_begin(m, w);
    if (w->op == COMM_all_reduce)
        return all_reduce(m, w);
    if (w->op == COMM_reduce_scatter)
        return reduce_scatter(m, w);
    int64_t bytes = w->count * dtype_size(w->dtype);
    char *own = (char *)w->out + m->me * bytes;
    const char *from = (const char *)w->in + (w->op == COMM_all_to_all ? m->me * bytes : 0);
    if (own != from)
        memmove(own, from, (size_t)bytes);
    m->cut = (struct cut){m->n * bytes, bytes};
    return hops_begin(m, w);
}
