/* From a compiled program to steps, and from steps to the timeline.
 *
 * Durations are worked out once per instruction of a stage; between sends, receives and the
 * norm they are put on the streams and summed. A trace shows single instructions, so for it
 * their places inside their step are kept, and every finished step is drawn from them. */
#include "cost/simulate.h"

#include "common/mem.h"
#include "cost/streams.h"

#include <stdlib.h>
#include <string.h>

/* Where an instruction lies inside its step. */
struct drawn {
    double start_us, dur_us;
};

struct build {
    const struct program *g;
    struct cost *c;
    struct transfer_cost *transfers;
    ARR(struct sim_step) steps;
    int *seg;
    struct drawn **spans; /* per stage, per instruction; NULL without a trace */
    bool overlaps;        /* some communication overlaps computation */
    struct cost_sum sum;  /* of all times of a step, all stages */
};

/* How often a segment runs in a step; the last micro-batch has backward segments of its
 * own. */
static int64_t uses_of(const struct build *b, enum segment seg) {
    int64_t m = plan_micro_batches(b->g->plan);
    return seg == SEG_FORWARD ? m : seg == SEG_BACKWARD || seg == SEG_WEIGHTS ? m - 1 : 1;
}

/* Ends the open run of work, and keeps it if it holds anything. */
static void close_work(struct build *b, struct sim_step *work, const struct streams *st,
                       int end) {
    work->us = streams_end(st);
    work->end = end;
    if (work->end > work->first)
        arr_push(&b->steps, *work);
}

static struct sim_step step_of(const struct build *b, const struct stage_program *sp, int k,
                               struct cost_time t) {
    const struct instr *i = &sp->instrs[k];
    struct sim_step step = {
        .transfer = i->transfer, .work = i->work, .us = t.us, .first = k, .end = k + 1};
    if (i->code == I_norm) {
        step.kind = SIM_NORM;
    } else if (i->work >= 0) {
        step.kind = i->code == I_wait ? SIM_WAIT : SIM_START;
        step.overlap = t.overlap;
        step.move = opcode_is_move(i->code);
    } else {
        step.kind = i->code == I_send ? SIM_SEND : SIM_RECV;
        step.us = i->code == I_send ? b->transfers[i->transfer].pack_us
                                    : b->transfers[i->transfer].unpack_us;
    }
    return step;
}

static bool is_first_chunk(const struct plan *p, int stage) {
    return p->chunks[p->first_chunk[p->stages[stage].group]] == stage;
}

/* Adds what a backward segment recomputes of its blocks although nothing needs it. */
static void run_again(struct build *b, const struct stage_program *sp, enum segment seg,
                      struct streams *st, struct sim_step *work) {
    struct span forward = program_segment(sp, SEG_FORWARD);
    for (int k = forward.first; k < forward.end; k++) {
        if (!cost_runs_again(b->c, b->g->plan, sp, k, seg))
            continue;
        struct cost_time t = cost_instr(b->c, b->g->plan, sp, &sp->instrs[k]);
        cost_sum_add(&b->sum, t, (double)uses_of(b, seg));
        streams_issue(st, t.issue_us);
        streams_add(st, &sp->instrs[k], t.us, 0);
        if (opcode_key(sp->instrs[k].code) != KEY_COMM)
            work->compute_us += t.us;
    }
}

/* The time per step of an instruction that runs only in a share of the steps. */
static struct cost_time part_of(struct cost_time t, double share) {
    t.us *= share;
    t.low_us *= share;
    t.high_us *= share;
    t.issue_us *= share;
    return t;
}

