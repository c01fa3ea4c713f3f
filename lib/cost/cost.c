/* Turns an instruction and the ranks that run it into a question for the provider. A rank's
 * time is that of the slowest devices of its stage. */
#include "cost/cost.h"

#include "common/mem.h"
#include "cost/streams.h"

#include <stdlib.h>
#include <string.h>

void cost_init(struct cost *c, const struct cost_provider *provider,
               const struct cluster *cluster) {
    *c = (struct cost){.provider = provider, .cluster = *cluster};
}

void cost_forget(struct cost *c) {
    c->n_missing = 0;
    hashtable_clear(&c->missing_table);
}

void cost_release(struct cost *c) {
    free(c->missing);
    hashtable_release(&c->missing_table);
    link_memo_release(&c->links);
    op_memo_release(&c->ops);
    *c = (struct cost){0};
}

/* ---- asking ------------------------------------------------------------------------ */

static int group_at(const struct cost *c, int64_t rank) {
    return (int)(cluster_group_of(&c->cluster, rank) - c->cluster.groups);
}

static struct cost_time ask_comm(struct cost *c, const struct comm_question *q) {
    struct cost_time t = {0};
    if (c->provider)
        t = q->code == I_send ? c->provider->kind->message(c->provider, q)
                              : c->provider->kind->collective(c->provider, q);
    if (t.from == COST_UNKNOWN)
        cost_note_missing(
            c, &(struct cost_key){.instr.code = q->code,
                                  .group = q->group,
                                  .comm = {q->size, q->stride, q->link.cross, q->bytes}});
    return t;
}

static struct cost_time ask_op(struct cost *c, int group, const struct instr_key *k) {
    struct cost_time t = {0};
    if (c->provider)
        t = op_memo_ask(&c->ops, c->provider, &(struct op_question){group, k});
    if (t.from == COST_UNKNOWN)
        cost_note_missing(c, &(struct cost_key){.instr = *k, .group = group});
    return t;
}

/* The time on a stage's slowest devices. */
static struct cost_time ask_stage(struct cost *c, const struct stage *st,
                                  const struct instr_key *k) {
    int last = group_at(c, st->first_rank + mesh_devices(&st->mesh) - 1);
    struct cost_time worst = ask_op(c, group_at(c, st->first_rank), k);
    for (int g = group_at(c, st->first_rank) + 1; g <= last; g++) {
        struct cost_time t = ask_op(c, g, k);
        if (t.us > worst.us)
            worst = t;
    }
    return worst;
}

/* The parts run one after the other. Their sum is as sure as the least sure of them. */
static struct cost_time ask_parts(struct cost *c, const struct stage *st,
                                  const struct instr_key *k) {
    struct instr_part parts[INSTR_MAX_PARTS];
    struct cost_time sum = {.from = COST_MEASURED};
    const int n = instr_parts(k, parts);
    bool known = true;
    for (int i = 0; i < n; i++) {
        const struct cost_time t = ask_stage(c, st, &parts[i].key);
        known &= t.from != COST_UNKNOWN;
        sum.us += parts[i].times * t.us;
        sum.low_us += parts[i].times * t.low_us;
        sum.high_us += parts[i].times * t.high_us;
        sum.issue_us += parts[i].times * t.issue_us;
        sum.waits |= t.waits;
        sum.from = t.from > sum.from ? t.from : sum.from;
    }
    return known ? sum : (struct cost_time){0};
}

static struct cost_time slower(struct cost_time t, double factor) {
    t.us *= factor;
    t.low_us *= factor;
    t.high_us *= factor;
    return t;
}

static struct cost_time compute_slower(const struct cost *c, int stage,
                                       struct cost_time t) {
    return c->slowdown ? slower(t, c->slowdown->stages[stage].compute) : t;
}

/* Slows a message between two stages or, where they are the same one, communication inside
 * it. A negative stage means all ranks of the job. */
