/* The replay of messages: all groups advance together, by the executor's own rules. A send waits
 * until its staging has room, a receive until the message is there, the norm of the gradients until
 * every rank has come to it; when nobody can advance, that is a deadlock.
 *
 * A group advances as one: its ranks run the same list, so collectives inside it match, and what
 * one of them waits for the others wait for too. A transport without tags (NCCL) matches the
 * messages of two ranks by their order alone, so both ends must agree on it, for each pair of
 * stages: chunks have channels of their own. */
#include "program/validate/validate.h"

#include <stdlib.h>
#include <string.h>

/* Messages from one stage to another that are under way, in the order in which they left. */
struct queue {
    int to, next; /* receiving stage; the sender's next queue, -1 = none */
    ARR(int) transfers;
};

struct waits { /* of one stage */
    int n;
    int *at; /* instructions that wait for others, segment by segment */
    struct span seg[SEG_COUNT];
    int queues; /* the first that it sends on, -1 = none */
};

struct cursor { /* of one group */
    struct group_schedule schedule;
    int64_t action;
    int at;       /* next of the segment's waits, -1 = the action is not begun */
    bool arrived; /* at the norm */
};

struct replay {
    const struct program *g;
    struct waits *stages;
    struct cursor *groups;
    int *queue_of; /* transfer -> queue */
    ARR(struct queue) queues;
    int64_t *sent, *taken; /* by transfer */
    int64_t norms;         /* arrivals */
};

/* ---- what the two ends of a transfer do -------------------------------------------------- */

static const char *transfer_name(const struct program *g, const struct transfer *t) {
    const struct model *m = g->plan->model;
    return t->tensor >= 0 ? m->tensors[t->tensor].name : m->params[t->param].name;
}

/* Whether a receiver stands for all of its box: coordinate 0 wherever the tensor is not
 * cut. */
static bool is_typical(const struct mesh *mesh, struct placement p, int r) {
    int coord[MESH_MAX_AXES];
    mesh_coords(mesh, r, coord);
    for (int a = 0; a < mesh->n_axes; a++)
        if (coord[a] && p.at[a] < 0)
            return false;
    return true;
}

static bool is_complete(struct placement p) {
    for (int a = 0; a < MESH_MAX_AXES; a++)
        if (p.at[a] == PLACE_PARTIAL)
            return false;
    return true;
}

/* Checks that every receiver gets all of its box. Both ends list the same pieces, since
 * both take them from transfer_pieces. */
static int check_pieces(const struct program *g, const struct transfer *t,
                        struct err *err) {
    const struct stage *to = &g->plan->stages[t->to];
    struct extents x = transfer_extents(g, t);
    if (!is_complete(t->from_place) || !is_complete(t->to_place))
        return err_input(err, "%s is sent before it is summed", transfer_name(g, t));
    int64_t want = placement_elements(&to->mesh, &x, t->to_place);
    for (int d = 0; d < mesh_devices(&to->mesh); d++) {
        if (!is_typical(&to->mesh, t->to_place, d))
            continue;
        struct piece *pieces;
        int64_t got = 0;
        int n = transfer_pieces(g, t, to->first_rank + d, false, &pieces);
        for (int i = 0; i < n; i++)
            got += pieces[i].elems;
        free(pieces);
        if (got != want)
            return err_input(err, "rank %d gets %lld elements of %s, its box has %lld",
                             to->first_rank + d, (long long)got, transfer_name(g, t),
                             (long long)want);
    }
    return 0;
}

/* Finds two ranks between which both transfers send. */
static bool share_ranks(const struct program *g, const struct transfer *a,
                        const struct transfer *b, int *src, int *dst) {
    const struct stage *to = &g->plan->stages[a->to];
    bool found = false;
    for (int d = 0; d < mesh_devices(&to->mesh) && !found; d++) {
        struct piece *p, *q;
        *dst = to->first_rank + d;
        int n = transfer_pieces(g, a, *dst, false, &p),
            m = transfer_pieces(g, b, *dst, false, &q);
        for (int i = 0; i < n && !found; i++)
            for (int j = 0; j < m && !found; j++) {
                *src = p[i].src;
                found = p[i].src == q[j].src;
            }
        free(p);
        free(q);
    }
    return found;
}

/* ---- the queues -------------------------------------------------------------------------- */

/* The queue from one stage to another, made at first use. */
static int find_queue(struct replay *r, int from, int to) {
    int q = r->stages[from].queues;
    while (q >= 0 && r->queues.p[q].to != to)
        q = r->queues.p[q].next;
    if (q < 0) {
        q = (int)r->queues.n;
        arr_push(&r->queues, (struct queue){.to = to, .next = r->stages[from].queues});
        r->stages[from].queues = q;
    }
    return q;
}

static bool try_send(struct replay *r, int transfer) {
    if (r->sent[transfer] - r->taken[transfer] >= r->g->transfers[transfer].depth)
        return false;
    r->sent[transfer]++;
    arr_push(&r->queues.p[r->queue_of[transfer]].transfers, transfer);
    return true;
}

/* Takes a message. It overtakes those that left before it, which no two ranks may see. */
static int take(struct replay *r, int transfer, struct err *err) {
    struct queue *q = &r->queues.p[r->queue_of[transfer]];
    const struct transfer *t = &r->g->transfers[transfer];
    int64_t i = 0;
    for (int src, dst; q->transfers.p[i] != transfer; i++) {
        const struct transfer *o = &r->g->transfers[q->transfers.p[i]];
        if (share_ranks(r->g, t, o, &src, &dst))
            return err_input(err,
                             "rank %d sends %s%s before %s%s to rank %d, which takes them "
                             "in the other order",
                             src, o->gradient ? "the gradient of " : "",
                             transfer_name(r->g, o), t->gradient ? "the gradient of " : "",
                             transfer_name(r->g, t), dst);
    }
    q->transfers.n--;
    memmove(q->transfers.p + i, q->transfers.p + i + 1,
            sizeof *q->transfers.p * (size_t)(q->transfers.n - i));
    r->taken[transfer]++;
    return 0;
}