static void build_segment(struct build *b, int stage, enum segment seg,
                          struct streams *st) {
    const struct stage_program *sp = &b->g->stages[stage];
    const double share = schedule_share(b->g->plan, seg);
    struct span span = program_segment(sp, seg);
    if (share == 0)
        span.end = span.first;
    struct sim_step work = {.kind = SIM_WORK, .first = span.first, .transfer = -1};
    b->seg[stage * SEG_COUNT + (int)seg] = (int)b->steps.n;
    streams_reset(st);
    for (int k = span.first; k < span.end; k++) {
        const struct instr *i = &sp->instrs[k];
        struct cost_time t = part_of(cost_instr(b->c, b->g->plan, sp, i), share);
        if (i->code != I_norm || is_first_chunk(b->g->plan, stage))
            cost_sum_add(&b->sum, t, (double)uses_of(b, seg));
        if (opcode_key(i->code) == KEY_P2P || i->code == I_norm || i->work >= 0) {
            close_work(b, &work, st, k);
            arr_push(&b->steps, step_of(b, sp, k, t));
            work = (struct sim_step){.kind = SIM_WORK, .first = k + 1, .transfer = -1};
            streams_reset(st);
            continue;
        }
        streams_issue(st, t.issue_us);
        double start = streams_add(st, i, t.us, t.overlap);
        if (t.waits)
            streams_wait(st);
        b->overlaps |= t.overlap > 0;
        if (opcode_key(i->code) != KEY_COMM)
            work.compute_us += t.us;
        if (b->spans)
            b->spans[stage][k] = (struct drawn){start, t.us};
    }
    if (b->c->whole_recompute)
        run_again(b, sp, seg, st, &work);
    close_work(b, &work, st, span.end);
}

static void add_sum(struct cost_sum *sum, const struct cost_sum *more, double uses) {
    for (int s = 0; s < COST_SOURCES_COUNT; s++)
        sum->us[s] += uses * more->us[s];
    sum->low_us += uses * more->low_us;
    sum->high_us += uses * more->high_us;
}

static void build_steps(struct build *b, bool spans) {
    int n = b->g->n_stages;
    b->transfers = mem_array((size_t)b->g->n_transfers + 1, sizeof *b->transfers);
    b->seg = mem_array((size_t)n * SEG_COUNT + 1, sizeof *b->seg);
    b->spans = spans ? mem_array((size_t)n, sizeof *b->spans) : NULL;
    for (int t = 0; t < b->g->n_transfers; t++) {
        const struct transfer *x = &b->g->transfers[t];
        b->transfers[t] = cost_transfer(b->c, b->g, x);
        enum segment seg = x->tensor < 0 ? SEG_REDUCE : SEG_FORWARD;
        add_sum(&b->sum, &b->transfers[t].sum, (double)uses_of(b, seg));
    }
    for (int k = 0; k < n; k++) {
        const struct stage_program *sp = &b->g->stages[k];
        struct streams st;
        streams_init(&st, sp);
        if (spans)
            b->spans[k] = mem_array((size_t)sp->n_instrs, sizeof **b->spans);
        for (int s = 0; s < SEG_COUNT; s++)
            build_segment(b, k, (enum segment)s, &st);
        streams_release(&st);
    }
    b->seg[n * SEG_COUNT] = (int)b->steps.n;
}

static void build_release(struct build *b) {
    for (int k = 0; b->spans && k < b->g->n_stages; k++)
        free(b->spans[k]);
    free(b->spans);
    free(b->transfers);
    free(b->seg);
    arr_release(&b->steps);
}

static struct sim_transfer *engine_transfers(const struct build *b) {
    struct sim_transfer *out = mem_array((size_t)b->g->n_transfers + 1, sizeof *out);
    for (int t = 0; t < b->g->n_transfers; t++)
        out[t] = (struct sim_transfer){.from = b->g->transfers[t].from,
                                       .to = b->g->transfers[t].to,
                                       .move_us = b->transfers[t].move_us,
                                       .overlap = b->transfers[t].overlap,
                                       .depth = b->g->transfers[t].depth};
    return out;
}

static struct group_schedule *engine_groups(const struct program *g) {
    struct group_schedule *out = mem_array((size_t)g->plan->n_groups, sizeof *out);
    for (int k = 0; k < g->plan->n_groups; k++)
        out[k] = schedule_of_group(g->plan, k, plan_micro_batches(g->plan));
    return out;
}

/* ---- trace ------------------------------------------------------------------------- */

struct draw {
    const struct build *b;
    const struct sim_trace *trace;
};

static int ranks_drawn(const struct draw *d, int stage) {
    return d->trace->all_ranks ? mesh_devices(d->b->g->stages[stage].mesh) : 1;
}

