/* The alarm: how every rank learns that one cannot go on, and when a wait has lasted too long.
 *
 * A node has one alarm, in shared memory: the first rank that fails takes it and writes its
 * message there. To other nodes the message goes by MPI; each rank keeps a receipt open for
 * one. Whoever waits looks at the alarm of its node now and then (comm_watch).
 */
#include "comm/comm_impl.h"

#include "common/progress.h"

#include <stdio.h>
#include <string.h>

static const double turn_s = 0.25; /* between nodes that lose patience at the same time */

void alarm_listen(struct comm *c) {
    if (c->nodes > 1 && MPI_Irecv(&c->mail, (int)sizeof c->mail, MPI_BYTE, MPI_ANY_SOURCE,
                                  COMM_MAIL_TAG, c->alarms, &c->mail_req) != MPI_SUCCESS)
        c->mail_req = MPI_REQUEST_NULL;
}

void alarm_deaf(struct comm *c) {
    if (c->mail_req == MPI_REQUEST_NULL)
        return;
    MPI_Cancel(&c->mail_req);
    MPI_Wait(&c->mail_req, MPI_STATUS_IGNORE);
}

/* Takes the node's alarm for the failure of rank `owner`; false if there is one already. */
bool alarm_raise(struct comm *c, int owner, int status, const char *msg) {
    int none = 0;
    if (!atomic_compare_exchange_strong(&c->alarm->owner, &none, owner + 1))
        return false;
    c->alarm->status = status;
    snprintf(c->alarm->msg, sizeof c->alarm->msg, "%s", msg);
    atomic_store(&c->alarm->ready, 1);
    return true;
}

void alarm_poll(struct comm *c) {
    int arrived = 0;
    if (c->mail_req == MPI_REQUEST_NULL ||
        MPI_Test(&c->mail_req, &arrived, MPI_STATUS_IGNORE) != MPI_SUCCESS || !arrived)
        return;
    alarm_raise(c, atomic_load(&c->mail.owner) - 1, c->mail.status, c->mail.msg);
}

/* "all_reduce of 1024 f32 in the group of ranks 0, 2, 4, ..." */
static void describe(const struct comm_work *w, char *text, size_t room) {
    const struct comm_group *g = w->group;
    if (w->op == COMM_send || w->op == COMM_recv) {
        snprintf(text, room, "%s of %lld %s, tag %d", comm_op_name(w->op),
                 (long long)w->count, dtype_name(w->dtype), w->tag);
        return;
    }
    int n = snprintf(text, room, "%s of %lld %s among ranks", comm_op_name(w->op),
                     (long long)w->count, dtype_name(w->dtype));
    for (int p = 0; p < g->n && p < 8 && n < (int)room; p++)
        n += snprintf(text + n, room - (size_t)n, "%s %d", p ? "," : "", g->ranks[p]);
    if (g->n > 8 && n < (int)room)
        snprintf(text + n, room - (size_t)n, ", ... (%d)", g->n);
}

static int too_long(const struct comm *c, const struct comm_work *w, int late,
                    struct err *err) {
    char what[256], whom[32] = "the others";
    describe(w, what, sizeof what);
    if (w->op == COMM_send || w->op == COMM_recv)
        late = w->group->ranks[w->peer];
    if (late >= 0)
        snprintf(whom, sizeof whom, "rank %d", late);
    return err_system(err, "rank %d has waited %g s for %s: %s", c->rank,
                      c->options.timeout_s, whom, what);
}

int comm_alarmed(struct comm *c, struct err *err) {
    if (!atomic_load_explicit(&c->alarm->ready, memory_order_acquire))
        return 0;
    err_system(err, "rank %d: %s", atomic_load(&c->alarm->owner) - 1, c->alarm->msg);
    if (err)
        err->status = c->alarm->status;
    return -1;
}

/* Nodes give up one after the other, so that one rank speaks. */
int comm_watch(struct comm *c, struct comm_watch *watch, const struct comm_work *w,
               int late, struct err *err) {
    if (comm_alarmed(c, err) < 0)
        return -1;
    if (c->options.timeout_s <= 0)
        return 0;
    double now = now_s();
    if (!watch->since_s)
        watch->since_s = now;
    double turn = c->node < 8 ? turn_s * c->node : 8 * turn_s;
    return now - watch->since_s > c->options.timeout_s + turn ? too_long(c, w, late, err)
                                                              : 0;
}
