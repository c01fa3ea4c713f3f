/* Routers of experts: which experts a token goes to, in which slot, and the router's losses.
 *
 * A token's choices are its largest logits, the lower expert first where two are equal; positions
 * are given out in the order of the tokens of a sample group, to all first choices before any
 * second one (Lepikhin et al., GShard, 2020). All is worked out again from the logits in the
 * backward pass: a row is a few dozen numbers. Probabilities stand in the thread's scratch. */
#include "device/cpu.h"
#include "kernel_impl.h"
#include "kernel_type.h"
#include "kernel_vec.h"

#include <math.h>
#include <string.h>

/* p = softmax(x); returns log(sum(exp(x))). */
static float softmax(int64_t n, const T *x, float *p) {
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

enum { ROUTE_MOST_PARTS = 32 }; /* groups of experts */

static bool among(const int32_t *list, int64_t n, int64_t x) {
    for (int64_t i = 0; i < n; i++)
        if (list[i] == x)
            return true;
    return false;
}

/* The largest of a row that is not chosen yet. */
static int32_t largest(int64_t n, const T *x, const int32_t *chosen, int64_t n_chosen) {
    int64_t best = -1;
    for (int64_t j = 0; j < n; j++)
        if ((best < 0 || get(x + j) > get(x + best)) && !among(chosen, n_chosen, j))
            best = j;
    return (int32_t)best;
}

/* The same of floats. */
static int32_t largest_of(int64_t n, const float *x, const int32_t *chosen,
                          int64_t n_chosen) {
    int64_t best = -1;
    for (int64_t j = 0; j < n; j++)
        if ((best < 0 || x[j] > x[best]) && !among(chosen, n_chosen, j))
            best = j;
    return (int32_t)best;
}

/* ---- route -------------------------------------------------------------------------------- */

/* What gates of the probabilities of a token's choices are divided by. Sigmoids may all vanish. */
static float divisor(const struct route_n *n, const float *p, const int32_t *slots) {
    float sum = n->sigmoid ? 1e-20f : 0;
    for (int64_t c = 0; c < n->choices; c++)
        sum += p[slots[c] % n->experts];
    return n->normalize ? sum : 1;
}

/* What a row's gates are made of: the softmax of its logits, or the sigmoid of each. */
static void score(const struct route_n *n, const T *x, float *p) {
    if (!n->sigmoid) {
        softmax(n->experts, x, p);
        return;
    }
    for (int64_t j = 0; j < n->experts; j++)
        p[j] = 1 / (1 + expf(-get(x + j)));
}

/* The sum of the best one or two of a group of experts. */
static float group_score(int64_t n, const float *key, int64_t best) {
    float first = -INFINITY, second = -INFINITY;
    for (int64_t j = 0; j < n; j++) {
        second = key[j] > first ? first : key[j] > second ? key[j] : second;
        first = key[j] > first ? key[j] : first;
    }
    return best > 1 ? first + second : first;
}

/* Leaves the keys of the groups that score best (DeepSeek-AI, DeepSeek-V2, 2024); others are never chosen. */
static void keep_groups(const struct route_n *n, float *key) {
    const int64_t each = n->experts / n->parts;
    float group[ROUTE_MOST_PARTS];
    int32_t kept[ROUTE_MOST_PARTS];
    for (int64_t g = 0; g < n->parts; g++)
        group[g] = group_score(each, key + g * each, n->best);
    for (int64_t k = 0; k < n->kept; k++)
        kept[k] = largest_of(n->parts, group, kept, k);
    for (int64_t j = 0; j < n->experts; j++)
        key[j] = among(kept, n->kept, j / each) ? key[j] : -INFINITY;
}

/* The choices of a row: by its logits, or where more counts by scores, in key[experts]. */
static void choose_row(const struct route_n *n, const T *x, const T *bias, const float *p,
                       float *key, int32_t *chosen) {
    if (!n->sigmoid && !n->parts && !bias) {
        for (int64_t c = 0; c < n->choices; c++)
            chosen[c] = largest(n->experts, x, chosen, c);
        return;
    }
    for (int64_t j = 0; j < n->experts; j++)
        key[j] = p[j] + (bias ? get(bias + j) : 0);
    if (n->parts)
        keep_groups(n, key);
    for (int64_t c = 0; c < n->choices; c++)
        chosen[c] = largest_of(n->experts, key, chosen, c);
}

/* Gates of these tokens, and their experts in the place of slots. */
static void choose(const struct route_n *n, int64_t first, int64_t end, float gain,
                   const struct route_src *in, float *p, T *gates, int32_t *slots) {
    for (int64_t i = first; i < end; i++) {
        const T *x = (const T *)in->logits + i * n->experts;
        int32_t *chosen = slots + i * n->choices;
        score(n, x, p);
        choose_row(n, x, in->bias, p, p + n->experts, chosen);
        float scale = gain / divisor(n, p, chosen);
        for (int64_t c = 0; c < n->choices; c++)
            put(gates + i * n->choices + c, p[chosen[c]] * scale);
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
    const float gain = a->scale;
    KERNEL_SPLIT(
        rows, 1, rows * n->experts,
        choose(n, first, end, gain, in, kernel_scratch(thread), out->gates, slots));
    KERNEL_SPLIT(n->groups, 1, rows * n->choices, {
        for (int64_t g = first; g < end; g++)
            take_slots(n, slots + g * each, (int32_t *)kernel_scratch(thread));
    });
}

/* Gates are g = p / s of the chosen, s = 1 or their sum: dx = p (dp - sum p dp), dp = dg of the
 * chosen, and with the sum, whose other terms have no gradient, the same of g among them. Of sigmoids dx =
 * p (1 - p) dp. All is multiplied by the gain. */
static void route_row(const struct route_n *n, float gain, const T *x, const int32_t *slots,
                      const T *dgates, float *p, T *dx) {
    score(n, x, p);
    float scale = 1 / divisor(n, p, slots), sum = 0, *slope = p + n->experts;
    for (int64_t c = 0; c < n->choices; c++)
        sum += p[slots[c] % n->experts] * scale * get(dgates + c);
    for (int64_t j = 0; j < n->experts; j++)
        slope[j] = n->normalize || n->sigmoid ? 0 : -p[j] * sum;
    for (int64_t c = 0; c < n->choices; c++) {
        int64_t j = slots[c] % n->experts;
        float d = p[j] * scale * (n->normalize ? get(dgates + c) - sum : get(dgates + c));
        slope[j] += n->sigmoid ? d * (1 - p[j]) : d;
    }
    for (int64_t j = 0; j < n->experts; j++)
        put(dx + j, gain * slope[j]);
}

CPU_FUNCTION(route_dx) {
    const struct route_n shape = {.groups = n->groups,
                                  .tokens = n->tokens,
                                  .experts = n->experts,
                                  .choices = n->choices,
                                  .normalize = n->normalize,
                                  .sigmoid = n->sigmoid};
    const T *logits = in->logits, *dgates = in->dgates;
    const int32_t *slots = in->slots;
    T *dlogits = out->dlogits;
    int64_t rows = n->groups * n->tokens, k = n->choices;
    const float gain = a->scale;
    KERNEL_SPLIT(rows, 1, rows * n->experts, {
        for (int64_t i = first; i < end; i++)
            route_row(&shape, gain, logits + i * shape.experts, slots + i * k,
                      dgates + i * k, kernel_scratch(thread), dlogits + i * shape.experts);
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

/* Of the tokens of a group: the share that chose an expert, and its mean probability. */
static void load_group(const struct expert_load_n *n, const T *logits, void *scratch,
                       float *load) {
    double *mean = scratch;
    float *p = (float *)(mean + n->experts), *share = load,
          *probability = load + n->experts;
    int32_t *chosen = (int32_t *)(p + n->experts);
    memset(mean, 0, (size_t)n->experts * sizeof *mean);
    memset(load, 0, 2 * (size_t)n->experts * sizeof *load);
    for (int64_t i = 0; i < n->tokens; i++) {
        const T *x = logits + i * n->experts;
        softmax(n->experts, x, p);
        for (int64_t j = 0; j < n->experts; j++)
            mean[j] += p[j];
        for (int64_t c = 0; c < n->choices; c++) {
            chosen[c] = largest(n->experts, x, chosen, c);
            share[chosen[c]] += 1;
        }
    }
    for (int64_t j = 0; j < n->experts; j++) {
        share[j] /= (float)n->tokens;
        probability[j] = (float)(mean[j] / (double)n->tokens);
    }
}

CPU_FUNCTION(expert_load) {
    const int64_t each = n->tokens * n->experts;
    (void)a;
    KERNEL_SPLIT(n->groups, 1, n->groups * each, {
        for (int64_t g = first; g < end; g++)
            load_group(n, (const T *)in->logits + g * each, kernel_scratch(thread),
                       (float *)out->load + g * 2 * n->experts);
    });
}

CPU_FUNCTION(expert_load_dx) {
    const T *logits = in->logits;
    T *dlogits = out->dlogits;
    const int64_t rows = n->groups * n->tokens, experts = n->experts;
    const float scale = 1 / (float)n->tokens;
    (void)a;
    KERNEL_SPLIT(rows, 1, rows * experts, {
        float *p = kernel_scratch(thread);
        for (int64_t i = first; i < end; i++) {
            const float *dp =
                (const float *)in->dload + (2 * (i / n->tokens) + 1) * experts;
            float sum = 0;
            T *dx = dlogits + i * experts;
            softmax(experts, logits + i * experts, p);
            for (int64_t j = 0; j < experts; j++)
                sum += dp[j] * p[j];
            for (int64_t j = 0; j < experts; j++)
                put(dx + j, scale * p[j] * (dp[j] - sum));
        }
    });
}

/* Sums of the loads of a group's parts. Probabilities have the sum 1 in each router's load: how many
 * loads there are is what they add up to. */
static double sum_loads(const struct balance_n *n, const float *load, double *sum) {
    double loads = 0;
    memset(sum, 0, 2 * (size_t)n->experts * sizeof *sum);
    for (int64_t i = 0; i < n->parts; i++)
        for (int64_t j = 0; j < 2 * n->experts; j++)
            sum[j] += load[i * 2 * n->experts + j];
    for (int64_t j = 0; j < n->experts; j++)
        loads += sum[n->experts + j];
    return fmax(1, round(loads));
}

/* Experts x sum of the share of the tokens that chose an expert times its mean probability; where
 * one choice of each counts, 1 is when all are alike. */
static double balance_group(const struct balance_n *n, const float *load, double *sum) {
    double loads = sum_loads(n, load, sum), products = 0;
    for (int64_t j = 0; j < n->experts; j++)
        products += sum[j] * sum[n->experts + j];
    return (double)n->experts * products / (loads * loads);
}

CPU_FUNCTION(balance) {
    double slice[KERNEL_SLICES];
    const int64_t each = 2 * n->parts * n->experts;
    (void)out;
    KERNEL_SPLIT(KERNEL_SLICES, 1, n->groups * each, {
        for (int64_t s = first; s < end; s++) {
            int64_t hi = kernel_cut(n->groups, 1, (int)s + 1, KERNEL_SLICES);
            slice[s] = 0;
            for (int64_t g = kernel_cut(n->groups, 1, (int)s, KERNEL_SLICES); g < hi; g++)
                slice[s] += balance_group(n, (const float *)in->load + g * each,
                                          (double *)kernel_scratch(thread));
        }
    });
    add_metric(a, METRIC_balance, slice);
}

static void balance_group_dx(const struct balance_n *n, float scale, const float *load,
                             double *sum, float *dload) {
    double loads = sum_loads(n, load, sum);
    for (int64_t i = 0; i < n->parts; i++)
        for (int64_t j = 0; j < n->experts; j++) {
            float *d = dload + i * 2 * n->experts + j;
            d[0] = 0;
            d[n->experts] = (float)(scale * (double)n->experts * sum[j] / (loads * loads));
        }
}

CPU_FUNCTION(balance_dx) {
    const struct balance_n shape = {n->groups, n->parts, n->experts, 0};
    const int64_t each = 2 * n->parts * n->experts;
    KERNEL_SPLIT(n->groups, 1, n->groups * each, {
        for (int64_t g = first; g < end; g++)
            balance_group_dx(&shape, a->scale * a->scalars->loss_scale,
                             (const float *)in->load + g * each,
                             (double *)kernel_scratch(thread),
                             (float *)out->dload + g * each);
    });
}

CPU_FUNCTION(router_z) {
    double slice[KERNEL_SLICES];
    const T *logits = in->logits;
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
    const T *logits = in->logits;
    T *dlogits = out->dlogits;
    KERNEL_SPLIT(n->rows, 1, n->rows * n->experts, {
        float *p = kernel_scratch(thread);
        for (int64_t i = first; i < end; i++) {
            float z = softmax(n->experts, logits + i * n->experts, p);
            for (int64_t j = 0; j < n->experts; j++)
                put(dlogits + i * n->experts + j,
                    2 * a->scale * a->scalars->loss_scale * z * p[j]);
        }
    });
}
