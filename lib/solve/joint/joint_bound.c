/* joint_bound.c - how many devices some nodes need at least, by time and memory at once.
 *
 * A stage with degrees t and d has time >= sum p / d and memory >= sum a + b on each of its
 * n = t d devices (at least one micro-batch is in flight). So for every mu >= 0
 *
 *   sum over its nodes of  t (p + mu (a + b))  <=  n (T + mu capacity),
 *
 * and with q_v = the least t (p + mu (a + b)) of a node, whatever is left over needs at
 * least sum q / (T + mu capacity) devices. Where memory binds, a node may take the
 * alternative that is fast or the one that is lean, not both, and mu says so. Over all
 * nodes this bounds T: the mu that bounds it best is the first measure; time alone and
 * memory alone are the other two.
 *
 * What stands in front of stages with sum s of data degrees has more in flight: d y >= s + d,
 * so its nodes count with t (p + mu (a y + b)) at y = s + 1. These are concave in y; sums at
 * y = 1, 2, 4, ... bound all between them by chords, with a mu for each pair of neighbours.
 */
#include "solve/joint/joint.h"

#include <math.h>
#include <stdlib.h>

static double weight(const struct joint_problem *p, int v, double time, double memory,
                     double y) {
    const struct joint_node *n = &p->node[v];
    double least = INFINITY;
    for (int g = 0; g < p->num_degrees; g++)
        for (int c = n->first[g]; c < n->first[g + 1]; c++) {
            const struct joint_choice *x = &n->choices[c];
            least = fmin(least, p->degrees[g] * (time * x->p + memory * (x->a * y + x->b)));
        }
    return least;
}

static void measure(struct joint_measure *m, const struct joint_problem *p, double time,
                    double memory) {
    m->time = time;
    m->memory = memory;
    m->total = 0;
    for (int v = 0; v < p->nodes; v++) {
        m->q[v] = weight(p, v, time, memory, 1);
        m->total += m->q[v];
    }
}

/* Returns the T below which the devices cannot hold everything at this mu. */
static double least_time(const struct joint_problem *p, double mu) {
    double total = 0;
    for (int v = 0; v < p->nodes; v++)
        total += weight(p, v, 1, mu, 1);
    return total / p->devices - mu * p->capacity;
}

/* Finds the best mu: the bound is concave in it, so the best is enclosed and then found
 * by sections. */
static double best_mu(const struct joint_problem *p, double scale) {
    double lo = 0, hi = scale;
    for (int i = 0; i < 60 && least_time(p, hi) > least_time(p, hi / 2); i++)
        hi *= 2;
    for (int i = 0; i < 80; i++) {
        double a = lo + (hi - lo) / 3, b = hi - (hi - lo) / 3;
        if (least_time(p, a) < least_time(p, b))
            lo = a;
        else
            hi = b;
    }
    return lo + (hi - lo) / 2;
}

/* Finds the mu at which all nodes with y in flight need the most devices at T; that
 * number is quasi-concave in mu. */
static double mu_against(const struct joint_problem *p, double y, double T, double scale) {
    double lo = -20, hi = 20; /* powers of two of the scale */
    for (int i = 0; i < 60; i++) {
        double need[2], at[2] = {lo + (hi - lo) / 3, hi - (hi - lo) / 3};
        for (int j = 0; j < 2; j++) {
            double mu = scale * exp2(at[j]);
            need[j] = 0;
            for (int v = 0; v < p->nodes; v++)
                need[j] += weight(p, v, 1, mu, y);
            need[j] /= T + mu * p->capacity;
        }
        if (need[0] < need[1])
            lo = at[0];
        else
            hi = at[1];
    }
    return scale * exp2(lo);
}

