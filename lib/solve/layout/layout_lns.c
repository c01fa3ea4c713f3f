/* layout_lns.c - neighbourhoods, and their exact search.
 *
 * Neighbourhoods are variables around a start along the edges, or around several starts
 * that are live in the same row of which much is used. Starts are drawn by how much more
 * than needed their present values cost, as far as the bound tells.
 */
#include "solve/layout/layout_lns.h"

#include "common/progress.h"

#include <stdlib.h>
#include <string.h>

void layout_whole_init(struct layout_whole *w, struct layout_core *c) {
    *w = (struct layout_whole){.c = c};
    w->stub.n_nodes = c->n_vars;
    w->stub.usage_limit = c->p->usage_limit;
    w->stub.usage_unit = c->p->usage_unit;
    w->slack = mem_array((size_t)c->n_rows + 1, sizeof *w->slack);
    w->doubt = mem_array((size_t)c->n_vars + 1, sizeof *w->doubt);
    for (int i = 0; i < c->n_vars; i++)
        w->doubt[i + 1] = w->doubt[i] + (c->var[i].k > 1);
}

void layout_whole_release(struct layout_whole *w) {
    free(w->slack);
    free(w->doubt);
    *w = (struct layout_whole){0};
}

static void add_use(int64_t *row, const struct layout_var *v, int a, int64_t sign) {
    for (int64_t s = 0; s < v->seg.n; s++) {
        row[v->seg.p[s].lo] += sign * v->seg.p[s].use[a];
        row[v->seg.p[s].hi] -= sign * v->seg.p[s].use[a];
    }
}

void layout_whole_set(struct layout_whole *w, const int *x, int64_t value) {
    struct layout_core *c = w->c;
    w->x = x;
    w->value = value;
    memset(w->slack, 0, ((size_t)c->n_rows + 1) * sizeof *w->slack);
    for (int i = 0; i < c->n_vars; i++)
        if (c->var[i].k)
            add_use(w->slack, &c->var[i], x[i], -1);
    for (int r = 0; r < c->n_rows; r++)
        w->slack[r + 1] += w->slack[r];
    for (int r = 0; r < c->n_rows; r++)
        w->slack[r] += c->cap[r];
}

/* ---- a part as a core ------------------------------------------------------------ */

static void part_var(struct layout_core *part, const struct layout_core *c, int i, int at) {
    const struct layout_var *v = &c->var[i];
    struct layout_var *t = &part->var[at];
    t->k = v->k;
    t->cost = mem_array((size_t)v->k, sizeof *t->cost);
    memcpy(t->cost, v->cost, (size_t)v->k * sizeof *t->cost);
    for (int64_t s = 0; s < v->seg.n; s++) {
        struct layout_seg g = v->seg.p[s];
        int64_t *use = mem_array((size_t)v->k, sizeof *use);
        memcpy(use, g.use, (size_t)v->k * sizeof *use);
        arr_push(&t->seg, (struct layout_seg){g.lo, g.hi, use});
    }
    struct layout_pick pick = {i, mem_array((size_t)v->k, sizeof(int32_t))};
    for (int a = 0; a < v->k; a++)
        pick.strategy[a] = a;
    arr_push(&t->pick, pick);
}

/* Adds the edge to the costs of the free variable i, with the other end fixed at its
 * value. */
static void part_border(struct layout_var *t, const struct layout_core *c,
                        const struct layout_edge *e, int i, const int *x) {
    int kv = c->var[e->v].k;
    bool row = e->u == i;
    const int64_t *w = row ? e->w + x[e->v] : e->w + (int64_t)x[e->u] * kv;
    int64_t step = row ? kv : 1;
    for (int a = 0; a < t->k; a++)
        t->cost[a] = w[a * step] >= LAYOUT_INF || t->cost[a] >= LAYOUT_INF
                         ? LAYOUT_INF
                         : t->cost[a] + w[a * step];
}

