/* cuda_attention_library.h - attention by cuDNN beside weft's own kernels.
 *
 * Weft's kernels do all (cuda_attention.c). Where a device has others too, these are asked first, and may
 * decline. Both say the logarithms of the sums in the same way, so one may do the forward pass and the other
 * the backward pass.
 */
#ifndef WEFT_CUDA_ATTENTION_LIBRARY_H
#define WEFT_CUDA_ATTENTION_LIBRARY_H

#include "cuda/cuda_attention.h"

/* Others that do attention. A call of run(): 0, -1, or 1 where they leave this one to weft's own kernels. The
 * job has been given its part of the workspace. */
struct cuda_attentions {
    int (*run)(struct cuda_call *c, const struct attention_job *job, bool backward);
};

/* cuDNN and weft's own kernels, the faster one (cuda_attention_pick.c); asked: cuDNN wherever it can, and an
 * error where the library is missing. It is opened with the first attention that it might do. */
struct cuda_attentions *cuda_attentions_create(bool asked, bool tunes);
void cuda_attentions_destroy(struct cuda_attentions *p);
/* What is known of attention, and hears what is found; NULL: nothing. Borrowed. */
struct cuda_choices;
void cuda_attentions_know(struct cuda_attentions *p, struct cuda_choices *choices);
/* From here on new attention is tried (operands are scratch), or is not. NULL: nothing to do. */
void cuda_attentions_tune(struct cuda_attentions *p, bool tunes);

/* cuda_attention.c: gives weft's own kernels to the call's stream. Returns 0 or -1. */
int cuda_attention_own(struct cuda_call *c, const struct attention_job *job, bool backward);
/* cuda_attention.c: do all rows lie on 16 bytes? */
bool cuda_attention_in_chunks(const struct attention_job *job);

#endif
