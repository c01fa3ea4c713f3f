/* Which instructions are pairs (cuda_pair.h). */
#include "cuda/cuda_pair.h"

static const struct {
    enum opcode first, second;
    bool (*fits)(const struct cuda_given *first, const struct cuda_given *second);
    int (*give)(struct cuda_call *c, const struct cuda_given *first,
                const struct cuda_given *second);
} pairs[] = {{I_linear, I_gelu, cuda_pair_gelu_fits, cuda_pair_gelu_give},
             {I_linear_dx, I_gelu_dx, cuda_pair_gelu_fits, cuda_pair_gelu_give},
             {I_add, I_layernorm, cuda_pair_norm_fits, cuda_pair_norm_give},
             {I_add, I_rmsnorm, cuda_pair_norm_fits, cuda_pair_norm_give},
             {I_layernorm_bwd, I_add, cuda_pair_norm_fits, cuda_pair_norm_give},
             {I_rmsnorm_bwd, I_add, cuda_pair_norm_fits, cuda_pair_norm_give}};
enum { PAIRS = sizeof pairs / sizeof *pairs };

bool cuda_pair_begins(enum opcode code) {
    for (int i = 0; i < PAIRS; i++)
        if (pairs[i].first == code)
            return true;
    return false;
}

/* Its row of the table, or -1. */
static int pair_of(enum opcode first, enum opcode second) {
    for (int i = 0; i < PAIRS; i++)
        if (pairs[i].first == first && pairs[i].second == second)
            return i;
    return -1;
}

bool cuda_pair_fits(const struct cuda_given *first, const struct cuda_given *second) {
    const int i = pair_of(first->code, second->code);
    return i >= 0 && first->args.dtype == second->args.dtype &&
           pairs[i].fits(first, second);
}

int cuda_pair_give(struct cuda_call *c, const struct cuda_given *first,
                   const struct cuda_given *second) {
    return pairs[pair_of(first->code, second->code)].give(c, first, second);
}
