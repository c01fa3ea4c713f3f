/* joint_table.c - sums over down-sets, from which bounds of a stage follow by subtraction.
 *
 * Time and memory of a stage are sums over its nodes, up to the choice of alternatives and
 * the edges that leave it. With every node at its least and every edge at its cheapest they
 * are differences of two sums over down-sets, which cost a few operations per stage instead
 * of a walk over its nodes. Subtraction of large sums may lose digits, so `slack` is what
 * all roundings together can amount to; amounts beyond any use (a stage with them is too
 * slow or too large in any case) count with a cap, or they would make the slack useless.
 */
#include "solve/joint/joint.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- least costs of edges ---------------------------------------------------------- */

static int position(const struct joint_edge *list, int n, int node) {
    int at = 0;
    while (at < n && list[at].node != node)
        at++;
    return at;
}

/* Returns the seconds that v pays at least for its edge i; `in`: an incoming edge. */
static double edge_seconds(const struct joint_problem *p, int v, int g, int i, bool in) {
    const struct joint_node *n = &p->node[v];
    double least = INFINITY;
    for (int c = n->first[g]; c < n->first[g + 1]; c++)
        least = fmin(least, in ? n->choices[c].fw[i] : n->choices[c].bw[i]);
    return 2 * ((in ? n->in : n->out)[i].bytes + least) / p->bandwidth;
}

static void make_edges(struct joint_table *t, double cap) {
    const struct joint_problem *p = t->p;
    t->first_in = mem_array((size_t)p->nodes + 1, sizeof *t->first_in);
    for (int v = 0; v < p->nodes; v++)
        t->first_in[v + 1] = t->first_in[v] + p->node[v].num_in;
    size_t edges = (size_t)t->first_in[p->nodes];
    t->edge_in = mem_array(edges * (size_t)p->num_degrees + 1, sizeof *t->edge_in);
    t->edge_out = mem_array(edges * (size_t)p->num_degrees + 1, sizeof *t->edge_out);
    for (int g = 0; g < p->num_degrees; g++)
        for (int v = 0; v < p->nodes; v++)
            for (int i = 0; i < p->node[v].num_in; i++) {
                int u = p->node[v].in[i].node;
                int j = position(p->node[u].out, p->node[u].num_out, v);
                size_t at = (size_t)g * edges + (size_t)(t->first_in[v] + i);
                t->edge_in[at] = fmin(cap, edge_seconds(p, v, g, i, true));
                t->edge_out[at] = fmin(cap, edge_seconds(p, u, g, j, false));
            }
}

/* ---- least costs of nodes ---------------------------------------------------------- */

/* Computes the least of every amount on its own; a node that cannot run at g counts as
 * the caps. */
static struct joint_row node_row(const struct joint_problem *p, int v, int g,
                                 struct joint_row cap) {
    const struct joint_node *n = &p->node[v];
    struct joint_row r = cap;
    for (int c = n->first[g]; c < n->first[g + 1]; c++) {
        const struct joint_choice *x = &n->choices[c];
        r.p = fmin(r.p, x->p);
        r.w = fmin(r.w, x->w);
        r.a = fmin(r.a, x->a);
        r.b = fmin(r.b, x->b);
    }
    return r;
}

static void make_slack(struct joint_table *t, const struct joint_row *nodes, int g) {
    const struct joint_problem *p = t->p;
    int edges = t->first_in[p->nodes];
    double time = 0, w = 0, a = 0, b = 0;
    for (int v = 0; v < p->nodes; v++) {
        time += nodes[v].p;
        w += nodes[v].w;
        a += nodes[v].a;
        b += nodes[v].b;
    }
    for (int e = 0; e < edges; e++)
        time += t->edge_in[(size_t)g * (size_t)edges + (size_t)e] +
                t->edge_out[(size_t)g * (size_t)edges + (size_t)e];
    double unit = 4 * DBL_EPSILON * (p->nodes + edges + 8);
    t->slack[g] = (struct joint_row){unit * time, unit * w, unit * a, unit * b, 0, 0};
}

/* ---- sums over sets ---------------------------------------------------------------- */

static struct joint_row sum_row(const struct joint_table *t, const struct joint_row *nodes,
                                const uint64_t *set, int g) {
    const struct joint_problem *p = t->p;
    const double *in = t->edge_in + (size_t)g * (size_t)t->first_in[p->nodes];
    const double *out = t->edge_out + (size_t)g * (size_t)t->first_in[p->nodes];
    struct joint_row r = {0};
    for (int v = 0; v < p->nodes; v++) {
        if (!joint_has(set, v))
            continue;
        r.p += nodes[v].p;
        r.w += nodes[v].w;
        r.a += nodes[v].a;
        r.b += nodes[v].b;
        for (int i = 0; i < p->node[v].num_in; i++)
            if (!joint_has(set, p->node[v].in[i].node)) {
                r.enter += in[t->first_in[v] + i];
                r.leave += out[t->first_in[v] + i];
            }
    }
    return r;
}

