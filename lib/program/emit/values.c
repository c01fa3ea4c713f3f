/* Values: which tensor is where, in which buffer, under which placement. */
#include "program/emit/values.h"

#include <math.h>
#include <stdlib.h>

const struct layout *op_layout(const struct emit *e, int op) {
    return &e->st->layouts[e->op_index[op]];
}

struct placement operand_place(const struct emit *e, int op, int k) {
    return placement_operand(e->mesh, op_layout(e, op), &e->m->ops[op].in_map[k]);
}

struct placement result_place(const struct emit *e, int op, int k) {
    return placement_result(e->mesh, op_layout(e, op), &e->m->ops[op].out_map[k]);
}

struct placement gradient_place(const struct emit *e, int op, int k) {
    return placement_operand(e->mesh, op_layout(e, op), &e->m->ops[op].out_map[k]);
}

/* ---- tensors from elsewhere ----------------------------------------------------------------- */

/* The k for which the tensor is result k of the op. */
static int result_index(const struct emit *e, int op, int tensor) {
    int k = 0;
    while (e->m->ops[op].out[k] != tensor)
        k++;
    return k;
}

/* The placement under which the stage takes a tensor that it does not make: what its first
 * reader wants or, for a gradient, what the tensor's producer wants. */
static struct placement arrival_place(const struct emit *e, const struct transfer *t) {
    int producer = e->m->tensors[t->tensor].producer;
    if (t->gradient)
        return gradient_place(e, producer, result_index(e, producer, t->tensor));
    return operand_place(e, t->reader, t->operand);
}

/* The message lands under the placement that its first reader wants; both ends learn it from the
 * transfer. */
static void receive(struct emit *e, int transfer) {
    struct transfer *t = &e->transfers[transfer];
    struct placement place = arrival_place(e, t);
    int buffer = emit_value(e, t->tensor, place);
    struct instr *i = emit_instr(e, I_recv);
    i->tensor = t->tensor;
    i->out.recv.y = buffer;
    i->place = place;
    i->n.recv.elems = e->buffers.p[buffer].elems;
    i->transfer = transfer;
    t->to_place = place;
    if (t->gradient)
        gradient_add(e, t->tensor, place, buffer);
    else
        avail_add(e, e->forward, t->tensor, place, buffer);
}

/* Takes the messages of one direction up to the transfer of this tensor, in the order in which the
 * other stage sends them. */
static void receive_up_to(struct emit *e, int tensor, bool gradient, int from) {
    for (int64_t i = 0; i < e->arrivals.n; i++) {
        struct arrival *a = &e->arrivals.p[i];
        const struct transfer *t = &e->transfers[a->transfer];
        if (t->tensor < 0 || t->gradient != gradient || t->from != from)
            continue;
        if (!a->taken)
            receive(e, a->transfer);
        a->taken = true;
        if (t->tensor == tensor)
            return;
    }
}

void gradient_receive(struct emit *e, int tensor) {
    for (int64_t i = 0; i < e->arrivals.n; i++) {
        const struct transfer *t = &e->transfers[e->arrivals.p[i].transfer];
        if (t->tensor == tensor && t->gradient)
            receive_up_to(e, tensor, true, t->from);
    }
}

/* ---- values ------------------------------------------------------------------------------- */

static bool here(const struct emit *e, int op) {
    return e->plan->stage_of[op] == e->stage;
}

/* Whether the forward pass's value is still there in the backward pass. */
static bool kept(const struct emit *e, int tensor) {
    int op = e->m->tensors[tensor].producer;
    return op < 0 || !here(e, op) || !e->st->recompute[e->op_index[op]];
}

/* The most elements of values in a list that may be used. In the backward pass of a
 * stage that re-all-gathers, what the forward pass gathered is not kept: only the
 * smallest are. */
static int64_t most_elements(const struct emit *e, int tensor, int head) {
    int64_t least = INT64_MAX;
    if (e->seg == SEG_FORWARD || !e->st->regather)
        return least;
    for (int i = head; i >= 0; i = e->avails.p[i].next)
        if (!placement_axes(e->mesh, e->avails.p[i].place, PLACE_PARTIAL)) {
            int64_t n =
                emit_elements(e, &e->m->tensors[tensor].shape, e->avails.p[i].place);
            least = least < n ? least : n;
        }
    return least;
}

static bool small_enough(const struct emit *e, int tensor, int i, int64_t most) {
    return most == INT64_MAX ||
           emit_elements(e, &e->m->tensors[tensor].shape, e->avails.p[i].place) <= most;
}

/* The value that the forward pass kept under this placement, or -1. */
static int kept_find(const struct emit *e, int tensor, struct placement want) {
    int64_t most = most_elements(e, tensor, e->forward[tensor]);
    for (int i = e->forward[tensor]; i >= 0; i = e->avails.p[i].next)
        if (placement_equal(e->avails.p[i].place, want) && small_enough(e, tensor, i, most))
            return e->avails.p[i].buffer;
    return -1;
}

