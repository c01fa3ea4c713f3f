/* Where the plan sums gradients in 16 bits, their all-reduces sum rounded copies. What is
 * scattered is rounded where it is emitted (emit/params.c). */
#include "program/passes/pass.h"

#include <stdlib.h>
#include <string.h>

/* Whether it sums gradients in f32. Running statistics are summed as they are. */
static bool is_rounded(const struct emit *e, const struct instr *ins) {
    return ins->code == I_all_reduce && e->buffers.p[ins->in.v[0]].dtype == DTYPE_f32 &&
           !(ins->param >= 0 && e->m->params[ins->param].running);
}

void pass_round(struct emit *e) {
    const int first = e->seg_first[SEG_REDUCE], end = e->seg_first[SEG_NORM] - first;
    const int n = (int)e->instrs.n - first;
    struct instr *old = mem_array((size_t)n, sizeof *old);
    memcpy(old, e->instrs.p + first, sizeof *old * (size_t)n);
    e->instrs.n = first;
    int rounded = 0;
    for (int i = 0; i < n; i++) {
        struct instr ins = old[i];
        if (i >= end || !is_rounded(e, &ins)) {
            arr_push(&e->instrs, ins);
            continue;
        }
        const int64_t elems = ins.n.v[0];
        const int sum = ins.in.v[0];
        e->param = ins.param;
        ins.in.v[0] = ins.out.v[0] =
            emit_buffer(e, elems, e->plan->reduce, MEM_temporaries);
        emit_cast(e, sum, ins.in.v[0], elems);
        arr_push(&e->instrs, ins);
        emit_cast(e, ins.in.v[0], sum, elems);
        rounded++;
    }
    e->param = -1;
    for (int s = SEG_NORM; s <= SEG_COUNT; s++)
        e->seg_first[s] += 2 * rounded;
    free(old);
}
