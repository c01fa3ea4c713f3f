/* The collectives: each chooses among three ways.
 *
 * A few kilobytes are shown to everybody, who then works alone (one meeting). More than
 * that is read in place from the peers when all buffers lie in shared memory. All else goes
 * through MPI in segments. Sums are in rank order on all three.
 */
#include "comm/comm_impl.h"

#include <string.h>

/* Everybody sees the same few bytes of each member in g->src until the next call. */
static int show(struct comm_group *g, const void *in, int64_t bytes, struct err *err) {
    if (!g->direct)
        return ring_gather_small(g, in, (size_t)bytes, err);
    lane_put(g, in, (size_t)bytes);
    return 0;
}

/* Each meeting more costs a switch of ranks where they share cores, and little where they
 * do not; there a second one is cheaper than every rank reading all there is. */
static bool is_small(const struct comm_group *g, int64_t floats) {
    int64_t most = g->direct && !g->comm->crowded ? COMM_SMALL / 8 : COMM_SMALL;
    return floats * (int64_t)sizeof(float) <= most;
}

static void copy(float *dst, const float *src, int64_t count) {
    if (dst != src && count)
        memmove(dst, src, (size_t)count * sizeof *dst);
}

int comm_all_reduce(struct comm_group *g, float *buf, int64_t count, struct err *err) {
    if (g->n == 1 || count == 0)
        return 0;
    if (is_small(g, count)) {
        if (show(g, buf, count * 4, err) < 0)
            return -1;
        sum_in_order(g->src, g->n, &buf, 1, 0, count);
        return 0;
    }
    if (!g->direct || !lane_post(g, buf))
        return ring_all_reduce(g, buf, count, err);
    direct_all_reduce(g, count);
    return 0;
}

int comm_all_gather(struct comm_group *g, const float *in, float *out, int64_t count,
                    struct err *err) {
    if (g->n > 1 && is_small(g, count)) {
        if (show(g, in, count * 4, err) < 0)
            return -1;
        for (int p = 0; p < g->n; p++)
            copy(out + p * count, g->src[p], count);
        return 0;
    }
    if (g->n > 1 && g->direct && lane_post(g, in)) {
        direct_all_gather(g, out, count);
        return 0;
    }
    copy(out + g->me * count, in, count);
    return g->n > 1 ? ring_all_gather(g, out, count, err) : 0;
}

int comm_reduce_scatter(struct comm_group *g, float *in, float *out, int64_t count,
                        struct err *err) {
    if (g->n == 1) {
        copy(out, in, count);
        return 0;
    }
    if (is_small(g, g->n * count)) {
        if (show(g, in, g->n * count * 4, err) < 0)
            return -1;
        for (int p = 0; p < g->n; p++)
            g->src[p] += g->me * count;
        sum_in_order(g->src, g->n, &out, 1, 0, count);
        return 0;
    }
    if (!g->direct || !lane_post(g, in))
        return ring_reduce_scatter(g, in, out, count, err);
    direct_reduce_scatter(g, out, count);
    return 0;
}

int comm_all_to_all(struct comm_group *g, const float *in, float *out, int64_t count,
                    struct err *err) {
    if (g->n == 1) {
        copy(out, in, count);
        return 0;
    }
    if (is_small(g, g->n * count)) {
        if (show(g, in, g->n * count * 4, err) < 0)
            return -1;
        for (int p = 0; p < g->n; p++)
            copy(out + p * count, g->src[p] + g->me * count, count);
        return 0;
    }
    if (!g->direct || !lane_post(g, in))
        return ring_all_to_all(g, in, out, count, err);
    direct_all_to_all(g, out, count);
    return 0;
}

int comm_barrier(struct comm_group *g, struct err *err) {
    if (g->n == 1)
        return 0;
    if (!g->direct)
        return comm_check(MPI_Barrier(g->mpi), "MPI_Barrier", err);
    lane_sync(g);
    return 0;
}

/* x[i] = f over the ranks of x[i], in rank order, a lane's worth at a time. */
static int fold_double(struct comm_group *g, double *x, int n, double (*f)(double, double),
                       struct err *err) {
    const int most = COMM_SMALL / (int)sizeof *x;
    for (int at = 0; g->n > 1 && at < n; at += most) {
        int len = n - at < most ? n - at : most;
        if (show(g, x + at, len * (int64_t)sizeof *x, err) < 0)
            return -1;
        for (int p = 0; p < g->n; p++)
            for (int i = 0; i < len; i++) {
                double v;
                memcpy(&v, (const char *)g->src[p] + (size_t)i * sizeof v, sizeof v);
                x[at + i] = p == 0 ? v : f(x[at + i], v);
            }
    }
    return 0;
}

static double plus(double a, double b) {
    return a + b;
}

static double larger(double a, double b) {
    return b > a ? b : a;
}

int comm_sum_double(struct comm_group *g, double *x, int n, struct err *err) {
    return fold_double(g, x, n, plus, err);
}

int comm_max_double(struct comm_group *g, double *x, int n, struct err *err) {
    return fold_double(g, x, n, larger, err);
}

int comm_broadcast(struct comm_group *g, void *buf, int64_t bytes, int root,
                   struct err *err) {
    if (g->n == 1 || bytes == 0)
        return 0;
    if (g->direct && bytes <= COMM_SMALL) {
        lane_put(g, buf, g->me == root ? (size_t)bytes : 0);
        if (g->me != root)
            memcpy(buf, g->src[root], (size_t)bytes);
        return 0;
    }
    for (int64_t at = 0; at < bytes; at += COMM_PIECE) {
        int len = (int)(bytes - at < COMM_PIECE ? bytes - at : COMM_PIECE);
        if (comm_check(MPI_Bcast((char *)buf + at, len, MPI_BYTE, root, g->mpi),
                       "MPI_Bcast", err) < 0)
            return -1;
    }
    return 0;
}
