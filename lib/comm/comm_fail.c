/* A rank that cannot go on tells the others (comm_alarm.c), and ends the job. */
#include "comm/comm_impl.h"

#include "common/mem.h"
#include "common/progress.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const double mail_s = 2;  /* as long may the message take to other nodes */
static const double grace_s = 5; /* as long may the rank that failed take to end the job */

/* Whether this rank's node shares its alarm. */
static bool shares_alarm(const struct comm *c, int rank) {
    return c->desks.peer && c->node_of[rank] == c->node;
}

/* Tells the ranks that do not share the alarm; those who do not take it in time are left. */
static void mail_alarm(struct comm *c) {
    MPI_Request *req = mem_array((size_t)c->size, sizeof *req);
    int done = 0;
    for (int r = 0; r < c->size; r++) {
        req[r] = MPI_REQUEST_NULL;
        if (c->nodes > 1 && r != c->rank && !shares_alarm(c, r))
            MPI_Isend(c->alarm, (int)sizeof *c->alarm, MPI_BYTE, r, COMM_MAIL_TAG,
                      c->alarms, &req[r]);
    }
    for (double until = now_s() + mail_s; !done && now_s() < until;) {
        if (MPI_Testall(c->size, req, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    free(req);
}

bool comm_fail(struct comm *c, const struct err *err) {
    engine_stop(c->engine);
    if (alarm_raise(c, c->rank, err->status, err->msg)) {
        engine_enter(c->engine);
        mail_alarm(c);
        engine_leave(c->engine);
    }
    return atomic_load(&c->alarm->owner) == c->rank + 1;
}

void comm_abort(struct comm *c, int status) {
    int owner = atomic_load(&c->alarm->owner);
    if (owner && owner != c->rank + 1)
        nanosleep(&(struct timespec){.tv_sec = (time_t)grace_s}, NULL);
    engine_enter(c->engine); /* and never leave it: MPI is this thread's from here on */
    MPI_Abort(MPI_COMM_WORLD, status);
    _exit(status);
}
