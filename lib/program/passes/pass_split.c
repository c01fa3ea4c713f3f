/* Splits the backward pass: what other stages wait for, and what only makes gradients of
 * weights.
 *
 * The backward segment has everything that leads to a message. The weight gradients have
 * the rest, in the same order, and run when the schedule has nothing better to do (Qi et
 * al., Zero Bubble Pipeline Parallelism, 2023). The memory plan keeps what they read until
 * then, like all that outlives a segment, except for parameters that were gathered: these
 * are re-all-gathered. An instruction also stays in the backward segment if a later one
 * there overwrites what it reads. */
#include "program/passes/pass.h"

#include <stdlib.h>
#include <string.h>

struct split {
    /* by buffer: read in the backward segment after the instruction at hand */
    bool *needed;
    bool *written; /* by buffer: written there */
    /* by buffer: the instruction there that gathers a parameter into it, or -1 */
    int *gather;
    int *gathered; /* by buffer: the one that it is re-all-gathered into, or -1 */
};

static bool overwrites_operand(enum opcode code) {
    return code == I_reduce_scatter; /* its operand is spoilt */
}

/* Whether the backward segment needs it, given what it already has after it. */
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

/* Another buffer with the parameter that the backward segment gathers into this one, if
 * any. */
static int gather_late(struct emit *e, struct split *s, const struct instr *old, int b) {
    if (s->gather[b] < 0 || s->gathered[b] >= 0)
        return s->gather[b] < 0 ? b : s->gathered[b];
    struct instr gather = old[s->gather[b]];
    gather.in.v[0] = gather_late(e, s, old, gather.in.v[0]);
    struct buffer made = e->buffers.p[b];
    arr_push(&e->buffers, made);
    gather.out.v[0] = s->gathered[b] = (int)e->buffers.n - 1;
    arr_push(&e->instrs, gather);
    return s->gathered[b];
}

static void push_late(struct emit *e, struct split *s, const struct instr *old,
                      struct instr ins) {
    for (int k = 0; k < INSTR_MAX_IN; k++)
        if (ins.in.v[k] >= 0)
            ins.in.v[k] = gather_late(e, s, old, ins.in.v[k]);
    arr_push(&e->instrs, ins);
}

/* Whether it is any instruction of a gather, which may have several steps, weave what
 * arrives, or round what is sent. */
static bool gathers(const struct instr *ins) {
    return ins->param >= 0 &&
           (ins->code == I_all_gather || ins->code == I_copy || ins->code == I_narrow);
}

static int *minus_ones(size_t n) {
    int *p = mem_array(n, sizeof *p);
    memset(p, -1, n * sizeof *p);
    return p;
}

/* Marks instructions from last to first, then divides them without changing their order. */
void pass_split(struct emit *e) {
    int first = e->seg_first[SEG_BACKWARD], n = (int)e->instrs.n - first;
    size_t buffers = (size_t)e->buffers.n;
    struct split s = {mem_array(buffers, sizeof *s.needed),
                      mem_array(buffers, sizeof *s.written), minus_ones(buffers),
                      minus_ones(buffers)};
    struct instr *old = mem_array((size_t)n, sizeof *old);
    bool *stay = mem_array((size_t)n, sizeof *stay);
    for (int i = n - 1; i >= 0; i--) {
        old[i] = e->instrs.p[first + i];
        stay[i] = stays(e, &s, &old[i]);
        if (stay[i])
            keep(&s, &old[i]);
        if (stay[i] && gathers(&old[i]))
            s.gather[old[i].out.v[0]] = i;
    }
    e->instrs.n = first;
    for (int i = 0; i < n; i++)
        if (stay[i])
            arr_push(&e->instrs, old[i]);
    emit_end_segment(e, SEG_BACKWARD);
    for (int i = 0; i < n; i++)
        if (!stay[i])
            push_late(e, &s, old, old[i]);
    emit_end_segment(e, SEG_WEIGHTS);
    free(s.needed);
    free(s.written);
    free(s.gather);
    free(s.gathered);
    free(old);
    free(stay);
}
