/* The engine: started works, and the threads that move them on.
 *
 * Every group has a queue of collectives, of which the first takes its steps; messages are in
 * a ring of their own and only need to be tested. A poll takes one step of each queue and
 * tests one message, which also lets MPI move all the others.
 *
 * Two threads may poll, one at a time: the caller's while it waits, and the helper while the
 * caller computes. So a wait never depends on the other thread, a caller that waits at once
 * pays one uncontended lock and no switch of threads, and MPI is never called by two threads
 * at a time. The helper sleeps while nothing that wants it is under way, and takes short
 * naps while nothing moves: it shares its core with the computation.
 *
 * The helper of a job on several nodes also wakes now and then when there is nothing to do:
 * MPI may hold on to bytes of messages that it has called complete, and failures on other
 * nodes arrive as messages.
 *
 * A caller that waits does so busily for a few microseconds, then gives its core away
 * (sched_yield), then sleeps: in shared memory until the missing member arrives (futex), for
 * messages in naps. Ranks may outnumber cores, and a late peer may be computing for seconds
 * on the very core that a busy waiter would take from it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* PR_SET_TIMERSLACK */
#endif
#include "comm/comm_impl.h"

#include "common/mem.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static const long nap_least_ns = 20000, nap_most_ns = 160000; /* of the helper */
static const long idle_ns = 20000000;  /* between its looks when nothing is under way */
static const long wait_nap_ns = 20000; /* of a caller that has waited long */
enum { NAP_AFTER = 20000, ALARM_EVERY = 64 }; /* polls */

struct engine {
    struct comm *comm;
    struct mpi_group **busy; /* [n_busy] groups with works under way */
    int n_busy, room, groups;
    struct comm_work *messages; /* under way: the last of a ring, NULL = none */
    int helped;                 /* works under way that the helper is to see to */
    unsigned polls;

    bool has_helper, stop, asleep,
        dead; /* dead: the job has failed, nothing moves any more */
    pthread_t helper;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    _Atomic int callers; /* in the engine, or about to be: the helper keeps off */
};

/* ---- one step ------------------------------------------------------------------------- */

static void finished(struct engine *e, struct comm_work *w, enum work_state state) {
    e->helped -= w->helped;
    atomic_store_explicit(&w->state, state, memory_order_release);
}

/* One step of the first work of a group; true if it moved. */
static bool step_group(struct engine *e, struct mpi_group *m) {
    struct comm_work *w = m->head;
    enum step did = m->step(m, w);
    if (did == STEP_WAIT || did == STEP_MORE)
        return did == STEP_MORE;
    m->head = w->next;
    m->step = collective_begin;
    if (did == STEP_FAILED)
        w->scratch[0] = m->rc;
    finished(e, w, did == STEP_DONE ? WORK_DONE : WORK_FAILED);
    return true;
}

static bool poll_groups(struct engine *e) {
    bool moved = false;
    for (int i = 0; i < e->n_busy;) {
        struct mpi_group *m = e->busy[i];
        moved |= step_group(e, m);
        if (m->head)
            i++;
        else
            e->busy[i] = e->busy[--e->n_busy];
    }
    return moved;
}

/* Tests the message whose turn it is; true if it is complete. Its handle is its owner's again
 * with the last line. */
static bool poll_message(struct engine *e) {
    struct comm_work *before = e->messages;
    if (!before)
        return false;
    struct comm_work *w = before->next;
    enum work_state state = message_test(w);
    if (state == WORK_STARTED) {
        e->messages = w;
        return false;
    }
    before->next = w->next;
    if (before == w)
        e->messages = NULL;
    finished(e, w, state);
    return true;
}

static bool poll(struct engine *e) {
    bool moved = poll_groups(e);
    moved |= poll_message(e);
    if (++e->polls % ALARM_EVERY == 0)
        alarm_poll(e->comm);
    return moved;
}

/* MPI moves messages only inside its calls; a probe that finds nothing is the cheapest. */
static void push_messages(void) {
    int found;
    MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);
}

/* ---- the helper ----------------------------------------------------------------------- */

void engine_enter(struct engine *e) {
    if (!e->has_helper)
        return;
    atomic_fetch_add(&e->callers, 1);
    pthread_mutex_lock(&e->lock);
}

void engine_leave(struct engine *e) {
    if (!e->has_helper)
        return;
    atomic_fetch_sub(&e->callers, 1);
    if (e->asleep && e->helped)
        pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* Sleeps until there is something to do; false when it is time to look at MPI anyway. */
static bool sleep_helper(struct engine *e) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += idle_ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    e->asleep = true;
    int rc = e->comm->nodes > 1 ? pthread_cond_timedwait(&e->wake, &e->lock, &until)
                                : pthread_cond_wait(&e->wake, &e->lock);
    e->asleep = false;
    return rc == 0;
}

