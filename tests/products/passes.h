/* passes.h - what lib/cuda does behind a product by kernels of its own, done by the CPU; for a test that links
 * no kernels. `passes` counts those that go over a matrix. Included once in a program. */
#ifndef WEFT_TESTS_PASSES_H
#define WEFT_TESTS_PASSES_H

#include "cuda/cuda_impl.h"
#include "device/cpu.h"

static int passes;

#define PASS(id, matrices)                                                                 \
    CUDA_FUNCTION(id) {                                                                    \
        const union instr_n all = {.id = *n};                                              \
        const union instr_src src = {.id = *in};                                           \
        const union instr_dst dst = {.id = *out};                                          \
        cpu_exec(I_##id, &all, &src, &dst, c->args);                                       \
        passes += matrices;                                                                \
        return 0;                                                                          \
    }
PASS(bias, 1)
PASS(bias_dw, 1)
PASS(gelu, 1)
PASS(gelu_dx, 1)
PASS(add, 0) /* of vectors */
#undef PASS

#endif
