/* joint_curve.c - least memory, and least time + mu memory, against micro-batches in flight.
 *
 * With y micro-batches in flight an alternative takes a y + b. The least of these per node,
 * and the least of p + mu (a y + b) for a fixed mu, are concave in y, and so are their sums:
 * between two values of y they are no less than the chord. So sums at y = 1, 2, 4, 8, ...
 * bound them for all y, and as sums over down-sets they bound a stage by subtraction. For
 * any mu, time >= sum (p + mu (a y + b)) - mu capacity of a stage that fits. A few mu per
 * pair of neighbouring y are taken from the rates at which the nodes trade time for memory.
 */
#include "solve/joint/joint.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#define MOST_BYTES (INT64_C(96) << 20) /* bytes for all curves of a table */

static int by_value(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Picks n multipliers from the seconds per byte that the alternatives offer at y, evenly
 * spread. */
static void pick_mu(const struct joint_problem *p, int g, double y, int n, double *mu) {
    ARR(double) rate = {0};
    for (int v = 0; v < p->nodes; v++) {
        const struct joint_node *node = &p->node[v];
        for (int i = node->first[g]; i < node->first[g + 1]; i++)
            for (int j = node->first[g]; j < node->first[g + 1]; j++) {
                const struct joint_choice *x = &node->choices[i], *z = &node->choices[j];
                double dt = z->p - x->p, dm = (x->a - z->a) * y + x->b - z->b;
                if (dt > 0 && dm > 0)
                    arr_push(&rate, dt / dm);
            }
    }
    if (rate.n)
        qsort(rate.p, (size_t)rate.n, sizeof *rate.p, by_value);
    for (int i = 0; i < n; i++)
        mu[i] = rate.n ? rate.p[(2 * i + 1) * rate.n / (2 * n)] : 0;
    arr_release(&rate);
}

/* Returns the least of time p + memory (a y + b) of a node, at most `cap`. */
static double least(const struct joint_problem *p, int v, int g, double y, double time,
                    double memory, double cap) {
    const struct joint_node *n = &p->node[v];
    for (int c = n->first[g]; c < n->first[g + 1]; c++) {
        const struct joint_choice *x = &n->choices[c];
        cap = fmin(cap, time * x->p + memory * (x->a * y + x->b));
    }
    return cap;
}

/* Computes what one node adds to the columns. */
static void node_columns(const struct joint_table *t, int v, int g, double cap,
                         double *column) {
    const struct joint_curve *c = &t->curve;
    for (int i = 0; i < c->num_y; i++)
        column[i] = least(t->p, v, g, ldexp(1, i), 0, 1, 2 * t->p->capacity);
    for (int i = 0; i + 1 < c->num_y; i++)
        for (int j = 0; j < c->num_mu; j++) {
            double mu = c->mu[(g * c->num_y + i) * c->num_mu + j];
            double *at = column + c->num_y + 2 * (i * c->num_mu + j);
            at[0] = least(t->p, v, g, ldexp(1, i), 1, mu, cap);
            at[1] = least(t->p, v, g, ldexp(1, i + 1), 1, mu, cap);
        }
}

static void sum_columns(struct joint_table *t, int g, double cap) {
    struct joint_curve *c = &t->curve;
    const struct joint_problem *p = t->p;
    size_t width = (size_t)c->width;
    double *node = mem_array((size_t)p->nodes * width, sizeof *node);
    double unit = 4 * DBL_EPSILON * (p->nodes + 8);
    for (int v = 0; v < p->nodes; v++) {
        node_columns(t, v, g, cap, node + (size_t)v * width);
        for (size_t i = 0; i < width; i++) {
            double *slack = i < (size_t)c->num_y ? &c->slack_memory : &c->slack_time;
            *slack += unit * node[(size_t)v * width + i];
        }
    }
    for (int i = 0; i < t->n && !joint_stopped(p); i++) {
        double *sum = c->sum + ((size_t)g * (size_t)t->n + (size_t)i) * width;
        for (int v = 0; v < p->nodes; v++)
            for (size_t k = 0; k < width && joint_has(t->bits + (int64_t)i * t->words, v);
                 k++)
                sum[k] += node[(size_t)v * width + k];
    }
    free(node);
}

/* As many multipliers are used as memory allows; there are no curves where even y alone
 * is too much. */
void joint_curve_init(struct joint_table *t, double cap) {
    struct joint_curve *c = &t->curve;
    const struct joint_problem *p = t->p;
    int64_t each = (int64_t)sizeof *c->sum * p->num_degrees * t->n;
    for (c->num_y = 1; 1 << (c->num_y - 1) < p->limit_s;)
        c->num_y++;
    for (c->num_mu = 6; c->num_mu >= 0; c->num_mu--) {
        c->width = c->num_y + 2 * (c->num_y - 1) * c->num_mu;
        if (c->width * each <= MOST_BYTES)
            break;
    }
    if (c->num_mu < 0) {
        c->num_y = c->num_mu = 0;
        return;
    }
    c->mu = mem_array((size_t)(p->num_degrees * c->num_y * c->num_mu) + 1, sizeof *c->mu);
    for (int g = 0; g < p->num_degrees; g++)
        for (int i = 0; i + 1 < c->num_y; i++)
            pick_mu(p, g, ldexp(1, i + 1), c->num_mu,
                    c->mu + (g * c->num_y + i) * c->num_mu);
    c->sum =
        mem_array((size_t)t->n * (size_t)p->num_degrees * (size_t)c->width, sizeof *c->sum);
    for (int g = 0; g < p->num_degrees; g++)
        sum_columns(t, g, cap);
}

void joint_curve_release(struct joint_curve *c) {
    free(c->mu);
    free(c->sum);
}

bool joint_curve_allows(const struct joint_table *t, int small, int large, int g, int64_t y,
                        double time) {
    const struct joint_curve *c = &t->curve;
    if (c->num_y < 2)
        return true;
    const double *set = c->sum + (size_t)g * (size_t)t->n * (size_t)c->width;
    const double *hi = set + (size_t)large * (size_t)c->width;
    const double *lo = set + (size_t)small * (size_t)c->width;
    int i = 63 - __builtin_clzll((uint64_t)y);
    i = i < c->num_y - 1 ? i : c->num_y - 2;
    double f = (double)(y - (INT64_C(1) << i)) / (double)(INT64_C(1) << i);
    double memory = (1 - f) * (hi[i] - lo[i]) + f * (hi[i + 1] - lo[i + 1]);
    if (memory - c->slack_memory > t->p->capacity)
        return false;
    for (int j = 0; j < c->num_mu; j++) {
        int at = c->num_y + 2 * (i * c->num_mu + j);
        double least = (1 - f) * (hi[at] - lo[at]) + f * (hi[at + 1] - lo[at + 1]);
        double mu = c->mu[(g * c->num_y + i) * c->num_mu + j];
        if (least - mu * t->p->capacity - c->slack_time > time)
            return false;
    }
    return true;
}
