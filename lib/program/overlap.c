/* Gradient reductions while the last backward pass computes.
 *
 * The last backward of a step is the backward once more, with each reduction of the update started
 * as soon as the last gradient that it covers is complete; the update only waits. Reductions were
 * merged into buckets of neighbouring gradients before (memory.c), so that few and large ones are
 * under way (Li et al., PyTorch Distributed, VLDB 2020). The bits do not change: the same sums are
 * taken over the same groups. */
#include "program/emit.h"

#include <stdlib.h>

struct bytes {
    int64_t from, to;
};

static struct bytes bytes_of(const struct emit *e, int buffer) {
    const struct buffer *b = &e->buffers.p[buffer];
    return (struct bytes){b->offset, b->offset + buffer_bytes(b)};
}

static bool meet(struct bytes a, struct bytes b) {
    return a.from < b.to && b.from < a.to;
}

static bool touches(const struct emit *e, const struct instr *ins, struct bytes what) {
    int b[INSTR_MAX_BUFFERS], n = instr_buffers(ins, b);
    for (int k = 0; k < n; k++)
        if (meet(bytes_of(e, b[k]), what))
            return true;
    return false;
}

/* The instruction of the backward pass after which a reduction of the update may start, or -1 when
 * it is none of gradients that nothing else touched since. */
static int ready_after(const struct emit *e, int at) {
    const struct instr *ins = &e->instrs.p[at];
    if (ins->code != I_all_reduce ||
        e->buffers.p[ins->in.all_reduce.x].mem != MEM_gradients)
        return -1;
    struct bytes what = bytes_of(e, ins->in.all_reduce.x);
    for (int i = e->seg_first[SEG_UPDATE]; i < at; i++)
        if (touches(e, &e->instrs.p[i], what))
            return -1;
    int last = e->seg_first[SEG_LAST_BACKWARD] - 1;
    while (last >= e->seg_first[SEG_BACKWARD] && !touches(e, &e->instrs.p[last], what))
        last--;
    return last >= e->seg_first[SEG_BACKWARD] ? last : -1;
}

/* The reduction itself waits in the update; returns what starts it. */
static struct instr split(struct emit *e, struct instr *ins) {
    struct instr start = *ins, wait = instr_init(I_wait);
    start.work = wait.work = e->n_works++;
    wait.op = ins->op;
    wait.param = ins->param;
    wait.axes = ins->axes;
    wait.in.wait.x = ins->in.all_reduce.x;
    wait.out.wait.y = ins->out.all_reduce.y;
    wait.n.wait.elems = ins->n.all_reduce.elems;
    *ins = wait;
    return start;
}

/* Copies the backward pass, with each start behind the instruction that completes its gradients.
 * Only reductions before the norm can be started: those behind it move new values. */
void pass_overlap(struct emit *e) {
    struct started {
        int after;
        struct instr ins;
    };
    ARR(struct started) list = {0};
    ARR(struct instr) all = {0};
    int update = e->seg_first[SEG_UPDATE], backward = e->seg_first[SEG_BACKWARD];
    for (int i = update; i < e->seg_first[SEG_COUNT] && e->instrs.p[i].code != I_norm;
         i++) {
        int after = ready_after(e, i);
        if (after >= 0)
            arr_push(&list, (struct started){after, split(e, &e->instrs.p[i])});
    }
    for (int i = 0; i < update; i++)
        arr_push(&all, e->instrs.p[i]);
    for (int i = backward; i < update && list.n; i++) {
        arr_push(&all, e->instrs.p[i]);
        for (int64_t k = 0; k < list.n; k++)
            if (list.p[k].after == i)
                arr_push(&all, list.p[k].ins);
    }
    int moved = (int)all.n - update;
    for (int i = update; i < e->seg_first[SEG_COUNT]; i++)
        arr_push(&all, e->instrs.p[i]);
    e->seg_first[SEG_UPDATE] += moved;
    e->seg_first[SEG_COUNT] += moved;
    arr_release(&e->instrs);
    e->instrs.p = all.p;
    e->instrs.n = all.n;
    e->instrs.cap = all.cap;
    arr_release(&list);
}
