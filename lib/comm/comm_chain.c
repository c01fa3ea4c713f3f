/* The all-reduce of groups that have several members on each of several nodes: a chain.
 *
 * With m members on a node, the exchange of comm_ring.c would send every byte m times over
 * the node's one link. A chain sends it once each way: partial sums travel up, rank 0 to
 * rank n-1, each adding its own (which is just the rank order wanted), and the sums travel
 * down again, both at the same time, segment by segment:
 *
 *     rank 0   up0 up1 up2 up3      down0 down1 ...       step t of rank r works on
 *     rank 1       up0 up1 up2 up3 ...                    up t and down t - 2 (n-1-r)
 *
 * Members in rank order that are neighbours on a node cross each link once.
 */
#include "comm/comm_impl.h"

enum { TAG_UP = 11, TAG_DOWN };

enum { UP_RECV, UP_SEND, DOWN_SEND = UP_SEND + 2 }; /* requests; the sends are two deep */

struct chain {
    struct comm_group *g;
    float *buf;
    int64_t count, seg, segs;
};

static int seg_len(const struct chain *c, int64_t s) {
    int64_t left = c->count - s * c->seg;
    return (int)(left < c->seg ? left : c->seg);
}

static float *seg_at(const struct chain *c, int64_t s) {
    return c->buf + s * c->seg;
}

static int post_up(struct chain *c, int64_t s) {
    struct comm_group *g = c->g;
    if (g->me == 0 || s >= c->segs)
        return MPI_SUCCESS;
    return MPI_Irecv(g->stage + (s & 1) * c->seg, seg_len(c, s), MPI_FLOAT, g->me - 1,
                     TAG_UP, g->mpi, &g->req[UP_RECV]);
}

/* Takes the partial sum of segment s from below, adds the own part and passes it on. */
static int up(struct chain *c, int64_t s) {
    struct comm_group *g = c->g;
    float *own = seg_at(c, s);
    int rc = MPI_SUCCESS;
    if (g->me > 0) {
        rc = MPI_Wait(&g->req[UP_RECV], MPI_STATUS_IGNORE);
        if (rc == MPI_SUCCESS)
            rc = post_up(c, s + 1);
        const float *two[] = {g->stage + (s & 1) * c->seg, own};
        sum_in_order(two, 2, &own, 1, 0, seg_len(c, s));
    }
    MPI_Request *sent = &g->req[UP_SEND + (s & 1)];
    if (rc == MPI_SUCCESS)
        rc = MPI_Wait(sent, MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && g->me < g->n - 1)
        rc = MPI_Isend(own, seg_len(c, s), MPI_FLOAT, g->me + 1, TAG_UP, g->mpi, sent);
    return rc;
}

/* Takes the sum of segment s from above into its place and passes it on. */
static int down(struct chain *c, int64_t s) {
    struct comm_group *g = c->g;
    int rc = MPI_SUCCESS;
    if (s + 2 >=
        c->segs) /* the last two; up() has waited for the upward send of the others */
        rc = MPI_Wait(&g->req[UP_SEND + (s & 1)], MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && g->me < g->n - 1)
        rc = MPI_Recv(seg_at(c, s), seg_len(c, s), MPI_FLOAT, g->me + 1, TAG_DOWN, g->mpi,
                      MPI_STATUS_IGNORE);
    MPI_Request *sent = &g->req[DOWN_SEND + (s & 1)];
    if (rc == MPI_SUCCESS)
        rc = MPI_Wait(sent, MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && g->me > 0)
        rc = MPI_Isend(seg_at(c, s), seg_len(c, s), MPI_FLOAT, g->me - 1, TAG_DOWN, g->mpi,
                       sent);
    return rc;
}

int chain_all_reduce(struct comm_group *g, float *buf, int64_t count, struct err *err) {
    if (ring_stage(g, err) < 0)
        return -1;
    int64_t seg =
        (count / 8 / 1024 + 1) * 1024; /* short vectors: more and smaller segments */
    struct chain c = {
        .g = g, .buf = buf, .count = count, .seg = seg < g->seg ? seg : g->seg};
    c.segs = (count + c.seg - 1) / c.seg;
    int64_t lag = 2 * (g->n - 1 - g->me);
    for (int i = 0; i < DOWN_SEND + 2; i++)
        g->req[i] = MPI_REQUEST_NULL;
    int rc = post_up(&c, 0);
    for (int64_t t = 0; t < c.segs + lag && rc == MPI_SUCCESS; t++) {
        if (t < c.segs)
            rc = up(&c, t);
        if (t >= lag && rc == MPI_SUCCESS)
            rc = down(&c, t - lag);
    }
    if (rc == MPI_SUCCESS)
        rc = MPI_Waitall(DOWN_SEND + 2, g->req, MPI_STATUSES_IGNORE);
    return comm_check(rc, "all-reduce", err);
}
