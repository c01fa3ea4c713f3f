#include "run_trace.h"

#include "common/mem.h"
#include "common/progress.h"
#include "program/trace.h"

#include <stdlib.h>

enum { MAX_EVENTS = 1 << 20, TRACE_TAG = (1 << 20) + 1 };

struct event {
    int32_t instr, stage, segment;
    int32_t n;              /* instructions that were launched together */
    bool captured, divided; /* exec_span's */
    int64_t index, step;    /* of the micro-batch; 0 = not known */
    double start_s, end_s;  /* from the barrier */
};

struct run_trace {
    const struct program *g;
    struct comm *comm;
    double origin_s;
    ARR(struct event) events;
    bool full;
};

static void on_span(void *ctx, const struct exec_span *s) {
    struct run_trace *t = ctx;
    const struct action a = s->action;
    t->full = t->events.n == MAX_EVENTS;
    if (!t->full)
        arr_push(&t->events,
                 (struct event){.instr = (int32_t)(s->instr - t->g->stages[a.stage].instrs),
                                .stage = a.stage,
                                .segment = (int32_t)a.segment,
                                .n = s->n,
                                .captured = s->captured,
                                .divided = s->divided,
                                .index = a.index,
                                .step = s->step,
                                .start_s = s->start_s - t->origin_s,
                                .end_s = s->end_s - t->origin_s});
}

static void on_instr(void *ctx, const struct instr *i, struct action a, double start_s,
                     double end_s) {
    on_span(ctx, &(struct exec_span){
                     .instr = i, .n = 1, .action = a, .start_s = start_s, .end_s = end_s});
}

struct run_trace *run_trace_create(const struct program *g, struct comm *comm,
                                   struct exec_options *e, struct err *err) {
    struct run_trace *t = mem_alloc(sizeof *t);
    t->g = g;
    t->comm = comm;
    if (comm_barrier(comm_world(comm), err) < 0) {
        free(t);
        return NULL;
    }
    t->origin_s = now_s();
    e->on_instr = on_instr;
    e->on_span = on_span;
    e->on_instr_ctx = t;
    return t;
}

void run_trace_destroy(struct run_trace *t) {
    if (t)
        arr_release(&t->events);
    free(t);
}

static int send_events(struct run_trace *t, struct err *err) {
    int64_t n = t->events.n;
    struct comm_group *world = comm_world(t->comm);
    int64_t bytes = n * (int64_t)sizeof *t->events.p;
    if (comm_send(world, &n, sizeof n, DTYPE_u8, 0, TRACE_TAG, err) < 0)
        return -1;
    return n ? comm_send(world, t->events.p, bytes, DTYPE_u8, 0, TRACE_TAG, err) : 0;
}

static int recv_events(struct run_trace *t, int rank, struct event **events, int64_t *n,
                       struct err *err) {
    struct comm_group *world = comm_world(t->comm);
    if (comm_recv(world, n, sizeof *n, DTYPE_u8, rank, TRACE_TAG, err) < 0)
        return -1;
    *events = mem_array((size_t)*n, sizeof **events);
    int64_t bytes = *n * (int64_t)sizeof **events;
    return *n ? comm_recv(world, *events, bytes, DTYPE_u8, rank, TRACE_TAG, err) : 0;
}

static void write_rank(const struct run_trace *t, struct trace *out, int rank,
                       const struct event *events, int64_t n) {
    trace_rank(out, t->g, rank);
    for (int64_t i = 0; i < n; i++) {
        const struct event *e = &events[i];
        const struct instr *ins = &t->g->stages[e->stage].instrs[e->instr];
        enum segment segment = (enum segment)e->segment;
        trace_event(out,
                    &(struct trace_event){.name = opcode_name(ins->code),
                                          .subject = trace_subject(t->g, ins),
                                          .category = trace_category_of(ins->code, segment),
                                          .pid = rank,
                                          .ts_us = 1e6 * e->start_s,
                                          .dur_us = 1e6 * (e->end_s - e->start_s),
                                          .index = e->index,
                                          .step = e->step,
                                          .segment = segment,
                                          .together = e->n,
                                          .captured = e->captured,
                                          .divided = e->divided,
                                          .instr = ins});
    }
}

static int write_all(struct run_trace *t, const char *path, struct err *err) {
    struct trace *out = trace_open(path, err);
    if (!out)
        return -1;
    write_rank(t, out, 0, t->events.p, t->events.n);
    for (int rank = 1; rank < comm_size(t->comm); rank++) {
        struct event *events = NULL;
        int64_t n;
        int rc = recv_events(t, rank, &events, &n, err);
        if (rc == 0)
            write_rank(t, out, rank, events, n);
        free(events);
        if (rc < 0) {
            trace_abort(out);
            return -1;
        }
    }
    if (t->full)
        note("weft-run: the trace holds the first %d instructions of each rank",
             MAX_EVENTS);
    return trace_close(out, err);
}

int run_trace_write(struct run_trace *t, const char *path, struct err *err) {
    return comm_rank(t->comm) ? send_events(t, err) : write_all(t, path, err);
}
