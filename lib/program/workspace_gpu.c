/* What instructions take of a GPU's workspace. Kernels are written to these numbers, and launch
 * refuses an instruction that takes more than was planned. */
#include "program/workspace.h"

int64_t workspace_gpu(enum opcode code, const union instr_n *n, enum dtype dtype) {
    (void)n, (void)dtype;
    switch (code) {
    case I_linear:
    case I_linear_dx:
    case I_linear_dw:
    case I_matmul:
    case I_matmul_dw: return WORKSPACE_GPU_PRODUCT;
    default: return 0;
    }
}

int64_t workspace_gpu_of(const struct program *g, int stage) {
    const struct plan *p = g->plan;
    const int group = p->stages[stage].group;
    int64_t most = 0;
    for (int k = p->first_chunk[group]; k < p->first_chunk[group + 1]; k++) {
        const struct stage_program *sp = &g->stages[p->chunks[k]];
        for (int i = 0; i < sp->n_instrs; i++) {
            const struct instr *ins = &sp->instrs[i];
            int64_t bytes = workspace_gpu(ins->code, &ins->n, ins->dtype);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}