static struct cost_time link_slower(const struct cost *c, int from, int to, bool cross,
                                    struct cost_time t) {
    const struct cost_slowdown *s = c->slowdown;
    if (!s)
        return t;
    if (from < 0)
        return slower(t, s->job[cross]);
    double a = s->stages[from].link[cross], b = s->stages[to].link[cross];
    return slower(t, a > b ? a : b);
}

static double fraction(double f) {
    return f > 0 ? f < 1 ? f : 1 : 0;
}

/* Roughly how far apart ranks of two stages are that talk to each other. */
static int64_t stage_distance(const struct plan *plan, int a, int b) {
    int64_t d = (int64_t)plan->stages[a].first_rank - plan->stages[b].first_rank;
    return d > 0 ? d : d < 0 ? -d : 1;
}

static int64_t bytes_of(int64_t elems, enum dtype dtype) {
    return elems * dtype_size(dtype);
}

/* ---- single costs ------------------------------------------------------------------ */

static struct cost_time collective(struct cost *c, const struct plan *plan,
                                   const struct stage_program *sp, const struct instr *i) {
    static const struct cost_time nothing = {.from = COST_MEASURED};
    const struct stage *st = &plan->stages[sp->stage];
    struct comm_question q = {.group = group_at(c, st->first_rank),
                              .code = i->code,
                              .bytes = bytes_of(i->n.v[0], i->dtype)};
    if (i->code == I_norm) { /* squared norm, loss and metrics, summed over the job */
        q.code = I_all_reduce;
        q.size = plan->devices;
        q.stride = 1;
        q.link = link_memo_job(&c->links, &c->cluster, plan->devices);
    } else {
        q.size = mesh_group_size(sp->mesh, i->axes);
        q.stride = mesh_group_stride(sp->mesh, i->axes);
        q.link = link_memo_group(&c->links, &c->cluster, sp->mesh, st->first_rank, i->axes);
    }
    if (i->code == I_exchange || i->code == I_shift ||
        i->code == I_swap) { /* messages between neighbours, both ways at once */
        q.code = I_send;
        q.size = 2;
    }
    /* a swap's partner may be any member, and all swap at once */
    if (i->code == I_swap)
        q.link.bandwidth = q.link.partners;
    struct cost_time t = q.size > 1 ? ask_comm(c, &q) : nothing;
    int stage = i->code == I_norm ? -1 : sp->stage;
    t = link_slower(c, stage, stage, q.link.cross, t);
    /* A collective without a wait of its own runs in place, so nothing overlaps it. */
    t.overlap = i->work < 0 ? 0 : fraction(t.overlap);
    return t;
}

struct cost_time cost_instr(struct cost *c, const struct plan *plan,
                            const struct stage_program *sp, const struct instr *i) {
    static const struct cost_time nothing = {.from = COST_MEASURED};
    switch (opcode_key(i->code)) {
    case KEY_FREE:
    case KEY_P2P: return nothing;
    case KEY_COMM: return collective(c, plan, sp, i);
    case KEY_SHAPE:
    case KEY_CURVE:
    case KEY_PARTS: break;
    }
    struct instr_key k = instr_key(i->code, i->dtype, &i->n);
    const struct stage *st = &plan->stages[sp->stage];
    return compute_slower(c, sp->stage,
                          opcode_key(i->code) == KEY_PARTS ? ask_parts(c, st, &k)
                                                           : ask_stage(c, st, &k));
}

/* The time of a message over this link. */
static struct cost_time message(struct cost *c, struct link_class link, int64_t receiver,
                                int64_t stride, int64_t bytes) {
    static const struct cost_time nothing = {.from = COST_MEASURED};
    struct comm_question q = {.group = group_at(c, receiver),
                              .code = I_send,
                              .size = 2,
                              .stride = stride,
                              .bytes = bytes,
                              .link = link};
    struct cost_time t = bytes > 0 && link.level ? ask_comm(c, &q) : nothing;
    t.overlap = fraction(t.overlap);
    return t;
}

