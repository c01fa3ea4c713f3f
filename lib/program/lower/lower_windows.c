/* Windows over split dims: every rank gets the rows that its windows slide over, and gives
 * back the gradients of those that are not its own. Height comes first, then width with the
 * rows that came with height, so corners need no message of their own (Mesh-TensorFlow's
 * halo exchange). */
#include "program/halo.h"
#include "program/lower/lower.h"

enum { BATCH, HEIGHT, WIDTH, CHANNELS, DIMS }; /* of the space, as in the kinds' patterns */

/* The whole size of a dim of operand 0. */
static int64_t operand_size(const struct emit *e, int op, int k) {
    const struct model_op *o = op_of(e, op);
    const struct shape *s = &e->m->tensors[o->in[0]].shape;
    return model_dim_size(e->m, s->dim[o->in_map[0].axis[k]], e->plan->micro_batch);
}

/* Whether windows stay inside the blocks, from their first row on. */
static bool stays_inside(const struct halo *h) {
    return h->step == h->rows && h->lead == 0 && h->window <= h->rows;
}

static struct halo halo_of(const struct emit *e, int op, int k, bool lowest) {
    const struct model_op *o = op_of(e, op);
    int parts = mesh_group_size(e->mesh, lower_dim_axes(e, op, k));
    int64_t stride = (int64_t)o->attr[ATTR_stride], places = lower_size(e, op, k);
    struct halo h = {.rows = operand_size(e, op, k) / parts,
                     .window = (places - 1) * stride + o->space.window[k],
                     .step = places * stride,
                     .lead = (int64_t)o->attr[ATTR_padding],
                     .parts = parts,
                     .lowest = lowest};
    if (parts == 1 || stays_inside(&h))
        h.parts = 0;
    return h;
}

struct windows lower_windows(const struct emit *e, int op, bool lowest) {
    struct windows w = {.batch = lower_size(e, op, BATCH),
                        .c = lower_size(e, op, CHANNELS),
                        .oh = lower_size(e, op, HEIGHT),
                        .ow = lower_size(e, op, WIDTH),
                        .stride = (int64_t)op_of(e, op)->attr[ATTR_stride]};
    int64_t *size[] = {&w.ih, &w.iw}, *padding[] = {&w.ph, &w.pw};
    for (int d = 0; d < 2; d++) {
        struct halo h = w.halo[d] = halo_of(e, op, HEIGHT + d, lowest);
        bool whole = !lower_dim_axes(e, op, HEIGHT + d);
        *size[d] = h.parts ? h.window : h.rows;
        *padding[d] = whole ? h.lead : 0;
    }
    return w;
}

/* Elements before and behind halo dim d; before width, height has its windows' rows. */
static void around(const struct windows *w, int d, int64_t *outer, int64_t *inner) {
    int64_t width = w->halo[1].rows;
    *outer = d ? w->batch * w->ih : w->batch;
    *inner = d ? w->c : width * w->c;
}

/* Sends the rows that others lack, and gets theirs; returns what came, or -1. */
static int emit_exchange(struct emit *e, int op, int d, const struct halo *h, int64_t outer,
                         int64_t inner, int x, int64_t *got) {
    int64_t sent;
    halo_most(h, &sent, got);
    if (!sent)
        return -1;
    int s = lower_values(e, outer * sent * inner);
    struct instr *i = emit_instr(e, I_halo_pack);
    i->in.halo_pack.x = x;
    i->out.halo_pack.s = s;
    i->n.halo_pack = (struct halo_pack_n){.outer = outer,
                                          .rows = h->back ? h->window : h->rows,
                                          .inner = inner,
                                          .sent = sent};
    i->axes = lower_dim_axes(e, op, HEIGHT + d);
    i->halo = *h;
    int r = lower_values(e, outer * *got * inner);
    i = emit_instr(e, I_exchange);
    i->in.exchange.x = s;
    i->out.exchange.y = r;
    i->n.exchange = (struct exchange_n){
        .sent = outer * sent * inner, .parts = h->parts, .got = outer * *got * inner};
    i->axes = lower_dim_axes(e, op, HEIGHT + d);
    i->halo = *h;
    return r;
}

/* Turns the block along one dim into the rows of its windows. */
static int join(struct emit *e, int op, const struct windows *w, int d, int x) {
    struct halo h = w->halo[d];
    int64_t outer, inner, got;
    if (!h.parts)
        return x;
    around(w, d, &outer, &inner);
    h.each = outer * inner;
    int r = emit_exchange(e, op, d, &h, outer, inner, x, &got);
    int y = lower_values(e, outer * h.window * inner);
    struct instr *i = emit_instr(e, I_halo_join);
    i->in.halo_join.x = x;
    i->in.halo_join.r = r;
    i->out.halo_join.y = y;
    i->n.halo_join = (struct halo_join_n){
        .outer = outer, .rows = h.rows, .inner = inner, .got = got, .window = h.window};
    i->axes = lower_dim_axes(e, op, HEIGHT + d);
    i->halo = h;
    return y;
}

static bool exchanges(const struct windows *w) {
    return w->halo[0].parts || w->halo[1].parts;
}

int lower_windows_operand(struct emit *e, int op, const struct windows *w) {
    bool forward = e->seg == SEG_FORWARD;
    int kept = forward ? -1 : saved_find(e, op);
    if (kept >= 0)
        return kept;
    int x = lower_operand(e, op, 0);
    for (int d = 0; d < 2; d++)
        x = join(e, op, w, d, x);
    if (exchanges(w) && !(forward && e->st->regather))
        lower_save(e, op, x);
    return x;
}

/* ---- backward ---------------------------------------------------------------------- */

int lower_windows_gradient(struct emit *e, int op, const struct windows *w) {
    if (!lower_wants_gradient(e, op, 0))
        return -1;
    return exchanges(w) ? lower_values(e, w->batch * w->ih * w->iw * w->c)
                        : lower_gradient(e, op, 0);
}

/* Turns the gradient of a dim's windows into that of the block, in dx. */
static void add_back(struct emit *e, int op, const struct windows *w, int d, int from,
                     int dx) {
    struct halo h = w->halo[d];
    int64_t outer, inner, got;
    around(w, d, &outer, &inner);
    h.back = true;
    h.each = outer * inner;
    int r = emit_exchange(e, op, d, &h, outer, inner, from, &got);
    struct instr *i = emit_instr(e, I_halo_add);
    i->in.halo_add.d = from;
    i->in.halo_add.r = r;
    i->out.halo_add.dx = dx;
    i->n.halo_add = (struct halo_add_n){
        .outer = outer, .rows = h.rows, .inner = inner, .got = got, .window = h.window};
    i->axes = lower_dim_axes(e, op, HEIGHT + d);
    i->halo = h;
}

void lower_windows_back(struct emit *e, int op, const struct windows *w, int d) {
    if (d < 0 || !exchanges(w))
        return;
    int dx = lower_gradient(e, op, 0);
    bool both = w->halo[0].parts && w->halo[1].parts;
    int between = both ? lower_values(e, w->batch * w->ih * w->halo[1].rows * w->c) : dx;
    if (w->halo[1].parts)
        add_back(e, op, w, 1, d, between);
    if (w->halo[0].parts)
        add_back(e, op, w, 0, both ? between : d, dx);
}
