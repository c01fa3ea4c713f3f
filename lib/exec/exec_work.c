/* Works between ranks, in order with what computes.
 *
 * Works on streams (NCCL's) are ordered by events alone: a work goes behind what the compute
 * stream was given before it, and what the compute stream is given after the wait goes behind the
 * work. Without streams (MPI) the host is the order: it waits for the compute stream before a work
 * starts, and for the work in exec_wait. */
#include "exec/exec_impl.h"

#include "common/mem.h"

#include <stdlib.h>

void exec_free_works(struct exec_work *works, int64_t n) {
    for (int64_t i = 0; works && i < n; i++)
        device_event_destroy(works[i].done);
    free(works);
}

/* With an event for each where they happen on streams. */
struct exec_work *exec_make_works(struct exec *x, int64_t n, struct err *err) {
    struct exec_work *w = mem_array((size_t)n, sizeof *w);
    for (int64_t i = 0; i < n && x->on_streams; i++)
        if (!(w[i].done = device_event_create(x->device, err))) {
            exec_free_works(w, i);
            return NULL;
        }
    return w;
}

int exec_before(struct exec *x, enum exec_stream on, struct exec_work *w, struct err *err) {
    struct device_stream *compute = x->streams[STREAM_compute];
    if (!x->on_streams)
        return device_synchronize(compute, err);
    w->work.stream = x->streams[on];
    if (device_event_record(x->computed, compute, err) < 0)
        return -1;
    return device_event_wait(x->computed, w->work.stream, err);
}

int exec_after(struct exec *x, struct exec_work *w, struct err *err) {
    return x->on_streams ? device_event_record(w->done, w->work.stream, err) : 0;
}

int exec_wait(struct exec *x, struct exec_work *w, struct err *err) {
    if (comm_wait(&w->work, err) < 0)
        return -1;
    return x->on_streams ? device_event_wait(w->done, x->streams[STREAM_compute], err) : 0;
}

int exec_finish(struct exec *x, const struct exec_chunk *c, int work, struct err *err) {
    if (exec_wait(x, &c->works[work], err) < 0)
        return -1;
    return exec_wait(x, &c->going[work], err);
}

/* ---- collectives -------------------------------------------------------------------------- */

static int start_collective(const struct instr *ins, struct comm_group *group, void *in,
                            void *out, struct comm_work *work, struct err *err) {
    int64_t n = ins->n.all_reduce.elems, per_rank = n / ins->n.all_reduce.parts;
    enum dtype dtype = ins->dtype;
    switch (ins->code) {
    case I_all_gather:
        return comm_start_all_gather(group, in, out, per_rank, dtype, work, err);
    case I_all_reduce: return comm_start_all_reduce(group, in, n, dtype, work, err);
    case I_reduce_scatter:
        return comm_start_reduce_scatter(group, in, out, per_rank, dtype, work, err);
    case I_all_to_all:
        return comm_start_all_to_all(group, in, out, per_rank, dtype, work, err);
    default: return err_system(err, "not a collective");
    }
}

/* Starts it on a work of its own; one without a number is waited for at once. */
int exec_collective(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
                    const struct exec_instr *r, void *in, void *out, struct err *err) {
    bool at_once = ins->work < 0;
    struct exec_work *w = &c->works[at_once ? c->sp->n_works : ins->work];
    w->work.progress = at_once ? COMM_PROGRESS_OFF : COMM_PROGRESS_AUTO;
    if (exec_before(x, STREAM_collectives, w, err) < 0 ||
        start_collective(ins, r->group, in, out, &w->work, err) < 0 ||
        exec_after(x, w, err) < 0)
        return -1;
    return at_once ? exec_wait(x, w, err) : 0;
}

/* ---- copies to and from the host ----------------------------------------------------------- */

/* One with a number is waited for later: it goes on a stream of its own, where there are any. */
int exec_move(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
              const struct exec_instr *r, const union instr_src *in,
              const union instr_dst *out, struct err *err) {
    bool apart = ins->work >= 0 && x->on_streams;
    struct device_stream *s = x->streams[apart ? STREAM_host : STREAM_compute];
    struct exec_work *w = apart ? &c->works[ins->work] : NULL;
    if ((w && exec_before(x, STREAM_host, w, err) < 0) ||
        device_launch(s, ins->code, &ins->n, in, out, &r->args, err) < 0)
        return -1;
    return w ? exec_after(x, w, err) : 0;
}

/* ---- exchanges --------------------------------------------------------------------- */

enum { EXCHANGE_TAG = (1 << 20) + 1 }; /* above all transfers */

