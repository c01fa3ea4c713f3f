/* Routers of experts: which experts a token goes to, in which slot, and the router's losses.
 *
 * A token's choices are its largest logits, the lower expert first where two are equal; positions
 * are given out in the order of the tokens of a sample group, to all first choices before any
 * second one (Lepikhin et al., GShard, 2020). All is worked out again from the logits in the
 * backward pass: a row is a few dozen numbers. Probabilities stand in the thread's scratch. */
#include "device/cpu.h"
#include "kernel_impl.h"
#include "kernel_vec.h"

#include <math.h>
#include <string.h>

/* p = softmax(x); returns log(sum(exp(x))). */
static float softmax(int64_t n, const float *x, float *p) {
    vf top = v_set(-INFINITY), sum = v_set(0);
    for (int64_t j = 0; j < n; j += VL)
        top = v_max(top, v_load_or(x + j, n - j < VL ? n - j : VL, -INFINITY));
    float max = v_top(top);
    for (int64_t j = 0; j < n; j += VL) {
        int64_t lanes = n - j < VL ? n - j : VL;
        vf e = v_keep_or(v_exp(v_load_n(x + j, lanes) - max), lanes, 0);
        v_store_n(p + j, lanes, e);
        sum += e;
    }
    float all = v_sum(sum), scale = 1 / all;
    for (int64_t j = 0; j < n; j += VL) {
        int64_t lanes = n - j < VL ? n - j : VL;
        v_store_n(p + j, lanes, v_load_n(p + j, lanes) * scale);
    }
    return max + logf(all);
}

static bool among(const int32_t *list, int64_t n, int64_t x) {
    for (int64_t i = 0; i < n; i++)
        if (list[i] == x)
            return true;
    return false;
}

/* The largest of a row that is not chosen yet. */
static int32_t largest(int64_t n, const float *x, const int32_t *chosen, int64_t n_chosen) {
    int64_t best = -1;
    for (int64_t j = 0; j < n; j++)
        if ((best < 0 || x[j] > x[best]) && !among(chosen, n_chosen, j))
            best = j;
    return (int32_t)best;
}

/* ---- route -------------------------------------------------------------------------------- */

/* What gates of the probabilities of a token's choices are divided by. */
static float divisor(const struct route_n *n, const float *p, const int32_t *slots) {
    float sum = 0;
    for (int64_t c = 0; c < n->choices; c++)
        sum += p[slots[c] % n->experts];
    return n->normalize ? sum : 1;
}

/* Gates of these tokens, and their experts in the place of slots. */
static void choose(const struct route_n *n, int64_t first, int64_t end, const float *logits,
                   float *p, float *gates, int32_t *slots) {
    for (int64_t i = first; i < end; i++) {
        const float *x = logits + i * n->experts;
        int32_t *chosen = slots + i * n->choices;
        softmax(n->experts, x, p);
        for (int64_t c = 0; c < n->choices; c++)
            chosen[c] = largest(n->experts, x, chosen, c);
        float scale = 1 / divisor(n, p, chosen);
        for (int64_t c = 0; c < n->choices; c++)
            gates[i * n->choices + c] = p[chosen[c]] * scale;
    }
}

/* Positions in one group: experts become slots. */
static void take_slots(const struct route_n *n, int32_t *slots, int32_t *taken) {
    memset(taken, 0, (size_t)n->experts * sizeof *taken);
    for (int64_t c = 0; c < n->choices; c++)
        for (int64_t i = 0; i < n->tokens; i++) {
            int32_t *slot = &slots[i * n->choices + c], expert = *slot;
            *slot = taken[expert]++ * (int32_t)n->experts + expert;
        }
}

CPU_FUNCTION(route) {
    int32_t *slots = out->slots;
    int64_t rows = n->groups * n->tokens, each = n->tokens * n->choices;
    (void)a;
    KERNEL_SPLIT(
        rows, 1, rows * n->experts,
        choose(n, first, end, in->logits, kernel_scratch(thread), out->gates, slots));
    KERNEL_SPLIT(n->groups, 1, rows * n->choices, {
        for (int64_t g = first; g < end; g++)
            take_slots(n, slots + g * each, (int32_t *)kernel_scratch(thread));
    });
}

/* Gates are g = p / s of the chosen, s = 1 or their sum: dx = p (dp - sum p dp), dp = dg of the
 * chosen, and with the sum, whose other terms have no gradient, the same of g among them. */
static void route_row(const struct route_n *n, const float *x, const int32_t *slots,
                      const float *dgates, float *p, float *dx) {
    softmax(n->experts, x, p);
    float scale = 1 / divisor(n, p, slots), sum = 0;
    for (int64_t c = 0; c < n->choices; c++)
        sum += p[slots[c] % n->experts] * scale * dgates[c];
    for (int64_t j = 0; j < n->experts; j++)
        dx[j] = n->normalize ? 0 : -p[j] * sum;
    for (int64_t c = 0; c < n->choices; c++) {
        int64_t j = slots[c] % n->experts;
        dx[j] += p[j] * scale * (n->normalize ? dgates[c] - sum : dgates[c]);
    }
}

