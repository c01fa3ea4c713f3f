/* The forward and the backward pass of a stage: ops in order, and what is sent when. */
#include "program/lower.h"

#include <stdlib.h>

static void emit_send(struct emit *e, int transfer, struct placement place, int buffer) {
    struct transfer *t = &e->transfers[transfer];
    struct instr *i = emit_instr(e, I_send);
    i->tensor = t->tensor;
    i->in.send.x = buffer;
    i->place = place;
    i->n.send.elems = emit_elements(e, &e->m->tensors[t->tensor].shape, place);
    i->transfer = transfer;
    t->from_place = place;
}

/* ---- forward ------------------------------------------------------------------------------ */

/* To every stage that reads it. */
static void send_result(struct emit *e, int tensor) {
    struct placement place = placement_replicate();
    int buffer = -1;
    for (int64_t i = 0; i < e->departures.n; i++) {
        const struct transfer *t = &e->transfers[e->departures.p[i]];
        if (t->tensor != tensor || t->gradient)
            continue;
        if (buffer < 0) {
            struct extents sizes = emit_extents(e, &e->m->tensors[tensor].shape);
            place = e->pool.p[e->forward[tensor]].place;
            place = placement_resolve(e->mesh, &sizes, place);
            buffer = value_get(e, tensor, place);
        }
        emit_send(e, e->departures.p[i], place, buffer);
    }
}

void pass_forward(struct emit *e) {
    e->seg = SEG_FORWARD;
    for (int i = 0; i < e->st->n_ops; i++) {
        int op = e->op = e->st->ops[i];
        const struct model_op *o = &e->m->ops[op];
        lower_forward(e, op);
        for (int k = 0; k < o->n_out && !op_is(o, KIND_LOSSES); k++)
            send_result(e, o->out[k]);
    }
}

/* ---- backward ----------------------------------------------------------------------------- */

/* The last contribution to a received tensor's gradient is there: send the sum back. */
static void send_gradient(struct emit *e, int tensor) {
    struct extents sizes = emit_extents(e, &e->m->tensors[tensor].shape);
    struct placement place = e->pool.p[e->gradient[tensor]].place;
    place = placement_resolve(e->mesh, &sizes, place);
    int buffer = gradient_combine(e, tensor, place);
    int home = e->plan->stage_of[e->m->tensors[tensor].producer];
    emit_send(e, transfer_find(e, tensor, -1, true, e->stage, home), place, buffer);
}

/* The first op of this stage that reads a received tensor ends its backward pass. */
static void send_finished_gradients(struct emit *e, int op) {
    const struct model_op *o = &e->m->ops[op];
    for (int k = 0; k < o->n_in; k++) {
        int t = o->in[k];
        bool again = false;
        for (int j = 0; j < k; j++)
            again |= o->in[j] == t;
        if (model_has_gradient(e->m, t) &&
            e->plan->stage_of[e->m->tensors[t].producer] != e->stage &&
            e->first_use[t] == op && !again)
            send_gradient(e, t);
    }
}

/* Ops in reverse. An op comes when all readers of its results have added to their gradients. */
void pass_backward(struct emit *e) {
    e->seg = SEG_BACKWARD;
    for (int i = e->st->n_ops - 1; i >= 0; i--) {
        int op = e->op = e->st->ops[i], dy[KIND_MAX_SLOTS];
        const struct model_op *o = &e->m->ops[op];
        for (int k = 0; k < o->n_out; k++) {
            dy[k] = -1;
            if (op_is(o, KIND_LOSSES) || !model_has_gradient(e->m, o->out[k]))
                continue;
            gradient_receive(e, o->out[k]);
            dy[k] = gradient_combine(e, o->out[k], gradient_place(e, op, k));
        }
        lower_backward(e, op, dy);
        send_finished_gradients(e, op);
        grads_reduce(e);
    }
}
