/* cuda_compute.h - an instruction by its opcode: the function of cuda_impl.h that computes it. */
#ifndef WEFT_CUDA_COMPUTE_H
#define WEFT_CUDA_COMPUTE_H

#include "cuda/cuda_impl.h"

/* Calls cuda_ID, for the ID that `code` is. Returns what that does, or 1 where there is none: which functions
 * there are is the linker's to say. With c NULL nothing is called, and all but `code` is ignored. */
int cuda_compute(struct cuda_call *c, enum opcode code, const union instr_n *n,
                 const union instr_src *in, const union instr_dst *out);

#endif
