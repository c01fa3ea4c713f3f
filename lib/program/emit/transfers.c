/* Which tensors, gradients and tied parameters cross from stage to stage. */
#include "program/emit/transfers.h"

#include <stdlib.h>

/* Adds what stage `to` needs from stage `from`, once, and its gradient back if it has
 * one. */
static void add_pair(const struct model *m, struct transfer_list *l, struct transfer t) {
    for (int64_t i = 0; i < l->all.n; i++) {
        const struct transfer *o = &l->all.p[i];
        if (o->tensor == t.tensor && o->param == t.param && o->from == t.from &&
            o->to == t.to)
            return;
    }
    struct transfer back = t;
    back.gradient = true;
    back.dtype = t.param >= 0 ? DTYPE_f32 : t.dtype;
    back.from = t.to;
    back.to = t.from;
    arr_push(&l->all, t);
    if (t.tensor < 0 || m->tensors[t.tensor].gradient)
        arr_push(&l->all, back);
}

/* Lists both ways between an op's stage and the one that its k-th operand comes from. */
static void list_operand(const struct plan *plan, int op, int k, struct transfer_list *l) {
    const struct model *m = plan->model;
    int tensor = m->ops[op].in[k];
    struct transfer t = {.tensor = tensor,
                         .param = -1,
                         .dtype = plan_tensor_dtype(plan, tensor),
                         .from = plan->stage_of[m->tensors[tensor].producer],
                         .to = plan->stage_of[op],
                         .from_place = placement_replicate(),
                         .to_place = placement_replicate(),
                         .reader = op,
                         .operand = k};
    add_pair(m, l, t);
}

static void list_param(const struct plan *plan, int op, int k, struct transfer_list *l) {
    const struct model *m = plan->model;
    int param = m->ops[op].param[k];
    struct transfer t = {.tensor = -1,
                         .param = param,
                         .dtype = m->params[param].running ? DTYPE_f32 : plan->dtype,
                         .from = plan->stage_of[m->params[param].first_op],
                         .to = plan->stage_of[op],
                         .from_place = placement_replicate(),
                         .to_place = placement_replicate()};
    add_pair(m, l, t);
}

/* Lists what an op takes from other stages: tensors, with their gradients back, and
 * parameters that change. */
static void list_op(const struct plan *plan, int op, struct transfer_list *l) {
    const struct model *m = plan->model;
    const struct model_op *o = &m->ops[op];
    int s = plan->stage_of[op];
    for (int k = 0; k < o->n_in; k++) {
        int producer = m->tensors[o->in[k]].producer;
        if (producer >= 0 && plan->stage_of[producer] != s)
            list_operand(plan, op, k, l);
    }
    for (int k = 0; k < o->n_param; k++)
        if (o->param[k] >= 0 && !m->params[o->param[k]].frozen &&
            plan->stage_of[m->params[o->param[k]].first_op] != s)
            list_param(plan, op, k, l);
}

/* The order in which both ends go through transfers within a pass: a tensor when its
 * producer is done, its gradient when its first reader is, which comes last in the backward
 * pass (pass_backward.c); parameters by number. */
static int in_order(const void *a, const void *b) {
    const struct transfer *x = a, *y = b;
    if ((x->tensor < 0) != (y->tensor < 0))
        return x->tensor < 0 ? 1 : -1;
    if (x->gradient != y->gradient)
        return x->gradient ? 1 : -1;
    if (x->tensor >= 0 && x->gradient && x->reader != y->reader)
        return x->reader < y->reader ? 1 : -1;
    if (x->tensor >= 0 && x->gradient && x->operand != y->operand)
        return x->operand < y->operand ? -1 : 1;
    int first = x->tensor < 0 ? x->param : x->tensor;
    int second = y->tensor < 0 ? y->param : y->tensor;
    if (first != second)
        return first < second ? -1 : 1;
    return x->from != y->from ? (x->from < y->from ? -1 : 1)
                              : (x->to > y->to) - (x->to < y->to);
}

void transfers_list(const struct plan *plan, struct transfer_list *out) {
    out->all.n = 0;
    for (int i = 0; i < plan->model->n_ops && plan->n_stages > 1; i++)
        list_op(plan, i, out);
    if (out->all.n)
        qsort(out->all.p, (size_t)out->all.n, sizeof *out->all.p, in_order);
}

static bool is_between(const struct transfer *t, int tensor, int param, bool gradient,
                       int from, int to) {
    return t->tensor == tensor && t->param == param && t->gradient == gradient &&
           t->from == from && t->to == to;
}

int transfer_find(const struct emit *e, int tensor, int param, bool gradient, int from,
                  int to) {
    for (int64_t i = 0; from == e->stage && i < e->departures.n; i++)
        if (is_between(&e->transfers[e->departures.p[i]], tensor, param, gradient, from,
                       to))
            return e->departures.p[i];
    for (int64_t i = 0; to == e->stage && i < e->arrivals.n; i++)
        if (is_between(&e->transfers[e->arrivals.p[i].transfer], tensor, param, gradient,
                       from, to))
            return e->arrivals.p[i].transfer;
    return -1;
}

void transfer_send(struct emit *e, int transfer, struct placement place, int buffer) {
    struct transfer *t = &e->transfers[transfer];
    struct instr *i = emit_instr(e, I_send);
    i->tensor = t->tensor;
    i->in.send.x = buffer;
    i->place = place;
    i->n.send.elems = emit_elements(e, &e->m->tensors[t->tensor].shape, place);
    i->transfer = transfer;
    t->from_place = place;
}
