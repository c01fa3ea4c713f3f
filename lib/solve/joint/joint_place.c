/* joint_place.c - how long devices take at least when each knows how many micro-batches it holds.
 *
 * A stage with data degree d and sum s of data degrees, its own included, stands at places s - d
 * + 1 .. s, on t devices at each. It holds y = ceil(s / d) micro-batches, so that at place j <= s
 *
 *   sum a j / d + b / d  <=  sum a y + b  <=  capacity      and      sum p / d  <=  T,
 *
 * as if every place had 1 / d of each of its nodes. No place has more than the greatest tensor degree of
 * devices, so the i-th device from the end of the pipeline is at place i / (that degree) or
 * further. Where nodes may be anywhere, in parts, this is a linear program; its duals are prices
 * of time r and of memory w at every place. With them a node is worth
 *
 *   u_v = the least t (r p + w (a j + b)) over places, degrees and alternatives,
 *
 * and devices hold no more than r T + w capacity each. That is true for any prices, so neither the
 * program's optimum nor the solver is trusted. What is still to be placed in front of a label is held
 * against the places that are left in the same way.
 */
#include "solve/joint/joint.h"
#include "solve/lp/lp.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_VARS = 20000, MOST_PLACES = 40 };

/* ---- places --------------------------------------------------------------------------- */

/* The first 8 places for themselves, then ever more together, at the first of them. */
static void find_places(struct joint_places *x, const struct joint_problem *p) {
    int wide = p->degrees[p->num_degrees - 1];
    int most = (p->devices + wide - 1) / wide;
    most = most < p->limit_s ? most : p->limit_s;
    x->wide = wide;
    x->first = mem_array(MOST_PLACES + 1, sizeof *x->first);
    for (int at = 1, step = 1; at <= most && x->n < MOST_PLACES; at += step) {
        step = at > 8 ? (at + 3) / 4 : 1;
        x->first[x->n++] = at;
    }
    x->first[x->n] = most + 1;
    x->time = mem_array((size_t)x->n, sizeof *x->time);
    x->memory = mem_array((size_t)x->n, sizeof *x->memory);
}

/* Devices there, of all. */
static double devices_at(const struct joint_places *x, const struct joint_problem *p,
                         int i) {
    double end = (double)(x->first[i + 1] - 1) * x->wide;
    return fmin(end, p->devices) - (double)(x->first[i] - 1) * x->wide;
}

/* What a node is worth at places from the i-th group on. */
static double worth(const struct joint_places *x, const struct joint_problem *p, int v,
                    int i) {
    const struct joint_node *n = &p->node[v];
    double least = INFINITY;
    for (; i < x->n; i++)
        for (int g = 0; g < p->num_degrees; g++)
            for (int c = n->first[g]; c < n->first[g + 1]; c++) {
                const struct joint_choice *k = &n->choices[c];
                double bytes = k->a * x->first[i] + k->b;
                least =
                    fmin(least, p->degrees[g] * (x->time[i] * k->p + x->memory[i] * bytes));
            }
    return least;
}

/* ---- the program ---------------------------------------------------------------------- */

/* Minimizes the time, or where `full` the part of the memory that is used. */
struct program {
    struct lp_model *m;
    int n; /* variables of nodes */
    int *col[2];
    double *val[2];
};

static void add_nodes(struct program *q, const struct joint_places *x,
                      const struct joint_problem *p) {
    int *cols = mem_array(MOST_VARS, sizeof *cols);
    double *ones = mem_array(MOST_VARS, sizeof *ones);
    for (int v = 0; v < p->nodes; v++) {
        const struct joint_node *n = &p->node[v];
        int count = 0;
        for (int i = 0; i < x->n * n->first[p->num_degrees]; i++) {
            ones[count] = 1;
            cols[count++] = lp_add_var(q->m, 0, 0, INFINITY, false);
        }
        lp_add_row(q->m, count, cols, ones, 1, 1);
        q->n += count;
    }
    free(cols);
    free(ones);
}

/* Of one group of places: its time, or its memory. Variables stand node by node, and in each by
 * places and then alternatives. */
static void add_place(struct program *q, const struct joint_places *x,
                      const struct joint_problem *p, int i, bool memory, double scale,
                      int total) {
    int *cols = mem_array((size_t)q->n + 1, sizeof *cols), n = 0, at = 0;
    double *vals = mem_array((size_t)q->n + 1, sizeof *vals), room = devices_at(x, p, i);
    for (int v = 0; v < p->nodes; v++) {
        const struct joint_node *node = &p->node[v];
        int choices = node->first[p->num_degrees];
        for (int g = 0; g < p->num_degrees; g++)
            for (int c = node->first[g]; c < node->first[g + 1]; c++) {
                const struct joint_choice *k = &node->choices[c];
                double amount = memory ? k->a * x->first[i] + k->b : k->p;
                cols[n] = at + i * choices + c;
                vals[n++] = p->degrees[g] * amount / scale;
            }
        at += x->n * choices;
    }
    if (total >= 0) {
        cols[n] = total;
        vals[n++] = -room;
    }
    lp_add_row(q->m, n, cols, vals, -INFINITY, total >= 0 ? 0 : room);
    free(cols);
    free(vals);
}

