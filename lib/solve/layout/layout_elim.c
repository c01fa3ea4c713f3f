/* layout_elim.c - bucket elimination (Dechter 1999).
 *
 * The variable whose removal leaves the smallest table goes first: all tables over it are
 * added up and minimized over it, which gives one table over its neighbours. Going back,
 * each variable takes the value that was best for what came after it. Tables are exact; the
 * width of the graph decides whether they fit, so the order is tried out before any is
 * made.
 */
#include "solve/layout/layout_elim.h"

#include <stdlib.h>
#include <string.h>

struct table {
    int n;            /* variables */
    int *var;         /* (n) */
    const int64_t *w; /* row-major, the last variable fastest */
    int64_t *made;    /* the same, to be freed; NULL: the matrix of an edge */
};

typedef ARR(int) ints;

struct elim {
    const struct layout_core *c;
    ARR(struct table) tables;
    ints *of;      /* by variable: tables that wait for it */
    int *order, n; /* variables in the order of elimination */
    int *step;     /* by variable: when it is eliminated, -1 if it is gone already */
};

static void put(ints *list, int x) {
    for (int64_t s = 0; s < list->n; s++)
        if (list->p[s] == x)
            return;
    arr_push(list, x);
}

static void drop(ints *list, int x) {
    for (int64_t s = 0; s < list->n; s++)
        if (list->p[s] == x) {
            list->p[s] = list->p[--list->n];
            return;
        }
}

static double table_size(const struct layout_core *c, const ints *next) {
    double size = 1;
    for (int64_t s = 0; s < next->n; s++)
        size *= c->var[next->p[s]].k;
    return size;
}

/* A heap of variables by the size of the table that each would leave, least first. Entries
 * whose size has changed since are skipped. */
struct waiting {
    struct wait {
        double size;
        int var;
    } * p;
    int64_t n, cap;
};

static bool before(const struct wait *a, const struct wait *b) {
    return a->size != b->size ? a->size < b->size : a->var < b->var;
}

static void wait_for(struct waiting *h, int var, double size) {
    arr_push(h, (struct wait){size, var});
    for (int64_t i = h->n - 1; i > 0 && before(&h->p[i], &h->p[(i - 1) / 2]);
         i = (i - 1) / 2) {
        struct wait t = h->p[i];
        h->p[i] = h->p[(i - 1) / 2];
        h->p[(i - 1) / 2] = t;
    }
}

static struct wait take_least(struct waiting *h) {
    struct wait least = h->p[0], last = h->p[--h->n];
    int64_t i = 0;
    for (int64_t s; (s = 2 * i + 1) < h->n; i = s) {
        s += s + 1 < h->n && before(&h->p[s + 1], &h->p[s]);
        if (!before(&h->p[s], &last))
            break;
        h->p[i] = h->p[s];
    }
    h->p[i] = last;
    return least;
}

/* Finds an order of elimination. Returns false if some table would be larger than
 * `most`. */
static bool plan_order(struct elim *e, double most) {
    const struct layout_core *c = e->c;
    ints *next = mem_array((size_t)c->n_vars + 1, sizeof *next);
    double *size = mem_array((size_t)c->n_vars + 1, sizeof *size), total = 0;
    struct waiting waiting = {0};
    for (int s = 0; s < c->n_edges; s++)
        if (c->edge[s].u >= 0) {
            put(&next[c->edge[s].u], c->edge[s].v);
            put(&next[c->edge[s].v], c->edge[s].u);
        }
    for (int i = 0; i < c->n_vars; i++) {
        size[i] = table_size(c, &next[i]);
        if (c->var[i].k)
            wait_for(&waiting, i, size[i]);
    }
    bool good = true;
    while (good && waiting.n > 0) {
        struct wait w = take_least(&waiting);
        int best = w.var;
        if (e->step[best] >= 0 || w.size != size[best])
            continue;
        total += size[best] * c->var[best].k;
        good = size[best] <= most && total <= 8 * most && !layout_time_up(c->deadline_s);
        if (!good)
            break;
        e->step[best] = e->n;
        e->order[e->n++] = best;
        const ints *b = &next[best];
        for (int64_t s = 0; s < b->n; s++) {
            drop(&next[b->p[s]], best);
            for (int64_t q = 0; q < b->n; q++)
                if (q != s)
                    put(&next[b->p[s]], b->p[q]);
            size[b->p[s]] = table_size(c, &next[b->p[s]]);
            wait_for(&waiting, b->p[s], size[b->p[s]]);
        }
    }
    arr_release(&waiting);
    for (int i = 0; i < c->n_vars; i++)
        arr_release(&next[i]);
    free(next);
    free(size);
    return good;
}

