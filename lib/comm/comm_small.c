/* A few bytes of each for all, and bytes of one for all, through MPI messages.
 *
 * The gather takes log2(n) rounds (Bruck): before round k a rank has the bytes of the k
 * ranks from itself upwards, and gets those of the next k from the rank k places above. With
 * no bytes at all that is a barrier. A broadcast goes down a binomial tree.
 */
#include "comm/comm_impl.h"

#include <string.h>

static enum step failed(struct mpi_group *m, int rc) {
    m->rc = rc;
    return STEP_FAILED;
}

static char *stage_of(const struct mpi_group *m) {
    return (char *)m->stage;
}

/* m->at: bytes of each; m->k: ranks whose bytes are here. */
static enum step gather_round(struct mpi_group *m) {
    int n = m->n, ranks = (int)min64(m->k, n - m->k), tag = tag_of(m, TAG_SMALL);
    int bytes = ranks * (int)m->at, above = m->ranks[(m->me + m->k) % n];
    int below = m->ranks[(m->me - m->k + n) % n];
    int rc = MPI_Irecv(stage_of(m) + m->k * m->at, bytes, MPI_BYTE, above, tag,
                       m->comm->world, &m->req[0]);
    if (rc == MPI_SUCCESS)
        rc = MPI_Isend(m->stage, bytes, MPI_BYTE, below, tag, m->comm->world, &m->req[1]);
    return rc == MPI_SUCCESS ? STEP_MORE : failed(m, rc);
}

static enum step gather_step(struct mpi_group *m, struct comm_work *w) {
    enum step came = requests_test(m, 0, 2);
    if (came != STEP_MORE)
        return came;
    m->k += (int)min64(m->k, m->n - m->k);
    if (m->k < m->n)
        return gather_round(m);
    for (int p = 0; p < m->n; p++) {
        m->src[p] = stage_of(m) + (p - m->me + m->n) % m->n * m->at;
    }
    return m->then(m, w);
}

enum step small_gather(struct mpi_group *m, const void *in, size_t bytes) {
    if (!requests_stage(m))
        return STEP_FAILED;
    if (bytes)
        memcpy(m->stage, in, bytes);
    m->at = (int64_t)bytes;
    m->k = 1;
    m->step = gather_step;
    return gather_round(m);
}

/* ---- broadcast ------------------------------------------------------------------------ */

/* Place in the tree: the root has 0; the parent of r is r without its lowest bit. */
static int tree_place(const struct mpi_group *m, const struct comm_work *w) {
    return (m->me - w->peer + m->n) % m->n;
}

static int tree_rank(const struct mpi_group *m, const struct comm_work *w, int place) {
    return m->ranks[(place + w->peer) % m->n];
}

static int piece_len(const struct mpi_group *m, const struct comm_work *w) {
    return (int)min64(w->count - m->at, COMM_PIECE);
}

static enum step start_piece(struct mpi_group *m, struct comm_work *w);

/* Sends are under way to all children: on to the next piece when they are through. */
static enum step sent_step(struct mpi_group *m, struct comm_work *w) {
    enum step sent = requests_test(m, 0, m->k);
    if (sent != STEP_MORE)
        return sent;
    m->at += COMM_PIECE;
    return m->at < w->count ? start_piece(m, w) : STEP_DONE;
}

static enum step send_piece(struct mpi_group *m, struct comm_work *w) {
    int place = tree_place(m, w), rc = MPI_SUCCESS;
    m->k = 0;
    for (int bit = 1; place + bit < m->n && !(place & bit) && rc == MPI_SUCCESS; bit *= 2)
        rc = MPI_Isend((char *)w->out + m->at, piece_len(m, w), MPI_BYTE,
                       tree_rank(m, w, place + bit), tag_of(m, TAG_TREE), m->comm->world,
                       &m->req[m->k++]);
    m->step = sent_step;
    return rc == MPI_SUCCESS ? STEP_MORE : failed(m, rc);
}

static enum step came_step(struct mpi_group *m, struct comm_work *w) {
    enum step came = requests_test(m, 0, 1);
    return came == STEP_MORE ? send_piece(m, w) : came;
}

static enum step start_piece(struct mpi_group *m, struct comm_work *w) {
    int place = tree_place(m, w);
    if (place == 0)
        return send_piece(m, w);
    m->step = came_step;
    int rc = MPI_Irecv((char *)w->out + m->at, piece_len(m, w), MPI_BYTE,
                       tree_rank(m, w, place & (place - 1)), tag_of(m, TAG_TREE),
                       m->comm->world, &m->req[0]);
    return rc == MPI_SUCCESS ? STEP_MORE : failed(m, rc);
}

enum step broadcast_begin(struct mpi_group *m, struct comm_work *w) {
    if (!requests_stage(m))
        return STEP_FAILED;
    m->at = 0;
    return start_piece(m, w);
}