/* Elements that go to another rank of a group, or come from it. */
struct message {
    struct comm_group *group;
    bool send;
    int peer;
    void *p;
    int64_t n;
    enum dtype dtype;
};

static int start_message(struct exec *x, const struct message *m, struct exec_work *w,
                         struct err *err) {
    if (exec_before(x, m->send ? STREAM_sends : STREAM_receives, w, err) < 0)
        return -1;
    int rc = m->send ? comm_start_send(m->group, m->p, m->n, m->dtype, m->peer,
                                       EXCHANGE_TAG, &w->work, err)
                     : comm_start_recv(m->group, m->p, m->n, m->dtype, m->peer,
                                       EXCHANGE_TAG, &w->work, err);
    return rc < 0 ? -1 : exec_after(x, w, err);
}

/* One of an exchange, which is waited for where it stands. */
static int exchange_rows(struct exec *x, const struct exec_instr *r, bool send, char *p,
                         int64_t n, int peer, struct exec_work *w, struct err *err) {
    w->work.progress = COMM_PROGRESS_OFF;
    return start_message(x, &(struct message){r->group, send, peer, p, n, r->args.dtype}, w,
                         err);
}

/* A message to each rank that lacks rows of this one, and one from each that has rows
 * which this one lacks; all are posted before the first is waited for. The same two ranks
 * go through their exchanges in one order, so one tag does. */
int exec_exchange(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
                  const struct exec_instr *r, char *in, char *out, struct err *err) {
    const struct halo *h = &ins->halo;
    int64_t size = dtype_size(ins->dtype);
    int me = comm_group_rank(r->group), n = 0, rc = 0;
    for (int peer = 0; peer < h->parts && rc == 0; peer++) {
        int64_t got = halo_got(h, me, peer).n * h->each;
        if (got)
            rc = exchange_rows(x, r, false, out, got, peer, &c->exchanged[n++], err);
        out += size * got;
    }
    for (int peer = 0; peer < h->parts && rc == 0; peer++) {
        int64_t sent = halo_sent(h, me, peer).n * h->each;
        if (sent)
            rc = exchange_rows(x, r, true, in, sent, peer, &c->exchanged[n++], err);
        in += size * sent;
    }
    for (int i = 0; i < n && rc == 0; i++)
        rc = exec_wait(x, &c->exchanged[i], err);
    return rc;
}

int exec_swap_alone(struct exec *x, const struct instr *ins, void *in, void *out,
                    struct err *err) {
    static const int64_t one = 1;
    const int64_t *n = &ins->n.swap.elems;
    const union instr_n shape = {.copy = {.elems = *n, .inner = *n}};
    const union instr_src src = {.copy = {.x = in}};
    const union instr_dst dst = {.copy = {.y = out}};
    const struct device_args args = {.dtype = ins->dtype, .copy = {1, n, &one, &one}};
    return device_launch(x->streams[STREAM_compute], I_copy, &shape, &src, &dst, &args,
                         err);
}

/* With whomever this step brings; both messages are under way before one is waited for. */
int exec_swap(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
              const struct exec_instr *r, void *in, void *out, struct err *err) {
    const int me = comm_group_rank(r->group);
    const int other = exec_partner(x->opt.seed, x->step, (int)ins->n.swap.parts, me);
    struct exec_work *come = &c->exchanged[0], *go = &c->exchanged[1];
    if (other == me)
        return exec_swap_alone(x, ins, in, out, err);
    if (exchange_rows(x, r, false, out, ins->n.swap.elems, other, come, err) < 0 ||
        exchange_rows(x, r, true, in, ins->n.swap.elems, other, go, err) < 0 ||
        exec_wait(x, come, err) < 0)
        return -1;
    return exec_wait(x, go, err);
}

/* Both are started; exec_finish waits for both. */
int exec_shift(struct exec *x, const struct exec_chunk *c, const struct instr *ins,
               const struct exec_instr *r, void *in, void *out, struct err *err) {
    struct exec_work *come = &c->works[ins->work], *go = &c->going[ins->work];
    int me = comm_group_rank(r->group), n = (int)ins->n.shift.parts;
    int64_t elems = ins->n.shift.elems;
    enum dtype dtype = c->sp->buffers[ins->in.shift.x].dtype;
    struct message recv = {r->group, false, (me + n - 1) % n, out, elems, dtype};
    struct message send = {r->group, true, (me + 1) % n, in, elems, dtype};
    come->work.progress = go->work.progress = COMM_PROGRESS_AUTO;
    return start_message(x, &send, go, err) < 0 ? -1 : start_message(x, &recv, come, err);
}
