/* Places parameters, gradients and the optimizer's state, which stay there as long as the
 * program runs: class by class, from the beginning of the arena, and of the host's. */
#include "program/passes/pass.h"

#include <stdlib.h>

/* Gives the buffers of a class offsets one after the other; returns their bytes. */
static int64_t lay_out(struct emit *e, enum memory_class mem, bool host, const int *order,
                       int64_t n, int64_t at) {
    int64_t start = at;
    for (int64_t i = 0; i < n; i++) {
        struct buffer *b = &e->buffers.p[order ? order[i] : (int)i];
        if (b->mem != mem || b->host != host)
            continue;
        b->offset = at;
        at += buffer_bytes(b);
    }
    return at - start;
}

struct buffer_order {
    ARR(int) list;
};

/* Lists gradients in the order in which the update reduces them. */
static void list_gradients(const struct emit *e, bool cleared, struct buffer_order *out) {
    for (int64_t i = 0; i < e->params.n; i++)
        for (int64_t g = e->grad_of[e->params.p[i].param]; g >= 0 && g < e->grads.n; g++) {
            if (e->grads.p[g].instance == i && e->grads.p[g].cleared == cleared)
                arr_push(&out->list, e->grads.p[g].buffer);
            if (!e->m->params[e->params.p[i].param].tied)
                break;
        }
}

/* Gradients to clear come first, so that one instruction clears them (pass_clear.c). */
static int *gradient_order(const struct emit *e, int64_t *n) {
    struct buffer_order order = {{0}};
    list_gradients(e, true, &order);
    list_gradients(e, false, &order);
    *n = order.list.n;
    return order.list.p;
}

void pass_persistent(struct emit *e) {
    int64_t n_order, at = 0, *own = e->out->own, host = HOST_ARENA;
    int *order = gradient_order(e, &n_order);
    at += own[MEM_parameters] = lay_out(e, MEM_parameters, false, NULL, e->buffers.n, at);
    at += own[MEM_gradients] = lay_out(e, MEM_gradients, false, order, n_order, at);
    own[MEM_optimizer] = lay_out(e, MEM_optimizer, false, NULL, e->buffers.n, at);
    free(order);
    host += lay_out(e, MEM_parameters, true, NULL, e->buffers.n, host);
    host += lay_out(e, MEM_optimizer, true, NULL, e->buffers.n, host);
    e->out->own_host = host - HOST_ARENA;
}