static void add_table(struct elim *e, int n, const int *var, const int64_t *w,
                      int64_t *made) {
    struct table t = {n, mem_array((size_t)n + 1, sizeof *t.var), w, made};
    if (n)
        memcpy(t.var, var, (size_t)n * sizeof *t.var);
    int first = -1; /* it waits for the variable that goes first */
    for (int s = 0; s < n; s++)
        if (first < 0 || e->step[var[s]] < e->step[first])
            first = var[s];
    if (first >= 0)
        arr_push(&e->of[first], (int)e->tables.n);
    arr_push(&e->tables, t);
}

/* Returns the index of the values x in t. */
static int64_t offset(const struct elim *e, const struct table *t, const int *x) {
    int64_t at = 0;
    for (int s = 0; s < t->n; s++)
        at = at * e->c->var[t->var[s]].k + x[t->var[s]];
    return at;
}

/* Returns the least sum of all waiting tables over the values of i, with the others as
 * in x; *arg is the value. */
static int64_t least_over(const struct elim *e, int i, int *x, int *arg) {
    int64_t best = LAYOUT_INF;
    *arg = 0;
    for (x[i] = 0; x[i] < e->c->var[i].k; x[i]++) {
        int64_t sum = e->c->var[i].cost[x[i]];
        for (int64_t s = 0; s < e->of[i].n && sum < LAYOUT_INF; s++) {
            const struct table *t = &e->tables.p[e->of[i].p[s]];
            sum += t->w[offset(e, t, x)];
        }
        if (sum < best) {
            best = sum;
            *arg = x[i];
        }
    }
    return best;
}

static void eliminate(struct elim *e, int i, int *x) {
    ints scope = {0};
    for (int64_t s = 0; s < e->of[i].n; s++)
        for (int q = 0; q < e->tables.p[e->of[i].p[s]].n; q++)
            if (e->tables.p[e->of[i].p[s]].var[q] != i)
                put(&scope, e->tables.p[e->of[i].p[s]].var[q]);
    size_t size = (size_t)table_size(e->c, &scope);
    int64_t *w = mem_array(size, sizeof *w);
    for (int64_t s = 0; s < scope.n; s++)
        x[scope.p[s]] = 0;
    for (size_t at = 0; at < size; at++) {
        int arg;
        if (at % 65536 == 65535 && layout_time_up(e->c->deadline_s))
            break; /* the caller looks at the clock too */
        w[at] = least_over(e, i, x, &arg);
        for (int64_t s = scope.n - 1; s >= 0; s--) { /* the next values, as an odometer */
            if (++x[scope.p[s]] < e->c->var[scope.p[s]].k)
                break;
            x[scope.p[s]] = 0;
        }
    }
    add_table(e, (int)scope.n, scope.p, w, w);
    arr_release(&scope);
}

static void edge_tables(struct elim *e) {
    const struct layout_core *c = e->c;
    for (int s = 0; s < c->n_edges; s++) {
        const struct layout_edge *g = &c->edge[s];
        if (g->u >= 0)
            add_table(e, 2, (int[]){g->u, g->v}, g->w, NULL);
    }
}

bool layout_eliminate(const struct layout_core *c, int64_t most, int *x, int64_t *value) {
    struct elim e = {.c = c};
    size_t n = (size_t)c->n_vars + 1;
    e.of = mem_array(n, sizeof *e.of);
    e.order = mem_array(n, sizeof *e.order);
    e.step = mem_array(n, sizeof *e.step);
    memset(e.step, -1, n * sizeof *e.step);
    bool good = c->n_rows == 0 && plan_order(&e, (double)most);
    if (good) {
        edge_tables(&e);
        int64_t sum = c->base;
        for (int s = 0; s < e.n && good; s++) {
            eliminate(&e, e.order[s], x);
            good = !layout_time_up(c->deadline_s);
            const struct table *t = &arr_last(&e.tables);
            if (t->n == 0)
                sum =
                    t->w[0] >= LAYOUT_INF || sum >= LAYOUT_INF ? LAYOUT_INF : sum + t->w[0];
        }
        for (int s = e.n - 1; s >= 0 && good; s--) {
            int arg;
            least_over(&e, e.order[s], x, &arg);
            x[e.order[s]] = arg;
        }
        if (good)
            *value = sum;
    }
    for (int64_t s = 0; s < e.tables.n; s++) {
        free(e.tables.p[s].var);
        free(e.tables.p[s].made);
    }
    for (int i = 0; i < c->n_vars; i++)
        arr_release(&e.of[i]);
    arr_release(&e.tables);
    free(e.of);
    free(e.order);
    free(e.step);
    return good;
}
