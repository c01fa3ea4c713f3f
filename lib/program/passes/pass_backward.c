/* The backward pass of a stage: ops in reverse, and what is sent when. */
#include "program/emit/transfers.h"
#include "program/lower/lower.h"
#include "program/passes/pass.h"

/* Sends the gradient of a received tensor back, once its last contribution is there. */
static void send_gradient(struct emit *e, int tensor) {
    struct extents sizes = emit_extents(e, &e->m->tensors[tensor].shape);
    struct placement place = e->avails.p[e->gradient[tensor]].place;
    place = placement_resolve(e->mesh, &sizes, place);
    int buffer = gradient_combine(e, tensor, place);
    int home = e->plan->stage_of[e->m->tensors[tensor].producer];
    transfer_send(e, transfer_find(e, tensor, -1, true, e->stage, home), place, buffer);
}

/* A received tensor's first reader in the stage adds the last contribution to its
 * gradient. */
static void send_finished_gradients(struct emit *e, int op) {
    const struct model_op *o = &e->m->ops[op];
    for (int k = 0; k < o->n_in; k++) {
        int t = o->in[k];
        bool seen = false;
        for (int j = 0; j < k; j++)
            seen |= o->in[j] == t;
        if (e->m->tensors[t].gradient &&
            e->plan->stage_of[e->m->tensors[t].producer] != e->stage &&
            e->first_use[t] == op && !seen)
            send_gradient(e, t);
    }
}

/* A tensor that many ops read, such as an encoder's output, would otherwise hold a
 * contribution of each of them until that of the first one is there. */
static void gather_unfinished_gradients(struct emit *e, int op) {
    const struct model_op *o = &e->m->ops[op];
    for (int k = 0; k < o->n_in; k++)
        if (e->m->tensors[o->in[k]].gradient && e->first_use[o->in[k]] != op)
            gradient_gather(e, o->in[k]);
}

/* Ops in reverse. An op comes when all readers of its results have added to their gradients. */
void pass_backward(struct emit *e) {
    e->seg = SEG_BACKWARD;
    for (int i = e->st->n_ops - 1; i >= 0; i--) {
        int op = e->op = e->st->ops[i], dy[KIND_MAX_SLOTS];
        const struct model_op *o = &e->m->ops[op];
        if (!model_has_backward(e->m, op))
            continue;
        /* done in the forward pass, except for sending (pass_logits.c) */
        if (e->early[i] > 0) {
            send_finished_gradients(e, op);
            continue;
        }
        for (int k = 0; k < o->n_out; k++) {
            dy[k] = -1;
            if (op_is(o, KIND_LOSSES) || !e->m->tensors[o->out[k]].gradient)
                continue;
            gradient_receive(e, o->out[k]);
            dy[k] = gradient_combine(e, o->out[k], gradient_place(e, op, k));
        }
        lower_backward(e, op, dy);
        gather_unfinished_gradients(e, op);
        send_finished_gradients(e, op);
        grads_reduce(e);
    }
    emit_end_segment(e, SEG_BACKWARD);
}
