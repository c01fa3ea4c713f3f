/* The all-reduce of groups that have several members on each of several nodes: chains.
 *
 * With m members on a node, the exchange of comm_ring.c would send every byte m times over
 * the node's one link. A chain of nodes sends it once each way: partial sums travel up,
 * node by node, each adding its members' parts (which is just the rank order wanted), and
 * the sums travel down again, both at the same time, segment by segment:
 *
 *     place 0   up0 up1 up2 up3 ...      down0 down1 ...
 *     place 1       up0 up1 up2 up3 ... down0 down1 ...
 *     the last          up0 up1 up2 ...
 *
 * There are m such chains, one for each slice of the buffer: member j of every node reads
 * slice j of its node peers where it lies and writes the sum there. That takes as many
 * members on each node, in blocks, and shared memory; where one of these is missing there
 * is one chain through all members, and each has only its own buffer to add. Partial sums of
 * numbers of 16 bits travel up as f32, so that only the sum is rounded.
 */
#include "comm/comm_impl.h"

#include <string.h>

enum { UP_RECV, UP_SEND, DOWN_SEND = UP_SEND + 2, DOWN_RECV = DOWN_SEND + 2, REQUESTS };

static int64_t seg_lo(const struct chain *c, int64_t s) {
    return c->lo + s * c->seg;
}

static int64_t seg_byte(const struct chain *c, int64_t s) {
    return dtype_size(c->dtype) * seg_lo(c, s);
}

static int seg_len(const struct chain *c, int64_t s) {
    int64_t left = c->hi - seg_lo(c, s);
    return (int)(left < c->seg ? left : c->seg);
}

static char *own(const struct mpi_group *m) {
    return m->chain.part[m->me % m->chain.m];
}

static enum step check(struct mpi_group *m, int rc) {
    m->rc = rc;
    return rc == MPI_SUCCESS ? STEP_MORE : STEP_FAILED;
}

/* Bytes of segment s on its way to the neighbour above (1), to the one below (-1). */
static int seg_bytes(const struct chain *c, int64_t s, int way) {
    return seg_len(c, s) * (int)dtype_size(way > 0 ? DTYPE_f32 : c->dtype);
}

/* What goes up is the own buffer, or stands behind what comes from below. */
static char *going_up(const struct mpi_group *m, int64_t s) {
    const struct chain *c = &m->chain;
    return c->dtype == DTYPE_f32 ? own(m) + seg_byte(c, s)
                                 : (char *)(m->stage + (2 + (s & 1)) * c->seg);
}

/* Sends segment s to the neighbour above (1) or below (-1). */
static int send_seg(struct mpi_group *m, int64_t s, int way, int req) {
    const struct chain *c = &m->chain;
    return MPI_Isend(way > 0 ? going_up(m, s) : own(m) + seg_byte(c, s),
                     seg_bytes(c, s, way), MPI_BYTE, m->ranks[m->me + way * c->stride],
                     tag_of(m, way > 0 ? TAG_UP : TAG_DOWN), m->comm->world, &m->req[req]);
}

/* Receives it from there. */
static int recv_seg(struct mpi_group *m, int64_t s, void *to, int way, int req) {
    const struct chain *c = &m->chain;
    return MPI_Irecv(to, seg_bytes(c, s, -way), MPI_BYTE, m->ranks[m->me + way * c->stride],
                     tag_of(m, way > 0 ? TAG_DOWN : TAG_UP), m->comm->world, &m->req[req]);
}

/* Starts the receipt of the partial sum of segment s from below, into half s & 1. */
static int post_up(struct mpi_group *m, int64_t s) {
    const struct chain *c = &m->chain;
    if (c->place == 0 || s >= c->segs)
        return MPI_SUCCESS;
    return recv_seg(m, s, m->stage + (s & 1) * c->seg, -1, UP_RECV);
}

/* What came from below plus the parts of this node; at the top that is the sum itself and
 * goes to all of them, else only to where it is sent on from. */
static void add_parts(struct mpi_group *m, int64_t s) {
    struct chain *c = &m->chain;
    bool top = c->place == c->last;
    struct sum sum = {.dtype = c->dtype, .src = m->src, .n = c->m, .dst = m->dst};
    if (c->place > 0)
        sum.before = m->stage + (s & 1) * c->seg;
    if (!top)
        sum.carry = (float *)(void *)going_up(m, s);
    for (int i = 0; i < c->m; i++) {
        m->src[i] = c->part[i] + seg_byte(c, s);
        if (top)
            m->dst[sum.nd++] = c->part[i] + seg_byte(c, s);
    }
    if (sum.before || c->m > 1 || c->dtype != DTYPE_f32)
        sum_in_order(&sum, 0, seg_len(c, s));
}

/* Moves the next segment upwards, when it is here and its way on is free. */
static enum step up(struct mpi_group *m) {
    struct chain *c = &m->chain;
    int64_t s = c->up;
    enum step ready = s < c->segs ? requests_test(m, UP_SEND + (int)(s & 1), 1) : STEP_WAIT;
    if (ready == STEP_MORE)
        ready = requests_test(m, UP_RECV, 1);
    if (ready != STEP_MORE)
        return ready;
    int rc = post_up(m, s + 1);
    add_parts(m, s);
    c->up++;
    if (rc == MPI_SUCCESS && c->place < c->last)
        rc = send_seg(m, s, 1, UP_SEND + (int)(s & 1));
    return check(m, rc);
}

