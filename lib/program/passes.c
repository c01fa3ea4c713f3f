/* The forward and the backward pass of a stage: which value is needed where, what is kept,
 * made again, converted, received and sent. */
#include "program/emit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The transfer of this tensor (or its gradient) between two stages. */
static int find_transfer(const struct emit *e, int tensor, bool gradient, int from,
                         int to) {
    for (int i = 0; i < e->n_transfers; i++) {
        const struct transfer *t = &e->transfers[i];
        if (t->tensor == tensor && t->gradient == gradient && t->from == from &&
            t->to == to)
            return i;
    }
    return -1;
}

static void emit_send(struct emit *e, int tensor, bool gradient, int to,
                      struct placement place, int buffer) {
    struct instr *i = emit_instr(e, I_send);
    i->tensor = tensor;
    i->in[0] = buffer;
    i->place = place;
    i->n[0] = emit_elements(e, &e->m->tensors[tensor].shape, place);
    i->transfer = find_transfer(e, tensor, gradient, e->stage, to);
    if (i->transfer >= 0)
        e->transfers[i->transfer].from_place = place;
}

static int emit_recv(struct emit *e, int tensor, bool gradient, int from,
                     struct placement place) {
    int64_t n = emit_elements(e, &e->m->tensors[tensor].shape, place);
    int buffer = emit_buffer(e, n, MEM_temporaries);
    struct instr *i = emit_instr(e, I_recv);
    i->tensor = tensor;
    i->out[0] = buffer;
    i->place = place;
    i->n[0] = n;
    i->transfer = find_transfer(e, tensor, gradient, from, e->stage);
    if (i->transfer >= 0)
        e->transfers[i->transfer].to_place = place;
    return buffer;
}

static int emit_input(struct emit *e, int tensor, struct placement place) {
    int64_t n = emit_elements(e, &e->m->tensors[tensor].shape, place);
    int buffer = emit_buffer(e, n, MEM_temporaries);
    struct instr *i = emit_instr(e, I_input);
    i->tensor = tensor;
    i->out[0] = buffer;
    i->place = place;
    i->n[0] = n;
    return buffer;
}

/* ---- values ---------------------------------------------------------------------------- */

static bool here(const struct emit *e, int op) {
    return e->plan->stage_of[op] == e->stage;
}

/* Is the forward pass's value still there in the backward pass? */
static bool kept(const struct emit *e, int tensor) {
    int op = e->m->tensors[tensor].producer;
    return op < 0 || !here(e, op) || !e->st->recompute[e->op_index[op]];
}

/* The source that costs least to convert; returns its place in the pool, or -1. */
static int cheapest(const struct emit *e, int tensor, int head, struct placement want) {
    struct convert_step steps[CONVERT_MAX_STEPS];
    double best_cost = INFINITY;
    int best = -1;
    for (int i = head; i >= 0; i = e->pool.p[i].next) {
        double cost;
        /* A sum that was reduced in place is spoilt: once there is a finished value, partial
         * ones are not touched again. */
        if (placement_axes(e->mesh, e->pool.p[i].place, PLACE_PARTIAL) && i != head)
            continue;
        if (convert_path(e->mesh, &e->m->tensors[tensor].shape, &e->sizes,
                         e->pool.p[i].place, want, steps, &cost) >= 0 &&
            cost < best_cost) {
            best_cost = cost;
            best = i;
        }
    }
    return best;
}

/* Makes the tensor available in this pass under some placement; returns the list's head. */
static int bring(struct emit *e, int tensor, struct placement want, int *list) {
    int op = e->m->tensors[tensor].producer;
    if (op < 0)
        avail_add(e, list, tensor, want, emit_input(e, tensor, want));
    else if (!here(e, op))
        avail_add(e, list, tensor, want,
                  emit_recv(e, tensor, false, e->plan->stage_of[op], want));
    else
        lower_forward(e, op);
    return list[tensor];
}

int value_get(struct emit *e, int tensor, struct placement want) {
    bool again = e->seg != SEG_FORWARD;
    int *list = again ? e->backward : e->forward;
    int found = avail_find(e, list[tensor], want);
    if (found < 0 && again && kept(e, tensor))
        found = avail_find(e, e->forward[tensor], want);
    if (found >= 0)
        return found;
    int head = list[tensor];
    if (head < 0 && again && kept(e, tensor))
        head = e->forward[tensor];
    if (head < 0)
        head = bring(e, tensor, want, list);
    found = avail_find(e, head, want);
    if (found >= 0)
        return found;
    int source = cheapest(e, tensor, head, want);
    int buffer = emit_convert(e, &e->m->tensors[tensor].shape, e->pool.p[source].buffer,
                              e->pool.p[source].place, want, -1);
    avail_add(e, list, tensor, want, buffer);
    return buffer;
}

int aux_get(struct emit *e, int op) {
    int i = e->op_index[op];
    if (!e->st->recompute[i])
        return e->aux[2 * i];
    if (e->aux[2 * i + 1] < 0)
        lower_forward(e, op);
    return e->aux[2 * i + 1];
}

