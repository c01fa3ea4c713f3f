/* Messages between two ranks.
 *
 * A message of 2 GiB or more is one MPI message of a type made for its length, since counts
 * are int.
 */
#include "comm/comm_impl.h"

#include <limits.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof((struct comm_work *)0)->scratch,
               "a request fits in the handle of a work");

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

static int begin(struct comm *c, struct comm_work *w, int64_t bytes, MPI_Datatype type,
                 MPI_Request *req) {
    int n = bytes > INT_MAX ? 1 : (int)bytes, peer = w->group->ranks[w->peer];
    return w->op == COMM_send ? MPI_Isend(w->in, n, type, peer, w->tag, c->p2p, req)
                              : MPI_Irecv(w->out, n, type, peer, w->tag, c->p2p, req);
}

int message_start(struct comm *c, struct comm_work *w, struct err *err) {
    MPI_Datatype type = MPI_BYTE;
    MPI_Request req = MPI_REQUEST_NULL;
    int64_t bytes = w->count * dtype_size(w->dtype);
    int rc = bytes > INT_MAX ? big_type(bytes, &type) : MPI_SUCCESS;
    if (rc == MPI_SUCCESS)
        rc = begin(c, w, bytes, type, &req);
    if (bytes > INT_MAX)
        MPI_Type_free(&type); /* MPI keeps it until the message is through */
    memcpy(w->scratch, &req, sizeof req);
    return comm_check(rc, comm_op_name(w->op), err);
}

enum work_state message_test(struct comm_work *w) {
    MPI_Request req;
    int done = 0;
    memcpy(&req, w->scratch, sizeof req);
    int rc = MPI_Test(&req, &done, MPI_STATUS_IGNORE);
    if (rc == MPI_SUCCESS && !done)
        return WORK_STARTED;
    w->scratch[0] = rc;
    return rc == MPI_SUCCESS ? WORK_DONE : WORK_FAILED;
}
