/* The least costs of ops on every number of devices, with every dual of a byte (see
 * bound_impl.h). */
#include "search/bound/bound_impl.h"

#include <math.h>
#include <stdlib.h>

/* Counts how many ops of the model each op of the deduplicated model stands for. */
static void count_ops(struct relaxed *r) {
    const struct blocks *g = &r->ev->space->blocks;
    for (int i = 0; i < g->s.n_ops; i++)
        r->weight[g->x.of[i]]++;
    r->repeated = mem_array((size_t)g->s.n_repeats + 1, sizeof *r->repeated);
    for (int k = 0; k < g->s.n_repeats; k++) {
        int second = g->x.of[g->s.repeats[k].first + g->s.repeats[k].period];
        if (r->weight[second] > 1) {
            r->repeated[r->n_stretches].first = second;
            r->repeated[r->n_stretches++].end = second + g->s.repeats[k].period;
        }
    }
}

static void find_sizes(struct relaxed *r) {
    int most = r->most_size ? r->most_size : r->ev->space->p.devices;
    for (int c = 0; c < r->classes->n; c++)
        for (int d = 1; d <= most; d++)
            if (op_bounds_of_use(r->classes->of[c].op_bounds, r->micro_batch, d)) {
                r->class[r->n_sizes] = c;
                r->sizes[r->n_sizes++] = d;
            }
}

/* Where more devices are of no use, a group counts as one without the superfluous
 * factors. */
static void count_as(struct relaxed *r) {
    for (int d = 1; d <= r->ev->space->p.devices; d++)
        for (int k = 0; k < r->n_sizes && r->sizes[k] <= d && !r->class[k]; k++)
            r->size_of[d] = d % r->sizes[k] ? r->size_of[d] : k;
}

/* Finds how many devices of the first class one device of each class is worth, by the
 * time of all ops on it. Any numbers give a valid bound; these give a good one. */
static void find_shares(struct relaxed *r, const struct op_bound *ops) {
    double us[CLUSTER_MAX_GROUPS] = {0};
    r->devices = 0;
    for (int k = 0; k < r->n_sizes; k++) {
        double *sum = &us[r->class[k]];
        for (int i = 0; i < r->n_ops && r->sizes[k] == 1; i++)
            *sum += r->weight[i] * op_bound_least(&ops[k * r->n_ops + i], r->m, 1, 0);
        bool known = isfinite(us[0]) && isfinite(*sum) && us[0] > 0 && *sum > 0;
        double each = r->class[k] && known ? us[0] / *sum : 1;
        r->share[k] = each * r->sizes[k];
        if (r->sizes[k] == 1)
            r->devices += each * r->classes->of[r->class[k]].devices;
    }
}

/* Uses 1, 2, 3, 4, 6, 8, 12, 16, 32 ... flights; other numbers count as the next
 * smaller one. */
static void find_flights(struct relaxed *r) {
    double most = fmin(r->groups, r->m);
    r->flights[r->n_flights++] = 1;
    for (int n = 2;
         n <= most && r->ev->space->p.memory_bytes && r->n_flights < MOST_FLIGHTS;
         n += n & (n - 1) ? n / 3
              : n < 16    ? (n + 1) / 2
                          : n)
        r->flights[r->n_flights++] = n;
}

int flight_at(const struct relaxed *r, int groups_behind) {
    int k = 0;
    while (k + 1 < r->n_flights && r->flights[k + 1] <= groups_behind + 1)
        k++;
    return k;
}

/* Sets the duals of a byte in proportion to an even share of the work, because a good
 * plan's step takes little longer than that. */
static void find_duals(struct relaxed *r, const struct op_bound *least) {
    double us = 0, memory = (double)r->ev->space->p.memory_bytes;
    for (int i = 0; i < r->n_ops; i++)
        us += r->weight[i] * op_bound_least(&least[i], r->m, 1, 0);
    us /= r->ev->space->p.devices;
    r->n_duals = memory > 0 ? BYTE_DUALS : 1;
    for (int k = 1; k < r->n_duals; k++)
        r->byte_dual[k] = us / memory * ldexp(1, k - 7);
}

