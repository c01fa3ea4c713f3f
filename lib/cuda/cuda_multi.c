/* Which instructions share a launch (cuda_multi.h): those of one opcode with the same numbers of the
 * optimizer, no two of which write one tensor. */
#include "cuda/cuda_multi.h"

int cuda_multi_give(struct cuda_multi *m, struct cuda_call *c) {
    const int count = m->count;
    if (!count)
        return 0;
    int rc = cuda_multi_launch(c, m);
    m->count = 0;
    return rc;
}

/* A list of this one alone; false where it is of another sort. */
static bool describe(struct cuda_multi *m, const struct cuda_call *c, enum opcode code,
                     const union instr_n *n, const union instr_src *in,
                     const union instr_dst *out) {
    const struct device_args *a = c->args;
    m->code = code;
    m->dtype = DTYPE_f32;
    m->scalars = a->scalars;
    m->count = 1;
    switch (code) {
    case I_sum_squares:
        m->tensor[0] = (struct cuda_multi_tensor){
            .n = n->sum_squares.elems, .g = in->sum_squares.g, .by = device_grad_factor(a)};
        m->count = a->counts;
        break;
    case I_adamw:
        m->beta1 = a->beta1, m->beta2 = a->beta2, m->eps = a->opt_eps;
        m->tensor[0] = (struct cuda_multi_tensor){.n = n->adamw.elems,
                                                  .g = in->adamw.g,
                                                  .p = out->adamw.p,
                                                  .m = out->adamw.m,
                                                  .v = out->adamw.v,
                                                  .decay = a->decay,
                                                  .by = device_grad_factor(a)};
        break;
    case I_narrow:
        m->dtype = a->dtype;
        m->scalars = NULL;
        m->tensor[0] = (struct cuda_multi_tensor){
            .n = n->narrow.elems, .p = (float *)in->narrow.x, .rounded = out->narrow.y};
        return dtype_is_half(a->dtype) && m->tensor[0].n > 0;
    default: return false;
    }
    m->count = m->tensor[0].n > 0 ? m->count : 0;
    return true;
}

static bool goes_with(const struct cuda_multi *m, const struct cuda_multi *one) {
    if (m->count == CUDA_MULTI_MOST || m->code != one->code || m->scalars != one->scalars)
        return false;
    if (m->code == I_narrow && m->dtype != one->dtype)
        return false;
    if (m->code == I_adamw &&
        (m->beta1 != one->beta1 || m->beta2 != one->beta2 || m->eps != one->eps))
        return false;
    const struct cuda_multi_tensor *t = one->tensor;
    for (int i = 0; i < m->count; i++)
        if ((t->p && m->tensor[i].p == t->p) ||
            (t->rounded && m->tensor[i].rounded == t->rounded))
            return false;
    return true;
}

/* Does it round what the last step made? */
static bool rounds_last(struct cuda_multi *m, const struct cuda_multi *one) {
    struct cuda_multi_tensor *last = m->tensor + m->count - 1;
    if (!m->count || m->code != I_adamw || one->code != I_narrow)
        return false;
    if (last->p != one->tensor->p || last->n != one->tensor->n || last->rounded ||
        (m->dtype != DTYPE_f32 && m->dtype != one->dtype))
        return false;
    last->rounded = one->tensor->rounded;
    m->dtype = one->dtype;
    return true;
}

int cuda_multi_take(struct cuda_multi *m, struct cuda_call *c, enum opcode code,
                    const union instr_n *n, const union instr_src *in,
                    const union instr_dst *out) {
    struct cuda_multi one;
    if (!describe(&one, c, code, n, in, out))
        return cuda_multi_give(m, c);
    if (!one.count || rounds_last(m, &one))
        return 1;
    if (m->count && goes_with(m, &one)) {
        m->tensor[m->count++] = one.tensor[0];
        return 1;
    }
    if (cuda_multi_give(m, c) < 0)
        return -1;
    *m = one;
    return 1;
}