/* ---- the stages -------------------------------------------------------------------------- */

/* 1: done, 0: has to wait, -1: a fault. */
static int try_instr(struct replay *r, struct cursor *c, const struct instr *ins,
                     struct err *err) {
    if (ins->code == I_send)
        return try_send(r, ins->transfer);
    if (ins->code == I_recv) {
        if (r->sent[ins->transfer] == r->taken[ins->transfer])
            return 0;
        return take(r, ins->transfer, err) < 0 ? -1 : 1;
    }
    r->norms += !c->arrived;
    c->arrived = r->norms % r->g->plan->n_groups != 0;
    return !c->arrived;
}

static struct action next_action(const struct cursor *c) {
    return schedule_action(&c->schedule, c->action);
}

static const struct instr *next_instr(const struct replay *r, const struct cursor *c) {
    int stage = next_action(c).stage;
    return &r->g->stages[stage].instrs[r->stages[stage].at[c->at]];
}

/* Advances a group as far as it can go; *moved says whether it did. */
static int advance(struct replay *r, struct cursor *c, bool *moved, struct err *err) {
    while (c->action < schedule_actions(&c->schedule)) {
        struct action a = next_action(c);
        struct span seg = r->stages[a.stage].seg[a.segment];
        if (c->at < 0)
            c->at = seg.first;
        for (; c->at < seg.end; c->at++, *moved = true) {
            int rc = try_instr(r, c, next_instr(r, c), err);
            if (rc <= 0)
                return rc;
        }
        c->at = -1;
        c->action++;
        *moved = true;
    }
    return 0;
}

static int check_done(const struct replay *r, struct err *err) {
    for (int k = 0; k < r->g->plan->n_groups; k++) {
        const struct cursor *c = &r->groups[k];
        if (c->action < schedule_actions(&c->schedule))
            return err_input(err, "deadlock: stages[%d] waits at %s of action %lld",
                             next_action(c).stage, opcode_name(next_instr(r, c)->code),
                             (long long)c->action);
    }
    for (int t = 0; t < r->g->n_transfers; t++)
        if (r->sent[t] != r->taken[t])
            return err_input(
                err, "stages[%d] sends %s to stages[%d], which does not take it",
                r->g->transfers[t].from, transfer_name(r->g, &r->g->transfers[t]),
                r->g->transfers[t].to);
    return 0;
}

/* Round by round, until nobody moves; then all must be done, and every message taken. */
static int replay_all(struct replay *r, struct err *err) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < r->g->plan->n_groups; k++)
            if (advance(r, &r->groups[k], &moved, err) < 0)
                return -1;
    }
    return check_done(r, err);
}

/* Lists what waits for other stages; nothing else is replayed. */
static void find_waits(const struct stage_program *sp, struct waits *w) {
    /* twice, since the ordinary segments may stand for the last ones of a step */
    w->at = mem_array(2 * (size_t)sp->n_instrs, sizeof *w->at);
    for (int s = 0; s < SEG_COUNT; s++) {
        struct span span = program_segment(sp, (enum segment)s);
        w->seg[s].first = w->n;
        for (int i = span.first; i < span.end; i++) {
            enum opcode code = sp->instrs[i].code;
            if (code == I_send || code == I_recv || code == I_norm)
                w->at[w->n++] = i;
        }
        w->seg[s].end = w->n;
    }
    w->queues = -1;
}

static void replay_init(struct replay *r, const struct program *g) {
    size_t n = (size_t)g->n_transfers, groups = (size_t)g->plan->n_groups;
    int64_t m = schedule_enough(g->plan);
    *r = (struct replay){.g = g};
    r->stages = mem_array((size_t)g->n_stages, sizeof *r->stages);
    r->groups = mem_array(groups, sizeof *r->groups);
    r->queue_of = mem_array(n, sizeof *r->queue_of);
    r->sent = mem_array(n, sizeof *r->sent);
    r->taken = mem_array(n, sizeof *r->taken);
    for (int s = 0; s < g->n_stages; s++)
        find_waits(&g->stages[s], &r->stages[s]);
    for (size_t k = 0; k < groups; k++)
        r->groups[k] = (struct cursor){schedule_of_group(g->plan, (int)k, m), .at = -1};
    for (int t = 0; t < g->n_transfers; t++)
        r->queue_of[t] = find_queue(r, g->transfers[t].from, g->transfers[t].to);
}

static void replay_release(struct replay *r) {
    for (int s = 0; s < r->g->n_stages; s++)
        free(r->stages[s].at);
    for (int64_t q = 0; q < r->queues.n; q++)
        arr_release(&r->queues.p[q].transfers);
    arr_release(&r->queues);
    free(r->stages);
    free(r->groups);
    free(r->queue_of);
    free(r->sent);
    free(r->taken);
}

int validate_messages(const struct program *g, struct err *err) {
    struct replay r;
    replay_init(&r, g);
    int rc = 0;
    for (int t = 0; t < g->n_transfers && rc == 0; t++)
        rc = check_pieces(g, &g->transfers[t], err);
    if (rc == 0)
        rc = replay_all(&r, err);
    replay_release(&r);
    return rc;
}
