/* Replaying all ranks without hardware.
 *
 * Two replays. Memory: one rank of each stage goes through its actions and every read must find
 * the bytes as their writer left them. Messages: all ranks advance together, with the executor's
 * own rules (a send waits until its staging has room, a receive until the message is there, a
 * collective until its whole group has come to the same instruction); when nobody can advance,
 * that is a deadlock. Very long schedules are cut to the micro-batches after which they repeat. */
#include "program/program.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory -------------------------------------------------------------------------------- */

struct extent {
    int64_t from, to; /* bytes */
    int buffer;
};

struct writes { /* disjoint, by offset: who wrote what last */
    ARR(struct extent) list;
};

static int64_t first_touching(const struct writes *e, int64_t from) {
    int64_t lo = 0, hi = e->list.n;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (e->list.p[mid].to <= from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void extents_write(struct writes *e, struct extent w) {
    int64_t i = first_touching(e, w.from), end = i;
    while (end < e->list.n && e->list.p[end].from < w.to)
        end++;
    /* What is overwritten even in part is lost as a whole. */
    if (end == i)
        arr_push(&e->list, w);
    int64_t tail = e->list.n - (end == i ? 1 : 0) - end;
    memmove(e->list.p + i + 1, e->list.p + end, sizeof w * (size_t)tail);
    e->list.p[i] = w;
    e->list.n = i + 1 + tail;
}

static bool extents_hold(const struct writes *e, struct extent r) {
    int64_t i = first_touching(e, r.from);
    return i < e->list.n && e->list.p[i].from == r.from && e->list.p[i].to == r.to &&
           e->list.p[i].buffer == r.buffer;
}

static bool permanent(const struct buffer *b) {
    return b->mem == MEM_parameters || b->mem == MEM_gradients || b->mem == MEM_optimizer;
}

static struct extent extent_of(const struct stage_program *sp, int buffer, int64_t mb) {
    int64_t at = buffer_offset(sp, buffer, mb);
    return (struct extent){at, at + 4 * sp->buffers[buffer].elems, buffer};
}

static int replay_instr(const struct stage_program *sp, const struct instr *ins, int64_t mb,
                        struct writes *e, struct err *err) {
    for (int k = 0; k < INSTR_MAX_IN; k++) {
        int b = ins->in.v[k];
        if (b >= 0 && !permanent(&sp->buffers[b]) && !extents_hold(e, extent_of(sp, b, mb)))
            return err_input(err,
                             "%s reads buffer %d of micro-batch %lld, which is not written "
                             "or was overwritten",
                             opcode_name(ins->code), b, (long long)mb);
    }
    for (int k = 0; k < INSTR_MAX_OUT; k++) {
        int b = ins->out.v[k];
        if (b < 0)
            continue;
        struct extent w = extent_of(sp, b, mb);
        int64_t end = sp->arena_bytes;
        if (w.from < 0 || w.to > end)
            return err_input(err, "%s writes outside the arena", opcode_name(ins->code));
        if (!permanent(&sp->buffers[b]))
            extents_write(e, w);
    }
    return 0;
}

static int64_t replayed_micro_batches(const struct program *g) {
    int64_t m = plan_micro_batches(g->plan), enough = 3 * (int64_t)g->n_stages + 4;
    return g->plan->schedule == SCHEDULE_gpipe || m < enough ? m : enough;
}

static int replay_memory(const struct program *g, int stage, struct err *err) {
    const struct stage_program *sp = &g->stages[stage];
    int64_t m = replayed_micro_batches(g);
    struct writes e = {{0}};
    int rc = 0;
    for (int64_t i = 0; i < schedule_actions(m) && rc == 0; i++) {
        struct action a = schedule_action(g->plan->schedule, stage, g->n_stages, m, i);
        struct span span = program_segment(sp, a.segment);
        for (int j = span.first; j < span.end && rc == 0; j++)
            rc = replay_instr(sp, &sp->instrs[j], a.micro_batch < 0 ? 0 : a.micro_batch, &e,
                              err);
    }
    arr_release(&e.list);
    return rc < 0 ? err_prefix(err, "stages[%d]", stage) : 0;
}

/* ---- messages ------------------------------------------------------------------------------- */

struct mailbox { /* one message channel, at its sender */
    int dst;
    int64_t elems, sent, taken;
};

struct cursor { /* one rank */
    struct rank_program rp;
    int64_t action;
    int instr;    /* next instruction of the action's segment, -1 = not begun */
    bool arrived; /* at the collective in front of it */
    bool done;
    int64_t *visits; /* per set of axes: collectives begun */
    int *n_boxes;    /* per transfer */
    struct mailbox **boxes;
    int *n_wants; /* per transfer: what it receives */
    struct piece **wants;
};

struct replay {
    const struct program *g;
    int64_t micro_batches;
    int n;
    struct cursor *ranks;
    int64_t norms; /* arrivals at the collective of all ranks */
};

static void open_boxes(struct replay *r, struct cursor *c) {
    const struct program *g = r->g;
    size_t n = (size_t)g->n_transfers;
    c->n_boxes = mem_array(n, sizeof *c->n_boxes);
    c->boxes = mem_array(n, sizeof *c->boxes);
    c->n_wants = mem_array(n, sizeof *c->n_wants);
    c->wants = mem_array(n, sizeof *c->wants);
    c->visits = mem_array(1u << MESH_MAX_AXES, sizeof *c->visits);
    for (int t = 0; t < g->n_transfers; t++) {
        const struct transfer *tr = &g->transfers[t];
        if (tr->from == c->rp.stage) {
            struct piece *p;
            c->n_boxes[t] = transfer_pieces(g, tr, c->rp.rank, true, &p);
            c->boxes[t] = mem_array((size_t)c->n_boxes[t], sizeof **c->boxes);
            for (int i = 0; i < c->n_boxes[t]; i++)
                c->boxes[t][i] = (struct mailbox){.dst = p[i].dst, .elems = p[i].elems};
            free(p);
        }
        if (tr->to == c->rp.stage)
            c->n_wants[t] = transfer_pieces(g, tr, c->rp.rank, false, &c->wants[t]);
    }
}

static void close_boxes(const struct replay *r, struct cursor *c) {
    for (int t = 0; t < r->g->n_transfers && c->boxes; t++) {
        free(c->boxes[t]);
        free(c->wants[t]);
    }
    free(c->n_boxes);
    free(c->boxes);
    free(c->n_wants);
    free(c->wants);
    free(c->visits);
}

static struct mailbox *find_box(struct replay *r, int src, int dst, int transfer) {
    struct cursor *c = &r->ranks[src];
    for (int i = 0; i < c->n_boxes[transfer]; i++)
        if (c->boxes[transfer][i].dst == dst)
            return &c->boxes[transfer][i];
    return NULL;
}

static bool try_send(const struct replay *r, struct cursor *c, int transfer) {
    for (int i = 0; i < c->n_boxes[transfer]; i++)
        if (c->boxes[transfer][i].sent - c->boxes[transfer][i].taken >=
            r->g->transfers[transfer].depth)
            return false;
    for (int i = 0; i < c->n_boxes[transfer]; i++)
        c->boxes[transfer][i].sent++;
    return true;
}

static bool try_recv(struct replay *r, struct cursor *c, int transfer, struct err *err,
                     bool *fault) {
    for (int i = 0; i < c->n_wants[transfer]; i++) {
        const struct piece *p = &c->wants[transfer][i];
        struct mailbox *box = find_box(r, p->src, c->rp.rank, transfer);
        if (!box || box->elems != p->elems) {
            err_input(err, "rank %d waits for %lld elements of rank %d, which sends %lld",
                      c->rp.rank, (long long)p->elems, p->src,
                      box ? (long long)box->elems : 0LL);
            *fault = true;
            return false;
        }
        if (box->sent == box->taken)
            return false;
    }
    for (int i = 0; i < c->n_wants[transfer]; i++)
        find_box(r, c->wants[transfer][i].src, c->rp.rank, transfer)->taken++;
    return true;
}

/* A collective goes on when every member has begun as many of its kind as this rank has. */
static bool try_collective(struct replay *r, struct cursor *c, const struct instr *ins) {
    if (ins->code == I_norm) {
        r->norms += !c->arrived;
        c->arrived = true;
        return r->norms % r->n == 0;
    }
    if (!c->arrived)
        c->visits[ins->axes]++;
    c->arrived = true;
    const struct mesh *mesh = c->rp.sp->mesh;
    int first = r->g->plan->stages[c->rp.stage].first_rank,
        n = mesh_group_size(mesh, ins->axes);
    int *ranks = mem_array((size_t)n, sizeof *ranks);
    mesh_group(mesh, ins->axes, c->rp.rank - first, ranks);
    bool all = true;
    for (int i = 0; i < n; i++)
        all &= r->ranks[first + ranks[i]].visits[ins->axes] >= c->visits[ins->axes];
    free(ranks);
    return all;
}

/* Advances a rank as far as it can go. Returns true if it moved. */
static bool advance(struct replay *r, struct cursor *c, struct err *err, bool *fault) {
    const struct program *g = r->g;
    bool moved = false;
    while (!c->done) {
        struct action a = schedule_action(g->plan->schedule, c->rp.stage, g->n_stages,
                                          r->micro_batches, c->action);
        struct span span = program_segment(c->rp.sp, a.segment);
        if (c->instr < 0)
            c->instr = span.first;
        for (; c->instr < span.end; c->instr++, moved = true) {
            const struct instr *ins = &c->rp.sp->instrs[c->instr];
            bool go = true;
            if (ins->code == I_send)
                go = try_send(r, c, ins->transfer);
            else if (ins->code == I_recv)
                go = try_recv(r, c, ins->transfer, err, fault);
            else if (opcode_key(ins->code) == KEY_COMM)
                go = try_collective(r, c, ins);
            if (!go)
                return moved;
            c->arrived = false;
        }
        c->instr = -1;
        c->done = ++c->action == schedule_actions(r->micro_batches);
    }
    return moved;
}

static int report_deadlock(const struct replay *r, struct err *err) {
    for (int i = 0; i < r->n; i++) {
        const struct cursor *c = &r->ranks[i];
        if (!c->done)
            return err_input(
                err, "deadlock: rank %d waits at instruction %d (%s) of action %lld", i,
                c->instr, opcode_name(c->rp.sp->instrs[c->instr].code),
                (long long)c->action);
    }
    return 0;
}

static int replay_messages(struct replay *r, struct err *err) {
    bool fault = false;
    for (bool moved = true; moved && !fault;) {
        moved = false;
        for (int i = 0; i < r->n && !fault; i++)
            moved |= advance(r, &r->ranks[i], err, &fault);
    }
    if (fault)
        return -1;
    if (report_deadlock(r, err) < 0)
        return -1;
    for (int i = 0; i < r->n; i++)
        for (int t = 0; t < r->g->n_transfers; t++)
            for (int k = 0; k < r->ranks[i].n_boxes[t]; k++)
                if (r->ranks[i].boxes[t][k].sent != r->ranks[i].boxes[t][k].taken)
                    return err_input(err, "a message of rank %d to rank %d is never taken",
                                     i, r->ranks[i].boxes[t][k].dst);
    return 0;
}

int program_validate(const struct program *g, struct err *err) {
    for (int s = 0; s < g->n_stages; s++)
        if (replay_memory(g, s, err) < 0)
            return -1;
    struct replay r = {
        .g = g, .micro_batches = replayed_micro_batches(g), .n = g->plan->devices};
    r.ranks = mem_array((size_t)r.n, sizeof *r.ranks);
    for (int i = 0; i < r.n; i++) {
        r.ranks[i].rp = program_for_rank(g, i);
        r.ranks[i].instr = -1;
        open_boxes(&r, &r.ranks[i]);
    }
    int rc = replay_messages(&r, err);
    for (int i = 0; i < r.n; i++)
        close_boxes(&r, &r.ranks[i]);
    free(r.ranks);
    return rc;
}
