/* The engine: stages run ahead until they have to wait, a work list wakes them.
 *
 * A stage stops at a receive whose message is not posted, at a send whose staging is full of
 * messages not taken yet, and at the norm until all have come. Whoever ends that wait puts
 * it on the list again. Times are exact whatever the order in which stages run, for a
 * message is posted and taken once and both times are known by then. */
#include "cost/simulate.h"

#include "common/mem.h"

#include <stdlib.h>

struct transfer_state {
    int64_t posted, taken; /* messages so far; at most depth apart */
    int64_t depth;
    double *posted_us,
        *taken_us; /* [depth] when the last ones were, by message mod depth */
};

struct stage_state {
    double now_us;
    double comm_us; /* until when started collectives keep the links busy */
    int64_t action; /* the one under way */
    int step;       /* next step of it, counted from the segment's first */
    bool listed;    /* on the work list */
    bool at_norm;   /* has come to the norm */
};

struct engine {
    const struct sim_input *in;
    struct simulation *out;
    sim_step_fn *fn;
    void *ctx;
    struct stage_state *stages;
    struct transfer_state *transfers;
    double *done_us; /* [n_stages * n_works] when started collectives are done */
    int *list;       /* stages that may go on; a stage is listed at most once */
    int n_list;
    int norms; /* stages that have come to the norm */
    double norm_us, norm_end_us;
};

static void wake(struct engine *e, int stage) {
    if (e->stages[stage].listed)
        return;
    e->stages[stage].listed = true;
    e->list[e->n_list++] = stage;
}

static double later(double a, double b) {
    return a > b ? a : b;
}

/* Each of these returns the microseconds that the stage is busy, or -1 when it has to wait;
 * the stage's clock then stands where it came to the step. */
static double do_send(struct engine *e, struct stage_state *s,
                      const struct sim_step *step) {
    struct transfer_state *t = &e->transfers[step->transfer];
    if (t->posted - t->taken == t->depth)
        return -1;
    int64_t slot = t->posted++ % t->depth;
    s->now_us = later(s->now_us, t->taken_us[slot]) + step->us;
    t->posted_us[slot] = s->now_us;
    wake(e, e->in->transfers[step->transfer].to);
    return step->us;
}

static double do_recv(struct engine *e, struct stage_state *s,
                      const struct sim_step *step) {
    struct transfer_state *t = &e->transfers[step->transfer];
    const struct sim_transfer *x = &e->in->transfers[step->transfer];
    if (t->posted == t->taken)
        return -1;
    int64_t slot = t->taken++ % t->depth;
    double start = later(s->now_us, t->posted_us[slot]), move = x->move_us;
    /* What went on by itself since the message was posted. */
    double ahead = s->now_us - t->posted_us[slot], most = x->overlap * move;
    if (ahead > 0)
        move -= ahead < most ? ahead : most;
    t->taken_us[slot] = start + move;
    s->now_us = t->taken_us[slot] + step->us;
    wake(e, x->from);
    return move + step->us;
}

static double do_norm(struct engine *e, struct stage_state *s,
                      const struct sim_step *step) {
    if (!s->at_norm) {
        s->at_norm = true;
        e->norms++;
        e->norm_us = later(e->norm_us, step->us);
        e->norm_end_us = later(e->norm_end_us, s->now_us);
        if (e->norms == e->in->n_stages) {
            e->norm_end_us += e->norm_us;
            for (int i = 0; i < e->in->n_stages; i++)
                wake(e, i);
        }
    }
    if (e->norms < e->in->n_stages)
        return -1;
    s->now_us = e->norm_end_us;
    return e->norm_us;
}

/* A started collective takes its turn behind those before it. From here until it is done, what
 * does not hide behind computation stops the stage. */
static double do_start(struct engine *e, int stage, const struct sim_step *step) {
    struct stage_state *s = &e->stages[stage];
    s->comm_us = later(s->comm_us, s->now_us) + step->us;
    double exposed = (1 - step->overlap) * (s->comm_us - s->now_us);
    s->now_us += exposed;
    e->done_us[stage * e->in->n_works + step->work] = s->comm_us;
    return exposed;
}

