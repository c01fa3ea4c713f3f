/* The engine: groups run ahead until they have to wait, and a work list wakes them.
 *
 * A group stops at a receive whose message is not posted, at a send whose staging is full
 * of messages not taken yet, and at the norm until all have come. Whoever ends that wait
 * puts it on the list again. Times are exact whatever the order in which groups run,
 * because each message is posted and taken once and both times are known by then. */
#include "cost/simulate.h"

#include "common/mem.h"

#include <stdlib.h>

struct transfer_state {
    int64_t posted, taken; /* messages so far; at most depth apart */
    int64_t depth;
    double *posted_us,
        *taken_us; /* [depth] when the last ones were, by message mod depth */
};

struct group_state {
    double now_us;
    double comm_us; /* until when started collectives keep the links busy */
    double host_us; /* until when started copies keep the link to the host busy */
    int64_t action; /* the one under way */
    int step;       /* its next step, counted from the segment's first */
    bool listed;    /* on the work list */
    bool at_norm;   /* has come to the norm */
};

struct engine {
    const struct sim_input *in;
    struct simulation *out;
    sim_step_fn *fn;
    void *ctx;
    struct group_state *groups;
    int *group_of; /* stage -> group */
    struct transfer_state *transfers;
    double *done_us; /* [n_stages * n_works] when started collectives are done */
    int *list;       /* groups that may go on; each is listed at most once */
    int n_list;
    int norms; /* groups that have come to the norm */
    double norm_us, norm_end_us;
};

static void wake(struct engine *e, int group) {
    if (e->groups[group].listed)
        return;
    e->groups[group].listed = true;
    e->list[e->n_list++] = group;
}

static double later(double a, double b) {
    return a > b ? a : b;
}

/* Each of these returns the microseconds that the group is busy, or -1 when it has to wait;
 * its clock then stands where it came to the step. */
static double do_send(struct engine *e, struct group_state *s,
                      const struct sim_step *step) {
    struct transfer_state *t = &e->transfers[step->transfer];
    if (t->posted - t->taken == t->depth)
        return -1;
    int64_t slot = t->posted++ % t->depth;
    s->now_us = later(s->now_us, t->taken_us[slot]) + step->us;
    t->posted_us[slot] = s->now_us;
    wake(e, e->group_of[e->in->transfers[step->transfer].to]);
    return step->us;
}

static double do_recv(struct engine *e, struct group_state *s,
                      const struct sim_step *step) {
    struct transfer_state *t = &e->transfers[step->transfer];
    const struct sim_transfer *x = &e->in->transfers[step->transfer];
    if (t->posted == t->taken)
        return -1;
    int64_t slot = t->taken++ % t->depth;
    double start = later(s->now_us, t->posted_us[slot]), move = x->move_us;
    /* Part of the move is already done since the message was posted. */
    double ahead = s->now_us - t->posted_us[slot], most = x->overlap * move;
    if (ahead > 0)
        move -= ahead < most ? ahead : most;
    t->taken_us[slot] = start + move;
    s->now_us = t->taken_us[slot] + step->us;
    wake(e, e->group_of[x->from]);
    return move + step->us;
}

static double do_norm(struct engine *e, struct group_state *s,
                      const struct sim_step *step) {
    if (!s->at_norm) {
        s->at_norm = true;
        e->norms++;
        e->norm_us = later(e->norm_us, step->us);
        e->norm_end_us = later(e->norm_end_us, s->now_us);
        if (e->norms == e->in->n_groups) {
            e->norm_end_us += e->norm_us;
            for (int i = 0; i < e->in->n_groups; i++)
                wake(e, i);
        }
    }
    if (e->norms < e->in->n_groups)
        return -1;
    s->now_us = e->norm_end_us;
    return e->norm_us;
}

/* A started collective or copy runs after those before it. The part of the time until it is
 * done that does not hide behind computation stops the stage. */
static double do_start(struct engine *e, struct group_state *s, int stage,
                       const struct sim_step *step) {
    double *busy = step->move ? &s->host_us : &s->comm_us;
    *busy = later(*busy, s->now_us) + step->us;
    double exposed = (1 - step->overlap) * (*busy - s->now_us);
    s->now_us += exposed;
    e->done_us[stage * e->in->n_works + step->work] = *busy;
    return exposed;
}

static double do_wait(struct engine *e, struct group_state *s, int stage,
                      const struct sim_step *step) {
    double begin = s->now_us;
    s->now_us = later(begin, e->done_us[stage * e->in->n_works + step->work]);
    return s->now_us - begin;
}

static void account(struct sim_stage *s, enum segment seg, const struct sim_step *step,
                    double busy) {
    if (seg >= SEG_REDUCE) {
        s->update_us += busy;
    } else if (step->kind == SIM_START || step->kind == SIM_WAIT) {
        s->collective_us += busy;
    } else if (step->kind == SIM_WORK) {
        s->compute_us += step->compute_us;
        s->collective_us += busy - step->compute_us;
    } else {
        s->p2p_us += busy;
    }
}

