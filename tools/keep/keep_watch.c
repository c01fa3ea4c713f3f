/* One attempt from its start to its end: what mpirun prints is passed on, beats are
 * looked at, and what is dead or hangs is killed. */
#define _GNU_SOURCE /* kill, strcasestr */
#include "common/progress.h"
#include "common/stats.h"
#include "keep.h"
#include "keep/copy.h"
#include "keep/straggler.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TICK_MS = 20,
    RECENT = 64, /* steps, for their median */
    HANG_STEPS = 5,
    DESCRIPTORS = 256,
};
#define SIZE_S 0.2 /* how often the journal is asked for another size */
#define WORTH                                                                              \
    0.95 /* of the time that a step takes now, what another plan is worth an interruption for */
#define AGAIN_S  1.0  /* until ranks that go on are told again to end */
#define AWAY_S   0.5  /* between two looks, that is too long to judge by */
#define REAP_S   0.25 /* what mpirun gets to say how a rank died */
#define DAEMON_S 1.0  /* and to end itself after a daemon of it could not begin */
#define LAUNCH_S 120  /* and to start a rank, for a daemon may go without a word */

struct watch {
    struct keep *k;
    struct plan_file plan; /* a copy: the list may move */
    struct beats *beats;
    pid_t pid;
    int wait;
    bool over, hung, asked, resized, told_first;
    bool resizes,
        balances;    /* a plan is looked for: for other ranks, for hosts that differ */
    double looked_s; /* when all this was last looked at */
    double told_s;   /* when the ranks were last told to save and end */
    struct output out;
    double recent[RECENT];
    int n_recent;
    int64_t last_step;
    struct straggler *peers;
    int doubted;   /* the same of a rank whose gradients are not confirmed */
    int slow;      /* the rank that was named last as slower than its peers; -1 = none is */
    double dead_s; /* when a rank was seen dead; 0 = none */
    double started_s; /* when mpirun was, */
    double failed_s;  /* and when a daemon of it could not begin; 0 = all could */
    bool unstarted;   /* it was killed, since it started no rank */
    char stuck[256];
    int64_t oom_before;
    int signals; /* that came before this attempt, or were passed on */
    double copied_s, size_s;
    pid_t copier;
    int64_t copying;  /* a step that several hosts copy to disk; 0 = none */
    int64_t farthest; /* step of any rank, */
    double stepped_s; /* and since when */
    const char *lost; /* a host whose agent is; or NULL */
};

/* ---- what it prints ------------------------------------------------------------------------ */

