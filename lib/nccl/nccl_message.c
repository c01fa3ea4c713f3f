/* Messages: a communicator of two ranks for each direction and tag.
 *
 * NCCL has no tags: what two ranks exchange through one communicator matches by order alone, and works of
 * one communicator happen one after the other, so that two ranks that both receive first would wait
 * for ever. With one for each direction and tag the order is that of comm.h, and no message waits
 * behind another. The sender makes the id and sends it through MPI; neither side waits for that, or
 * for NCCL to connect: works wait on the channel meanwhile. */
#include "nccl/nccl_impl.h"

#include <stdatomic.h>

/* Tags of ids, beside those of messages; and how many multiprocessors a message may take. */
enum { ID_TAG = 1 << 22, MESSAGE_CTAS = 8 };

static struct nccl_channel *find(const struct nccl_job *j, bool sends, int peer, int tag) {
    for (int64_t i = 0; i < j->channels.n; i++) {
        struct nccl_channel *channel = j->channels.p[i];
        if (channel->peer == peer && channel->tag == tag && channel->sends == sends)
            return channel;
    }
    return NULL;
}

struct nccl_channel *nccl_message_channel(struct nccl_job *j, const struct comm_work *w,
                                          struct err *err) {
    struct comm_group *world = comm_world(j->comm);
    bool sends = w->op == COMM_send;
    int peer = w->group->ranks[w->peer];
    struct nccl_channel *channel = find(j, sends, peer, w->tag);
    if (channel)
        return channel;
    channel = nccl_channel_new(j);
    channel->sends = sends;
    channel->peer = peer;
    channel->tag = w->tag;
    channel->state = CHANNEL_MEETS;
    int rc = 0;
    if (sends)
        rc = nccl_check(&j->nccl, j->nccl.ncclGetUniqueId(&channel->id), "making an id",
                        err);
    if (rc == 0)
        rc = sends ? comm_start_send(world, &channel->id, sizeof channel->id, DTYPE_u8,
                                     peer, ID_TAG | w->tag, &channel->meeting, err)
                   : comm_start_recv(world, &channel->id, sizeof channel->id, DTYPE_u8,
                                     peer, ID_TAG | w->tag, &channel->meeting, err);
    return rc < 0 ? NULL : channel;
}

static int begin(struct nccl_channel *channel, struct err *err) {
    const struct nccl_library *lib = &channel->job->nccl;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.maxCTAs = MESSAGE_CTAS;
    ncclResult_t rc = lib->ncclCommInitRankConfig(&channel->comm, 2, channel->id,
                                                  channel->sends ? 0 : 1, &config);
    return nccl_check(lib, rc, "a communicator for messages", err);
}

int nccl_message_open(struct nccl_channel *channel, struct err *err) {
    const struct nccl_library *lib = &channel->job->nccl;
    if (channel->state == CHANNEL_MEETS) {
        if (atomic_load_explicit(&channel->meeting.state, memory_order_acquire) ==
            WORK_STARTED)
            return 0;
        if (comm_wait(&channel->meeting, err) < 0 || begin(channel, err) < 0)
            return -1;
        channel->state = CHANNEL_OPENS;
        return 1;
    }
    ncclResult_t state = ncclSuccess;
    if (nccl_check(lib, lib->ncclCommGetAsyncError(channel->comm, &state), "asking", err) <
            0 ||
        nccl_check(lib, state, "a communicator for messages", err) < 0)
        return -1;
    if (state == ncclInProgress)
        return 0;
    channel->job->report->communicators++;
    channel->state = CHANNEL_READY;
    return 1;
}