/* Takes the sum of segment s from above into its place: a buffer that has been sent up. */
static enum step take(struct mpi_group *m, int64_t s) {
    struct chain *c = &m->chain;
    if (c->taking)
        return requests_test(m, DOWN_RECV, 1);
    if (s + 2 >= c->up && requests_test(m, UP_SEND + (int)(s & 1), 1) != STEP_MORE)
        return STEP_WAIT;
    c->taking = true;
    m->rc = recv_seg(m, s, own(m) + seg_byte(c, s), 1, DOWN_RECV);
    return m->rc == MPI_SUCCESS ? STEP_WAIT : STEP_FAILED;
}

/* Moves the next sum downwards: to the node peers and to the node below. */
static enum step down(struct mpi_group *m) {
    struct chain *c = &m->chain;
    int64_t s = c->down;
    if (s >= c->up)
        return STEP_WAIT;
    enum step ready = requests_test(m, DOWN_SEND + (int)(s & 1), 1);
    if (ready == STEP_MORE && c->place < c->last)
        ready = take(m, s);
    if (ready != STEP_MORE)
        return ready;
    char *sum = own(m) + seg_byte(c, s);
    for (int i = 0; i < c->m && c->place < c->last; i++)
        if (c->part[i] != own(m))
            memcpy(c->part[i] + seg_byte(c, s), sum, (size_t)seg_bytes(c, s, -1));
    c->taking = false;
    c->down++;
    return check(m,
                 c->place > 0 ? send_seg(m, s, -1, DOWN_SEND + (int)(s & 1)) : MPI_SUCCESS);
}

/* The sum is whole on every rank; of a reduce-scatter only the own block is wanted. */
static enum step finish(struct mpi_group *m, struct comm_work *w) {
    int64_t bytes = w->count * size_of(w);
    const char *block = (const char *)w->in + m->me * bytes;
    if (w->op == COMM_reduce_scatter && w->out != block)
        memcpy(w->out, block, (size_t)bytes);
    return STEP_DONE;
}

static enum step leave(struct mpi_group *m, struct comm_work *w) {
    return m->chain.m == 1 || lane_met(m->local) ? finish(m, w) : STEP_WAIT;
}

static enum step chain_step(struct mpi_group *m, struct comm_work *w) {
    struct chain *c = &m->chain;
    enum step rose = up(m), fell = rose == STEP_FAILED ? STEP_FAILED : down(m);
    if (fell == STEP_FAILED)
        return STEP_FAILED;
    if (c->down < c->segs)
        return rose == STEP_MORE || fell == STEP_MORE ? STEP_MORE : STEP_WAIT;
    enum step sent = requests_test(m, 0, REQUESTS);
    if (sent != STEP_MORE)
        return sent;
    if (c->m > 1)
        lane_arrive(m->local);
    m->step = leave;
    return leave(m, w);
}

/* Gives the chain its slice: part `i` of `m`, in segments; short ones make short segments.
 */
static void cut_slice(struct chain *c, int64_t most, int64_t count, int i) {
    int64_t slice = (count / c->m / 16 + 1) * 16, seg = (slice / 8 / 1024 + 1) * 1024;
    c->lo = i * slice < count ? i * slice : count;
    c->hi = c->lo + slice < count ? c->lo + slice : count;
    c->seg = seg < most ? seg : most;
    c->segs = (c->hi - c->lo + c->seg - 1) / c->seg;
}

/* m->src: whether each member's node shares its buffers; they are in local->src if so. */
static enum step agreed(struct mpi_group *m, struct comm_work *w) {
    struct chain *c = &m->chain;
    bool shared = true;
    for (int p = 0; p < m->n; p++) {
        int theirs;
        memcpy(&theirs, m->src[p], sizeof theirs);
        shared = shared && theirs;
    }
    c->m = shared ? m->local->n : 1;
    c->dtype = w->dtype;
    c->part = (char **)m->dst + m->n; /* the room behind the sums' own */
    c->part[0] = w->op == COMM_all_reduce ? w->out : (void *)(uintptr_t)w->in;
    for (int p = 0; shared && p < c->m; p++)
        c->part[p] = (char *)(uintptr_t)m->local->src[p]; /* lent for writing */
    c->stride = c->m;
    c->place = m->me / c->m;
    c->last = m->n / c->m - 1;
    c->up = c->down = 0;
    c->taking = false;
    int64_t count = w->op == COMM_all_reduce ? w->count : m->n * w->count;
    cut_slice(c, m->seg, count, m->me % c->m);
    m->step = chain_step;
    return check(m, post_up(m, 0));
}

static enum step ask(struct mpi_group *m, bool shared) {
    int mine = shared;
    m->then = agreed;
    return small_gather(m, &mine, sizeof mine);
}

static enum step after_post(struct mpi_group *m, struct comm_work *w) {
    (void)w;
    return lane_met(m->local) ? ask(m, lane_read_posts(m->local)) : STEP_WAIT;
}

enum step chain_begin(struct mpi_group *m, struct comm_work *w) {
    if (!m->local || !m->local->direct)
        return ask(m, false);
    lane_post(m->local, w->in);
    m->step = after_post;
    return STEP_MORE;
}