static void wait_for_output(struct watch *w) {
    int fds[DESCRIPTORS] = {w->out.fd[0], w->out.fd[1]};
    struct pollfd p[DESCRIPTORS];
    const int n = 2 + agents_descriptors(w->k, fds + 2, DESCRIPTORS - 2);
    for (int i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    if (poll(p, (nfds_t)n, TICK_MS) <= 0)
        return;
    if (!p[0].revents && !p[1].revents) /* an agent's word */
        return;
    bool closed = true;
    for (int i = 0; i < 2; i++)
        if (p[i].revents)
            closed &= !output_read(&w->out, i);
    if (closed)
        poll(NULL, 0, TICK_MS);
}

/* ---- the ranks ----------------------------------------------------------------------------- */

static void kill_attempt(struct watch *w) {
    kill(-w->pid, SIGKILL);
    if (!w->k->apart)
        beats_kill(w->beats, 0, beats_ranks(w->beats));
}

static bool rank_died(const struct watch *w) {
    for (int r = 0; r < beats_ranks(w->beats); r++) {
        const struct beat *b = beats_at(w->beats, r);
        if (!atomic_load(&b->status) && beat_is_dead(b))
            return true;
    }
    return false;
}

static void look_at_ranks(struct watch *w) {
    for (int r = 0; r < beats_ranks(w->beats); r++) {
        struct beat *b = beats_at(w->beats, r);
        if (!w->k->apart)
            beat_look(b);
        if (atomic_load(&b->step) > w->farthest) {
            w->farthest = atomic_load(&b->step);
            w->stepped_s = now_s();
        }
    }
}

static void note_steps(struct watch *w) {
    const struct beat *b = beats_at(w->beats, 0);
    int64_t step = atomic_load(&b->step);
    if (step == w->last_step)
        return;
    w->last_step = step;
    w->recent[w->n_recent++ % RECENT] = 1e-6 * (double)atomic_load(&b->last_us);
    if (w->told_first || !atomic_load(&b->first_us))
        return;
    w->told_first = true;
    struct keep *k = w->k;
    int64_t from = atomic_load(&b->from);
    if (k->died_s > 0 && k->died_step > from)
        journal_add(k->journal,
                    &(struct event){EVENT_LOST, k->attempt, from,
                                    (double)(k->died_step - from), NULL},
                    NULL);
    journal_add(k->journal,
                &(struct event){EVENT_FIRST, k->attempt, from + 1,
                                now_s() - (k->died_s > 0 ? k->died_s : now_s()), NULL},
                NULL);
}

static double hang_limit(const struct watch *w) {
    double sorted[RECENT];
    int n = w->n_recent < RECENT ? w->n_recent : RECENT;
    memcpy(sorted, w->recent, sizeof sorted);
    double limit = HANG_STEPS * stats_median(sorted, n);
    return limit > w->k->o.hang_s ? limit : w->k->o.hang_s;
}

/* The rank that others wait for: one that is stopped, else the one that has done
 * least. */
static void find_stuck(struct watch *w) {
    int behind = 0, stopped = -1;
    for (int r = 0; r < beats_ranks(w->beats); r++) {
        const struct beat *b = beats_at(w->beats, r);
        const long long c = atomic_load(&b->seen);
        if (c == 'T' || c == 't')
            stopped = r;
        if (atomic_load(&b->at_us) < atomic_load(&beats_at(w->beats, behind)->at_us))
            behind = r;
    }
    int r = stopped >= 0 ? stopped : behind;
    const struct beat *b = beats_at(w->beats, r);
    snprintf(w->stuck, sizeof w->stuck,
             "rank %d (process %lld on %.100s) %s in step %lld (%s)", r,
             (long long)atomic_load(&b->pid), keep_host_of(w->k, r),
             stopped >= 0 ? "is stopped" : "came least far",
             1 + (long long)atomic_load(&b->step),
             beat_phase_name((enum beat_phase)atomic_load(&b->phase)));
}

static bool some_rank_is_stopped(const struct watch *w) {
    for (int r = 0; r < beats_ranks(w->beats); r++)
        if (atomic_load(&beats_at(w->beats, r)->seen) == 'T')
            return true;
    return false;
}

/* Are all ranks in ordinary steps, or saving in memory between them? */
static bool all_step(const struct watch *w) {
    for (int r = 0; r < beats_ranks(w->beats); r++) {
        const struct beat *b = beats_at(w->beats, r);
        int64_t phase = atomic_load(&b->phase);
        if (atomic_load(&b->pid) && phase != BEAT_STEP && phase != BEAT_MEMORY &&
            phase != BEAT_END)
            return false;
    }
    return true;
}

/* Nothing moved, in any rank, for too long, while all were in ordinary steps; or one
 * is stopped. */
static bool hangs(const struct watch *w) {
    int64_t last = 0;
    for (int r = 0; r < beats_ranks(w->beats); r++) {
        int64_t at = atomic_load(&beats_at(w->beats, r)->at_us);
        last = at > last ? at : last;
    }
    return last > 0 && now_s() - 1e-6 * (double)last > hang_limit(w) &&
           (all_step(w) || some_rank_is_stopped(w));
}

/* To the person and to the journal, with the step that is now. */
static void tell(const struct watch *w, double value, const char *text) {
    const int64_t step = atomic_load(&beats_at(w->beats, 0)->step);
    note("weft-keep: step %lld: %s", (long long)step, text);
    journal_add(w->k->journal,
                &(struct event){EVENT_NOTE, w->k->attempt, step, value, text}, NULL);
}

/* Said once for as long as it stays the same rank; whether it was said now. */
static bool note_slow(struct watch *w) {
    double times;
    char text[256];
    int rank = w->told_first ? straggler_look(w->peers, w->beats, &times) : -1;
    if (rank < 0 || rank == w->slow)
        return false;
    w->slow = rank;
    snprintf(text, sizeof text,
             "rank %d on %s took %.1f times as long as its peers in the last %d steps",
             rank, keep_host_of(w->k, rank), times, STRAGGLER_STEPS);
    tell(w, times, text);
    return true;
}

/* The same of a rank whose gradients its replicas do not confirm (weft-plan(5), aggregate). */
static void note_doubted(struct watch *w) {
    enum { HALF = 500 };
    int rank = -1;
    for (int r = 0; r < beats_ranks(w->beats) && rank < 0; r++)
        if (atomic_load(&beats_at(w->beats, r)->doubted) >= HALF)
            rank = r;
    if (rank < 0 || rank == w->doubted)
        return;
    w->doubted = rank;
    struct host *h = keep_host_at(w->k, rank);
    if (h)
        h->doubted = true;
    char text[256];
    const double share = 1e-3 * (double)atomic_load(&beats_at(w->beats, rank)->doubted);
    snprintf(text, sizeof text,
             "gradients of rank %d on %s are unlike those of its replicas", rank,
             keep_host_of(w->k, rank));
    tell(w, share, text);
}

/* Have they begun? One without a beat is on a host that nobody watches (--disk-only); it has when others have. */
static bool can_stop(const struct watch *w) {
    bool begun = false;
    for (int r = 0; r < beats_ranks(w->beats); r++) {
        const int64_t phase = atomic_load(&beats_at(w->beats, r)->phase);
        begun |= phase >= BEAT_FIRST;
        if (phase != BEAT_NONE && phase < BEAT_FIRST)
            return false;
    }
    return begun;
}

/* ---- hosts that are slower than others ----------------------------------------------------- */

/* Each by the median of its ranks. */
static void measure_hosts(struct watch *w) {
    double *ratio = mem_array((size_t)beats_ranks(w->beats), sizeof *ratio);
    for (int64_t i = 0; i < w->k->hosts.n; i++) {
        struct host *h = &w->k->hosts.p[i];
        int n = 0;
        for (int r = h->first; r < h->first + h->count && r < beats_ranks(w->beats); r++)
            if ((ratio[n] = straggler_ratio(w->peers, w->beats, r)) > 0)
                n++;
        if (n)
            keep_note_speed(w->k, h, stats_median(ratio, n));
    }
    free(ratio);
}

/* A plan whose stages are as unequal as the hosts is looked for. */
static void balance(struct watch *w) {
    if (w->k->o.no_search || !can_stop(w))
        return;
    measure_hosts(w);
    w->balances = true;
}

/* ---- the ranks are to save and end --------------------------------------------------------- */

/* mpirun would pass SIGUSR1 on, but what stands in its place may not: ranks that can be reached get it themselves. To them
 * several are as one. */
static void tell_ranks(struct watch *w) {
    struct keep *k = w->k;
    w->told_s = now_s();
    for (int64_t i = 0; k->apart && i < k->hosts.n; i++)
        if (k->hosts.p[i].count)
            agent_tell(&k->hosts.p[i], "stop");
    const bool reached =
        k->apart || beats_signal(w->beats, 0, beats_ranks(w->beats), SIGUSR1);
    if (!reached)
        kill(w->pid, SIGUSR1);
}

/* Whatever was lost on the way is said again: a launcher, an agent or a host may just have had something else to do. */
static void tell_again(struct watch *w) {
    if ((w->asked || w->resized) && now_s() - w->told_s > AGAIN_S && can_stop(w))
        tell_ranks(w);
}

/* Before they have begun there is nothing to save. */
static void ask_to_stop(struct watch *w) {
    if (can_stop(w))
        tell_ranks(w);
    else
        kill_attempt(w);
}

static void stop_for(struct watch *w) {
    w->resized = true;
    tell_ranks(w);
}

/* ---- once in a tick ------------------------------------------------------------------------ */

static void heed_signals(struct watch *w) {
    int came = keep_signals();
    if (came > w->signals && !w->asked) {
        w->asked = true;
        ask_to_stop(w);
    } else if (came > w->signals + 1) {
        kill_attempt(w);
    }
}

/* With another number of ranks, or with stages as unequal as the hosts if that is worth the interruption. */
static void go_on_with(struct watch *w, const struct planned *found) {
    const struct plan_file *p = found->plan;
    if (w->resizes && p && p->ranks != beats_ranks(w->beats)) {
        note("weft-keep: going on with %lld ranks in place of %d", (long long)p->ranks,
             beats_ranks(w->beats));
        stop_for(w);
    } else if (w->balances && p && found->times > 0 && found->times <= WORTH) {
        note("weft-keep: hosts differ: going on with %s, whose steps are predicted to take "
             "%.2f times as long",
             p->path, found->times);
        stop_for(w);
    }
    w->resizes = w->balances = false;
}

/* The ranks go on while one is looked for. */
static void heed_plan(struct watch *w) {
    struct planned found;
    if ((w->resizes || w->balances) && !w->resized && !w->asked &&
        planner_poll(w->k, keep_slots(w->k), w->balances ? &w->plan : NULL, &found) &&
        can_stop(w))
        go_on_with(w, &found);
}

static void heed_size(struct watch *w) {
    struct keep *k = w->k;
    int64_t ranks = 0;
    if (now_s() - w->size_s < SIZE_S || w->resized || w->asked || !can_stop(w))
        return;
    w->size_s = now_s();
    if (journal_size(k->journal, &k->size_row, &ranks, NULL) < 0 || ranks <= 0)
        return;
    for (int64_t i = 0; i < k->hosts.n; i++)
        k->hosts.p[i].out = false, k->hosts.p[i].failures = 0;
    k->wanted = ranks;
    w->resizes = true;
}

/* The next attempt takes a host in that answers again; where it brings no more ranks nothing is interrupted. */
static void heed_hosts(struct watch *w) {
    if (!w->resized && !w->asked && can_stop(w) && keep_hosts_back(w->k))
        w->resizes = true;
}

static void note_not_copied(const struct watch *w) {
    journal_add(w->k->journal,
                &(struct event){.kind = EVENT_NOTE,
                                .attempt = w->k->attempt,
                                .step = w->last_step,
                                .text = "a checkpoint was not copied to disk"},
                NULL);
}

/* In the copier: what cannot be copied now may be so next time. */
static void copy(const struct keep *k) {
    struct err why = {0};
    bool failed = copy_newest(k->memory, k->save, 2, &why) < 0;
    if (failed)
        note("weft-keep: a checkpoint in memory was not copied to disk: %s; training goes "
             "on",
             why.msg);
    _exit(failed);
}

/* By all hosts, each what it has. */
static void copy_by_all(struct watch *w) {
    struct err why = {0};
    if (!w->copying && now_s() - w->copied_s < w->k->o.copy_every_s)
        return;
    const int rc = mirror_copy(w->k, &w->copying, &why);
    if (rc)
        w->copied_s = now_s();
    if (rc >= 0)
        return;
    note("weft-keep: a checkpoint in memory was not copied to disk: %s; training goes on",
         why.msg);
    note_not_copied(w);
}

/* The copy to disk is another process, which nobody waits for: watching goes on. */
static void copy_if_due(struct watch *w) {
    const struct keep *k = w->k;
    if (w->copier > 0) {
        int status = 0;
        if (waitpid(w->copier, &status, WNOHANG) == 0)
            return;
        w->copier = 0;
        w->copied_s = now_s();
        if (status)
            note_not_copied(w);
    }
    if (!k->memory || now_s() - w->copied_s < k->o.copy_every_s)
        return;
    w->copier = keep_fork();
    if (w->copier == 0) {
        nice(10);
        copy(k);
    }
}

/* Who did not look, as on a machine that stood still or was too busy, cannot know who was silent: all begin anew. */
static void note_absence(struct watch *w) {
    const double now = now_s();
    if (w->looked_s > 0 && now - w->looked_s > AWAY_S)
        w->stepped_s = now;
    w->looked_s = now;
}

/* A host whose agent is lost takes its ranks with it. */
static void heed_agents(struct watch *w) {
    if (!w->k->apart)
        return;
    note_absence(w);
    agents_hear(w->k, 0);
    mirror_step(w->k);
    if (!w->lost && (w->lost = agents_lost(w->k, w->stepped_s)))
        kill_attempt(w);
}

/* ---- launching ------------------------------------------------------------------------------ */

/* Ranks on hosts that nobody watches may run without being seen; their lines are. */
static bool runs(const struct watch *w) {
    bool any = w->out.spoke;
    for (int r = 0; r < beats_ranks(w->beats) && !any; r++)
        any = atomic_load(&beats_at(w->beats, r)->pid) != 0;
    return any;
}

/* mpirun waits for ever for a daemon that ends on its host before it has called. */
static bool launch_failed(struct watch *w) {
    if (runs(w))
        return false;
    const double now = now_s();
    if (!w->failed_s && cause_daemon_failed(w->out.tail))
        w->failed_s = now;
    if (w->failed_s)
        return now - w->failed_s > DAEMON_S;
    return !w->k->o.disk_only && now - w->started_s > LAUNCH_S;
}

static void look(struct watch *w) {
    heed_agents(w);
    look_at_ranks(w);
    note_steps(w);
    if (note_slow(w))
        balance(w);
    note_doubted(w);
    heed_signals(w);
    heed_size(w);
    heed_hosts(w);
    heed_plan(w);
    tell_again(w);
    if (w->k->apart)
        copy_by_all(w);
    else
        copy_if_due(w);
    if (!w->dead_s && rank_died(w))
        w->dead_s = now_s();
    if (w->dead_s && now_s() - w->dead_s > REAP_S)
        kill_attempt(w);
    if (!w->hung && hangs(w)) {
        w->hung = true;
        find_stuck(w);
        kill_attempt(w);
    }
    if (!w->unstarted && launch_failed(w)) {
        w->unstarted = true;
        kill_attempt(w);
    }
    if (waitpid(w->pid, &w->wait, WNOHANG) == w->pid)
        w->over = true;
}

/* ---- its end ------------------------------------------------------------------------------- */

/* An error that all ranks share is told by rank 0; one that is a rank's own, by that
 * rank. */
static void read_ends(const struct watch *w, struct ending *e) {
    e->ranks_status = -1;
    e->all_ended = true;
    for (int r = 0; r < beats_ranks(w->beats); r++) {
        const struct beat *b = beats_at(w->beats, r);
        int status = (int)atomic_load(&b->status) - 1;
        e->all_ended &= status == 0;
        e->begun |= atomic_load(&b->phase) >= BEAT_FIRST;
        if (status > e->ranks_status) {
            e->ranks_status = status;
            e->message = b->message;
        }
    }
}

static void measure(const struct watch *w, struct outcome *o) {
    const struct beat *b = beats_at(w->beats, 0);
    o->from = atomic_load(&b->from);
    o->step = atomic_load(&b->step);
    for (int r = 0; r < beats_ranks(w->beats); r++) {
        int64_t step = atomic_load(&beats_at(w->beats, r)->step);
        o->step = step > o->step ? step : o->step;
    }
    o->sample = atomic_load(&b->sample);
    o->batch = atomic_load(&b->batch);
    o->target = atomic_load(&b->target);
    o->steps_s = 1e-6 * (double)atomic_load(&b->steps_us);
    o->saves = atomic_load(&b->saves);
    o->copies = atomic_load(&b->copies);
    o->save_s = o->saves ? 1e-6 * (double)atomic_load(&b->save_us) / (double)o->saves : 0;
    o->copy_s = o->copies ? 1e-6 * (double)atomic_load(&b->copy_us) / (double)o->copies : 0;
}

static void finish(struct watch *w, struct outcome *o) {
    output_read_all(&w->out);
    if (w->k->apart)
        agents_end(w->k);
    else
        beats_kill(w->beats, 0, beats_ranks(w->beats));
    if (w->copier > 0)
        waitpid(w->copier, NULL, 0);
    planner_stop(w->k);
    char gpu[256];
    struct ending e = {.wait = w->wait,
                       .gpu = gpu,
                       .hung = w->hung,
                       .unstarted = w->unstarted,
                       .asked = w->asked,
                       .said = w->out.tail,
                       .message = "",
                       .stuck = w->stuck,
                       .lost = w->lost,
                       .oom_kills = keep_oom_kills() - w->oom_before};
    if (gpu_watch_poll(w->k->gpus, gpu, sizeof gpu))
        note("weft-keep: %s", gpu);
    read_ends(w, &e);
    measure(w, o);
    e.steps_left = o->step < o->target;
    o->verdict = cause_judge(&e);
    o->resized = w->resized;
    if (w->asked && o->verdict.cause != CAUSE_DONE) {
        o->verdict.cause = CAUSE_STOPPED;
        o->verdict.restarts = false;
    }
}

int keep_watch(struct keep *k, const struct plan_file *plan, struct outcome *out,
               struct err *err) {
    struct watch w = {.k = k,
                      .plan = *plan,
                      .copied_s = now_s(),
                      .oom_before = keep_oom_kills(),
                      .slow = -1,
                      .doubted = -1};
    *out = (struct outcome){0};
    if (!(w.beats = beats_create(k->beats, (int)plan->ranks, err)))
        return -1;
    if ((k->apart && agents_begin(k, plan->ranks, w.beats, err) < 0) ||
        (w.pid = keep_start(k, plan, w.out.fd, err)) < 0) {
        beats_close(w.beats);
        return -1;
    }
    w.started_s = now_s();
    w.peers = straggler_create((int)plan->ranks);
    while (!w.over) {
        wait_for_output(&w);
        look(&w);
    }
    finish(&w, out);
    measure_hosts(&w);
    straggler_destroy(w.peers);
    close(w.out.fd[0]);
    close(w.out.fd[1]);
    beats_close(w.beats);
    return 0;
}
