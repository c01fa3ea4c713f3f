/* The all-reduce of groups that have several members on each of several nodes: chains.
 *
 * With m members on a node, the exchange of comm_ring.c would send every byte m times over
 * the node's one link. A chain of nodes sends it once each way: partial sums travel up,
 * node by node, each adding its members' parts (which is just the rank order wanted), and
 * the sums travel down again, both at the same time, segment by segment:
 *
 *     place 0   up0 up1 up2 up3      down0 down1 ...      step t of place p works on up t
 *     place 1       up0 up1 up2 up3 ...                   and on down t - 2 (last - p)
 *
 * There are m such chains, one for each slice of the buffer: member j of every node reads
 * slice j of its node peers where it lies and writes the sum there. That takes as many
 * members on each node, in blocks, and shared memory; where one of these is missing there
 * is one chain through all members, and each has only its own buffer to add.
 */
#include "comm/comm_impl.h"

#include <string.h>

enum { TAG_UP = 11, TAG_DOWN };

enum { UP_RECV, UP_SEND, DOWN_SEND = UP_SEND + 2, REQUESTS = DOWN_SEND + 2 };

struct chain {
    struct comm_group *g;
    int place, last; /* in the chain */
    int stride;      /* between neighbours in it, as ranks of the group */
    float *own;      /* this rank's buffer */
    float **part; /* [m] the buffers of the node's members in group order, own included */
    int m;
    int64_t lo, hi, seg; /* the slice, and how it is cut */
    int64_t segs;
};

static int64_t seg_lo(const struct chain *c, int64_t s) {
    return c->lo + s * c->seg;
}

static int seg_len(const struct chain *c, int64_t s) {
    int64_t left = c->hi - seg_lo(c, s);
    return (int)(left < c->seg ? left : c->seg);
}

/* Starts the receipt of the partial sum of segment s from below, into half s & 1. */
static int post_up(struct chain *c, int64_t s) {
    struct comm_group *g = c->g;
    if (c->place == 0 || s >= c->segs)
        return MPI_SUCCESS;
    return MPI_Irecv(g->stage + (s & 1) * c->seg, seg_len(c, s), MPI_FLOAT,
                     g->me - c->stride, TAG_UP, g->mpi, &g->req[UP_RECV]);
}

/* What came from below plus the parts of this node; at the top that is the sum itself and
 * goes to all of them, else only to the own buffer, which serves to send it on. */
static void add_parts(struct chain *c, int64_t s) {
    struct comm_group *g = c->g;
    bool top = c->place == c->last;
    int64_t at = seg_lo(c, s);
    int n = 0, nd = 0;
    if (c->place > 0)
        g->src[n++] = g->stage + (s & 1) * c->seg;
    for (int i = 0; i < c->m; i++) {
        g->src[n++] = c->part[i] + at;
        if (top || c->part[i] == c->own)
            g->dst[nd++] = c->part[i] + at;
    }
    if (n > 1)
        sum_in_order(g->src, n, g->dst, nd, 0, seg_len(c, s));
}

static int up(struct chain *c, int64_t s) {
    struct comm_group *g = c->g;
    int rc = MPI_SUCCESS;
    if (c->place > 0) {
        rc = MPI_Wait(&g->req[UP_RECV], MPI_STATUS_IGNORE);
        if (rc == MPI_SUCCESS)
            rc = post_up(c, s + 1);
    }
    if (rc == MPI_SUCCESS)
        add_parts(c, s);
    MPI_Request *sent = &g->req[UP_SEND + (s & 1)];
    if (rc == MPI_SUCCESS)
        rc = MPI_Wait(sent, MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && c->place < c->last)
        rc = MPI_Isend(c->own + seg_lo(c, s), seg_len(c, s), MPI_FLOAT, g->me + c->stride,
                       TAG_UP, g->mpi, sent);
    return rc;
}

