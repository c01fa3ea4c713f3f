/* instruction.h - any instruction of a GPU on a trial (../unit/trial.h), run by the emulator.
 *
 *     struct trial t;
 *     trial_begin(&t, I_layernorm, DTYPE_bf16, seed), trial_results(&t, -1);
 *     if (instruction(&call, t.code, &t) < 0) ...
 */
#ifndef WEFT_EMULATE_INSTRUCTION_H
#define WEFT_EMULATE_INSTRUCTION_H

#include "../unit/trial.h"
#include "cuda/cuda_impl.h"
#include "watch.h"

/* Those that are there: instructions that libraries of NVIDIA compute are not. */
#define ABSENT              __attribute__((weak))
#define CUDA_WEAK_SHAPE(id) extern ABSENT CUDA_FUNCTION(id);
#define CUDA_WEAK_CURVE(id) CUDA_WEAK_SHAPE(id)
#define CUDA_WEAK_FREE(id)
#define CUDA_WEAK_COMM(id)
#define CUDA_WEAK_P2P(id)
#define OPCODE(id, key, about) CUDA_WEAK_##key(id)
#include "program/instr.def"

#define CUDA_CASE_SHAPE(id)                                                                \
    case I_##id:                                                                           \
        if (!cuda_##id)                                                                    \
            return 1;                                                                      \
        return t ? cuda_##id(c, &t->n.id, &src.id, &dst.id) : 0;
#define CUDA_CASE_CURVE(id) CUDA_CASE_SHAPE(id)
#define CUDA_CASE_FREE(id)
#define CUDA_CASE_COMM(id)
#define CUDA_CASE_P2P(id)

/* 1 where there is no kernel; without a trial only that is said. */
static int instruction(struct cuda_call *c, enum opcode code, const struct trial *t) {
    union instr_src src = {{NULL}};
    union instr_dst dst = {{NULL}};
    for (int k = 0; t && k < t->info->n_in; k++)
        src.v[k] = t->in[k];
    for (int k = 0; t && k < t->info->n_out; k++)
        dst.v[k] = t->out[k];
    switch (code) {
#define OPCODE(id, key, about) CUDA_CASE_##key(id)
#include "program/instr.def"
    default: return 1;
    }
}

#endif