static double sum_over(const struct joint_problem *p, const uint64_t *set,
                       const double *q) {
    double sum = 0;
    for (int v = 0; v < p->nodes; v++)
        if (joint_has(set, v))
            sum += q[v];
    return sum;
}

struct place {
    double used;
    int size, at;
};

static int by_used(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->used != y->used)
        return x->used < y->used ? -1 : 1;
    return x->size != y->size ? x->size - y->size : x->at - y->at;
}

static int count(const uint64_t *set, int words) {
    int n = 0;
    for (int i = 0; i < words; i++)
        n += __builtin_popcountll(set[i]);
    return n;
}

/* Sorts sets by sums, which rise with the set in spite of rounding if nodes are added in
 * one order: a set comes after those that it contains. */
static void sort_sets(struct joint_table *t, struct joint_sets *x) {
    struct place *order = mem_array((size_t)x->n, sizeof *order);
    for (int i = 0; i < x->n; i++) {
        const uint64_t *set = x->bits + (int64_t)i * x->words;
        order[i] =
            (struct place){sum_over(t->p, set, t->bound->m[0].q), count(set, x->words), i};
    }
    qsort(order, (size_t)x->n, sizeof *order, by_used);
    t->n = x->n;
    t->words = x->words;
    t->bits = mem_array((size_t)x->n * (size_t)x->words, sizeof *t->bits);
    for (int i = 0; i < x->n; i++)
        memcpy(t->bits + (int64_t)i * x->words, x->bits + (int64_t)order[i].at * x->words,
               (size_t)x->words * sizeof *t->bits);
    free(order);
    joint_sets_release(x);
}

static void make_rows(struct joint_table *t, double cap) {
    const struct joint_problem *p = t->p;
    struct joint_row most = {
        cap, cap / joint_sync_factor(p), 2 * p->capacity, 2 * p->capacity, 0, 0};
    struct joint_row *nodes = mem_array((size_t)p->nodes, sizeof *nodes);
    t->row = mem_array((size_t)p->num_degrees * (size_t)t->n, sizeof *t->row);
    for (int g = 0; g < p->num_degrees; g++) {
        for (int v = 0; v < p->nodes; v++)
            nodes[v] = node_row(p, v, g, most);
        make_slack(t, nodes, g);
        for (int i = 0; i < t->n && !joint_stopped(p); i++)
            t->row[(int64_t)g * t->n + i] =
                sum_row(t, nodes, t->bits + (int64_t)i * t->words, g);
    }
    free(nodes);
}

static void make_rest(struct joint_table *t) {
    const struct joint_problem *p = t->p;
    int width = t->bound->width;
    t->rest = mem_array((size_t)t->n * (size_t)width, sizeof *t->rest);
    for (int i = 0; i < t->n && !joint_stopped(p); i++)
        for (int v = 0; v < p->nodes; v++) {
            const double *column = t->bound->column + (int64_t)v * width;
            double *sum = t->rest + (int64_t)i * width;
            for (int k = 0; k < width && !joint_has(t->bits + (int64_t)i * t->words, v);
                 k++)
                sum[k] += column[k];
        }
}

/* Returns a time that no stage exceeds: all alternatives and edges together. */
static double longest(const struct joint_problem *p) {
    double time = 0;
    for (int v = 0; v < p->nodes; v++) {
        const struct joint_node *n = &p->node[v];
        for (int c = n->first[0]; c < n->first[p->num_degrees]; c++) {
            const struct joint_choice *x = &n->choices[c];
            time += x->p + joint_sync_factor(p) * x->w;
            for (int i = 0; i < n->num_in; i++)
                time += 2 * (n->in[i].bytes + x->fw[i]) / p->bandwidth;
            for (int i = 0; i < n->num_out; i++)
                time += 2 * (n->out[i].bytes + x->bw[i]) / p->bandwidth;
        }
    }
    return time;
}

int joint_table_init(struct joint_table *t, const struct joint_problem *p,
                     const struct joint_bound *bound, double wanted, struct joint_sets *x) {
    double cap = 2 * fmin(wanted, longest(p)) * p->limit_s;
    *t = (struct joint_table){.p = p, .bound = bound};
    make_edges(t, cap);
    sort_sets(t, x);
    for (int m = 0; m < JOINT_MEASURES; m++) {
        t->used[m] = mem_array((size_t)t->n, sizeof *t->used[m]);
        for (int i = 0; i < t->n && !joint_stopped(p); i++)
            t->used[m][i] = sum_over(p, t->bits + (int64_t)i * t->words, bound->m[m].q);
    }
    make_rest(t);
    make_rows(t, cap);
    joint_curve_init(t, cap);
    return joint_stopped(p) ? -1 : 0;
}

void joint_table_release(struct joint_table *t) {
    free(t->bits);
    for (int m = 0; m < JOINT_MEASURES; m++)
        free(t->used[m]);
    free(t->rest);
    free(t->row);
    free(t->edge_in);
    free(t->edge_out);
    free(t->first_in);
    joint_curve_release(&t->curve);
    *t = (struct joint_table){0};
}