/* The progress thread: it steps aside for any caller in the engine, and naps longer and longer
 * while nothing moves. */
static void *help(void *arg) {
    struct engine *e = arg;
    long nap = nap_least_ns;
    prctl(PR_SET_TIMERSLACK, 1000L, 0, 0, 0);
    pthread_mutex_lock(&e->lock);
    while (!e->stop) {
        bool wanted = e->helped && !e->dead;
        if (atomic_load(&e->callers) || !wanted) {
            if (!sleep_helper(e) && !atomic_load(&e->callers) && !e->dead) {
                push_messages();
                alarm_poll(e->comm);
            }
            nap = nap_least_ns;
            continue;
        }
        bool moved = poll(e);
        pthread_mutex_unlock(&e->lock);
        nap = moved ? nap_least_ns : min64(2 * nap, nap_most_ns);
        if (!moved)
            nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* Signals are for the caller's thread. */
static int start_helper(struct engine *e, struct err *err) {
    sigset_t all, old;
    if (!e->comm->threads)
        return err_system(err, "this MPI library allows no progress thread");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&e->helper, NULL, help, e);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return err_system(err, "cannot start the progress thread");
    e->has_helper = true;
    return 0;
}

struct engine *engine_create(struct comm *c) {
    struct engine *e = mem_alloc(sizeof *e);
    e->comm = c;
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_t steady; /* a host whose clock is set back would else sleep as long */
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&e->wake, &steady);
    pthread_condattr_destroy(&steady);
    return e;
}

struct comm *engine_comm(const struct engine *e) {
    return e->comm;
}

void engine_destroy(struct engine *e) {
    if (e->has_helper) {
        pthread_mutex_lock(&e->lock);
        e->stop = true;
        pthread_cond_signal(&e->wake);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->helper, NULL);
    }
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->wake);
    free(e->busy);
    free(e);
}

void engine_room(struct engine *e, int groups) {
    engine_enter(e);
    e->groups += groups;
    if (e->groups > e->room) {
        e->room = 2 * e->groups;
        e->busy = mem_grow(e->busy, (size_t)e->room, sizeof(struct mpi_group *));
    }
    engine_leave(e);
}

void engine_stop(struct engine *e) {
    engine_enter(e);
    e->dead = true;
    engine_leave(e);
}

/* After a failure works may have been left in its queue. */
void engine_drop_group(struct engine *e, struct mpi_group *m) {
    engine_enter(e);
    e->groups--;
    for (int i = 0; i < e->n_busy; i++)
        if (e->busy[i] == m)
            e->busy[i] = e->busy[--e->n_busy];
    engine_leave(e);
}

/* ---- starting and waiting ------------------------------------------------------------- */

/* Whether the work leaves this rank's node. */
static bool crosses(const struct comm_work *w) {
    const struct comm_group *g = w->group;
    const int *node_of = g->comm->node_of;
    if (w->op == COMM_send || w->op == COMM_recv)
        return node_of[g->ranks[w->peer]] != node_of[g->ranks[g->me]];
    return g->crosses;
}

static bool wants_help(const struct comm *c, const struct comm_work *w) {
    enum comm_progress p = w->progress ? w->progress : c->options.progress;
    return p == COMM_PROGRESS_ON || (p == COMM_PROGRESS_AUTO && c->threads && crosses(w));
}

static void queue_collective(struct engine *e, struct comm_work *w) {
    struct mpi_group *m = w->group->state;
    w->next = NULL;
    if (m->head) {
        m->tail = m->tail->next = w;
        return;
    }
    m->head = m->tail = w;
    m->step = collective_begin;
    e->busy[e->n_busy++] = m;
    poll_groups(e); /* so that the peers get something at once */
}

static int queue_message(struct engine *e, struct comm_work *w, struct err *err) {
    if (message_start(e->comm, w, err) < 0)
        return -1;
    w->next = e->messages ? e->messages->next : w;
    if (e->messages)
        e->messages->next = w;
    e->messages = w; /* the last of the ring */
    return 0;
}

static int job_has_failed(struct err *err) {
    return err_system(err, "the job has failed");
}

/* The state is set before the work is queued: from then on the helper may finish it. */
int engine_start(struct comm_work *w, struct err *err) {
    struct comm *c = w->group->comm;
    struct engine *e = c->engine;
    int rc = 0;
    if (e->dead)
        return job_has_failed(err);
    if ((w->op == COMM_all_reduce || w->op == COMM_reduce_scatter) &&
        w->dtype != DTYPE_f32 && !dtype_is_half(w->dtype))
        return err_system(err, "%s: no sums of %s on the host", comm_op_name(w->op),
                          dtype_name(w->dtype));
    w->helped = wants_help(c, w);
    if (w->helped && !e->has_helper && start_helper(e, err) < 0)
        return -1;
    engine_enter(e);
    e->helped += w->helped;
    atomic_store_explicit(&w->state, WORK_STARTED, memory_order_relaxed);
    if (w->op == COMM_send || w->op == COMM_recv)
        rc = queue_message(e, w, err);
    else
        queue_collective(e, w);
    if (rc < 0)
        finished(e, w, WORK_NONE);
    engine_leave(e);
    return rc;
}

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* The group in whose meeting the work may be, or NULL: it waits for messages. */
static struct mpi_group *meeting(const struct comm_work *w) {
    struct mpi_group *m = w->group->state;
    return w->op != COMM_send && w->op != COMM_recv && m->direct ? m : NULL;
}