/* Prices from the duals of the program; false where it has none. full: what is minimized is the part
 * of the memory that is used, and time is no matter. */
static bool find_prices(struct joint_places *x, const struct joint_problem *p, bool full,
                        double time, double budget_s) {
    struct program q = {.m = lp_create()};
    struct lp_options o = {.time_budget_s = budget_s, .cutoff = INFINITY, .relax = true};
    struct lp_answer a;
    add_nodes(&q, x, p);
    int total = lp_add_var(q.m, 1, 0, INFINITY, false);
    for (int i = 0; i < x->n && !full; i++)
        add_place(&q, x, p, i, false, time, total);
    for (int i = 0; i < x->n; i++)
        add_place(&q, x, p, i, true, p->capacity, full ? total : -1);
    lp_minimize(q.m, &o, &a);
    bool found = a.dual != NULL && a.status == LP_OPTIMAL;
    for (int i = 0; i < x->n && found; i++) {
        const double *dual = a.dual + p->nodes;
        x->time[i] = full ? 0 : fmax(0, -dual[i]) / time;
        x->memory[i] = fmax(0, -dual[full ? i : x->n + i]) / p->capacity;
    }
    lp_answer_release(&a);
    lp_destroy(q.m);
    return found;
}

/* ---- bounds --------------------------------------------------------------------------- */

/* What these prices prove: no T is below it; INFINITY: nothing fits. */
static double proven(const struct joint_places *x, const struct joint_problem *p) {
    double all = 0, time = 0, memory = 0;
    for (int v = 0; v < p->nodes; v++)
        all += worth(x, p, v, 0);
    for (int i = 0; i < x->n; i++) {
        time += devices_at(x, p, i) * x->time[i];
        memory += devices_at(x, p, i) * x->memory[i] * p->capacity;
    }
    double over = all - memory - 1e-9 * (all + memory);
    return over <= 0 ? 0 : time > 0 ? over / time : INFINITY;
}

/* Columns of what nodes are worth, one for every group of places to begin with. */
static void add_columns(struct joint_bound *b, const struct joint_problem *p) {
    struct joint_places *x = &b->places;
    int width = b->width + x->n;
    double *all = mem_array((size_t)p->nodes * (size_t)width, sizeof *all);
    for (int v = 0; v < p->nodes; v++) {
        double *to = all + (int64_t)v * width;
        for (int k = 0; k < b->width; k++)
            to[k] = b->column[(int64_t)v * b->width + k];
        for (int i = 0; i < x->n; i++)
            to[b->width + i] = worth(x, p, v, i);
    }
    free(b->column);
    b->column = all;
    x->column = b->width;
    b->width = width;
}

void joint_bound_place(struct joint_bound *b, const struct joint_problem *p,
                       double budget_s) {
    struct joint_places *x = &b->places;
    int64_t choices = 0;
    for (int v = 0; v < p->nodes; v++)
        choices += p->node[v].first[p->num_degrees];
    if (x->n || !isfinite(b->value) || !(b->value > 0))
        return;
    find_places(x, p);
    bool found = choices * x->n < MOST_VARS && find_prices(x, p, false, b->value, budget_s);
    if (!found && choices * x->n < MOST_VARS &&
        find_prices(x, p, true, b->value, budget_s) && isinf(proven(x, p)))
        b->value = INFINITY;
    if (!found) {
        joint_places_release(x);
        return;
    }
    b->value = fmax(b->value, proven(x, p));
    add_columns(b, p);
}

void joint_places_release(struct joint_places *x) {
    free(x->first);
    free(x->time);
    free(x->memory);
    *x = (struct joint_places){0};
}

/* ---- against a label ------------------------------------------------------------------ */

static int group_of(const struct joint_places *x, int place) {
    int i = 0;
    while (i + 1 < x->n && x->first[i + 1] <= place)
        i++;
    return i;
}

void joint_room_init(struct joint_room *r, const struct joint_bound *b,
                     const struct joint_problem *p, double T) {
    const struct joint_places *x = &b->places;
    *r = (struct joint_room){0};
    if (!x->n || !isfinite(T))
        return;
    r->wide = x->wide;
    r->most = 2 * p->devices + 1;
    r->until = mem_array((size_t)r->most + 1, sizeof *r->until);
    r->column = mem_array((size_t)r->most + 1, sizeof *r->column);
    for (int place = 1; place <= r->most; place++) {
        int i = group_of(x, place);
        double each = x->time[i] * T + x->memory[i] * p->capacity;
        each = place <= p->limit_s ? each : 0;
        r->until[place] = r->until[place - 1] + x->wide * each;
        r->column[place - 1] = x->column + i;
    }
}

void joint_room_release(struct joint_room *r) {
    free(r->until);
    free(r->column);
}
