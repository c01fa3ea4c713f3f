/* Messages between two ranks.
 *
 * A message of 2 GiB or more is one MPI message of a type made for its length, since counts
 * are int. Requests come from a free list: after the first step nothing is allocated.
 */
#include "comm/comm_impl.h"

#include "common/mem.h"

#include <limits.h>
#include <sched.h>
#include <time.h>

static struct comm_request *take_request(struct comm *c) {
    struct comm_request *q = c->free_requests;
    if (!q)
        return mem_alloc(sizeof *q);
    c->free_requests = q->next;
    return q;
}

static void give_back(struct comm *c, struct comm_request *q) {
    q->next = c->free_requests;
    c->free_requests = q;
}

/* A type of exactly `bytes` bytes: blocks of 1 MiB and the rest. */
static int big_type(int64_t bytes, MPI_Datatype *type) {
    const int64_t block = 1 << 20;
    MPI_Datatype blocks;
    int rc = MPI_Type_contiguous((int)block, MPI_BYTE, &blocks);
    if (rc != MPI_SUCCESS)
        return rc;
    int lens[2] = {(int)(bytes / block), (int)(bytes % block)};
    MPI_Aint at[2] = {0, (MPI_Aint)(bytes / block * block)};
    MPI_Datatype types[2] = {blocks, MPI_BYTE};
    rc = MPI_Type_create_struct(2, lens, at, types, type);
    if (rc == MPI_SUCCESS)
        rc = MPI_Type_commit(type);
    MPI_Type_free(&blocks);
    return rc;
}

static int start(struct comm *c, void *buf, int64_t bytes, int peer, int tag, bool send,
                 MPI_Request *req) {
    MPI_Datatype type = MPI_BYTE;
    int n = (int)bytes, rc = MPI_SUCCESS;
    if (bytes > INT_MAX) {
        rc = big_type(bytes, &type);
        n = 1;
    }
    if (rc == MPI_SUCCESS)
        rc = send ? MPI_Isend(buf, n, type, peer, tag, c->p2p, req)
                  : MPI_Irecv(buf, n, type, peer, tag, c->p2p, req);
    if (bytes > INT_MAX)
        MPI_Type_free(&type); /* MPI keeps it until the message is through */
    return rc;
}

static struct comm_request *begin(struct comm *c, void *buf, int64_t bytes, int peer,
                                  int tag, bool send, struct err *err) {
    struct comm_request *q = take_request(c);
    int rc = start(c, buf, bytes, peer, tag, send, &q->mpi);
    if (rc == MPI_SUCCESS)
        return q;
    give_back(c, q);
    comm_check(rc, send ? "MPI_Isend" : "MPI_Irecv", err);
    err_prefix(err, "rank %d", peer);
    return NULL;
}

struct comm_request *comm_send(struct comm *comm, const void *buf, int64_t bytes, int dst,
                               int tag, struct err *err) {
    return begin(comm, (void *)(uintptr_t)buf, bytes, dst, tag, true, err);
}

struct comm_request *comm_recv(struct comm *comm, void *buf, int64_t bytes, int src,
                               int tag, struct err *err) {
    return begin(comm, buf, bytes, src, tag, false, err);
}

int comm_wait(struct comm *comm, struct comm_request *q, struct err *err) {
    if (!q)
        return 0;
    int rc = MPI_Wait(&q->mpi, MPI_STATUS_IGNORE);
    give_back(comm, q);
    return comm_check(rc, "MPI_Wait", err);
}
