/* Operands, arithmetic and traffic of an instruction, from its shape: what instr.def says. */
#include "profile-op.h"

#include <string.h>

/* The update walks over all parameters of a stage: nothing that it reads is in a cache. */
static bool is_update(enum opcode code) {
    return code == I_fill || code == I_sum_squares || code == I_adamw || code == I_sgd;
}

void work_of(const struct enum_key *key, struct work *w) {
    const struct instr_info *info = instr_info(key->code);
    union instr_n n = {{0}};
    struct instr_work iw;
    memcpy(n.v, key->n, sizeof key->n);
    instr_work(key->code, &n, &iw);
    if (key->code == I_copy)
        iw.in[0] *= 2; /* every other run of the source is read */
    *w = (struct work){.ids = -1,
                       .n_in = info->n_in,
                       .n_out = info->n_out,
                       .flops = iw.flops,
                       .bytes = 4 * iw.touched,
                       .update = is_update(key->code)};
    for (int i = 0; i < info->n_in; i++) {
        w->in[i] = iw.in[i];
        w->footprint += 4 * iw.in[i];
        if (info->in[i].flags & OPERAND_IDS) {
            w->ids = i;
            w->n_ids = iw.below[i];
        }
        if (info->in[i].flags & OPERAND_OLD)
            w->old |= 1u << i;
    }
    for (int i = 0; i < info->n_out; i++) {
        w->out[i] = iw.out[i];
        w->footprint += 4 * iw.out[i];
        if (info->out[i].flags & OPERAND_OLD || w->update)
            w->old |= 1u << (i + 8);
    }
}