/* The i-th time in a row that nothing moved. */
static void pause_caller(const struct comm *c, const struct comm_work *w, int i) {
    if (i < c->spins) {
        relax();
        return;
    }
    struct mpi_group *m = meeting(w);
    bool long_since = i > c->spins + c->yields;
    if (m && (i % 32 == 0 || long_since)) /* nothing else calls MPI here */
        push_messages();
    if (m && long_since && m->met < m->n)
        lane_sleep(m);
    else if (i > NAP_AFTER)
        nanosleep(&(struct timespec){.tv_nsec = wait_nap_ns}, NULL);
    else
        sched_yield();
}

/* ---- other backends ------------------------------------------------------------------- */

int comm_moves(struct comm *c, comm_mover *move, void *arg, struct err *err) {
    int i = 0;
    while (i < c->n_movers && c->movers[i].arg != arg)
        i++;
    if (!move && i < c->n_movers)
        c->movers[i] = c->movers[--c->n_movers];
    if (!move)
        return 0;
    if (i == COMM_MOVERS)
        return err_system(err, "more than %d backends", COMM_MOVERS);
    c->movers[i].move = move;
    c->movers[i].arg = arg;
    c->n_movers += i == c->n_movers;
    return 0;
}

/* Outside of the engine, which they enter themselves. What they call does not call them again. */
static int move_others(struct comm *c, struct err *err) {
    int moved = 0;
    if (c->moving)
        return 0;
    c->moving = true;
    for (int i = 0; i < c->n_movers && moved >= 0; i++) {
        int rc = c->movers[i].move(c->movers[i].arg, err);
        moved = rc < 0 ? -1 : moved | rc;
    }
    c->moving = false;
    return moved;
}

int comm_poll(struct comm *c, struct err *err) {
    struct engine *e = c->engine;
    if (e->dead)
        return job_has_failed(err);
    engine_enter(e);
    bool moved = poll(e);
    engine_leave(e);
    int rc = comm_alarmed(c, err) < 0 ? -1 : move_others(c, err);
    e->dead = e->dead || rc < 0;
    return rc < 0 ? -1 : rc | moved;
}

int comm_watch_device(void *comm, struct err *err) {
    return comm_poll(comm, err) < 0 ? -1 : 0;
}

/* ---- waiting --------------------------------------------------------------------------- */

static int late_rank(const struct comm_work *w) {
    struct mpi_group *m = meeting(w);
    return m && m->met < m->n ? m->ranks[(m->me + m->met) % m->n] : -1;
}

/* A step of everything; the engine is left for what other backends have to do. */
static int step_all(struct engine *e, struct err *err) {
    int moved = poll(e), rc = 0;
    if (e->comm->n_movers) {
        engine_leave(e);
        rc = move_others(e->comm, err);
        engine_enter(e);
    }
    return rc < 0 ? -1 : moved | rc;
}

/* Polls until the work is complete; -1 when the job fails or this lasts too long. */
static int poll_until_done(struct engine *e, struct comm_work *w, struct err *err) {
    struct comm_watch watch = {0};
    int rc = e->dead ? job_has_failed(err) : 0, idle = 0;
    while (rc == 0 &&
           atomic_load_explicit(&w->state, memory_order_relaxed) == WORK_STARTED) {
        int moved = step_all(e, err);
        if (moved < 0)
            return -1;
        if (moved) {
            idle = 0;
            continue;
        }
        pause_caller(e->comm, w, idle);
        if (idle++ >= e->comm->spins)
            rc = comm_watch(e->comm, &watch, w, late_rank(w), err);
    }
    return rc;
}

int engine_wait(struct comm_work *w, struct err *err) {
    struct engine *e = w->group->comm->engine;
    if (atomic_load_explicit(&w->state, memory_order_acquire) == WORK_STARTED) {
        engine_enter(e);
        int rc = poll_until_done(e, w, err);
        e->dead = e->dead || rc < 0;
        engine_leave(e);
        if (rc < 0)
            return -1;
    }
    bool failed = atomic_load_explicit(&w->state, memory_order_acquire) == WORK_FAILED;
    atomic_store_explicit(&w->state, WORK_NONE, memory_order_relaxed);
    return failed ? comm_check((int)w->scratch[0], comm_op_name(w->op), err) : 0;
}
