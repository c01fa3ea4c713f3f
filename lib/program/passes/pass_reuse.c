/* Puts results in the place of operands that die.
 *
 * A value lives from the instruction that writes it to the last that touches it. An
 * instruction may write over an operand that dies there, where instr.def says OVER: then
 * both become one buffer. */
#include "program/passes/pass.h"

#include <stdlib.h>
#include <string.h>

static void touch(struct emit *e, int buffer, int i) {
    struct life *l = &e->lives.p[buffer];
    l->first = l->first < 0 ? i : l->first;
    l->last = i;
}

/* A buffer is also touched where a part of it is. */
static void find_lives(struct emit *e) {
    const int64_t n_buffers = e->buffers.n;
    if (e->lives.cap < n_buffers)
        e->lives.p =
            mem_grow(e->lives.p, (size_t)(e->lives.cap = n_buffers), sizeof *e->lives.p);
    memset(e->lives.p, -1, (size_t)n_buffers * sizeof *e->lives.p);
    for (int64_t i = 0; i < e->instrs.n; i++) {
        int b[INSTR_MAX_BUFFERS], n = instr_buffers(&e->instrs.p[i], b);
        for (int k = 0; k < n; k++) {
            touch(e, b[k], (int)i);
            touch(e, buffer_whole(e->buffers.p, b[k]), (int)i);
        }
    }
}

static int root(int *parent, int b) {
    while (parent[b] != b)
        b = parent[b] = parent[parent[b]];
    return b;
}

/* Lets results take the place of operands that die; parent[] says into which buffer each
 * went. Returns whether any was merged. */
static bool share_in_place(struct emit *e, int *parent) {
    const struct buffer *bufs = e->buffers.p;
    struct life *lives = e->lives.p;
    bool any = false;
    for (int64_t i = 0; i < e->instrs.n; i++) {
        struct instr *ins = &e->instrs.p[i];
        const struct instr_info *info = instr_info(ins->code);
        for (int k = 0; k < info->n_in; k++) {
            if (!(info->in[k].flags & OPERAND_OVER) || ins->in.v[k] < 0)
                continue;
            int out = root(parent, ins->out.v[0]), in = root(parent, ins->in.v[k]);
            if (in == out || bufs[in].part_of || bufs[out].part_of ||
                bufs[in].mem != MEM_temporaries || bufs[out].mem != MEM_temporaries ||
                lives[in].last != i || lives[out].first != i ||
                bufs[in].elems != bufs[out].elems ||
                dtype_size(bufs[in].dtype) != dtype_size(bufs[out].dtype))
                continue;
            parent[out] = in;
            lives[in].last = lives[out].last;
            any = true;
            break;
        }
    }
    return any;
}

static void rename_buffers(struct emit *e, int *parent) {
    for (int64_t i = 0; i < e->instrs.n; i++) {
        struct instr *ins = &e->instrs.p[i];
        for (int k = 0; k < INSTR_MAX_IN; k++)
            if (ins->in.v[k] >= 0)
                ins->in.v[k] = root(parent, ins->in.v[k]);
        for (int k = 0; k < INSTR_MAX_OUT; k++)
            if (ins->out.v[k] >= 0)
                ins->out.v[k] = root(parent, ins->out.v[k]);
    }
    for (int64_t b = 0; b < e->buffers.n; b++)
        if (e->buffers.p[b].part_of)
            e->buffers.p[b].part_of = 1 + root(parent, e->buffers.p[b].part_of - 1);
}

void pass_reuse(struct emit *e) {
    find_lives(e);
    int *parent = mem_array((size_t)e->buffers.n, sizeof *parent);
    for (int64_t i = 0; i < e->buffers.n; i++)
        parent[i] = (int)i;
    if (share_in_place(e, parent)) {
        for (int64_t i = 0; i < e->buffers.n; i++)
            if (parent[i] != i)
                e->buffers.p[i].mem = MEM_COUNT; /* merged away */
        rename_buffers(e, parent);
    }
    free(parent);
}
