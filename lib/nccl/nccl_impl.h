/* nccl_impl.h - what the files of the backend share. */
#ifndef WEFT_NCCL_IMPL_H
#define WEFT_NCCL_IMPL_H

#include "nccl/nccl.h"

#include "common/mem.h"
#include "device/device.h"
#include "nccl/nccl_library.h"

#include <cuda_runtime_api.h>

enum { NCCL_UUID = 16 };

/* A work from its start until it is done and waited for. */
struct nccl_track {
    struct nccl_channel *channel;
    struct comm_work what;   /* as it was started, for messages */
    cudaEvent_t place;       /* on the stream of who started it: it goes behind */
    cudaEvent_t begun, done; /* on the channel's */
    bool given, late;        /* NCCL has it; it got it only after the start had returned */
    bool complete, waited;   /* `done` is reached; comm_wait was called */
    struct comm_watch watch; /* since it was seen to wait for the others */
};

enum channel_state {
    CHANNEL_NEW,   /* its communicator is not begun */
    CHANNEL_MEETS, /* the id of one for messages is under way */
    CHANNEL_OPENS,
    CHANNEL_READY
};

/* A communicator, and the works that go through it in the order of their starts. */
struct nccl_channel {
    struct nccl_job *job;
    enum channel_state state;
    ncclComm_t comm;              /* NULL: of one rank alone */
    bool borrowed;                /* the job's root */
    bool busy;                    /* NCCL still has to do with the last call */
    struct device_stream *stream; /* made with the first work */
    struct comm_work *head,
        *tail; /* that NCCL has not got yet; the first may be the last call's */
    /* Of messages: */
    bool sends;
    int peer, tag; /* rank of the job */
    ncclUniqueId id;
    struct comm_work meeting;
};

/* A group: its channel, or where it has none, or for messages between ranks that share a GPU, the same
 * group of the staging backend. */
struct nccl_group {
    struct nccl_channel *channel;
    struct comm_group *staged;
};

struct nccl_job {
    struct comm *comm;
    struct nccl_report *report, unread; /* the caller's, or unread */
    struct nccl_library nccl;
    char (*uuid)[NCCL_UUID]; /* [ranks] of their GPUs */
    int *layer;              /* [ranks] how many lower ranks have the same GPU */
    bool shares;             /* some have */
    ncclComm_t root;         /* of the ranks of this one's layer; NULL: it is alone there */
    struct nccl_channel *root_channel; /* of the groups that are the whole layer */
    void *stage;                       /* the staging backend's job; NULL: nobody shares */
    struct device *device;             /* NULL before the first work */
    int groups;                        /* that are open */
    ARR(struct nccl_channel *) channels;
    ARR(struct nccl_track *) tracks; /* under way */
    ARR(struct nccl_track *) spare;
    double looked_s; /* when errors and times were looked at */
    bool failed;
    struct err err;
};

/* nccl_channel.c: a channel of no messages, ready, of one rank alone */
struct nccl_channel *nccl_channel_new(struct nccl_job *j);
/* Ends its communicator; of all channels before the first is freed, for a failure aborts those that are left. */
void nccl_channel_end(struct nccl_channel *channel);
void nccl_channel_free(struct nccl_channel *channel);
/* Puts a work at the end of the channel, and gives NCCL what it can take. */
int nccl_channel_start(struct nccl_channel *channel, struct comm_work *w, struct err *err);
int nccl_channel_wait(struct comm_work *w, struct err *err);
/* Gives NCCL what it can take now: 1 if anything moved, 0, or -1. */
int nccl_channel_move(struct nccl_channel *channel, struct err *err);

/* Is the event reached? 1, 0, or -1. */
int nccl_reached(cudaEvent_t e, struct err *err);

/* nccl_message.c: the channel of a message's pair and tag; NULL on failure. */
struct nccl_channel *nccl_message_channel(struct nccl_job *j, const struct comm_work *w,
                                          struct err *err);
/* Towards its communicator: 1 if anything moved, 0, or -1. */
int nccl_message_open(struct nccl_channel *channel, struct err *err);

/* nccl_watch.c */
/* The mover of the job (comm_moves), whose arg it is. */
int nccl_move(void *job, struct err *err);
/* Aborts all communicators: nothing of the device waits for another rank any more. Returns -1. */
int nccl_abort(struct nccl_job *j, const struct err *err);
/* Until the last call on the communicator is through; `what`: in messages. On failure all are aborted. */
int nccl_settle(struct nccl_job *j, ncclComm_t comm, const char *what, struct err *err);
/* Frees communicators whose works are done (NULL: none): first all are told, then all are waited for,
 * since ranks come to them in orders of their own. */
void nccl_tell_end(struct nccl_job *j, ncclComm_t comm);
void nccl_end(struct nccl_job *j, ncclComm_t comm);

#endif