CPU_FUNCTION(route_dx) {
    const struct route_n shape = {n->groups,  n->tokens,    n->experts,
                                  n->choices, n->normalize, 0};
    const float *logits = in->logits, *dgates = in->dgates;
    const int32_t *slots = in->slots;
    float *dlogits = out->dlogits;
    int64_t rows = n->groups * n->tokens, k = n->choices;
    (void)a;
    KERNEL_SPLIT(rows, 1, rows * n->experts, {
        for (int64_t i = first; i < end; i++)
            route_row(&shape, logits + i * shape.experts, slots + i * k, dgates + i * k,
                      kernel_scratch(thread), dlogits + i * shape.experts);
    });
}

/* ---- losses ------------------------------------------------------------------------------- */

/* Sums that do not depend on the threads: each slice of the rows or groups has its own. */
static void add_metric(const struct device_args *a, enum metric metric,
                       const double slice[KERNEL_SLICES]) {
    double sum = 0;
    for (int s = 0; s < KERNEL_SLICES; s++)
        sum += slice[s];
    if (a->counts)
        a->scalars->metrics[metric] += sum * a->weight;
}

/* Experts x sum of the share of the group's tokens whose first choice an expert is (its load) times
 * its mean probability; 1 where all are alike. */
static double balance_group(int64_t tokens, int64_t experts, const float *logits, float *p,
                            double *mean, float *load) {
    double sum = 0;
    memset(mean, 0, (size_t)experts * sizeof *mean);
    memset(load, 0, (size_t)experts * sizeof *load);
    for (int64_t i = 0; i < tokens; i++) {
        const float *x = logits + i * experts;
        softmax(experts, x, p);
        for (int64_t j = 0; j < experts; j++)
            mean[j] += p[j];
        load[largest(experts, x, NULL, 0)] += 1;
    }
    for (int64_t j = 0; j < experts; j++) {
        load[j] /= (float)tokens;
        sum += load[j] * mean[j] / (double)tokens;
    }
    return (double)experts * sum;
}

CPU_FUNCTION(balance) {
    double slice[KERNEL_SLICES];
    const float *logits = in->logits;
    float *load = out->load;
    const int64_t experts = n->experts, tokens = n->tokens;
    KERNEL_SPLIT(KERNEL_SLICES, 1, n->groups * tokens * experts, {
        double *mean = (double *)kernel_scratch(thread);
        for (int64_t s = first; s < end; s++) {
            int64_t hi = kernel_cut(n->groups, 1, (int)s + 1, KERNEL_SLICES);
            slice[s] = 0;
            for (int64_t g = kernel_cut(n->groups, 1, (int)s, KERNEL_SLICES); g < hi; g++)
                slice[s] +=
                    balance_group(tokens, experts, logits + g * tokens * experts,
                                  (float *)(mean + experts), mean, load + g * experts);
        }
    });
    add_metric(a, METRIC_balance, slice);
}

CPU_FUNCTION(balance_dx) {
    const float *logits = in->logits;
    float *dlogits = out->dlogits;
    const int64_t rows = n->groups * n->tokens, experts = n->experts;
    const float scale =
        a->scale * a->scalars->loss_scale * (float)experts / (float)n->tokens;
    KERNEL_SPLIT(rows, 1, rows * experts, {
        float *p = kernel_scratch(thread);
        for (int64_t i = first; i < end; i++) {
            const float *load = (const float *)in->load + i / n->tokens * experts;
            float sum = 0, *dx = dlogits + i * experts;
            softmax(experts, logits + i * experts, p);
            for (int64_t j = 0; j < experts; j++)
                sum += load[j] * p[j];
            for (int64_t j = 0; j < experts; j++)
                dx[j] = scale * p[j] * (load[j] - sum);
        }
    });
}

CPU_FUNCTION(router_z) {
    double slice[KERNEL_SLICES];
    const float *logits = in->logits;
    (void)out;
    KERNEL_SPLIT(KERNEL_SLICES, 1, n->rows * n->experts, {
        float *p = kernel_scratch(thread);
        for (int64_t s = first; s < end; s++) {
            int64_t hi = kernel_cut(n->rows, 1, (int)s + 1, KERNEL_SLICES);
            slice[s] = 0;
            for (int64_t i = kernel_cut(n->rows, 1, (int)s, KERNEL_SLICES); i < hi; i++) {
                double z = softmax(n->experts, logits + i * n->experts, p);
                slice[s] += z * z;
            }
        }
    });
    add_metric(a, METRIC_router_z, slice);
}

CPU_FUNCTION(router_z_dx) {
    const float *logits = in->logits;
    float *dlogits = out->dlogits;
    KERNEL_SPLIT(n->rows, 1, n->rows * n->experts, {
        float *p = kernel_scratch(thread);
        for (int64_t i = first; i < end; i++) {
            float z = softmax(n->experts, logits + i * n->experts, p);
            for (int64_t j = 0; j < n->experts; j++)
                dlogits[i * n->experts + j] =
                    2 * a->scale * a->scalars->loss_scale * z * p[j];
        }
    });
}
