/* Messages between stages: who sends how many bytes, how long that takes, and how far
 * neighbours work on one micro-batch at the same time.
 *
 * A stage receives the messages of another stage in the order in which they are sent,
 * each before the first op that needs it. So, where not everything depends on the last
 * message, a stage begins before the one that feeds it is done. The path of a
 * micro-batch is then shorter than the sum of its stages: by the least, over all messages
 * between the two, of the sender's time after sending the message plus the receiver's
 * time before needing it. */
#include "search/evaluate/score_impl.h"

#include <math.h>
#include <stdlib.h>

static bool lacks(struct evaluate *ev) {
    bool missing = ev->cost.n_missing > 0;
    if (missing)
        cost_forget(&ev->cost);
    return missing;
}

static int stage_of(const struct work *w, int op) {
    int lo = 0, hi = w->n - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (w->c->stages[mid].first <= op)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* One message of elements of one type: each device of `to` receives `got` elements of
 * a tensor of `all` elements, `staged` of them in pieces that it unpacks; each device of
 * `from` holds `held`, and has room for `depth` messages. */
struct message {
    enum dtype dtype;
    int from, to;
    double got, staged, held, all, depth;
    double *pack_us, *take_us; /* the times to which its costs are added */
};

/* Returns to how many receivers the busiest sender sends. The receivers that want a part
 * of a shard are divided among the devices that hold the same shard. */
static double most_takers(const struct work *w, const struct message *msg) {
    double copies =
        fmax(1, floor(w->c->stages[msg->from].devices * msg->held / msg->all + 0.5));
    double takers = w->c->stages[msg->to].devices * fmax(msg->got, msg->held) / msg->all;
    return ceil(takers / copies - 1e-6);
}

/* Adds what a message costs both ends; returns the time of receiving it. */
static double add_message(struct evaluate *ev, struct work *w, struct message msg) {
    double takers = most_takers(w, &msg), size = (double)dtype_size(msg.dtype);
    double sent = ceil(takers * fmin(msg.got, msg.held));
    *msg.pack_us += cost_copy_us(&ev->cost, msg.dtype, (int64_t)sent,
                                 (int64_t)(sent < msg.got ? sent : msg.got));
    /* Whichever end moves more bytes bounds the time. */
    int busy = sent > msg.got ? msg.from : msg.to, other = msg.from + msg.to - busy;
    /* Between two stages on one group every device receives from itself. */
    bool own = msg.from % w->c->n_groups == msg.to % w->c->n_groups;
    double take_us =
        own ? cost_copy_us(&ev->cost, msg.dtype, (int64_t)msg.got, (int64_t)msg.got)
            : cost_message_us(&ev->cost, w->rank[other], w->rank[busy],
                              w->c->stages[busy].devices,
                              (int64_t)(size * fmax(sent, msg.got)));
    *msg.take_us += take_us;
    w->staging[msg.from] += size * sent * msg.depth;
    /* What the receiver unpacks counts as memory alone: with the time of unpacking,
     * searches for Wide-ResNet ended 2 to 9 % slower. */
    w->staging[msg.to] += own ? 0 : size * msg.staged;
    w->messages[msg.from] += own ? 0 : takers;
    w->messages[msg.to] += own ? 0 : fmax(1, ceil(msg.got / msg.held - 1e-6));
    w->missing |= lacks(ev);
    return take_us;
}

/* Returns whether a gradient goes back along the edge. A parameter without one is not
 * sent at all. */
static bool comes_back(const struct evaluate *ev, const struct edge *e) {
    const struct model *m = ev->space->blocks.whole;
    return e->param >= 0 ? !m->params[e->param].frozen : m->tensors[e->tensor].gradient;
}

/* Adds the messages with a tensor and with its gradient or, for a parameter used in two
 * stages, with the gradient to the stage that updates it and with the new value back. */
static void add_exchange(struct evaluate *ev, struct work *w, const struct edge *e, int to,
                         int reader) {
    int from = stage_of(w, e->origin), apart = to - from;
    int64_t m = ev->space->p.batch / w->c->micro_batch;
    struct shard_size a_share = prefix_shard(ev->space, w->prefixes[from], e, -1);
    struct shard_size b_share = prefix_shard(ev->space, w->prefixes[to], e, reader);
    double all = prefix_all(ev->space, w->prefixes[to], e);
    double there = prefix_staged(ev->space, w->prefixes[to], e, &a_share, &b_share);
    double back = prefix_staged(ev->space, w->prefixes[to], e, &b_share, &a_share);
    struct estimate_stage *a = &w->times[from], *b = &w->times[to];
    bool tied = e->param >= 0;
    double depth = tied ? 1 : (double)schedule_depth(w->c->schedule, apart, m);
    double there_us = add_message(
        ev, w,
        (struct message){ev->space->p.dtype, from, to, b_share.want, there, a_share.held,
                         all, depth, tied ? &a->update_us : &a->forward_us,
                         tied ? &b->update_us : &b->forward_us});
    double back_us =
        !comes_back(ev, e)
            ? 0
            : add_message(ev, w,
                          (struct message){tied ? DTYPE_f32 : ev->space->p.dtype, to, from,
                                           a_share.want, back, b_share.held, all, depth,
                                           tied ? &b->reduce_us : &b->backward_us,
                                           tied ? &a->reduce_us : &a->backward_us});
    /* the stage with a copy gets the new value when the other one has computed it */
    if (tied)
        b->update_us = fmax(b->update_us, a->update_us + there_us);
    else
        arr_push(&ev->passing, (struct passing){from, to, e->origin, e->readers[reader],
                                                there_us, back_us});
}

static void add_exchanges(struct evaluate *ev, struct work *w, int k) {
    const struct search_stage *st = &w->c->stages[k];
    w->first_passing[k] = (int)ev->passing.n;
    const struct crossing *in = &ev->space->crossings[st->first];
    for (int i = 0; i < in->n; i++) {
        const struct edge *e = &ev->space->blocks.s.edges[in->edges[i]];
        int reader = edge_reader_from(e, st->first);
        bool moves = e->tensor >= 0 || comes_back(ev, e);
        if (moves && reader < e->n && e->readers[reader] < st->end)
            add_exchange(ev, w, e, k, reader);
    }
}

/* ---- at the same time ------------------------------------------------------------------ */

/* The time of ops first .. end-1, forward or backward. */
static double work_us(const struct space *sp, const struct prefix *t, int first, int end,
                      bool back) {
    if (first >= end)
        return 0;
    struct brief a = prefix_brief(sp, t, first), b = prefix_brief(sp, t, end);
    return back ? b.backward_us - a.backward_us : b.forward_us - a.forward_us;
}

/* What stage k and the stage in front of it send each other, and what else either of
 * them receives. */
struct seam {
    struct evaluate *ev;
    const struct work *w;
    int k;
    /* what arrives at k, then what arrives at the stage behind it */
    const struct passing *p;
    int n, n_here; /* messages to both; to k alone */
};

/* Returns the time that message i lets both stages share in the forward pass. It is
 * received before op `at`, the first that needs it or a later message of its sender. */
static double forward_gap(const struct seam *m, int i) {
    const struct search_stage *st = &m->w->c->stages[m->k];
    int at = m->p[i].reader;
    for (int j = i + 1; j < m->n_here; j++)
        if (m->p[j].from == m->k - 1 && m->p[j].reader < at)
            at = m->p[j].reader;
    double us = work_us(m->ev->space, m->w->prefixes[m->k - 1], m->p[i].origin + 1,
                        st->first, false) +
                work_us(m->ev->space, m->w->prefixes[m->k], st->first, at, false);
    for (int j = 0; j < m->n_here; j++)
        if (m->p[j].from == m->k - 1 ? j < i : m->p[j].reader <= at)
            us += m->p[j].forward_us;
    return us;
}

/* Returns how long an op goes on in the backward pass after sending what others wait
 * for. */
static double behind_us(const struct seam *m, int op) {
    const struct prefix *t = m->w->prefixes[m->k];
    struct graph *g = &m->ev->graph;
    if (blocks_zero(g->b, g->b->x.of[op], t->st.zero) < ZERO_GRADIENTS)
        return 0;
    return graph_node(g, &t->st, g->b->x.of[op], t->layouts)->behind_us;
}

/* The same in the backward pass, reversed: a gradient is sent when the first reader of the
 * tensor is done, except for reducing its own gradients, and received when it is the
 * turn of the op that made the tensor. */
static double backward_gap(const struct seam *m, int i) {
    const struct search_stage *st = &m->w->c->stages[m->k];
    int at = m->p[i].origin;
    for (int j = 0; j < m->n_here; j++)
        if (m->p[j].from == m->k - 1 && m->p[j].reader < m->p[i].reader &&
            m->p[j].origin > at)
            at = m->p[j].origin;
    double us =
        work_us(m->ev->space, m->w->prefixes[m->k], st->first, m->p[i].reader, true) +
        work_us(m->ev->space, m->w->prefixes[m->k - 1], at + 1, st->first, true) +
        behind_us(m, m->p[i].reader);
    for (int j = 0; j < m->n; j++) {
        bool same = j < m->n_here && m->p[j].reader > m->p[i].reader;
        bool other = j >= m->n_here && m->p[j].origin >= at;
        if (m->p[j].from == m->k - 1 && (same || other))
            us += m->p[j].back_us;
    }
    return us;
}

/* Sets the time that stage k shares with the one in front: the least of all messages. */
static void share_time(struct evaluate *ev, struct work *w, int k) {
    int first = w->first_passing[k], end = w->first_passing[k + 1];
    struct seam m = {ev, w, k, ev->passing.p + first, end - first, end - first};
    double forward = INFINITY, backward = INFINITY;
    if (k + 1 < w->n)
        m.n = w->first_passing[k + 2] - first;
    for (int i = 0; i < m.n_here; i++) {
        if (m.p[i].from != k - 1)
            continue;
        forward = fmin(forward, forward_gap(&m, i));
        backward = fmin(backward, backward_gap(&m, i));
    }
    if (isfinite(forward)) {
        w->times[k].forward_shared_us = forward;
        w->times[k].backward_shared_us = backward;
    }
}

void eval_add_messages(struct evaluate *ev, struct work *w) {
    ev->passing.n = 0;
    for (int k = 0; k < w->n; k++)
        add_exchanges(ev, w, k);
    w->first_passing[w->n] = (int)ev->passing.n;
    for (int k = 1; k < w->n; k++)
        share_time(ev, w, k);
}

/* ---- messages at a cut that is not made yet ---------------------------------------------- */

/* The time of a message between the stage's devices and equally many neighbours;
 * inter_node: these are on another node. */
static double take_us(struct evaluate *ev, const struct prefix *t, double elems,
                      bool inter_node) {
    int n = t->st.devices, left = ev->space->p.devices - n, to = n < left ? n : left;
    int64_t bytes = (int64_t)(elems * (double)dtype_size(ev->space->p.dtype));
    while (inter_node && left > 0 && to + n < ev->space->p.devices &&
           cluster_node_of(&ev->space->p.cluster, to) ==
               cluster_node_of(&ev->space->p.cluster, to - 1))
        to++;
    int from = to - n > 0 ? to - n : 0;
    return left > 0 ? cost_message_us(&ev->cost, inter_node ? from : 0, to, n, bytes) : 0;
}

void eval_takes(struct evaluate *ev, const struct prefix *t, int op, bool inter_node,
                double *in_us, double *out_us) {
    const struct crossing *x = &ev->space->crossings[op];
    for (int i = 0; i < x->n; i++) {
        const struct edge *e = &ev->space->blocks.s.edges[x->edges[i]];
        int reader = edge_reader_from(e, op);
        if (e->tensor < 0 || reader == e->n)
            continue;
        *in_us += take_us(ev, t, prefix_shard(ev->space, t, e, reader).want, inter_node);
        *out_us += take_us(ev, t, prefix_shard(ev->space, t, e, -1).want, inter_node);
    }
}
