/* Starts gradient reductions while the last backward pass computes.
 *
 * The last backward segment of a step is the backward segment once more, with each
 * reduction of the step's end started as soon as the last gradient that it covers is
 * complete; the end only waits. The same holds for the last weight gradients, where those
 * are apart. Reductions were merged into buckets before (pass_bucket.c), so that few and
 * large ones are under way (Li et al., PyTorch Distributed, VLDB 2020). The bits do not
 * change: the same sums are taken over the same groups. */
#include "program/passes/pass.h"

#include <stdlib.h>
#include <string.h>

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

/* The instruction of a micro-batch after which a reduction may start; -1 if it is not a
 * reduction of gradients, or if something else at the step's end touches them before it.
 * What only forward passes touch (pass_logits.c) is complete before the last backward
 * pass. */
static int ready_after(const struct emit *e, int at) {
    const struct instr *ins = &e->instrs.p[at];
    if (ins->code != I_all_reduce ||
        e->buffers.p[ins->in.all_reduce.x].mem != MEM_gradients)
        return -1;
    struct bytes what = bytes_of(e, ins->in.all_reduce.x);
    for (int i = e->seg_first[SEG_REDUCE]; i < at; i++)
        if (touches(e, &e->instrs.p[i], what))
            return -1;
    int last = e->seg_first[SEG_REDUCE] - 1;
    while (last >= 0 && !touches(e, &e->instrs.p[last], what))
        last--;
    const int backward = e->seg_first[SEG_BACKWARD];
    return last < 0 || last >= backward ? last : backward - 1;
}

/* Leaves only the wait for a reduction at the step's end; returns what starts it. */
static struct instr split(struct emit *e, struct instr *ins) {
    struct instr start = *ins;
    *ins = emit_start(e, &start);
    return start;
}

struct started {
    int after;
    struct instr ins;
};
struct starts {
    ARR(struct started) list;
};

static bool starts_in(const struct starts *s, int first, int end) {
    for (int64_t k = 0; k < s->list.n; k++)
        if (s->list.p[k].after >= first && s->list.p[k].after < end)
            return true;
    return false;
}

static void write_starts(struct emit *e, const struct starts *s, int after) {
    for (int64_t k = 0; k < s->list.n; k++)
        if (s->list.p[k].after == after)
            arr_push(&e->instrs, s->list.p[k].ins);
}

/* Writes segment `seg` and, where reductions start in it, the segment that follows it in
 * the list: a copy with each start after the instruction that completes its gradients, or
 * in front of all if a forward pass completes them. */
static void write_last(struct emit *e, const struct instr *old, enum segment seg,
                       const struct starts *s) {
    int first = e->seg_first[seg], end = e->seg_first[seg + 1];
    e->seg_first[seg] = (int)e->instrs.n;
    for (int i = first; i < end; i++)
        arr_push(&e->instrs, old[i]);
    e->seg_first[seg + 1] = (int)e->instrs.n;
    const int from = seg == SEG_BACKWARD ? first - 1 : first;
    bool last = starts_in(s, from, end);
    for (int i = from; i < end && last; i++) {
        if (i >= first)
            arr_push(&e->instrs, old[i]);
        write_starts(e, s, i);
    }
}

void pass_overlap(struct emit *e) {
    struct starts s = {{0}};
    for (int i = e->seg_first[SEG_REDUCE]; i < e->seg_first[SEG_NORM]; i++) {
        int after = ready_after(e, i);
        if (after >= 0)
            arr_push(&s.list, (struct started){after, split(e, &e->instrs.p[i])});
    }
    struct instr *old = e->instrs.p;
    int n = (int)e->instrs.n, reduce = e->seg_first[SEG_REDUCE];
    memset(&e->instrs, 0, sizeof e->instrs);
    for (int i = 0; i < e->seg_first[SEG_BACKWARD]; i++)
        arr_push(&e->instrs, old[i]);
    write_last(e, old, SEG_BACKWARD, &s);
    write_last(e, old, SEG_WEIGHTS, &s);
    int moved = (int)e->instrs.n - reduce;
    for (int i = reduce; i < n; i++)
        arr_push(&e->instrs, old[i]);
    for (int k = SEG_REDUCE; k <= SEG_COUNT; k++)
        e->seg_first[k] += moved;
    free(old);
    arr_release(&s.list);
}