double cost_message_us(struct cost *c, int64_t sender, int64_t receiver, int64_t n,
                       int64_t bytes) {
    int64_t stride = sender < receiver ? receiver - sender : sender - receiver;
    struct cost_time t =
        message(c, link_memo_message(&c->links, &c->cluster, sender, receiver, n), receiver,
                stride, bytes);
    return t.us * (1 - t.overlap);
}

static struct instr_key copy_key(enum dtype dtype, int64_t elems, int64_t inner) {
    return instr_key(I_copy, dtype,
                     &(union instr_n){.copy = {.elems = elems, .inner = inner}});
}

double cost_copy_us(struct cost *c, enum dtype dtype, int64_t elems, int64_t inner) {
    struct instr_key k = copy_key(dtype, elems, inner);
    return elems > 0 ? ask_op(c, 0, &k).us : 0;
}

/* ---- transfers --------------------------------------------------------------------- */

/* Elements in one run of memory when the box is copied out of or into the rank's own. */
static int64_t run_length(const struct extents *x, const struct box *own,
                          const struct box *box) {
    int64_t run = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        run *= box->size[i];
        if (box->size[i] != own->size[i])
            break;
    }
    return run;
}

static struct box own_box(const struct program *g, const struct transfer *t,
                          const struct extents *x, int rank, bool sender) {
    const struct stage *st = &g->plan->stages[sender ? t->from : t->to];
    int coord[MESH_MAX_AXES];
    mesh_coords(&st->mesh, rank - st->first_rank, coord);
    return placement_box(&st->mesh, x, sender ? t->from_place : t->to_place, coord);
}

/* The first message of a transfer stands for all: shards are even. */
struct sample {
    int src, dst;         /* ranks */
    int64_t pack, unpack; /* elements in one run of memory at either end */
};

static struct sample first_message(const struct program *g, const struct transfer *t) {
    struct piece *pieces;
    int first = g->plan->stages[t->to].first_rank;
    struct sample s = {.src = first, .dst = first, .pack = 1, .unpack = 1};
    int n = transfer_pieces(g, t, first, false, &pieces), i = 0;
    while (i < n - 1 && pieces[i].src == pieces[i].dst)
        i++; /* what a rank takes from itself is no message */
    if (n > 0) {
        struct extents x = transfer_extents(g, t);
        struct box from = own_box(g, t, &x, pieces[i].src, true);
        struct box to = own_box(g, t, &x, pieces[i].dst, false);
        s = (struct sample){.src = pieces[i].src, .dst = pieces[i].dst};
        s.pack = run_length(&x, &from, &pieces[i].box);
        s.unpack = run_length(&x, &to, &pieces[i].box);
    }
    free(pieces);
    return s;
}

static double add_part(struct transfer_cost *out, struct cost_time t) {
    cost_sum_add(&out->sum, t, 1);
    return t.us;
}

static struct cost_time copy_at(struct cost *c, const struct stage *st, enum dtype dtype,
                                int64_t elems, int64_t inner) {
    static const struct cost_time nothing = {.from = COST_MEASURED};
    struct instr_key k = copy_key(dtype, elems, inner);
    return elems > 0 ? ask_stage(c, st, &k) : nothing;
}

/* A sender with several receivers sends to one after the other, so whichever end moves more
 * bounds the time. */
