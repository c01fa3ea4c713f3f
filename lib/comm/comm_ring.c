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

enum { TAG_PIECE = 1, TAG_RING, TAG_SWAP };

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* `total` floats cut into chunks of `per`, one a rank; the last ones may be short or empty.
 */
struct cut {
    int64_t total, per;
};

static int64_t cut_len(const struct cut *c, int rank, int64_t from, int64_t most) {
    int64_t len = min64(c->total - rank * c->per, c->per) - from;
    return len < 0 ? 0 : min64(len, most);
}

int ring_stage(struct comm_group *g, struct err *err) {
    if (g->stage)
        return 0;
    g->seg = min64(COMM_SEG, 1 << 20) / (g->n > 16 ? g->n / 16 : 1);
    g->seg = g->seg < 4096 ? 4096 : g->seg;
    g->stage = calloc((size_t)(2 * g->n * g->seg), sizeof *g->stage);
    g->req = mem_array((size_t)(4 * g->n), sizeof(MPI_Request));
    if (!g->stage)
        return err_system(err, "no memory for a staging buffer of %d segments", 2 * g->n);
    return 0;
}

/* Everybody gets the same few bytes of each member: g->src points at them afterwards. */
int ring_gather_small(struct comm_group *g, const void *in, size_t bytes, struct err *err) {
    if (ring_stage(g, err) < 0)
        return -1;
    int n = (int)bytes, rc = MPI_Allgather(in, n, MPI_BYTE, g->stage, n, MPI_BYTE, g->mpi);
    for (int p = 0; p < g->n; p++)
        g->src[p] = (const float *)(const void *)((const char *)g->stage + p * (int64_t)n);
    return comm_check(rc, "MPI_Allgather", err);
}

/* Starts the exchange of segment s into half s & 1 of the stage: 2 n requests. */
static int start_segment(struct comm_group *g, const float *in, const struct cut *cut,
                         int64_t s) {
    MPI_Request *req = g->req + (s & 1) * 2 * g->n;
    int64_t mine = cut_len(cut, g->me, s * g->seg, g->seg);
    int rc = MPI_SUCCESS;
    for (int p = 0; p < g->n; p++) {
        int64_t theirs = cut_len(cut, p, s * g->seg, g->seg);
        float *slot = g->stage + ((s & 1) * g->n + p) * g->seg;
        req[2 * p] = req[2 * p + 1] = MPI_REQUEST_NULL;
        if (p != g->me && mine && rc == MPI_SUCCESS)
            rc = MPI_Irecv(slot, (int)mine, MPI_FLOAT, p, TAG_PIECE, g->mpi, &req[2 * p]);
        if (p != g->me && theirs && rc == MPI_SUCCESS)
            rc = MPI_Isend(in + p * cut->per + s * g->seg, (int)theirs, MPI_FLOAT, p,
                           TAG_PIECE, g->mpi, &req[2 * p + 1]);
    }
    return rc;
}

/* Adds up what segment s brought. */
static void add_segment(struct comm_group *g, const float *in, float *out,
                        const struct cut *cut, int64_t s) {
    for (int p = 0; p < g->n; p++)
        g->src[p] = g->stage + ((s & 1) * g->n + p) * g->seg;
    g->src[g->me] = in + g->me * cut->per + s * g->seg;
    float *to = out + s * g->seg;
    sum_in_order(g->src, g->n, &to, 1, 0, cut_len(cut, g->me, s * g->seg, g->seg));
}

/* out = sum of everyone's chunk `me` of in; out may be that chunk of the own input. */
static int reduce_pieces(struct comm_group *g, const float *in, float *out, struct cut cut,
                         struct err *err) {
    if (ring_stage(g, err) < 0)
        return -1;
    int64_t segs = (cut.per + g->seg - 1) / g->seg;
    int rc = segs ? start_segment(g, in, &cut, 0) : MPI_SUCCESS;
    for (int64_t s = 0; s < segs && rc == MPI_SUCCESS; s++) {
        if (s + 1 < segs)
            rc = start_segment(g, in, &cut, s + 1);
        if (rc == MPI_SUCCESS)
            rc = MPI_Waitall(2 * g->n, g->req + (s & 1) * 2 * g->n, MPI_STATUSES_IGNORE);
        if (rc == MPI_SUCCESS)
            add_segment(g, in, out, &cut, s);
    }
    return comm_check(rc, "reduce-scatter", err);
}

/* Passes the chunks round: in step k rank r sends chunk r-k right and gets r-k-1 from left.
 */
static int gather_chunks(struct comm_group *g, float *buf, struct cut cut,
                         struct err *err) {
    int right = (g->me + 1) % g->n, left = (g->me + g->n - 1) % g->n, rc = MPI_SUCCESS;
    for (int k = 0; k < g->n - 1; k++)
        for (int64_t at = 0; at < cut.per && rc == MPI_SUCCESS; at += COMM_PIECE) {
            int s = (g->me - k + g->n) % g->n, r = (g->me - k - 1 + 2 * g->n) % g->n;
            rc = MPI_Sendrecv(buf + s * cut.per + at, (int)cut_len(&cut, s, at, COMM_PIECE),
                              MPI_FLOAT, right, TAG_RING, buf + r * cut.per + at,
                              (int)cut_len(&cut, r, at, COMM_PIECE), MPI_FLOAT, left,
                              TAG_RING, g->mpi, MPI_STATUS_IGNORE);
        }
    return comm_check(rc, "all-gather", err);
}

int ring_all_reduce(struct comm_group *g, float *buf, int64_t count, struct err *err) {
    if (g->several)
        return chain_all_reduce(g, buf, count, err);
    struct cut cut = {count, (count / g->n / 16 + 1) * 16};
    float *own = buf + min64(count, g->me * cut.per);
    if (reduce_pieces(g, buf, own, cut, err) < 0)
        return -1;
    return gather_chunks(g, buf, cut, err);
}

/* The own block stands in its place in out already. */
int ring_all_gather(struct comm_group *g, float *out, int64_t count, struct err *err) {
    return gather_chunks(g, out, (struct cut){g->n * count, count}, err);
}

int ring_reduce_scatter(struct comm_group *g, float *in, float *out, int64_t count,
                        struct err *err) {
    if (!g->several)
        return reduce_pieces(g, in, out, (struct cut){g->n * count, count}, err);
    if (chain_all_reduce(g, in, g->n * count, err) < 0)
        return -1;
    if (out != in + g->me * count)
        memcpy(out, in + g->me * count, (size_t)count * sizeof *out);
    return 0;
}

int ring_all_to_all(struct comm_group *g, const float *in, float *out, int64_t count,
                    struct err *err) {
    int rc = MPI_SUCCESS;
    memcpy(out + g->me * count, in + g->me * count, (size_t)count * sizeof *out);
    for (int k = 1; k < g->n; k++)
        for (int64_t at = 0; at < count && rc == MPI_SUCCESS; at += COMM_PIECE) {
            int to = (g->me + k) % g->n, from = (g->me - k + g->n) % g->n;
            int len = (int)min64(count - at, COMM_PIECE);
            rc = MPI_Sendrecv(in + to * count + at, len, MPI_FLOAT, to, TAG_SWAP,
                              out + from * count + at, len, MPI_FLOAT, from, TAG_SWAP,
                              g->mpi, MPI_STATUS_IGNORE);
        }
    return comm_check(rc, "all-to-all", err);
}
