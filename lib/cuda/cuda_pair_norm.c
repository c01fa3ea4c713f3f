/* A sum and its norm, or a norm's gradient and its sum with another (cuda_pair.h), in one pass over memory:
 * most norms of a transformer follow the sum of a residual, whose gradient is added to theirs. */
#include "cuda/cuda_norm.h"
#include "cuda/cuda_pair.h"

/* Kernels move as many bytes at once; the norm alone sums up in this order where all it has lies so. */
enum { VECTOR_BYTES = 16 };

static bool lies_well(const void *p) {
    return (uintptr_t)p % VECTOR_BYTES == 0;
}

/* A thread reads an element before it writes there. */
static bool same_or_disjoint(const void *a, const void *b, int64_t bytes) {
    return a == b || cuda_disjoint(a, bytes, b, bytes);
}

static int64_t in_bytes(const struct cuda_given *g, const struct instr_work *w, int k) {
    return w->in[k] * dtype_size(operand_dtype(&instr_info(g->code)->in[k], g->args.dtype));
}

static int64_t out_bytes(const struct cuda_given *g, const struct instr_work *w, int k) {
    return w->out[k] *
           dtype_size(operand_dtype(&instr_info(g->code)->out[k], g->args.dtype));
}

/* Are all columns of a row here? */
static bool is_whole(const struct cuda_given *norm) {
    return norm->code == I_layernorm ? norm->n.layernorm.parts == 1
                                     : norm->n.rmsnorm.total == norm->n.rmsnorm.n;
}

/* What is summed up may be nobody's behind the sum, so the norm's results may lie there. */
static bool fits_forward(const struct cuda_given *add, const struct cuda_given *norm) {
    const struct add_src *in = &add->in.add;
    const void *x = norm->in.v[0], *y = norm->out.v[0], *stat = norm->out.v[1];
    struct instr_work w;
    instr_work(norm->code, &norm->n, &w);
    const int64_t bytes = in_bytes(norm, &w, 0), of_stat = out_bytes(norm, &w, 1);
    return x == add->out.add.y && w.in[0] == add->n.add.elems && is_whole(norm) &&
           lies_well(x) && lies_well(in->a) && lies_well(in->b) &&
           same_or_disjoint(y, in->a, bytes) && same_or_disjoint(y, in->b, bytes) &&
           cuda_disjoint(stat, of_stat, in->a, bytes) &&
           cuda_disjoint(stat, of_stat, in->b, bytes);
}

/* What is added to the gradient; NULL: it is no such sum. */
static const void *other_of(const struct cuda_given *add, const void *dx) {
    const struct add_src *in = &add->in.add;
    return in->a == dx ? in->b : in->b == dx ? in->a : NULL;
}

/* The sum may lie where the norm's operands do that are as large. What is added is read before gradients of
 * other rows are written. */
static bool fits_backward(const struct cuda_given *norm, const struct cuda_given *add) {
    const struct instr_info *info = instr_info(norm->code);
    const void *dx = norm->out.v[0], *y = add->out.add.y, *g = other_of(add, dx);
    struct instr_work w;
    instr_work(norm->code, &norm->n, &w);
    const int64_t bytes = out_bytes(norm, &w, 0);
    if (!g || w.out[0] != add->n.add.elems || !lies_well(dx) || !lies_well(g) ||
        !lies_well(y) || !same_or_disjoint(y, dx, bytes))
        return false;
    for (int k = 0; k < info->n_in; k++) {
        const int64_t size = in_bytes(norm, &w, k);
        if (!cuda_disjoint(y, bytes, norm->in.v[k], size) &&
            (y != norm->in.v[k] || size != bytes))
            return false;
    }
    for (int k = 0; k < info->n_out; k++)
        if (!cuda_disjoint(g, bytes, norm->out.v[k], out_bytes(norm, &w, k)) ||
            (k > 0 && !cuda_disjoint(y, bytes, norm->out.v[k], out_bytes(norm, &w, k))))
            return false;
    return true;
}

bool cuda_pair_norm_fits(const struct cuda_given *first, const struct cuda_given *second) {
    return first->code == I_add ? fits_forward(first, second)
                                : fits_backward(first, second);
}

int cuda_pair_norm_give(struct cuda_call *c, const struct cuda_given *first,
                        const struct cuda_given *second) {
    const bool forward = first->code == I_add;
    const struct cuda_given *norm = forward ? second : first,
                            *add = forward ? first : second;
    const void *g = forward ? NULL : other_of(add, norm->out.v[0]);
    struct cuda_call own = *c;
    own.args = &norm->args;
    int rc;
    switch (norm->code) {
    case I_layernorm:
        rc = cuda_add_layernorm(&own, &norm->n.layernorm, &add->in.add, &norm->in.layernorm,
                                &norm->out.layernorm);
        break;
    case I_rmsnorm:
        rc = cuda_add_rmsnorm(&own, &norm->n.rmsnorm, &add->in.add, &norm->in.rmsnorm,
                              &norm->out.rmsnorm);
        break;
    case I_layernorm_bwd:
        rc = cuda_layernorm_bwd_add(&own, &norm->n.layernorm_bwd, &norm->in.layernorm_bwd,
                                    &norm->out.layernorm_bwd, g, add->out.add.y);
        break;
    default:
        rc = cuda_rmsnorm_bwd_add(&own, &norm->n.rmsnorm_bwd, &norm->in.rmsnorm_bwd,
                                  &norm->out.rmsnorm_bwd, g, add->out.add.y);
    }
    return rc < 0 ? -1 : 1;
}
