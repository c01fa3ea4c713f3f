/* Finds the gradients that need not be set to zero before a step.
 *
 * Gradients are sums over micro-batches, and the first of these can write what the others
 * add to. That saves a pass over all gradients and, in products, reading them once. So an
 * instruction that can do this (FRESH in instr.def) and is the first of a micro-batch to
 * touch its gradients is marked. Micro-batches have their passes in order under every
 * schedule, so the first of a step is number 0.
 *
 * What something else touches first is cleared (pass_clear.c). */
#include "program/passes/pass.h"

#include <stdlib.h>

enum { UNTOUCHED = -1 };

static bool is_gradient(const struct emit *e, int buffer) {
    return buffer >= 0 && e->buffers.p[buffer].mem == MEM_gradients;
}

/* For each buffer that is a gradient, the instruction that touches it first in a micro-batch. */
static int *first_touches(const struct emit *e) {
    int *first = mem_array((size_t)e->buffers.n, sizeof *first);
    for (int64_t b = 0; b < e->buffers.n; b++)
        first[b] = UNTOUCHED;
    for (int i = e->seg_first[SEG_REDUCE] - 1; i >= 0; i--) {
        int b[INSTR_MAX_BUFFERS], n = instr_buffers(&e->instrs.p[i], b);
        for (int k = 0; k < n; k++)
            if (is_gradient(e, b[k]))
                first[b[k]] = i;
    }
    return first;
}

/* Whether all its sums are gradients that nothing has touched before. */
static bool may_write(const struct emit *e, const int *first, int i) {
    const struct instr *ins = &e->instrs.p[i];
    const struct instr_info *info = instr_info(ins->code);
    bool sums = false;
    for (int k = 0; k < info->n_out; k++) {
        const int b = ins->out.v[k];
        if (b < 0 || !(info->out[k].flags & OPERAND_ADD))
            continue;
        if (!(info->out[k].flags & OPERAND_FRESH) || !is_gradient(e, b) || first[b] != i)
            return false;
        sums = true;
    }
    return sums;
}

void pass_fresh(struct emit *e) {
    if (!e->grads.n)
        return;
    int *first = first_touches(e);
    for (int i = 0; i < e->seg_first[SEG_REDUCE]; i++)
        e->instrs.p[i].fresh = may_write(e, first, i);
    for (int64_t g = 0; g < e->grads.n; g++) {
        const int i = first[e->grads.p[g].buffer];
        e->grads.p[g].cleared = i == UNTOUCHED || !e->instrs.p[i].fresh;
    }
    free(first);
}