static bool do_step(struct engine *e, struct group_state *s, struct action a,
                    const struct sim_step *step) {
    double begin = s->now_us, busy = step->us, end;
    switch (step->kind) {
    case SIM_WORK: s->now_us += busy; break;
    case SIM_SEND: busy = do_send(e, s, step); break;
    case SIM_RECV: busy = do_recv(e, s, step); break;
    case SIM_NORM: busy = do_norm(e, s, step); break;
    case SIM_START: busy = do_start(e, s, a.stage, step); break;
    case SIM_WAIT: busy = do_wait(e, s, a.stage, step); break;
    }
    if (busy < 0)
        return false;
    account(&e->out->stages[a.stage], a.segment, step, busy);
    end = s->now_us;
    if (step->kind == SIM_START) {
        end = step->move ? s->host_us : s->comm_us;
        begin = end - step->us;
    }
    if (e->fn)
        e->fn(e->ctx, a, step, begin, end);
    return true;
}

/* Goes on with a group until it has to wait or is done. */
static void run_group(struct engine *e, int group) {
    const struct sim_input *in = e->in;
    struct group_state *s = &e->groups[group];
    int64_t n = schedule_actions(&in->groups[group]);
    for (; s->action < n; s->action++) {
        struct action a = schedule_action(&in->groups[group], s->action);
        const int *seg = &in->seg[a.stage * SEG_COUNT + (int)a.segment];
        for (; seg[0] + s->step < seg[1]; s->step++)
            if (!do_step(e, s, a, &in->steps[seg[0] + s->step]))
                return;
        s->step = 0;
    }
}

static int check_done(const struct engine *e, struct err *err) {
    for (int k = 0; k < e->in->n_groups; k++) {
        int64_t at = e->groups[k].action;
        if (at < schedule_actions(&e->in->groups[k]))
            return err_input(err,
                             "stages[%d]: waits forever in action %lld of the schedule",
                             schedule_action(&e->in->groups[k], at).stage, (long long)at);
    }
    return 0;
}

static double busy_us(const struct sim_stage *s) {
    return s->compute_us + s->collective_us + s->p2p_us + s->update_us;
}

/* The slowest stage is the busiest one of the busiest group. */
static void summarize(const struct engine *e) {
    struct simulation *out = e->out;
    double most = -1;
    for (int k = 0; k < e->in->n_groups; k++) {
        out->time_us = later(out->time_us, e->groups[k].now_us);
        out->actions += e->groups[k].action;
    }
    for (int k = 0; k < e->in->n_groups; k++) {
        const struct group_schedule *g = &e->in->groups[k];
        double busy = 0;
        int busiest = g->chunks[0];
        for (const int *c = g->chunks; c < g->chunks + g->n_chunks; c++) {
            busy += busy_us(&out->stages[*c]);
            if (busy_us(&out->stages[*c]) > busy_us(&out->stages[busiest]))
                busiest = *c;
        }
        for (const int *c = g->chunks; c < g->chunks + g->n_chunks; c++) {
            out->stages[*c].end_us = e->groups[k].now_us;
            out->stages[*c].bubble_us = later(out->time_us - busy, 0);
        }
        if (busy > most) {
            most = busy;
            out->slowest = busiest;
        }
    }
    out->norm_us = e->norm_us;
}

/* All rings are carved from one array. */
static double *make_rings(struct engine *e) {
    int64_t total = 0;
    for (int i = 0; i < e->in->n_transfers; i++) {
        int64_t depth = e->in->transfers[i].depth;
        e->transfers[i].depth = depth > 1 ? depth : 1;
        total += 2 * e->transfers[i].depth;
    }
    double *rings = mem_array((size_t)total, sizeof *rings), *p = rings;
    for (int i = 0; i < e->in->n_transfers; i++) {
        struct transfer_state *t = &e->transfers[i];
        t->posted_us = p;
        t->taken_us = p + t->depth;
        p += 2 * t->depth;
    }
    return rings;
}

int simulate_run(const struct sim_input *in, sim_step_fn *fn, void *ctx,
                 struct simulation *out, struct err *err) {
    size_t n = (size_t)in->n_stages;
    *out = (struct simulation){.n_stages = in->n_stages,
                               .stages = mem_array(n, sizeof *out->stages)};
    struct engine e = {.in = in,
                       .out = out,
                       .fn = fn,
                       .ctx = ctx,
                       .groups = mem_array((size_t)in->n_groups, sizeof *e.groups),
                       .group_of = mem_array(n, sizeof *e.group_of),
                       .transfers =
                           mem_array((size_t)in->n_transfers + 1, sizeof *e.transfers),
                       .done_us = mem_array(n * (size_t)in->n_works, sizeof *e.done_us),
                       .list = mem_array((size_t)in->n_groups, sizeof *e.list)};
    double *rings = make_rings(&e);
    for (int k = in->n_groups - 1; k >= 0; k--) {
        for (int i = 0; i < in->groups[k].n_chunks; i++)
            e.group_of[in->groups[k].chunks[i]] = k;
        wake(&e, k);
    }
    while (e.n_list) {
        int group = e.list[--e.n_list];
        e.groups[group].listed = false;
        run_group(&e, group);
    }
    int rc = check_done(&e, err);
    summarize(&e);
    free(e.groups);
    free(e.group_of);
    free(e.transfers);
    free(e.done_us);
    free(e.list);
    free(rings);
    if (rc < 0)
        simulation_release(out);
    return rc;
}

void simulation_release(struct simulation *s) {
    free(s->stages);
    *s = (struct simulation){0};
}
