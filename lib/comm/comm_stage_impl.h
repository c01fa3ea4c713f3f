/* comm_stage_impl.h - what the two files of the staging backend share. */
#ifndef WEFT_COMM_STAGE_IMPL_H
#define WEFT_COMM_STAGE_IMPL_H

#include "comm/comm_stage.h"

#include "common/mem.h"
#include "device/device.h"

/* Where a piece is. */
enum piece_state {
    PIECE_NONE,   /* the slot is free */
    PIECE_COMING, /* being copied from the device, or waiting for its place there */
    PIECE_MOVING, /* in MPI */
    PIECE_GOING,  /* being copied to the device */
    PIECE_THERE
};

struct stage_slot {
    enum piece_state state;
    struct comm_work *of;        /* whose piece it is */
    int64_t at, n;               /* elements of each part: the first, how many */
    char *in, *out;              /* pinned; out: where it is not in place */
    int64_t room, out_room;      /* bytes of them */
    struct device_event *copied; /* behind its copies */
    struct comm_work work;       /* on the host */
};

/* Works that happen in the order of their starts: the collectives of a group, or the messages to or
 * from one rank with one tag. */
struct stage_queue {
    struct stage_job *job;
    struct comm_group *host; /* of the same ranks, on the host; of messages, the world */
    enum comm_op op;         /* COMM_send, COMM_recv, else of a group */
    int peer, tag;           /* of messages; a rank of the job */
    struct comm_work *head, *tail; /* under way; head is the oldest */
    struct comm_work *next;        /* the one whose pieces are to be begun; NULL = none */
    int64_t at;                    /* its elements that are begun */
    int first, busy;               /* slots in use: a ring */
    struct stage_slot slot[COMM_STAGE_SLOTS];
    struct device_stream *down, *up; /* copies from, to the device */
    ARR(struct device_event *) spare;
    ARR(char *) outgrown; /* pinned memory that was too small */
};

struct stage_job {
    struct comm *comm;
    struct device *device; /* of the works; NULL before the first */
    int64_t piece_bytes;
    bool direct;
    int groups;                       /* that are open */
    ARR(struct stage_queue *) queues; /* of groups and of messages */
};

/* comm_stage_piece.c: moves the works of a queue on; 1 if anything moved, 0, -1 on failure. */
int stage_move(struct stage_queue *q, struct err *err);
/* The event that marks where the work was started; kept in its handle. */
static inline struct device_event *stage_started(const struct comm_work *w) {
    return (struct device_event *)(intptr_t)w->scratch[0];
}

#endif
