/* The forward pass of a stage: ops in order, and what is sent when. */
#include "program/emit/transfers.h"
#include "program/lower/lower.h"
#include "program/passes/pass.h"

/* Sends a tensor to every stage that reads it. */
static void send_result(struct emit *e, int tensor) {
    struct placement place = placement_replicate();
    int buffer = -1;
    for (int64_t i = 0; i < e->departures.n; i++) {
        const struct transfer *t = &e->transfers[e->departures.p[i]];
        if (t->tensor != tensor || t->gradient)
            continue;
        if (buffer < 0) {
            struct extents sizes = emit_extents(e, &e->m->tensors[tensor].shape);
            place = e->avails.p[e->forward[tensor]].place;
            place = placement_resolve(e->mesh, &sizes, place);
            buffer = value_get(e, tensor, place);
        }
        transfer_send(e, e->departures.p[i], place, buffer);
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
    emit_end_segment(e, SEG_FORWARD);
}
