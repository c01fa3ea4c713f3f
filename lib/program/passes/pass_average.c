/* Means over replicas that train apart.
 *
 * Replicas differ in what outlives a step: parameters and the optimizer's state. One
 * segment takes the mean over all replicas, every few steps as the schedule says, or before
 * a checkpoint is written. Where the plan has replicas meet in pairs, another one takes the
 * mean of each pair. Masters are averaged in place of their parameters, which are rounded
 * again.
 *
 * Buffers that lie side by side in memory go together, in pieces just long enough to keep a
 * link busy, so that a partner's copy takes little memory. What lives on the host comes to
 * the device and goes back. Under ZeRO each rank has its share averaged, and the whole is
 * gathered again. */
#include "program/emit/params.h"
#include "program/passes/pass.h"

enum {
    PIECE_BYTES = 25 << 20, /* as the buckets of gradients (pass_bucket.c) */
};

struct meeting {
    struct emit *e;
    bool pairs;
};

/* ---- the mean of one buffer ----------------------------------------------------------------- */

static void divide(struct emit *e, int x, int64_t n, int by) {
    struct instr *i = emit_instr(e, I_scale);
    i->in.scale.x = i->out.scale.y = x;
    i->n.scale.elems = n;
    i->replicas = by;
}

/* Makes x[0 .. n), which replicas along these axes have, the mean of theirs. */
static void mean(const struct meeting *m, unsigned axes, int x, int64_t n) {
    struct emit *e = m->e;
    if (!m->pairs) {
        emit_collective(e, I_all_reduce, axes, x, x, n);
        divide(e, x, n, mesh_group_size(e->mesh, axes));
        return;
    }
    int other = emit_buffer(e, n, DTYPE_f32, MEM_temporaries);
    emit_collective(e, I_swap, axes, x, other, n);
    struct instr *i = emit_instr(e, I_add);
    i->in.add.a = i->out.add.y = x;
    i->in.add.b = other;
    i->n.add.elems = n;
    divide(e, x, n, 2);
}

/* A buffer on the device with the contents of x; x itself, unless it is on the host. */
static int fetch(struct emit *e, int x) {
    struct buffer b = e->buffers.p[x];
    if (!b.host)
        return x;
    int y = emit_buffer(e, b.elems, b.dtype, MEM_temporaries);
    struct instr *i = emit_instr(e, I_reload);
    i->in.reload.x = x;
    i->out.reload.y = y;
    i->n.reload.elems = b.elems;
    return y;
}

static void put_back(struct emit *e, int y, int x) {
    if (x == y)
        return;
    struct instr *i = emit_instr(e, I_offload);
    i->in.offload.x = y;
    i->out.offload.y = x;
    i->n.offload.elems = e->buffers.p[x].elems;
}

/* ---- runs of memory ------------------------------------------------------------------------- */

/* A run of the arena's bytes, from a buffer on, that is averaged over the same axes. */
struct run {
    unsigned axes;
    int first; /* buffer */
    int64_t from, to;
};

static void average_run(const struct meeting *m, const struct run *r) {
    struct emit *e = m->e;
    struct buffer part = e->buffers.p[r->first];
    for (int64_t at = r->from; at < r->to; at += PIECE_BYTES) {
        const int64_t left = r->to - at;
        part.offset = at;
        part.elems = (left < PIECE_BYTES ? left : PIECE_BYTES) / dtype_size(part.dtype);
        arr_push(&e->buffers, part);
        mean(m, r->axes, (int)e->buffers.n - 1, part.elems);
    }
}

/* Grows the run by a buffer, or averages it and begins another with the buffer. */
static void run_add(const struct meeting *m, struct run *r, unsigned axes, int buffer) {
    const struct buffer b = m->e->buffers.p[buffer]; /* a copy: average_run adds buffers */
    if (r->to > r->from && (r->axes != axes || r->to != b.offset)) {
        average_run(m, r);
        *r = (struct run){0};
    }
    if (r->to == r->from)
        *r = (struct run){axes, buffer, b.offset, b.offset};
    r->to += buffer_bytes(&b);
}

static void run_end(const struct meeting *m, struct run *r) {
    if (r->to > r->from)
        average_run(m, r);
    *r = (struct run){0};
}

/* ---- states, then parameters ----------------------------------------------------------------- */

static int master_of(const struct emit *e, int param) {
    for (int64_t i = 0; i < e->states.n; i++)
        if (e->states.p[i].param == param && e->states.p[i].which == STATE_MASTER)
            return (int)i;
    return -1;
}

