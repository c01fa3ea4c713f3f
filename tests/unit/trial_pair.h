/* trial_pair.h - two instructions, one behind the other: a product of a linear layer, and GELU of what it makes
 * or GELU's gradient in its place; a sum and the norm of it, or a norm's gradient and the sum of it and another in its
 * place; on random shapes, to be run on two devices and compared (trial.h).
 *
 *     struct trial_pair cpu, other;
 *     trial_pair_begin(&cpu, I_linear, DTYPE_bf16, false, seed);
 *     trial_pair_begin(&other, I_linear, DTYPE_bf16, false, seed); // the same
 *     trial_pair_on_cpu(&cpu);
 *     ... run other.first, then other.second on the other device ...
 *     double apart = trial_pair_distance(&other, &cpu);
 *     trial_pair_end(&cpu), trial_pair_end(&other);
 */
#ifndef WEFT_TEST_TRIAL_PAIR_H
#define WEFT_TEST_TRIAL_PAIR_H

#include "trial.h"

struct trial_pair {
    struct trial first, second;
    int between; /* which operand of the second is the first's result */
};

/* Other operands, for a shape that was changed. */
static void trial_reshape(struct trial *t) {
    instr_work(t->code, &t->n, &t->work);
    for (int k = 0; k < t->info->n_in; k++) {
        free(t->in[k]);
        if ((t->in[k] = trial_bytes(trial_in_bytes(t, k))))
            trial_fill(t, k);
    }
}

/* Elements of a row of what the first makes. Half of the seeds have rows as vectors want them. */
static int64_t *trial_pair_row(struct trial *first) {
    return first->code == I_linear ? &first->n.linear.n : &first->n.linear_dx.k;
}

/* code: linear or linear_dx. The gradient is always in place. */
__attribute__((unused)) static void trial_pair_begin(struct trial_pair *p, enum opcode code,
                                                     enum dtype dtype, bool in_place,
                                                     uint64_t seed) {
    struct trial *a = &p->first, *b = &p->second;
    trial_begin(a, code, dtype, seed);
    if (seed % 2)
        *trial_pair_row(a) = 8 * trial_pick(a, 1, 9);
    a->args.skip_bias = code == I_linear && rng_below(&a->rng, 4) == 0;
    trial_reshape(a);
    trial_results(a, -1);
    trial_begin(b, code == I_linear ? I_gelu : I_gelu_dx, dtype, seed);
    b->n.gelu.elems = a->n.linear.m * *trial_pair_row(a);
    trial_reshape(b);
    p->between = code == I_linear ? 0 : 1;
    free(b->in[p->between]);
    b->in[p->between] = a->out[0];
    trial_results(b, in_place || code == I_linear_dx ? p->between : -1);
}

/* Rows that are not split have no sums of other parts. */
static void trial_whole(struct trial *norm) {
    if (norm->code == I_layernorm)
        norm->n.layernorm.parts = 1;
    else if (norm->code == I_rmsnorm)
        norm->n.rmsnorm.total = norm->n.rmsnorm.n;
}

/* norm: layernorm or rmsnorm, which comes second, or the gradient of one, which comes first. */
__attribute__((unused)) static void trial_pair_residual(struct trial_pair *p,
                                                        enum opcode norm, enum dtype dtype,
                                                        uint64_t seed) {
    const bool forward = norm == I_layernorm || norm == I_rmsnorm;
    struct trial *t = forward ? &p->second : &p->first;
    struct trial *sum = forward ? &p->first : &p->second;
    trial_begin(t, norm, dtype, seed);
    trial_whole(t);
    trial_reshape(t);
    trial_begin(sum, I_add, dtype, seed);
    sum->n.add.elems = t->n.layernorm.rows * t->n.layernorm.n;
    trial_reshape(sum);
    trial_results(&p->first, -1);
    p->between = forward ? 0 : (int)(seed % 2);
    free(p->second.in[p->between]);
    p->second.in[p->between] = p->first.out[0];
    trial_results(&p->second, forward ? -1 : p->between);
}

static void trial_pair_end(struct trial_pair *p) {
    p->second.in[p->between] = NULL;
    trial_end(&p->second);
    trial_end(&p->first);
}

static void trial_pair_on_cpu(const struct trial_pair *p) {
    trial_on_cpu(&p->first);
    trial_on_cpu(&p->second);
}

/* Also of what is kept between them. */
static double trial_pair_distance(const struct trial_pair *got,
                                  const struct trial_pair *want) {
    return fmax(trial_distance(&got->first, &want->first),
                trial_distance(&got->second, &want->second));
}

#endif