static void part_edges(struct layout_core *part, const struct layout_whole *w,
                       const int *set, int n, const int *pos) {
    const struct layout_core *c = w->c;
    ARR(struct layout_edge) edges = {0};
    for (int q = 0; q < n; q++) {
        int i = set[q];
        for (int64_t s = 0; s < c->var[i].adj.n; s++) {
            const struct layout_edge *e = &c->edge[c->var[i].adj.p[s]];
            if (e->u != i && e->v != i)
                continue;
            int other = pos[layout_other(e, i)];
            if (other < 0) {
                part_border(&part->var[q], c, e, i, w->x);
                continue;
            }
            if (e->u != i)
                continue; /* once, from its u */
            struct layout_edge copy = {q, other, layout_matrix_share(e->w)};
            arr_push(&part->var[q].adj, (int)edges.n);
            arr_push(&part->var[other].adj, (int)edges.n);
            arr_push(&edges, copy);
        }
    }
    part->edge = edges.p;
    part->n_edges = (int)edges.n;
}

static void part_rows(struct layout_core *part, const struct layout_whole *w,
                      const int *set, int n) {
    const struct layout_core *c = w->c;
    size_t rows = (size_t)c->n_rows + 1;
    part->n_rows = c->n_rows;
    part->cap = mem_array(rows, sizeof *part->cap);
    part->row_time = mem_array(rows, sizeof *part->row_time);
    part->lambda = mem_array(rows, sizeof *part->lambda);
    for (int r = 0; r < c->n_rows; r++) {
        part->row_time[r] = c->row_time[r];
        part->lambda[r] = c->lambda[r];
    }
    for (int q = 0; q < n; q++)
        add_use(part->cap, &c->var[set[q]], w->x[set[q]], 1);
    for (int r = 0; r < c->n_rows; r++)
        part->cap[r + 1] += part->cap[r];
    for (int r = 0; r < c->n_rows; r++)
        part->cap[r] += w->slack[r];
}

void layout_part(struct layout_core *part, const struct layout_whole *w,
                 const int *free_vars, int n) {
    struct layout_core *c = w->c;
    int *all = NULL, *pos = mem_array((size_t)c->n_vars + 1, sizeof *pos);
    if (!free_vars) {
        all = mem_array((size_t)c->n_vars + 1, sizeof *all);
        n = 0;
        for (int i = 0; i < c->n_vars; i++)
            if (c->var[i].k)
                all[n++] = i;
        free_vars = all;
    }
    memset(pos, -1, ((size_t)c->n_vars + 1) * sizeof *pos);
    for (int q = 0; q < n; q++)
        pos[free_vars[q]] = q;
    *part = (struct layout_core){.p = &w->stub,
                                 .n_vars = n,
                                 .shift = c->shift,
                                 .effort = 3000000,
                                 .deadline_s = c->deadline_s};
    part->var = mem_array((size_t)n + 1, sizeof *part->var);
    part->fixed = mem_array((size_t)c->n_vars + 1, sizeof *part->fixed);
    for (int q = 0; q < n; q++)
        part_var(part, c, free_vars[q], q);
    part_edges(part, w, free_vars, n, pos);
    part_rows(part, w, free_vars, n);
    if (all)
        part->base = c->base;
    free(all);
    free(pos);
}

/* ---- neighbourhoods -------------------------------------------------------------- */

