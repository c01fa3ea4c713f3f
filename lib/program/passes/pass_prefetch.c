/* Moves shards while the ops of another block compute.
 *
 * Under ZeRO 3 an op waits for its parameters to be gathered, under ZeRO 2 for its
 * gradients to be reduced. Here the gathers start a block ahead (the k-th op of a block
 * starts those of the k-th op of the next), and the result of a reduction is added to the
 * share a block later. So about one block's parameters and one block's gradients are whole
 * at a time, besides those of the op at hand. The pass comes before the memory plan, to
 * which what is under way is alive. Sums are taken in the same order as without it. */
#include "program/passes/pass.h"

#include <stdlib.h>
#include <string.h>

/* Consecutive instructions of one op. Unit: a block, or one op outside of blocks. */
struct run {
    int first; /* instruction of the segment */
    int unit;
};

/* An instruction to insert before another. */
struct moved {
    int before;
    struct instr ins;
};

struct prefetch {
    struct emit *e;
    int n;
    struct instr *old; /* of the segment */
    int *run_of;       /* [n] */
    bool *gone;        /* [n] moved elsewhere */
    ARR(struct run) runs;
    ARR(int) units;           /* first run of each, and an end */
    ARR(struct moved) starts; /* by place, like ends */
    ARR(struct moved) ends;
};

static int block_of(const struct prefetch *p, const struct instr *ins) {
    return ins->op < 0 ? -1 : p->e->m->ops[ins->op].block;
}

static void find_runs(struct prefetch *p) {
    for (int i = 0; i < p->n; i++) {
        const struct instr *ins = &p->old[i];
        bool new_run = !i || ins->op != ins[-1].op;
        bool new_unit = new_run && (!i || block_of(p, ins) < 0 ||
                                    block_of(p, ins) != block_of(p, ins - 1));
        if (new_unit)
            arr_push(&p->units, (int)p->runs.n);
        if (new_run)
            arr_push(&p->runs, (struct run){i, (int)p->units.n - 1});
        p->run_of[i] = (int)p->runs.n - 1;
    }
    arr_push(&p->units, (int)p->runs.n);
}

/* The run at the same place in the unit `by` units on, or that unit's last one where it is
 * shorter. Before the first unit it is the run before; behind the last unit, -1. */
static int counterpart(const struct prefetch *p, int run, int by) {
    int unit = p->runs.p[run].unit, other = unit + by;
    if (other < 0)
        return run > 0 ? run - 1 : 0;
    if (other + 1 >= p->units.n)
        return -1;
    int there = p->units.p[other] + run - p->units.p[unit];
    return there < p->units.p[other + 1] ? there : p->units.p[other + 1] - 1;
}

static bool touches(const struct instr *ins, int buffer) {
    int b[INSTR_MAX_BUFFERS], n = instr_buffers(ins, b);
    for (int k = 0; k < n; k++)
        if (b[k] == buffer)
            return true;
    return false;
}

/* Whether what a gather sends is rounded just before it. */
static bool is_rounded(const struct prefetch *p, const struct instr *ins, int i) {
    return i && p->old[i - 1].code == I_narrow &&
           p->old[i - 1].out.narrow.y == ins->in.all_gather.x;
}

/* Starts a share's gather ahead, but behind what touches the share. Its wait stays. */
static void start_early(struct prefetch *p, struct instr *ins, int i, int share) {
    int there = counterpart(p, p->run_of[i], -1), own = is_rounded(p, ins, i) ? i - 1 : i;
    int least = p->runs.p[there].first, at = own;
    if (p->starts.n && arr_last(&p->starts).before > least)
        least = arr_last(&p->starts).before;
    while (at > least && !touches(&p->old[at - 1], share))
        at--;
    if (at == own)
        return;
    struct instr start = *ins;
    *ins = emit_start(p->e, &start);
    p->gone[own] = own < i;
    if (own < i)
        arr_push(&p->starts, (struct moved){at, p->old[own]});
    arr_push(&p->starts, (struct moved){at, start});
}

/* Starts a reduction into a share where it stands; wait, sum and all between come later. */
static void end_later(struct prefetch *p, struct instr *ins, int i) {
    int there = counterpart(p, p->run_of[i], 1);
    int at = there < 0 || there + 1 == p->runs.n ? p->n : p->runs.p[there + 1].first;
    arr_push(&p->ends, (struct moved){at, emit_start(p->e, ins)});
    do {
        p->gone[++i] = true;
        arr_push(&p->ends, (struct moved){at, p->old[i]});
    } while (p->old[i].code != I_add);
}

static void move_one(struct prefetch *p, struct instr *ins, int i) {
    if (ins->param < 0 || ins->work >= 0)
        return;
    int sent = ins->code != I_all_gather ? -1
               : is_rounded(p, ins, i)   ? p->old[i - 1].in.narrow.x
                                         : ins->in.all_gather.x;
    if (sent >= 0 && p->e->buffers.p[sent].mem == MEM_parameters)
        start_early(p, ins, i, sent);
    else if (ins->code == I_reduce_scatter && !p->gone[i])
        end_later(p, ins, i);
}

/* At one place ends come before starts, which may take the memory that they give up. */
static void write_segment(struct prefetch *p) {
    int64_t start = 0, end = 0;
    for (int i = 0; i <= p->n; i++) {
        for (; end < p->ends.n && p->ends.p[end].before == i; end++)
            arr_push(&p->e->instrs, p->ends.p[end].ins);
        for (; start < p->starts.n && p->starts.p[start].before == i; start++)
            arr_push(&p->e->instrs, p->starts.p[start].ins);
        if (i < p->n && !p->gone[i])
            arr_push(&p->e->instrs, p->old[i]);
    }
}

static void move_in_segment(struct emit *e, struct instr *old, int n) {
    struct prefetch p = {.e = e,
                         .n = n,
                         .old = old,
                         .run_of = mem_array((size_t)n, sizeof *p.run_of),
                         .gone = mem_array((size_t)n, sizeof *p.gone)};
    find_runs(&p);
    for (int i = 0; i < n; i++)
        move_one(&p, &old[i], i);
    write_segment(&p);
    free(p.run_of);
    free(p.gone);
    arr_release(&p.runs);
    arr_release(&p.units);
    arr_release(&p.starts);
    arr_release(&p.ends);
}

/* Only the segments of a micro-batch are there yet, not those of the step's end. */
void pass_prefetch(struct emit *e) {
    struct instr *old = e->instrs.p;
    int n = (int)e->instrs.n,
        bounds[] = {0, e->seg_first[SEG_BACKWARD], e->seg_first[SEG_WEIGHTS], n};
    memset(&e->instrs, 0, sizeof e->instrs);
    for (int s = 0; s < 3; s++) {
        static const enum segment segments[] = {SEG_FORWARD, SEG_BACKWARD, SEG_WEIGHTS};
        move_in_segment(e, old + bounds[s], bounds[s + 1] - bounds[s]);
        emit_end_segment(e, segments[s]);
    }
    free(old);
}
