/* comm_backend.h - what a backend of comm implements, and what it may rely on.
 *
 * comm itself knows who is in the job and on which node, checks the lists of groups and the
 * arguments of every start, and spreads failures. A backend moves the data. MPI is always
 * there, for the world group and for everything on the host (comm_mpi.c); another one is a
 * `const struct comm_backend` that a tool names in comm_options, and takes over the groups
 * made by comm_groups_create.
 *
 * A backend may use the functions of comm.h on the world group, say to broadcast an id to the
 * members of a group that it opens.
 */
#ifndef WEFT_COMM_BACKEND_H
#define WEFT_COMM_BACKEND_H

#include "comm/comm.h"

struct comm_backend {
    const char *name;
    bool streams; /* works go to work->stream, and their buffers are the device's */
    /* When the job starts, by all ranks at once; returns the backend's own state, which is then
     * in every group->job. NULL on failure. */
    void *(*open)(struct comm *comm, void *arg, struct err *err);
    void (*close)(void *job);
    /* A list of groups, by all ranks at once; NULL where this rank is not a member. What a
     * group needs goes to group->state, which close_group frees, also after a failure. */
    int (*open_groups)(void *job, struct comm_group **groups, int n, struct err *err);
    void (*close_group)(struct comm_group *group);
    /* Begins work (its public fields are set and checked) and sets work->state. */
    int (*start)(struct comm_work *work, struct err *err);
    /* Returns when it is complete; of a backend with streams, when it is known to have been
     * given to its stream. */
    int (*wait)(struct comm_work *work, struct err *err);
};

extern const struct comm_backend comm_backend_mpi;

enum work_state { WORK_NONE, WORK_STARTED, WORK_DONE, WORK_FAILED };

struct comm_group {
    struct comm *comm;
    const struct comm_backend *backend;
    int id;       /* the same on all members, never used twice in a job */
    int n, me;    /* members; this rank's place among them */
    int *ranks;   /* [n] in the job */
    bool crosses; /* has members on several nodes */
    void *job;    /* what the backend's open returned */
    void *state;  /* the backend's, of this group */
};

/* comm_engine.c: for backends that have to do something on the host so that their works go on. */

/* `move` is called, on its thread, by a rank that waits for anything: 1 if something moved, 0, or -1
 * with an error, which ends the wait. It starts works and never waits. NULL takes back that of this
 * arg. */
typedef int comm_mover(void *arg, struct err *err);
int comm_moves(struct comm *comm, comm_mover *move, void *arg, struct err *err);
/* Moves all that is under way on the host a step: 1 if something moved, 0, or -1 with the reason why
 * the job cannot go on. */
int comm_poll(struct comm *comm, struct err *err);
/* The same for device_watch, whose arg is the comm: 0 or -1. */
int comm_watch_device(void *comm, struct err *err);

/* "all_reduce", for messages. */
const char *comm_op_name(enum comm_op op);

/* comm_alarm.c: a wait that must end. A backend calls comm_watch now and then while it waits
 * for `work`; -1 with the reason when it is to give up. `late` is the rank of the job that is
 * known to be missing, or -1. */
struct comm_watch {
    double since_s; /* when the first look was; 0 before it */
};
int comm_watch(struct comm *comm, struct comm_watch *watch, const struct comm_work *work,
               int late, struct err *err);
/* The failure of another rank alone: 0 or -1. */
int comm_alarmed(struct comm *comm, struct err *err);

#endif