static void draw_instr(const struct draw *d, struct action a, int k, double ts_us,
                       double dur_us) {
    const struct program *g = d->b->g;
    const struct instr *i = &g->stages[a.stage].instrs[k];
    bool comm = opcode_key(i->code) == KEY_COMM;
    struct trace_event ev = {.name = opcode_name(i->code),
                             .subject = trace_subject(g, i),
                             .category = trace_category_of(i->code, a.segment),
                             .tid = (comm && d->b->overlaps) || (comm && i->work >= 0),
                             .ts_us = ts_us,
                             .dur_us = dur_us,
                             .index = a.index,
                             .segment = a.segment,
                             .instr = i};
    for (int r = 0; r < ranks_drawn(d, a.stage); r++) {
        ev.pid = g->plan->stages[a.stage].first_rank + r;
        trace_event(d->trace->trace, &ev);
    }
}

/* Transfers and the norm are drawn with their waiting, as the executor measures them. */
static void draw_step(void *ctx, struct action a, const struct sim_step *step,
                      double begin_us, double end_us) {
    const struct draw *d = ctx;
    if (step->kind != SIM_WORK) {
        draw_instr(d, a, step->first, begin_us, end_us - begin_us);
        return;
    }
    for (int k = step->first; k < step->end; k++) {
        struct drawn s = d->b->spans[a.stage][k];
        draw_instr(d, a, k, begin_us + s.start_us, s.dur_us);
    }
}

static void draw_names(const struct draw *d) {
    const struct plan *p = d->b->g->plan;
    for (int k = 0; k < p->n_groups; k++) {
        int stage = p->chunks[p->first_chunk[k]];
        for (int r = 0; r < ranks_drawn(d, stage); r++)
            trace_rank(d->trace->trace, d->b->g, p->stages[stage].first_rank + r);
    }
}

/* ---- whole program ----------------------------------------------------------------- */

static double work_us(const struct build *b, int first, int end) {
    double us = 0;
    for (int i = first; i < end; i++)
        us += b->steps.p[i].kind == SIM_WORK ? b->steps.p[i].us : 0;
    return us;
}

static void per_micro_batch(const struct build *b, struct simulation *out) {
    for (int k = 0; k < out->n_stages; k++) {
        const int *seg = &b->seg[k * SEG_COUNT];
        out->stages[k].forward_us = work_us(b, seg[SEG_FORWARD], seg[SEG_BACKWARD]);
        out->stages[k].weights_us = work_us(b, seg[SEG_WEIGHTS], seg[SEG_LAST_WEIGHTS]);
        out->stages[k].backward_us = work_us(b, seg[SEG_BACKWARD], seg[SEG_LAST_BACKWARD]) +
                                     out->stages[k].weights_us;
        if (b->g->stages[k].arena_bytes > b->g->stages[out->fullest].arena_bytes)
            out->fullest = k;
    }
}

static void find_shares(const struct build *b, struct simulation *out) {
    double all = 0;
    for (int s = 0; s < COST_SOURCES_COUNT; s++)
        all += b->sum.us[s];
    for (int s = 0; s < COST_SOURCES_COUNT && all > 0; s++)
        out->share[s] = b->sum.us[s] / all;
    out->low_us = all > 0 ? out->time_us * b->sum.low_us / all : 0;
    out->high_us = all > 0 ? out->time_us * b->sum.high_us / all : 0;
}

static int most_works(const struct program *g) {
    int n = 0;
    for (int k = 0; k < g->n_stages; k++)
        n = g->stages[k].n_works > n ? g->stages[k].n_works : n;
    return n;
}

int simulate_program(const struct program *g, struct cost *c, const struct sim_trace *trace,
                     struct simulation *out, struct err *err) {
    struct build b = {.g = g, .c = c};
    build_steps(&b, trace != NULL);
    struct sim_input in = {.n_groups = g->plan->n_groups,
                           .n_stages = g->n_stages,
                           .n_transfers = g->n_transfers,
                           .groups = engine_groups(g),
                           .n_works = most_works(g),
                           .steps = b.steps.p,
                           .seg = b.seg,
                           .transfers = engine_transfers(&b)};
    struct draw d = {&b, trace};
    if (trace)
        draw_names(&d);
    int rc = simulate_run(&in, trace ? draw_step : NULL, &d, out, err);
    if (rc == 0) {
        per_micro_batch(&b, out);
        find_shares(&b, out);
    }
    free(in.transfers);
    free((void *)in.groups);
    build_release(&b);
    return rc;
}