/* Draws a variable with a probability proportional to its doubt. */
static int draw_start(const struct layout_whole *w, struct rng *r) {
    int lo = 0, hi = w->c->n_vars - 1;
    double at = rng_real(r) * w->doubt[w->c->n_vars];
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (w->doubt[mid + 1] > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* Adds variables around those from set[from] on until n is `most`. */
static void grow(struct layout_job *j, struct rng *r, bool *in, int from, int most) {
    const struct layout_core *c = j->w->c;
    for (int at = from; at < j->n && j->n < most; at++) {
        const struct layout_var *v = &c->var[j->set[at]];
        int64_t deg = v->adj.n, tries = deg < 40 ? deg : 40;
        int64_t first = deg ? rng_below(r, deg) : 0;
        for (int64_t s = 0; s < tries && j->n < most; s++) {
            const struct layout_edge *e = &c->edge[v->adj.p[(first + s) % deg]];
            if (e->u != j->set[at] && e->v != j->set[at])
                continue;
            int o = layout_other(e, j->set[at]);
            if (in[o] || (j->kind & 4 && rng_below(r, 3) == 0))
                continue;
            in[o] = true;
            j->set[j->n++] = o;
        }
    }
}

static bool uses_row(const struct layout_var *v, int row) {
    for (int64_t s = 0; s < v->seg.n; s++)
        if (v->seg.p[s].lo <= row && row < v->seg.p[s].hi)
            return true;
    return false;
}

/* Draws a row in which variable i is live, with little slack. */
static int draw_row(const struct layout_job *j, struct rng *r, int i) {
    const struct layout_var *v = &j->w->c->var[i];
    if (v->seg.n == 0)
        return -1;
    const struct layout_seg *g = &v->seg.p[rng_below(r, v->seg.n)];
    int best = -1;
    for (int t = 0; t < 8; t++) {
        int row = g->lo + (int)rng_below(r, g->hi - g->lo);
        if (best < 0 || j->w->slack[row] < j->w->slack[best])
            best = row;
    }
    return best;
}

static void choose_set(struct layout_job *j) {
    const struct layout_core *c = j->w->c;
    struct rng r = {j->seed, 0};
    bool *in = mem_array((size_t)c->n_vars + 1, sizeof *in);
    int starts = j->kind & 1 ? 1 : 2 + j->kind % 3;
    j->set = mem_array((size_t)j->size + 8, sizeof *j->set);
    int row = -1;
    for (int s = 0; s < starts; s++) {
        int i = draw_start(j->w, &r);
        for (int t = 0; t < 200 && row >= 0 && !uses_row(&c->var[i], row); t++)
            i = t < 50 ? draw_start(j->w, &r) : (int)rng_below(&r, c->n_vars);
        if (s == 0)
            row = starts > 1 ? draw_row(j, &r, i) : -1;
        if (in[i] || c->var[i].k == 0)
            continue;
        in[i] = true;
        j->set[j->n++] = i;
        grow(j, &r, in, j->n - 1, j->size * (s + 1) / starts);
    }
    free(in);
}

static int64_t cost_of_set(const struct layout_job *j) {
    /* The cost of the free variables and of their edges, among each other and to the
     * others. */
    const struct layout_core *c = j->w->c;
    const int *x = j->w->x;
    int64_t sum = 0;
    bool *in = mem_array((size_t)c->n_vars + 1, sizeof *in);
    for (int q = 0; q < j->n; q++)
        in[j->set[q]] = true;
    for (int q = 0; q < j->n; q++) {
        int i = j->set[q];
        sum += c->var[i].cost[x[i]];
        for (int64_t s = 0; s < c->var[i].adj.n; s++) {
            const struct layout_edge *e = &c->edge[c->var[i].adj.p[s]];
            if ((e->u == i || e->v == i) && (e->u == i || !in[layout_other(e, i)]))
                sum += e->w[(int64_t)x[e->u] * c->var[e->v].k + x[e->v]];
        }
    }
    free(in);
    return sum;
}

static int64_t entries(const struct layout_core *c) {
    int64_t n = 0;
    for (int e = 0; e < c->n_edges; e++)
        if (c->edge[e].u >= 0)
            n += (int64_t)c->var[c->edge[e].u].k * c->var[c->edge[e].v].k;
    return n;
}

static void keep_values(struct layout_job *j, const struct layout_core *part,
                        const int *x) {
    int32_t *all = mem_array((size_t)j->w->c->n_vars + 1, sizeof *all);
    layout_core_choice(part, x, all);
    j->y = mem_array((size_t)j->n + 1, sizeof *j->y);
    for (int q = 0; q < j->n; q++)
        j->y[q] = all[j->set[q]];
    free(all);
}

void layout_job_run(struct layout_job *j) {
    struct layout_core part;
    choose_set(j);
    j->done = true;
    layout_part(&part, j->w, j->set, j->n);
    if (layout_core_shrink(&part, NULL) == 0) {
        struct layout_search b = {.core = &part,
                                  .upper = cost_of_set(j),
                                  .max_nodes = 30,
                                  .deadline_s = j->deadline_s,
                                  .root_rounds = 60};
        b.x = mem_array((size_t)part.n_vars + 1, sizeof *b.x);
        layout_search_run(&b);
        j->better = b.found;
        j->done = b.done;
        j->work = entries(&part) * (60 + 36 * b.nodes);
        if (b.found) {
            keep_values(j, &part, b.x);
        }
        free(b.x);
    }
    layout_core_release(&part);
}

void layout_job_release(struct layout_job *j) {
    free(j->set);
    free(j->y);
    *j = (struct layout_job){0};
}
