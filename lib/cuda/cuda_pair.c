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

/* ---- in a program ------------------------------------------------------------------------- */

static bool sum_is_normed(const struct instr *add, const struct instr *norm) {
    const bool whole = norm->code == I_layernorm
                           ? norm->n.layernorm.parts == 1
                           : norm->n.rmsnorm.total == norm->n.rmsnorm.n;
    return norm->in.v[0] == add->out.add.y && whole;
}

static bool gradient_is_added(const struct instr *norm, const struct instr *add) {
    return (add->in.add.a == norm->out.v[0]) != (add->in.add.b == norm->out.v[0]);
}

bool cuda_is_pair(const struct instr *a, const struct instr *b) {
    if (pair_of(a->code, b->code) < 0 || a->dtype != b->dtype)
        return false;
    switch (a->code) {
    case I_linear: return b->in.gelu.x == a->out.linear.y;
    case I_linear_dx:
        return b->in.gelu_dx.dy == a->out.linear_dx.dx &&
               b->out.gelu_dx.dx == a->out.linear_dx.dx;
    case I_add: return sum_is_normed(a, b);
    default: return gradient_is_added(a, b);
    }
}