/* Makes the columns: per pair of y both ends with their mu, then memory at each y. */
static void make_columns(struct joint_bound *b, const struct joint_problem *p) {
    for (b->num_y = 2; 1 << (b->num_y - 1) < p->limit_s;)
        b->num_y++;
    b->width = 3 * b->num_y - 2;
    b->mu = mem_array((size_t)b->num_y, sizeof *b->mu);
    b->column = mem_array((size_t)p->nodes * (size_t)b->width, sizeof *b->column);
    for (int i = 0; i + 1 < b->num_y && b->value > 0 && isfinite(b->value); i++)
        b->mu[i] = mu_against(p, ldexp(1, i), b->value, b->value / p->capacity);
    for (int v = 0; v < p->nodes; v++) {
        double *at = b->column + (int64_t)v * b->width;
        for (int i = 0; i + 1 < b->num_y; i++) {
            at[2 * i] = weight(p, v, 1, b->mu[i], ldexp(1, i));
            at[2 * i + 1] = weight(p, v, 1, b->mu[i], ldexp(1, i + 1));
        }
        for (int i = 0; i < b->num_y; i++)
            at[2 * (b->num_y - 1) + i] = weight(p, v, 0, 1, ldexp(1, i));
    }
}

/* Returns the greatest data degree on n devices. */
static int most_data(const struct joint_problem *p, int n) {
    int d = n < p->limit_s ? n : p->limit_s;
    d = d < p->max_data ? d : p->max_data;
    while (p->samples % d)
        d--;
    return d;
}

/* Returns the least time of a node alone with all devices; its time is linear in 1 / d. */
static double lone_time(const struct joint_problem *p, int v) {
    const struct joint_node *n = &p->node[v];
    double fastest = INFINITY, sync = joint_sync_factor(p);
    for (int g = 0; g < p->num_degrees; g++) {
        int d = most_data(p, p->devices / p->degrees[g]);
        for (int c = n->first[g]; c < n->first[g + 1]; c++) {
            const struct joint_choice *x = &n->choices[c];
            if (x->a + x->b <= p->capacity)
                fastest = fmin(fastest, fmin(x->p, (x->p + sync * (d - 1) * x->w) / d));
        }
    }
    return fastest;
}

static void bound_time(struct joint_bound *b, const struct joint_problem *p) {
    double mu = best_mu(p, b->m[1].total / p->devices / p->capacity);
    if (!(least_time(p, mu) > least_time(p, 0)))
        mu = 0;
    measure(&b->m[0], p, 1, mu);
    b->value = fmax(0, least_time(p, mu) - 1e-12 * b->m[0].total / p->devices);
    for (int v = 0; v < p->nodes; v++)
        b->value = fmax(b->value, lone_time(p, v) * (1 - 1e-12));
}

void joint_bound_init(struct joint_bound *b, const struct joint_problem *p) {
    *b = (struct joint_bound){0};
    for (int i = 0; i < JOINT_MEASURES; i++)
        b->m[i].q = mem_array((size_t)p->nodes, sizeof *b->m[i].q);
    measure(&b->m[0], p, 1, 0);
    measure(&b->m[1], p, 1, 0);
    measure(&b->m[2], p, 0, 1);
    b->value = INFINITY;
    if (b->m[2].total <= p->capacity * p->devices * (1 + 1e-9))
        bound_time(b, p);
    make_columns(b, p);
}

void joint_bound_release(struct joint_bound *b) {
    for (int i = 0; i < JOINT_MEASURES; i++)
        free(b->m[i].q);
    free(b->mu);
    free(b->column);
    *b = (struct joint_bound){0};
}

struct joint_need joint_need_at(const struct joint_bound *b, const struct joint_problem *p,
                                int64_t y, double T) {
    int i = 63 - __builtin_clzll((uint64_t)y);
    i = i < b->num_y - 1 ? i : b->num_y - 2;
    double f = fmin(1, (double)(y - (INT64_C(1) << i)) / (double)(INT64_C(1) << i));
    return (struct joint_need){2 * i, 2 * (b->num_y - 1) + i, f,
                               1 / (T + b->mu[i] * p->capacity), 1 / p->capacity};
}
