/* joint_bound.c - how many devices some nodes need at least, by time and memory at once.
 *
 * A stage with degrees t and d has time >= sum p / d and memory >= sum a + b on each of its
 * n = t d devices (at least one micro-batch is in flight). So for every mu >= 0
 *
 *   sum over its nodes of  t (p + mu (a + b))  <=  n (T + mu capacity),
 *
 * and with q_v = the least t (p + mu (a + b)) of a node, whatever is left over needs at
 * least sum q / (T + mu capacity) devices. Where memory binds, a node may take the
 * alternative that is fast or the one that is lean, not both, and mu accounts for that.
 * Over all nodes this bounds T: the mu that bounds it best is the first measure; time alone
 * and memory alone are the other two.
 */
#include "solve/joint/joint.h"

#include <math.h>
#include <stdlib.h>

static double weight(const struct joint_problem *p, int v, double time, double memory) {
    const struct joint_node *n = &p->node[v];
    double least = INFINITY;
    for (int g = 0; g < p->num_degrees; g++)
        for (int c = n->first[g]; c < n->first[g + 1]; c++) {
            const struct joint_choice *x = &n->choices[c];
            least = fmin(least, p->degrees[g] * (time * x->p + memory * (x->a + x->b)));
        }
    return least;
}

static void measure(struct joint_measure *m, const struct joint_problem *p, double time,
                    double memory) {
    m->time = time;
    m->memory = memory;
    m->total = 0;
    for (int v = 0; v < p->nodes; v++) {
        m->q[v] = weight(p, v, time, memory);
        m->total += m->q[v];
    }
}

/* Returns the T below which the devices cannot hold everything at this mu. */
static double least_time(const struct joint_problem *p, double mu) {
    double total = 0;
    for (int v = 0; v < p->nodes; v++)
        total += weight(p, v, 1, mu);
    return total / p->devices - mu * p->capacity;
}

/* Finds the best mu: the bound is concave in it, so the best is bracketed and then narrowed
 * down by thirds. */
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

/* Returns the greatest data degree on n devices. */
static int most_data(const struct joint_problem *p, int n) {
    int d = n < p->limit_s ? n : p->limit_s;
    d = d < p->max_data ? d : p->max_data;
    while (p->samples % d)
        d--;
    return d;
}

/* Returns the least time of a node alone on all devices. Its time is linear in 1 / d, so
 * only the least and the greatest d count. */
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
}

void joint_bound_release(struct joint_bound *b) {
    for (int i = 0; i < JOINT_MEASURES; i++)
        free(b->m[i].q);
    *b = (struct joint_bound){0};
}