struct transfer_cost cost_transfer(struct cost *c, const struct program *g,
                                   const struct transfer *t) {
    const struct stage *from = &g->plan->stages[t->from], *to = &g->plan->stages[t->to];
    struct sample s = first_message(g, t);
    bool sender = t->max_send > t->max_recv;
    struct link_class link =
        sender ? links_of_message(&c->cluster, s.dst, s.src, mesh_devices(&from->mesh))
               : links_of_message(&c->cluster, s.src, s.dst, mesh_devices(&to->mesh));
    struct cost_time move = message(c, link, s.dst, stage_distance(g->plan, t->from, t->to),
                                    bytes_of(sender ? t->max_send : t->max_recv, t->dtype));
    struct cost_time pack = copy_at(c, from, t->dtype, t->send_staging, s.pack);
    struct cost_time unpack =
        copy_at(c, to, t->dtype, t->recv_staging + t->max_own, s.unpack);
    struct transfer_cost out = {.overlap = move.overlap, .cross = link.cross};
    out.pack_us = add_part(&out, compute_slower(c, t->from, pack));
    out.move_us = add_part(&out, link_slower(c, t->from, t->to, link.cross, move));
    out.unpack_us = add_part(&out, compute_slower(c, t->to, unpack));
    return out;
}

/* A rank that sends to `stage`: one of stage `from`, or a neighbour if that is the stage
 * itself. -1: the cluster has no other rank. */
static int64_t peer_of(const struct cost *c, const struct plan *plan, int from, int stage) {
    const struct stage *st = &plan->stages[stage];
    int64_t behind = st->first_rank + mesh_devices(&st->mesh);
    if (from != stage)
        return plan->stages[from].first_rank;
    return behind < cluster_devices(&c->cluster) ? behind : st->first_rank - 1;
}

/* What a send or receive costs as far as its stage alone can tell. The message is taken to
 * be there when it is asked for, as it is at the stage that bounds the time. */
static double transfer_alone_us(struct cost *c, const struct plan *plan,
                                const struct stage_program *sp, const struct instr *i) {
    const struct stage *st = &plan->stages[sp->stage];
    if (i->code == I_send)
        return copy_at(c, st, i->dtype, i->n.send.elems, i->n.send.elems).us;
    const struct model *m = plan->model;
    int op = i->tensor >= 0 ? m->tensors[i->tensor].producer : m->params[i->param].first_op;
    int from = plan->stage_of[op];
    if (from == sp->stage) /* a gradient, which the next stage sends */
        from = sp->stage + 1 < plan->n_stages ? sp->stage + 1 : sp->stage;
    int64_t peer = peer_of(c, plan, from, sp->stage);
    if (peer < 0)
        return 0;
    struct cost_time t = message(
        c, links_of_message(&c->cluster, peer, st->first_rank, mesh_devices(&st->mesh)),
        st->first_rank, stage_distance(plan, from, sp->stage),
        bytes_of(i->n.recv.elems, i->dtype));
    return t.us * (1 - t.overlap);
}

/* ---- what is recomputed whole ------------------------------------------------------- */

bool cost_recomputes(const struct stage *st, int op) {
    int lo = 0, hi = st->n_ops - 1;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        *(st->ops[mid] < op ? &lo : &hi) = st->ops[mid] < op ? mid + 1 : mid;
    }
    return hi >= 0 && st->ops[lo] == op && st->recompute[lo];
}

/* Whether the program recomputes it already: the span has one of its op and opcode. */
static bool is_recomputed(const struct stage_program *sp, struct span span,
                          const struct instr *i) {
    for (int k = span.first; k < span.end; k++)
        if (sp->instrs[k].op == i->op && sp->instrs[k].code == i->code)
            return true;
    return false;
}

bool cost_runs_again(const struct cost *c, const struct plan *plan,
                     const struct stage_program *sp, int instr, enum segment seg) {
    const struct instr *i = &sp->instrs[instr];
    struct span span = program_segment(sp, seg);
    return c->whole_recompute && (seg == SEG_BACKWARD || seg == SEG_LAST_BACKWARD) &&
           span.end > span.first && i->op >= 0 && i->work < 0 &&
           (opcode_computes(i->code) || opcode_key(i->code) == KEY_COMM) &&
           cost_recomputes(&plan->stages[sp->stage], i->op) && !is_recomputed(sp, span, i);
}