static double do_wait(struct engine *e, int stage, const struct sim_step *step) {
    struct stage_state *s = &e->stages[stage];
    double begin = s->now_us;
    s->now_us = later(begin, e->done_us[stage * e->in->n_works + step->work]);
    return s->now_us - begin;
}

static void account(struct sim_stage *s, enum segment seg, const struct sim_step *step,
                    double busy) {
    if (seg == SEG_UPDATE) {
        s->update_us += busy;
    } else if (step->kind == SIM_START) {
        s->collective_us += busy;
    } else if (step->kind == SIM_WORK) {
        s->compute_us += step->compute_us;
        s->collective_us += busy - step->compute_us;
    } else {
        s->p2p_us += busy;
    }
}

static bool do_step(struct engine *e, int stage, struct action a,
                    const struct sim_step *step) {
    struct stage_state *s = &e->stages[stage];
    double begin = s->now_us, busy = step->us, end;
    switch (step->kind) {
    case SIM_WORK: s->now_us += busy; break;
    case SIM_SEND: busy = do_send(e, s, step); break;
    case SIM_RECV: busy = do_recv(e, s, step); break;
    case SIM_NORM: busy = do_norm(e, s, step); break;
    case SIM_START: busy = do_start(e, stage, step); break;
    case SIM_WAIT: busy = do_wait(e, stage, step); break;
    }
    if (busy < 0)
        return false;
    account(&e->out->stages[stage], a.segment, step, busy);
    end = s->now_us;
    if (step->kind == SIM_START) {
        end = s->comm_us;
        begin = end - step->us;
    }
    if (e->fn)
        e->fn(e->ctx, stage, a, step, begin, end);
    return true;
}

/* Goes on with a stage until it has to wait or is done. */
static void run_stage(struct engine *e, int stage) {
    const struct sim_input *in = e->in;
    struct stage_state *s = &e->stages[stage];
    int64_t n = schedule_actions(in->micro_batches);
    for (; s->action < n; s->action++) {
        struct action a = schedule_action(in->schedule, stage, in->n_stages,
                                          in->micro_batches, s->action);
        const int *seg = &in->seg[stage * SEG_COUNT + (int)a.segment];
        for (; seg[0] + s->step < seg[1]; s->step++)
            if (!do_step(e, stage, a, &in->steps[seg[0] + s->step]))
                return;
        s->step = 0;
    }
}

static int check_done(const struct engine *e, struct err *err) {
    for (int k = 0; k < e->in->n_stages; k++)
        if (e->stages[k].action < schedule_actions(e->in->micro_batches))
            return err_input(err,
                             "stages[%d]: waits forever in action %lld of the schedule", k,
                             (long long)e->stages[k].action);
    return 0;
}

static void summarize(const struct engine *e) {
    struct simulation *out = e->out;
    double most = -1;
    for (int k = 0; k < out->n_stages; k++) {
        struct sim_stage *s = &out->stages[k];
        s->end_us = e->stages[k].now_us;
        out->time_us = later(out->time_us, s->end_us);
        out->actions += e->stages[k].action;
    }
    for (int k = 0; k < out->n_stages; k++) {
        struct sim_stage *s = &out->stages[k];
        double busy = s->compute_us + s->collective_us + s->p2p_us + s->update_us;
        s->bubble_us = later(out->time_us - busy, 0);
        if (busy > most) {
            most = busy;
            out->slowest = k;
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
                       .stages = mem_array(n, sizeof *e.stages),
                       .transfers =
                           mem_array((size_t)in->n_transfers + 1, sizeof *e.transfers),
                       .done_us = mem_array(n * (size_t)in->n_works, sizeof *e.done_us),
                       .list = mem_array(n, sizeof *e.list)};
    double *rings = make_rings(&e);
    for (int k = in->n_stages - 1; k >= 0; k--)
        wake(&e, k);
    while (e.n_list) {
        int stage = e.list[--e.n_list];
        e.stages[stage].listed = false;
        run_stage(&e, stage);
    }
    int rc = check_done(&e, err);
    summarize(&e);
    free(e.stages);
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
