/* One function per instruction, found by its opcode (cuda_compute.h). */
#include "cuda/cuda_compute.h"

#define CUDA_WEAK_SHAPE(id) CUDA_FUNCTION(id) __attribute__((weak));
#define CUDA_WEAK_CURVE(id) CUDA_WEAK_SHAPE(id)
#define CUDA_WEAK_PARTS(id) CUDA_WEAK_SHAPE(id)
#define CUDA_WEAK_FREE(id)
#define CUDA_WEAK_COMM(id)
#define CUDA_WEAK_P2P(id)
#define OPCODE(id, key, about) CUDA_WEAK_##key(id)
#include "program/instr.def"

#define CUDA_CASE_SHAPE(id)                                                                \
    case I_##id:                                                                           \
        if (!cuda_##id)                                                                    \
            return 1;                                                                      \
        return c ? cuda_##id(c, &n->id, &in->id, &out->id) : 0;
#define CUDA_CASE_CURVE(id) CUDA_CASE_SHAPE(id)
#define CUDA_CASE_PARTS(id) CUDA_CASE_SHAPE(id)
#define CUDA_CASE_FREE(id)
#define CUDA_CASE_COMM(id)
#define CUDA_CASE_P2P(id)

int cuda_compute(struct cuda_call *c, enum opcode code, const union instr_n *n,
                 const union instr_src *in, const union instr_dst *out) {
    switch (code) {
#define OPCODE(id, key, about) CUDA_CASE_##key(id)
#include "program/instr.def"
    default: return 1;
    }
}