/* Fills all costs; returns false if some op cannot be done on any number of devices. */
static bool find_costs(struct relaxed *r) {
    size_t n = (size_t)r->n_ops;
    struct op_bound *ops = mem_array(n * (size_t)r->n_sizes, sizeof *ops);
    bool any = true;
    for (int d = 0; d < r->n_sizes; d++)
        for (int i = 0; i < r->n_ops; i++)
            ops[(size_t)d * n + (size_t)i] =
                budget_out_of_time(r->ev->budget)
                    ? (struct op_bound){0}
                    : op_bounds_at(r->classes->of[r->class[d]].op_bounds, i, r->micro_batch,
                                   r->sizes[d]);
    find_shares(r, ops);
    find_duals(r, ops);
    r->cost =
        mem_array((size_t)(r->n_sizes * r->n_flights * r->n_duals) * n, sizeof *r->cost);
    r->forward = mem_array((size_t)r->n_sizes * n, sizeof *r->forward);
    r->micro = mem_array((size_t)r->n_sizes * n, sizeof *r->micro);
    for (size_t i = 0; i < (size_t)r->n_sizes * n; i++) {
        r->forward[i] = ops[i].n ? ops[i].forward_us : 0;
        r->micro[i] = INFINITY;
        for (int k = 0; k < ops[i].n; k++)
            r->micro[i] = fmin(r->micro[i], ops[i].strategies[k].us);
    }
    for (int d = 0; d < r->n_sizes; d++)
        for (int f = 0; f < r->n_flights; f++)
            for (int k = 0; k < r->n_duals; k++)
                for (int i = 0; i < r->n_ops; i++)
                    costs_at(r, d, f, k)[i] =
                        op_bound_least(&ops[(size_t)d * n + (size_t)i], r->m, r->flights[f],
                                       r->byte_dual[k]);
    for (int i = 0; i < r->n_ops; i++) {
        bool some = false;
        for (int d = 0; d < r->n_sizes; d++)
            some |= isfinite(costs_at(r, d, 0, 0)[i]);
        any &= some;
    }
    free(ops);
    return any;
}

/* ---- sums -------------------------------------------------------------------------------- */

/* The k-th repeat's second instance stands for all instances that the deduplicated
 * model leaves out. */
struct sums sums_make(const struct relaxed *r, const double *of_op) {
    const struct structure *st = &r->ev->space->blocks.s;
    const int *x_of = r->ev->space->blocks.x.of;
    struct sums out;
    double sum = 0;
    int k = 0;
    out.until = mem_array((size_t)(r->n_ops + 1 + st->n_repeats), sizeof *out.until);
    out.instance = out.until + r->n_ops + 1;
    for (int i = 0; i < r->n_ops; i++) {
        out.until[i] = sum;
        sum += of_op[i];
        for (; k < st->n_repeats; k++) {
            const struct repeat *repeat = &st->repeats[k];
            int second = x_of[repeat->first + repeat->period],
                end = second + repeat->period;
            out.instance[k] += i >= second && i < end ? of_op[i] : 0;
            if (i == end - 1)
                sum += (r->weight[i] - 1) * out.instance[k];
            if (i < end)
                break;
        }
    }
    out.until[r->n_ops] = sum;
    return out;
}

void sums_write_out(const struct relaxed *r, const double *of_op, double *to) {
    struct sums sums = sums_make(r, of_op);
    for (int i = 0; i <= r->ev->space->blocks.s.n_ops; i++)
        to[i] = sums_before(r, &sums, i);
    sums_release(&sums);
}

static void find_places(struct relaxed *r) {
    const struct blocks *g = &r->ev->space->blocks;
    r->places = mem_array((size_t)g->s.n_ops + 1, sizeof *r->places);
    for (int i = 0; i < g->s.n_ops; i++) {
        int run = g->s.repeat_of[i], x = g->x.of[i];
        int instance = run >= 0 ? structure_instance(&g->s, i) : 0;
        bool repeated = instance > 0 && r->weight[x] > 1;
        r->places[i] =
            (struct place){x, repeated ? run : 0, repeated ? (double)instance - 1 : 0};
    }
    r->places[g->s.n_ops].x = r->n_ops;
}

bool relaxed_make(struct relaxed *r) {
    r->n_ops = r->ev->space->blocks.x.model->n_ops;
    r->weight = mem_array((size_t)r->n_ops, sizeof *r->weight);
    count_ops(r);
    find_places(r);
    find_sizes(r);
    count_as(r);
    find_flights(r);
    return find_costs(r);
}

void relaxed_release(struct relaxed *r) {
    free(r->repeated);
    free(r->lines);
    free(r->cost);
    free(r->forward);
    free(r->micro);
    free(r->weight);
    free(r->places);
}