/* ---- a stage ----------------------------------------------------------------------- */

/* Adds what the segment recomputes although nothing needs it (whole_recompute). */
static void cost_again(struct cost *c, const struct plan *plan,
                       const struct stage_program *sp, struct streams *st, enum segment seg,
                       struct stage_cost *out) {
    for (int k = sp->seg[SEG_FORWARD]; k < sp->seg[SEG_FORWARD + 1]; k++) {
        const struct instr *i = &sp->instrs[k];
        if (!cost_runs_again(c, plan, sp, k, seg))
            continue;
        struct cost_time t = cost_instr(c, plan, sp, i);
        streams_issue(st, t.issue_us);
        streams_add(st, i, t.us, 0);
        *(opcode_key(i->code) == KEY_COMM ? &out->comm_us[seg] : &out->compute_us[seg]) +=
            t.us;
    }
}

static void cost_segment(struct cost *c, const struct plan *plan,
                         const struct stage_program *sp, struct streams *st,
                         enum segment seg, struct stage_cost *out) {
    streams_reset(st);
    for (int k = sp->seg[seg]; k < sp->seg[seg + 1]; k++) {
        const struct instr *i = &sp->instrs[k];
        if (opcode_key(i->code) == KEY_P2P) {
            out->p2p_us[seg] += transfer_alone_us(c, plan, sp, i);
            continue;
        }
        struct cost_time t = cost_instr(c, plan, sp, i);
        streams_issue(st, t.issue_us);
        streams_add(st, i, t.us, t.overlap);
        if (t.waits)
            streams_wait(st);
        *(opcode_key(i->code) == KEY_COMM ? &out->comm_us[seg] : &out->compute_us[seg]) +=
            t.us;
    }
    if (c->whole_recompute && sp->seg[seg + 1] > sp->seg[seg])
        cost_again(c, plan, sp, st, seg, out);
    out->us[seg] = streams_end(st);
}

void cost_stage(struct cost *c, const struct plan *plan, const struct stage_program *sp,
                struct stage_cost *out) {
    struct streams st;
    int64_t missing = 0, before = 0;
    for (int64_t i = 0; i < c->n_missing; i++)
        before += c->missing[i].count;
    *out = (struct stage_cost){0};
    streams_init(&st, sp);
    for (int s = 0; s < SEG_COUNT; s++)
        if (s != SEG_NORM && schedule_share(plan, (enum segment)s) > 0)
            cost_segment(c, plan, sp, &st, (enum segment)s, out);
    out->reduce_us = out->us[SEG_REDUCE] + out->p2p_us[SEG_REDUCE];
    for (int s = SEG_BACKWARD; s <= SEG_WEIGHTS; s += SEG_WEIGHTS - SEG_BACKWARD)
        if (out->us[s + 1] > 0)
            out->reduce_us += out->us[s + 1] - out->us[s];
    out->update_us = out->us[SEG_UPDATE] + out->p2p_us[SEG_UPDATE];
    for (int s = SEG_PAIR; s <= SEG_AVERAGE; s++)
        out->update_us += schedule_share(plan, (enum segment)s) * out->us[s];
    if (sp->seg[SEG_NORM] < sp->seg[SEG_UPDATE])
        out->norm_us = cost_instr(c, plan, sp, &sp->instrs[sp->seg[SEG_NORM]]).us;
    streams_release(&st);
    for (int64_t i = 0; i < c->n_missing; i++)
        missing += c->missing[i].count;
    out->missing = missing - before;
}

void cost_program(struct cost *c, const struct program *g) {
    for (int s = 0; s < g->n_stages; s++)
        for (int i = 0; i < g->stages[s].n_instrs; i++)
            cost_instr(c, g->plan, &g->stages[s], &g->stages[s].instrs[i]);
    for (int t = 0; t < g->n_transfers; t++)
        cost_transfer(c, g, &g->transfers[t]);
}
