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
    struct nccl_line *line;
    struct comm_work what;   /* as it was started, for messages */
    cudaEvent_t place;       /* on the stream of who started it: it goes behind */
    cudaEvent_t begun, done; /* on the line's */
    bool given, late;        /* NCCL has it; it got it only after the start had returned */
    bool complete, waited;   /* `done` is reached; comm_wait was called */
    struct comm_watch watch; /* since it was seen to wait for the others */
};

enum line_state {
    LINE_NEW,   /* its communicator is not begun */
    LINE_MEETS, /* the id of one for messages is under way */
    LINE_OPENS,
    LINE_READY
};

/* A communicator, and the works that go through it in the order of their starts. */
struct nccl_line {
    struct nccl_job *job;
    enum line_state state;
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

/* A group: its line, or where it has none, or for messages between ranks that share a GPU, the same
 * group of the staging backend. */
struct nccl_group {
    struct nccl_line *line;
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
    struct nccl_line *root_line; /* of the groups that are the whole layer */
    void *stage;                 /* the staging backend's job; NULL: nobody shares */
    struct device *device;       /* NULL before the first work */
    int groups;                  /* that are open */
    ARR(struct nccl_line *) lines;
    ARR(struct nccl_track *) tracks; /* under way */
    ARR(struct nccl_track *) spare;
    double looked_s; /* when errors and times were looked at */
    bool failed;
    struct err err;
};

/* nccl_line.c: a line of no messages, ready, of one rank alone */
struct nccl_line *nccl_line_new(struct nccl_job *j);
/* Ends its communicator; of all lines before the first is freed, for a failure aborts those that are left. */
void nccl_line_end(struct nccl_line *line);
void nccl_line_free(struct nccl_line *line);
/* Puts a work at the end of the line, and gives NCCL what it can take. */
int nccl_line_start(struct nccl_line *line, struct comm_work *w, struct err *err);
int nccl_line_wait(struct comm_work *w, struct err *err);
/* Gives NCCL what it can take now: 1 if anything moved, 0, or -1. */
int nccl_line_move(struct nccl_line *line, struct err *err);

/* Is the event reached? 1, 0, or -1. */
int nccl_reached(cudaEvent_t e, struct err *err);

/* nccl_message.c: the line of a message's pair and tag; NULL on failure. */
struct nccl_line *nccl_message_line(struct nccl_job *j, const struct comm_work *w,
                                    struct err *err);
/* Towards its communicator: 1 if anything moved, 0, or -1. */
int nccl_message_open(struct nccl_line *line, struct err *err);

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