/* The source that costs least to convert; returns its index in avails, or -1. */
static int cheapest(const struct emit *e, int tensor, int head, struct placement want) {
    struct convert_step steps[CONVERT_MAX_STEPS];
    struct extents sizes = emit_extents(e, &e->m->tensors[tensor].shape);
    int64_t most = head == e->forward[tensor] ? most_elements(e, tensor, head) : INT64_MAX;
    double best_cost = INFINITY;
    int best = -1;
    for (int i = head; i >= 0; i = e->avails.p[i].next) {
        double cost;
        /* A sum that was reduced in place is spoilt: once there is a finished value, partial
         * ones are not touched again. */
        if (placement_axes(e->mesh, e->avails.p[i].place, PLACE_PARTIAL) && i != head)
            continue;
        if (!small_enough(e, tensor, i, most))
            continue;
        convert_path(e->mesh, &sizes, e->avails.p[i].place, want, steps, &cost);
        if (cost < best_cost) {
            best_cost = cost;
            best = i;
        }
    }
    return best;
}

/* Reads this rank's box of the data. */
static void read_data(struct emit *e, int tensor, struct placement want, int *list) {
    int buffer = emit_value(e, tensor, want);
    struct instr *i = emit_instr(e, I_input);
    i->tensor = tensor;
    i->out.input.y = buffer;
    i->place = want;
    i->n.input.elems = e->buffers.p[buffer].elems;
    avail_add(e, list, tensor, want, buffer);
}

/* Makes the tensor available in this pass under some placement; returns the list's head. */
static int bring(struct emit *e, int tensor, struct placement want, int *list) {
    int op = e->m->tensors[tensor].producer;
    if (op < 0)
        read_data(e, tensor, want, list);
    else if (!here(e, op))
        receive_up_to(e, tensor, false, e->plan->stage_of[op]);
    else
        e->lower(e, op);
    return list[tensor];
}

/* Takes the value under the wanted placement if there is one, else converts the cheapest of
 * those that there are, else makes the tensor first: reads, receives or recomputes it. */
int value_get(struct emit *e, int tensor, struct placement want) {
    bool backward = e->seg != SEG_FORWARD;
    int *list = backward ? e->backward : e->forward;
    int found = avail_find(e, list[tensor], want);
    if (found < 0 && backward && kept(e, tensor))
        found = kept_find(e, tensor, want);
    if (found >= 0)
        return found;
    int head = list[tensor];
    if (head < 0 && backward && kept(e, tensor))
        head = e->forward[tensor];
    if (head < 0) {
        head = bring(e, tensor, want, list);
        found = avail_find(e, head, want);
    }
    if (found >= 0)
        return found;
    int source = cheapest(e, tensor, head, want);
    int buffer = emit_convert(e, &e->m->tensors[tensor].shape, e->avails.p[source].buffer,
                              e->avails.p[source].place, want, -1);
    avail_add(e, list, tensor, want, buffer);
    return buffer;
}

int saved_find(const struct emit *e, int op) {
    int i = e->op_index[op];
    return e->saved[2 * i + (e->seg != SEG_FORWARD && e->st->recompute[i] ? 1 : 0)];
}

int saved_get(struct emit *e, int op) {
    if (saved_find(e, op) < 0)
        e->lower(e, op);
    return saved_find(e, op);
}

/* ---- gradients ---------------------------------------------------------------------------- */

void gradient_add(struct emit *e, int tensor, struct placement place, int buffer) {
    avail_add(e, e->gradient, tensor, place, buffer);
}

/* Takes the contributions under the first one's placement off the list and adds them up; returns
 * the buffer, and the rest of the list. */
static int add_alike(struct emit *e, const struct shape *s, int head, int *rest) {
    struct placement place = e->avails.p[head].place;
    int sum = -1;
    *rest = -1;
    for (int i = head, next; i >= 0; i = next) {
        next = e->avails.p[i].next;
        if (placement_equal(e->avails.p[i].place, place)) {
            int b = e->avails.p[i].buffer;
            sum = sum < 0 ? b : emit_add(e, sum, b, emit_elements(e, s, place));
        } else {
            e->avails.p[i].next = *rest;
            *rest = i;
        }
    }
    return sum;
}

void gradient_gather(struct emit *e, int tensor) {
    int head = e->gradient[tensor], rest;
    if (head < 0 || e->avails.p[head].next < 0)
        return; /* there is at most one */
    e->gradient[tensor] = -1;
    for (; head >= 0; head = rest) {
        struct placement place = e->avails.p[head].place;
        int sum = add_alike(e, &e->m->tensors[tensor].shape, head, &rest);
        avail_add(e, e->gradient, tensor, place, sum);
    }
}

/* Adds up contributions of one placement at a time, so that each placement is converted once. */
int gradient_combine(struct emit *e, int tensor, struct placement want) {
    const struct shape *s = &e->m->tensors[tensor].shape;
    int total = -1;
    for (int head = e->gradient[tensor], rest; head >= 0; head = rest) {
        struct placement place = e->avails.p[head].place;
        int sum = add_alike(e, s, head, &rest);
        sum = emit_convert(e, s, sum, place, want, -1);
        total = total < 0 ? sum : emit_add(e, total, sum, emit_elements(e, s, want));
    }
    e->gradient[tensor] = -1;
    return total;
}