/* ---- forward ---------------------------------------------------------------------------- */

/* Which later stages need this tensor. Calls fn for each, in order. */
static int consumer_stages(const struct emit *e, int tensor, int *stages) {
    int n = 0;
    for (int i = 0; i < e->n_transfers; i++) {
        const struct transfer *t = &e->transfers[i];
        if (t->tensor == tensor && !t->gradient && t->from == e->stage)
            stages[n++] = t->to;
    }
    return n;
}

static void send_result(struct emit *e, int tensor) {
    int *stages = mem_array((size_t)e->plan->n_stages, sizeof *stages);
    int n = consumer_stages(e, tensor, stages);
    if (n) {
        const struct shape *s = &e->m->tensors[tensor].shape;
        struct placement place = e->pool.p[e->forward[tensor]].place;
        place = placement_resolve(e->mesh, s, &e->sizes, place);
        int buffer = value_get(e, tensor, place);
        for (int i = 0; i < n; i++)
            emit_send(e, tensor, false, stages[i], place, buffer);
    }
    free(stages);
}

void pass_forward(struct emit *e) {
    e->seg = SEG_FORWARD;
    for (int i = 0; i < e->st->n_ops; i++) {
        int op = e->op = e->st->ops[i];
        lower_forward(e, op);
        if (e->m->ops[op].kind != OP_cross_entropy)
            send_result(e, e->m->ops[op].out);
    }
}

/* ---- backward ---------------------------------------------------------------------------- */

void gradient_add(struct emit *e, int tensor, struct placement place, int buffer) {
    avail_add(e, e->gradient, tensor, place, buffer);
}

/* Adds up contributions of one placement at a time, so that each placement is converted once. */
int gradient_combine(struct emit *e, int tensor, struct placement want) {
    const struct shape *s = &e->m->tensors[tensor].shape;
    int total = -1;
    for (int head = e->gradient[tensor]; head >= 0;) {
        struct placement place = e->pool.p[head].place;
        int sum = -1, rest = -1;
        for (int i = head, next; i >= 0; i = next) {
            next = e->pool.p[i].next;
            if (placement_equal(e->pool.p[i].place, place)) {
                int b = e->pool.p[i].buffer;
                sum = sum < 0 ? b : emit_add(e, sum, b, emit_elements(e, s, place));
            } else {
                e->pool.p[i].next = rest;
                rest = i;
            }
        }
        sum = emit_convert(e, s, sum, place, want, -1);
        total = total < 0 ? sum : emit_add(e, total, sum, emit_elements(e, s, want));
        head = rest;
    }
    e->gradient[tensor] = -1;
    return total;
}

/* Gradients that later stages send for the result of op. */
static void receive_gradients(struct emit *e, int tensor, struct placement want) {
    for (int i = 0; i < e->n_transfers; i++) {
        const struct transfer *t = &e->transfers[i];
        if (t->tensor == tensor && t->gradient && t->to == e->stage)
            gradient_add(e, tensor, want, emit_recv(e, tensor, true, t->from, want));
    }
}

/* The last contribution to a received tensor's gradient is there: send the sum back. */
static void send_gradient(struct emit *e, int tensor) {
    const struct shape *s = &e->m->tensors[tensor].shape;
    struct placement place = e->pool.p[e->gradient[tensor]].place;
    place = placement_resolve(e->mesh, s, &e->sizes, place);
    int buffer = gradient_combine(e, tensor, place);
    emit_send(e, tensor, true, e->plan->stage_of[e->m->tensors[tensor].producer], place,
              buffer);
}

/* The first op of this stage that reads each received tensor ends its backward pass. */
static void send_finished_gradients(struct emit *e, int op, const int *first_use) {
    const struct model_op *o = &e->m->ops[op];
    for (int k = 0; k < o->n_in; k++) {
        int t = o->in[k], producer = e->m->tensors[t].producer;
        bool again = k > 0 && o->in[0] == t;
        if (producer >= 0 && !here(e, producer) && first_use[t] == op && !again)
            send_gradient(e, t);
    }
}

void pass_backward(struct emit *e) {
    e->seg = SEG_BACKWARD;
    int *first_use = mem_array((size_t)e->m->n_tensors, sizeof *first_use);
    for (int i = e->st->n_ops - 1; i >= 0; i--) {
        const struct model_op *o = &e->m->ops[e->st->ops[i]];
        for (int k = 0; k < o->n_in; k++)
            first_use[o->in[k]] = e->st->ops[i];
    }
    for (int i = e->st->n_ops - 1; i >= 0; i--) {
        int op = e->op = e->st->ops[i], dy = -1;
        const struct model_op *o = &e->m->ops[op];
        if (o->kind != OP_cross_entropy) {
            struct placement want = placement_operand(
                e->mesh, op_layout(e, op), shape_dims(&e->m->tensors[o->out].shape));
            receive_gradients(e, o->out, want);
            dy = gradient_combine(e, o->out, want);
        }
        lower_backward(e, op, dy);
        send_finished_gradients(e, op, first_use);
    }
    free(first_use);
}