/* Takes the sum of segment s from above into its place, here and with the node peers. */
static int take_down(struct chain *c, int64_t s) {
    struct comm_group *g = c->g;
    float *own = c->own + seg_lo(c, s);
    int rc = MPI_SUCCESS;
    if (s + 2 >=
        c->segs) /* the last two; up() has waited for the upward send of the others */
        rc = MPI_Wait(&g->req[UP_SEND + (s & 1)], MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS)
        rc = MPI_Recv(own, seg_len(c, s), MPI_FLOAT, g->me + c->stride, TAG_DOWN, g->mpi,
                      MPI_STATUS_IGNORE);
    for (int i = 0; i < c->m && rc == MPI_SUCCESS; i++)
        if (c->part[i] != c->own)
            memcpy(c->part[i] + seg_lo(c, s), own, (size_t)seg_len(c, s) * sizeof *own);
    return rc;
}

static int down(struct chain *c, int64_t s) {
    struct comm_group *g = c->g;
    MPI_Request *sent = &g->req[DOWN_SEND + (s & 1)];
    int rc = c->place < c->last ? take_down(c, s) : MPI_SUCCESS;
    if (rc == MPI_SUCCESS)
        rc = MPI_Wait(sent, MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && c->place > 0)
        rc = MPI_Isend(c->own + seg_lo(c, s), seg_len(c, s), MPI_FLOAT, g->me - c->stride,
                       TAG_DOWN, g->mpi, sent);
    return rc;
}

static int run(struct chain *c) {
    struct comm_group *g = c->g;
    int64_t lag = 2 * (c->last - c->place);
    for (int i = 0; i < REQUESTS; i++)
        g->req[i] = MPI_REQUEST_NULL;
    int rc = post_up(c, 0);
    for (int64_t t = 0; c->segs && t < c->segs + lag && rc == MPI_SUCCESS; t++) {
        if (t < c->segs)
            rc = up(c, t);
        if (t >= lag && rc == MPI_SUCCESS)
            rc = down(c, t - lag);
    }
    return rc == MPI_SUCCESS ? MPI_Waitall(REQUESTS, g->req, MPI_STATUSES_IGNORE) : rc;
}

/* Gives the chain its slice: part `i` of `m`, in segments; short ones make short segments.
 */
static void cut_slice(struct chain *c, int64_t count, int i) {
    int64_t slice = (count / c->m / 16 + 1) * 16, seg = (slice / 8 / 1024 + 1) * 1024;
    c->lo = i * slice < count ? i * slice : count;
    c->hi = c->lo + slice < count ? c->lo + slice : count;
    c->seg = seg < c->g->seg ? seg : c->g->seg;
    c->segs = (c->hi - c->lo + c->seg - 1) / c->seg;
}

/* Whether the buffers of every node are shared there; the node's addresses are in
 * local->src. */
static int all_shared(struct comm_group *g, const float *buf, int *all) {
    int mine = g->local && g->local->direct && lane_post(g->local, buf);
    return MPI_Allreduce(&mine, all, 1, MPI_INT, MPI_MIN, g->mpi);
}

int chain_all_reduce(struct comm_group *g, float *buf, int64_t count, struct err *err) {
    int shared;
    if (ring_stage(g, err) < 0)
        return -1;
    int rc = all_shared(g, buf, &shared);
    if (rc != MPI_SUCCESS)
        return comm_check(rc, "all-reduce", err);
    struct comm_group *local = shared ? g->local : NULL;
    struct chain c = {.g = g, .own = buf, .part = &buf, .m = local ? local->n : 1};
    c.stride = c.m;
    c.place = g->me / c.m;
    c.last = g->n / c.m - 1;
    if (local) {
        for (int p = 0; p < c.m; p++)
            local->dst[p] = (float *)(uintptr_t)local->src[p]; /* lent for writing */
        c.part = local->dst;
    }
    cut_slice(&c, count, g->me % c.m);
    rc = run(&c);
    if (local && rc == MPI_SUCCESS)
        lane_sync(local);
    return comm_check(rc, "all-reduce", err);
}