static void average_on_host(const struct meeting *m, unsigned axes, int x) {
    int y = fetch(m->e, x);
    mean(m, axes, y, m->e->buffers.p[x].elems);
    put_back(m->e, y, x);
}

static void average_states(const struct meeting *m) {
    struct emit *e = m->e;
    struct run r = {0};
    for (int64_t i = 0; i < e->states.n; i++) {
        const unsigned axes = param_apart(e, e->states.p[i].param);
        const int buffer = e->states.p[i].buffer;
        if (axes && !e->buffers.p[buffer].host)
            run_add(m, &r, axes, buffer);
    }
    run_end(m, &r);
    for (int64_t i = 0; i < e->states.n; i++) {
        const unsigned axes = param_apart(e, e->states.p[i].param);
        e->param = e->states.p[i].param;
        if (axes && e->buffers.p[e->states.p[i].buffer].host)
            average_on_host(m, axes, e->states.p[i].buffer);
    }
    e->param = -1;
}

/* Whether a parameter's own memory is averaged: whole, in f32, on the device. */
static bool is_plain(const struct emit *e, const struct param_instance *p) {
    struct placement share = param_share(e, p->param, p->place, ZERO_OPTIMIZER);
    const struct buffer *b = &e->buffers.p[p->buffer];
    return b->dtype == DTYPE_f32 && placement_equal(share, p->place) && !b->host;
}

/* Averages the rank's share, or rounds its averaged master, and gathers the whole again. */
static void average_share(const struct meeting *m, const struct param_instance *p) {
    struct emit *e = m->e;
    const struct shape *s = &e->m->params[p->param].shape;
    struct placement share = param_share(e, p->param, p->place, ZERO_OPTIMIZER);
    const int64_t n = emit_elements(e, s, share);
    int master = master_of(e, p->param), value, whole = p->buffer;
    if (e->buffers.p[whole].host)
        whole = master < 0 ? fetch(e, whole)
                           : emit_buffer(e, e->buffers.p[whole].elems,
                                         e->buffers.p[whole].dtype, MEM_temporaries);
    if (master < 0) {
        value = emit_convert(e, s, whole, p->place, share, -1);
        mean(m, param_apart(e, p->param), value, n);
    } else {
        value = placement_equal(share, p->place)
                    ? whole
                    : emit_buffer(e, n, e->plan->dtype, MEM_temporaries);
        emit_cast(e, fetch(e, e->states.p[master].buffer), value, n);
    }
    if (value != whole)
        emit_convert(e, s, value, share, p->place, whole);
    put_back(e, whole, p->buffer);
}

static void average_params(const struct meeting *m) {
    struct emit *e = m->e;
    struct run r = {0};
    for (int64_t i = 0; i < e->params.n; i++) {
        const struct param_instance *p = &e->params.p[i];
        const unsigned axes = p->home ? param_apart(e, p->param) : 0;
        if (axes && is_plain(e, p))
            run_add(m, &r, axes, p->buffer);
    }
    run_end(m, &r);
    for (int64_t i = 0; i < e->params.n; i++) {
        const struct param_instance p = e->params.p[i];
        e->param = p.param;
        if (p.home && param_apart(e, p.param) && !is_plain(e, &p))
            average_share(m, &p);
    }
    e->param = -1;
}

/* Makes the stage's other instances anew from the one at home. */
static void renew_copies(struct emit *e) {
    for (int64_t i = 0; i < e->params.n; i++) {
        const struct param_instance q = e->params.p[i];
        if (q.home || !param_apart(e, q.param))
            continue;
        const struct param_instance p = e->params.p[e->param_of[q.param]];
        e->param = q.param;
        int from = fetch(e, p.buffer), to = q.buffer;
        if (e->buffers.p[to].host)
            to = emit_buffer(e, e->buffers.p[to].elems, e->buffers.p[to].dtype,
                             MEM_temporaries);
        emit_convert(e, &e->m->params[q.param].shape, from, p.place, q.place, to);
        put_back(e, to, q.buffer);
    }
    e->param = -1;
}

static void meet(struct emit *e, bool pairs) {
    const struct meeting m = {e, pairs};
    average_states(&m);
    average_params(&m);
    renew_copies(e);
}

void pass_average(struct emit *e) {
    e->seg = SEG_PAIR;
    e->op = e->param = -1;
    if (e->plan->average == AVERAGE_pairs)
        meet(e, true);
    emit_end_segment(e, SEG_PAIR);
    e->seg = SEG_AVERAGE;
    if (e->plan->average != AVERAGE_none)
        meet(e, false);
    emit_end_segment(e, SEG_AVERAGE);
}
