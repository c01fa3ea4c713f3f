/* Backward in two: what other stages wait for, and what only makes gradients of weights.
 *
 * The first, the backward segment, has everything that leads to a message; the weight gradients
 * have the rest, in the same order, and run when the schedule has nothing better to do (Qi et al.,
 * Zero Bubble Pipeline Parallelism, 2023). What they read is kept until then by the memory plan
 * like all that outlives a segment. An instruction also stays in the backward if a later one there
 * overwrites what it reads. */
#include "program/emit.h"

#include <stdlib.h>

struct split {
    bool *needed;  /* by buffer: read in the backward behind the instruction looked at */
    bool *written; /* the same */
};

static bool overwrites_operand(enum opcode code) {
    return code == I_reduce_scatter; /* its operand is spoilt */
}

/* Does the backward need it, given what it has already behind this? */
static bool stays(const struct emit *e, const struct split *s, const struct instr *ins) {
    bool stay = opcode_key(ins->code) == KEY_P2P;
    for (int k = 0; k < INSTR_MAX_IN; k++)
        if (ins->in.v[k] >= 0)
            stay |= s->written[ins->in.v[k]];
    for (int k = 0; k < INSTR_MAX_OUT; k++)
        if (ins->out.v[k] >= 0 && e->buffers.p[ins->out.v[k]].mem != MEM_gradients)
            stay |= s->needed[ins->out.v[k]] || s->written[ins->out.v[k]];
    return stay;
}

static void keep(struct split *s, const struct instr *ins) {
    for (int k = 0; k < INSTR_MAX_IN; k++)
        if (ins->in.v[k] >= 0) {
            s->needed[ins->in.v[k]] = true;
            s->written[ins->in.v[k]] |= overwrites_operand(ins->code);
        }
    for (int k = 0; k < INSTR_MAX_OUT; k++)
        if (ins->out.v[k] >= 0)
            s->written[ins->out.v[k]] = true;
}

/* Marks from the last instruction to the first, then sorts without changing the order in each. */
void pass_split(struct emit *e) {
    int first = e->seg_first[SEG_BACKWARD], n = (int)e->instrs.n - first, kept = first;
    size_t buffers = (size_t)e->buffers.n;
    struct split s = {mem_array(buffers, sizeof *s.needed),
                      mem_array(buffers, sizeof *s.written)};
    struct instr *old = mem_array((size_t)n, sizeof *old);
    bool *stay = mem_array((size_t)n, sizeof *stay);
    for (int i = n - 1; i >= 0; i--) {
        old[i] = e->instrs.p[first + i];
        stay[i] = stays(e, &s, &old[i]);
        if (stay[i])
            keep(&s, &old[i]);
    }
    for (int i = 0; i < n; i++)
        if (stay[i])
            e->instrs.p[kept++] = old[i];
    e->seg_first[SEG_LAST_BACKWARD] = e->seg_first[SEG_WEIGHTS] = kept;
    for (int i = 0; i < n; i++)
        if (!stay[i])
            e->instrs.p[kept++] = old[i];
    free(s.needed);
    free(s.written);
    free(old);
    free(stay);
}
