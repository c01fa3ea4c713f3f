/* Shares under way while the ops of another block compute.
 *
 * Under ZeRO 3 an op waits for its parameters to be gathered, under ZeRO 2 for its gradients to be
 * reduced. Here the gathers start a block ahead (the k-th op of a block starts those of the k-th op of
 * the next), and what a reduction gives is added to the share a block later. So about one block's
 * parameters and one block's gradients are whole at a time, besides those of the op at hand. It goes
 * before the memory plan, to which what is under way is alive. Sums are taken in the same order as
 * without. */
#include "program/emit.h"

#include <stdlib.h>
#include <string.h>

/* What one op does without a pause. Unit: a block, or one op outside of blocks. */
struct turn {
    int first; /* instruction of the segment */
    int unit;
};

/* An instruction that goes before another. */
struct moved {
    int before;
    struct instr ins;
};

struct ahead {
    struct emit *e;
    int n;
    struct instr *old; /* of the segment */
    int *turn_of;      /* [n] */
    bool *gone;        /* [n] moved elsewhere */
    ARR(struct turn) turns;
    ARR(int) units;           /* first turn of each, and an end */
    ARR(struct moved) starts; /* by place, as are those below */
    ARR(struct moved) ends;
};

static int block_of(const struct ahead *a, const struct instr *ins) {
    return ins->op < 0 ? -1 : a->e->m->ops[ins->op].block;
}

static void find_turns(struct ahead *a) {
    for (int i = 0; i < a->n; i++) {
        const struct instr *ins = &a->old[i];
        bool new_turn = !i || ins->op != ins[-1].op;
        bool new_unit = new_turn && (!i || block_of(a, ins) < 0 ||
                                     block_of(a, ins) != block_of(a, ins - 1));
        if (new_unit)
            arr_push(&a->units, (int)a->turns.n);
        if (new_turn)
            arr_push(&a->turns, (struct turn){i, (int)a->units.n - 1});
        a->turn_of[i] = (int)a->turns.n - 1;
    }
    arr_push(&a->units, (int)a->turns.n);
}

/* The turn at the same place of the unit `by` units on; the unit's last where it is shorter. The first
 * unit has none before it: there it is the turn before. -1 behind the last unit. */
static int counterpart(const struct ahead *a, int turn, int by) {
    int unit = a->turns.p[turn].unit, other = unit + by;
    if (other < 0)
        return turn > 0 ? turn - 1 : 0;
    if (other + 1 >= a->units.n)
        return -1;
    int there = a->units.p[other] + turn - a->units.p[unit];
    return there < a->units.p[other + 1] ? there : a->units.p[other + 1] - 1;
}

static bool touches(const struct instr *ins, int buffer) {
    int b[INSTR_MAX_BUFFERS], n = instr_buffers(ins, b);
    for (int k = 0; k < n; k++)
        if (b[k] == buffer)
            return true;
    return false;
}

/* Is what a gather sends rounded just before it? */
static bool is_rounded(const struct ahead *a, const struct instr *ins, int i) {
    return i && a->old[i - 1].code == I_narrow &&
           a->old[i - 1].out.narrow.y == ins->in.all_gather.x;
}

/* A gather of a share: its start goes ahead, but not past another gather of the same; the wait stays. */
static void start_ahead(struct ahead *a, struct instr *ins, int i, int share) {
    int there = counterpart(a, a->turn_of[i], -1), own = is_rounded(a, ins, i) ? i - 1 : i;
    int least = a->turns.p[there].first, at = own;
    if (a->starts.n && arr_last(&a->starts).before > least)
        least = arr_last(&a->starts).before;
    while (at > least && !touches(&a->old[at - 1], share))
        at--;
    if (at == own)
        return;
    struct instr start = *ins;
    *ins = emit_start(a->e, &start);
    a->gone[own] = own < i;
    if (own < i)
        arr_push(&a->starts, (struct moved){at, a->old[own]});
    arr_push(&a->starts, (struct moved){at, start});
}

/* A reduction into a share starts where it stands; the wait and what follows, up to the sum, come
 * later. */
static void end_later(struct ahead *a, struct instr *ins, int i) {
    int there = counterpart(a, a->turn_of[i], 1);
    int at = there < 0 || there + 1 == a->turns.n ? a->n : a->turns.p[there + 1].first;
    arr_push(&a->ends, (struct moved){at, emit_start(a->e, ins)});
    do {
        a->gone[++i] = true;
        arr_push(&a->ends, (struct moved){at, a->old[i]});
    } while (a->old[i].code != I_add);
}

static void move_one(struct ahead *a, struct instr *ins, int i) {
    if (ins->param < 0 || ins->work >= 0)
        return;
    int sent = ins->code != I_all_gather ? -1
               : is_rounded(a, ins, i)   ? a->old[i - 1].in.narrow.x
                                         : ins->in.all_gather.x;
    if (sent >= 0 && a->e->buffers.p[sent].mem == MEM_parameters)
        start_ahead(a, ins, i, sent);
    else if (ins->code == I_reduce_scatter && !a->gone[i])
        end_later(a, ins, i);
}

/* Ends before starts at one place: what they give up may be taken. */
static void write_segment(struct ahead *a) {
    int64_t start = 0, end = 0;
    for (int i = 0; i <= a->n; i++) {
        for (; end < a->ends.n && a->ends.p[end].before == i; end++)
            arr_push(&a->e->instrs, a->ends.p[end].ins);
        for (; start < a->starts.n && a->starts.p[start].before == i; start++)
            arr_push(&a->e->instrs, a->starts.p[start].ins);
        if (i < a->n && !a->gone[i])
            arr_push(&a->e->instrs, a->old[i]);
    }
}

static void move_in_segment(struct emit *e, struct instr *old, int n) {
    struct ahead a = {.e = e,
                      .n = n,
                      .old = old,
                      .turn_of = mem_array((size_t)n, sizeof *a.turn_of),
                      .gone = mem_array((size_t)n, sizeof *a.gone)};
    find_turns(&a);
    for (int i = 0; i < n; i++)
        move_one(&a, &old[i], i);
    write_segment(&a);
    free(a.turn_of);
    free(a.gone);
    arr_release(&a.turns);
    arr_release(&a.units);
    arr_release(&a.starts);
    arr_release(&a.ends);
}

/* The segments of a micro-batch: those of the step's end are not there yet. */
void pass_ahead(struct emit *e) {
    struct instr *old = e->instrs.p;
    int n = (int)e->instrs.n,
        bounds[] = {0, e->seg_first[SEG_BACKWARD], e->seg_first[SEG_WEIGHTS], n};
    memset(&e->instrs, 0, sizeof e->instrs);
    for (int s = 0; s < 3; s++) {
        static const enum segment segments[] = {SEG_FORWARD, SEG_BACKWARD, SEG_WEIGHTS};
        e->seg_first[segments[s]] = (int)e->instrs.n;
        move_in_segment(e, old + bounds[s], bounds[s + 1] - bounds[s]);
    }
    e->seg_first[SEG_LAST_BACKWARD] = e->seg_first[SEG_WEIGHTS];
    free(old);
}
