/* All-reduces of gradients in buckets.
 *
 * Neighbouring gradients that are reduced over the same group, one after the other, become
 * one all-reduce, so that latency is paid less often. Where reductions run while the
 * backward pass computes, a bucket is closed once it is large enough to be worth starting.
 */
#include "program/passes/pass.h"

enum {
    /* Small buckets pay latency, large ones begin late: PyTorch's default (Li et al. 2020). */
    BUCKET_BYTES = 25 << 20,
};

/* Whether it is about a running statistic, which is reduced in f32 under every plan. */
static bool is_statistic(const struct emit *e, const struct instr *ins) {
    return ins->param >= 0 && e->m->params[ins->param].running;
}

/* Whether the second all-reduce may become part of the first. */
static bool may_join(const struct emit *e, const struct instr *last,
                     const struct instr *ins) {
    if (last->code != I_all_reduce || ins->code != I_all_reduce ||
        last->axes != ins->axes || last->guarded != ins->guarded)
        return false;
    const struct buffer *a = &e->buffers.p[last->in.all_reduce.x];
    const struct buffer *b = &e->buffers.p[ins->in.all_reduce.x];
    bool full = e->plan->overlap && b->offset - a->offset >= BUCKET_BYTES;
    bool alike =
        e->plan->reduce == DTYPE_f32 || is_statistic(e, last) == is_statistic(e, ins);
    return a->mem == MEM_gradients && b->mem == MEM_gradients && !full && alike &&
           b->offset == a->offset + buffer_bytes(a);
}

/* Lets the first one reduce both, in a buffer that spans theirs. */
static void join(struct emit *e, struct instr *last, const struct instr *ins) {
    struct buffer both = e->buffers.p[last->in.all_reduce.x];
    const struct buffer b = e->buffers.p[ins->in.all_reduce.x];
    both.elems = (b.offset - both.offset) / dtype_size(both.dtype) + b.elems;
    arr_push(&e->buffers, both);
    last->in.all_reduce.x = last->out.all_reduce.y = (int)e->buffers.n - 1;
    last->n.all_reduce.elems = both.elems;
}

void pass_bucket(struct emit *e) {
    const int64_t first = e->seg_first[SEG_REDUCE], end = e->seg_first[SEG_NORM];
    int64_t kept = first;
    for (int64_t i = first; i < end; i++) {
        const struct instr *ins = &e->instrs.p[i];
        struct instr *last = kept > first ? &e->instrs.p[kept - 1] : NULL;
        if (last && may_join(e, last, ins)) {
            join(e, last, ins);
            continue;
        }
        if (kept++ < i)
            e->instrs.p[kept - 1] = *ins;
    }
    int64_t gone = end - kept;
    for (int64_t i = end; i < e->instrs.n && gone; i++)
        e->instrs.p[i - gone] = e->instrs.p[i];
    e->instrs.n -= gone;
    for (int s = SEG_NORM; s <= SEG_COUNT; s++)
        e->seg_first[s] -= (int)gone;
}
