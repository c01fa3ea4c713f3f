/* Messages: a communicator of two ranks for each direction and tag.
 *
 * NCCL has no tags: what two ranks exchange through one communicator matches by order alone, and works of
 * one communicator happen one after the other, so that two ranks that both receive first would wait
 * for ever. With one for each direction and tag the order is that of comm.h, and no message waits
 * behind another. The sender makes the id and sends it through MPI; neither side waits for that, or
 * for NCCL to connect: works wait on the line meanwhile. */
#include "nccl/nccl_impl.h"

#include <stdatomic.h>

/* Tags of ids, beside those of messages; and how many multiprocessors a message may take. */
enum { ID_TAG = 1 << 22, MESSAGE_CTAS = 8 };

static struct nccl_line *find(const struct nccl_job *j, bool sends, int peer, int tag) {
    for (int64_t i = 0; i < j->lines.n; i++) {
        struct nccl_line *line = j->lines.p[i];
        if (line->peer == peer && line->tag == tag && line->sends == sends)
            return line;
    }
    return NULL;
}

struct nccl_line *nccl_message_line(struct nccl_job *j, const struct comm_work *w,
                                    struct err *err) {
    struct comm_group *world = comm_world(j->comm);
    bool sends = w->op == COMM_send;
    int peer = w->group->ranks[w->peer];
    struct nccl_line *line = find(j, sends, peer, w->tag);
    if (line)
        return line;
    line = nccl_line_new(j);
    line->sends = sends;
    line->peer = peer;
    line->tag = w->tag;
    line->state = LINE_MEETS;
    int rc = 0;
    if (sends)
        rc = nccl_check(&j->nccl, j->nccl.ncclGetUniqueId(&line->id), "making an id", err);
    if (rc == 0)
        rc = sends ? comm_start_send(world, &line->id, sizeof line->id, DTYPE_u8, peer,
                                     ID_TAG | w->tag, &line->meeting, err)
                   : comm_start_recv(world, &line->id, sizeof line->id, DTYPE_u8, peer,
                                     ID_TAG | w->tag, &line->meeting, err);
    return rc < 0 ? NULL : line;
}

static int begin(struct nccl_line *line, struct err *err) {
    const struct nccl_library *lib = &line->job->nccl;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = MESSAGE_CTAS;
    ncclResult_t rc =
        lib->ncclCommInitRankConfig(&line->comm, 2, line->id, line->sends ? 0 : 1, &config);
    return nccl_check(lib, rc, "a communicator for messages", err);
}

int nccl_message_open(struct nccl_line *line, struct err *err) {
    const struct nccl_library *lib = &line->job->nccl;
    if (line->state == LINE_MEETS) {
        if (atomic_load_explicit(&line->meeting.state, memory_order_acquire) ==
            WORK_STARTED)
            return 0;
        if (comm_wait(&line->meeting, err) < 0 || begin(line, err) < 0)
            return -1;
        line->state = LINE_OPENS;
        return 1;
    }
    ncclResult_t state = ncclSuccess;
    if (nccl_check(lib, lib->ncclCommGetAsyncError(line->comm, &state), "asking", err) <
            0 ||
        nccl_check(lib, state, "a communicator for messages", err) < 0)
        return -1;
    if (state == ncclInProgress)
        return 0;
    line->job->report->communicators++;
    line->state = LINE_READY;
    return 1;
}
