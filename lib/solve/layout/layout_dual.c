/* layout_dual.c - TRW-S on integers, with a subgradient method for the memory rows.
 *
 * Variables are swept in a fixed order. In a sweep each variable takes its cost and all
 * messages, splits the sum evenly over its chains (the larger of the numbers of edges ahead
 * and behind, rounded down), and sends the least of share + edge onward. After a sweep the
 * bound is what stays at the variables plus what was taken off the messages to level them:
 * the edges then have minimum 0. Division rounds down, and what that loses stays at the
 * variable, so the sum of all parts remains exactly the cost function.
 */
#include "solve/layout/layout_dual.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE 10   /* rounds without progress before steps get shorter */
#define MEMORY   0.95 /* share of the old in the averaged squares */

static inline int64_t floor_div(int64_t x, int64_t d) {
    int64_t q = x / d;
    return q - (x % d < 0);
}

static int64_t *transposed(const int64_t *w, int rows, int cols) {
    int64_t *t = mem_array((size_t)rows * (size_t)cols, sizeof *t);
    for (int a = 0; a < rows; a++)
        for (int b = 0; b < cols; b++)
            t[(int64_t)b * rows + a] = w[(int64_t)a * cols + b];
    return t;
}

static void init_vars(struct layout_dual *d) {
    struct layout_core *c = d->c;
    d->var = mem_array((size_t)c->n_vars + 1, sizeof *d->var);
    d->index = mem_array((size_t)c->n_vars + 1, sizeof *d->index);
    for (int i = 0; i < c->n_vars; i++) {
        d->index[i] = -1;
        if (c->var[i].k) {
            d->index[i] = d->n;
            d->var[d->n++] = i;
        }
    }
    d->k = mem_array((size_t)d->n + 1, sizeof *d->k);
    d->x = mem_array((size_t)d->n + 1, sizeof *d->x);
    d->off = mem_array((size_t)d->n + 1, sizeof *d->off);
    int most = 1;
    for (int i = 0; i < d->n; i++) {
        d->k[i] = c->var[d->var[i]].k;
        d->off[i + 1] = d->off[i] + d->k[i];
        most = d->k[i] > most ? d->k[i] : most;
    }
    size_t total = (size_t)d->off[d->n] + 1;
    d->cost = mem_array(total, sizeof *d->cost);
    d->theta = mem_array(total, sizeof *d->theta);
    d->hat = mem_array(total, sizeof *d->hat);
    d->tmp = mem_array((size_t)most, sizeof *d->tmp);
    for (int i = 0; i < d->n; i++)
        memcpy(d->cost + d->off[i], c->var[d->var[i]].cost,
               (size_t)d->k[i] * sizeof *d->cost);
}

static void init_edges(struct layout_dual *d) {
    struct layout_core *c = d->c;
    size_t most = (size_t)c->n_edges + 1;
    d->edge = mem_array(most, sizeof *d->edge);
    d->eu = mem_array(most, sizeof *d->eu);
    d->ev = mem_array(most, sizeof *d->ev);
    d->w = mem_array(most, sizeof *d->w);
    d->owned = mem_array(most, sizeof *d->owned);
    d->to_u = mem_array(most, sizeof *d->to_u);
    d->to_v = mem_array(most, sizeof *d->to_v);
    d->fwd = mem_array((size_t)d->n + 2, sizeof *d->fwd);
    d->bwd = mem_array((size_t)d->n + 2, sizeof *d->bwd);
    for (int e = 0; e < c->n_edges; e++) {
        struct layout_edge *g = &c->edge[e];
        if (g->u < 0)
            continue;
        int u = d->index[g->u], v = d->index[g->v], s = d->m++;
        d->edge[s] = e;
        d->w[s] = g->w;
        if (u > v) {
            d->w[s] = d->owned[s] = transposed(g->w, d->k[u], d->k[v]);
            int t = u;
            u = v;
            v = t;
        }
        d->eu[s] = u;
        d->ev[s] = v;
        d->to_u[s] = d->n_msg;
        d->to_v[s] = d->n_msg + d->k[u];
        d->n_msg += d->k[u] + d->k[v];
        d->fwd[u + 1]++;
        d->bwd[v + 1]++;
    }
    d->msg = mem_array((size_t)d->n_msg + 1, sizeof *d->msg);
    for (int i = 0; i < d->n; i++) {
        d->fwd[i + 1] += d->fwd[i];
        d->bwd[i + 1] += d->bwd[i];
    }
    d->fwd_e = mem_array((size_t)d->m + 1, sizeof *d->fwd_e);
    d->bwd_e = mem_array((size_t)d->m + 1, sizeof *d->bwd_e);
    int64_t *f = mem_array((size_t)d->n + 1, sizeof *f),
            *b = mem_array((size_t)d->n + 1, sizeof *b);
    for (int s = 0; s < d->m; s++) {
        d->fwd_e[d->fwd[d->eu[s]] + f[d->eu[s]]++] = s;
        d->bwd_e[d->bwd[d->ev[s]] + b[d->ev[s]]++] = s;
    }
    free(f);
    free(b);
}

void layout_dual_init(struct layout_dual *d, struct layout_core *c) {
    *d = (struct layout_dual){.c = c, .best = INT64_MIN, .step = 1, .smooth = 0.9};
    init_vars(d);
    init_edges(d);
    size_t rows = (size_t)c->n_rows + 1;
    d->lambda = mem_array(rows, sizeof *d->lambda);
    d->best_lambda = mem_array(rows, sizeof *d->best_lambda);
    d->grad = mem_array(rows, sizeof *d->grad);
    d->square = mem_array(rows, sizeof *d->square);
    d->lambda_sum = mem_array(rows, sizeof *d->lambda_sum);
    d->use = mem_array(rows, sizeof *d->use);
    for (int r = 0; r < c->n_rows; r++)
        d->lambda[r] = d->best_lambda[r] = c->lambda[r];
}

void layout_dual_release(struct layout_dual *d) {
    for (int s = 0; s < d->m; s++)
        free(d->owned[s]);
    free(d->kept);
    void *all[] = {d->var,   d->index,       d->k,          d->off,  d->cost,   d->theta,
                   d->hat,   d->edge,        d->eu,         d->ev,   d->w,      d->owned,
                   d->to_u,  d->to_v,        d->msg,        d->fwd,  d->bwd,    d->fwd_e,
                   d->bwd_e, d->lambda,      d->lambda_sum, d->grad, d->square, d->use,
                   d->x,     d->best_lambda, d->tmp};
    for (size_t s = 0; s < sizeof all / sizeof *all; s++)
        free(all[s]);
    *d = (struct layout_dual){0};
}

/* Keeps the sums of the multipliers so small that their product with a usage cannot
 * overflow. */
static void set_lambda_sums(struct layout_dual *d) {
    double sum = 0, most = (double)(LAYOUT_INF / 64);
    double room = most / (1 + (double)(d->c->p->usage_limit));
    for (int r = 0; r < d->c->n_rows; r++) {
        sum += d->lambda[r];
        if (sum > room) {
            d->lambda[r] -= sum - room;
            sum = room;
            if (d->lambda[r] < 0)
                d->lambda[r] = 0;
        }
        d->lambda_sum[r + 1] = llround(sum);
    }
}

/* Sets theta from cost and lambda. */
static void set_theta(struct layout_dual *d) {
    set_lambda_sums(d);
    for (int i = 0; i < d->n; i++) {
        const struct layout_var *v = &d->c->var[d->var[i]];
        int64_t *t = d->theta + d->off[i];
        memcpy(t, d->cost + d->off[i], (size_t)d->k[i] * sizeof *t);
        for (int64_t s = 0; s < v->seg.n; s++) {
            const struct layout_seg *g = &v->seg.p[s];
            int64_t lambda_sum = d->lambda_sum[g->hi] - d->lambda_sum[g->lo];
            for (int a = 0; lambda_sum && a < d->k[i]; a++)
                t[a] += g->use[a] * lambda_sum;
        }
        for (int a = 0; a < d->k[i]; a++)
            if (d->cost[d->off[i] + a] >= LAYOUT_INF)
                t[a] = LAYOUT_INF;
    }
}

/* hat = theta + messages in; removed values stay at LAYOUT_INF. Returns the least. */
static int64_t gather(struct layout_dual *d, int i) {
    int64_t *h = d->hat + d->off[i];
    const int64_t *cost = d->cost + d->off[i];
    int k = d->k[i];
    memcpy(h, d->theta + d->off[i], (size_t)k * sizeof *h);
    for (int64_t s = d->fwd[i]; s < d->fwd[i + 1]; s++) {
        const int64_t *m = d->msg + d->to_u[d->fwd_e[s]];
        for (int a = 0; a < k; a++)
            h[a] += m[a];
    }
    for (int64_t s = d->bwd[i]; s < d->bwd[i + 1]; s++) {
        const int64_t *m = d->msg + d->to_v[d->bwd_e[s]];
        for (int a = 0; a < k; a++)
            h[a] += m[a];
    }
    int64_t least = LAYOUT_INF;
    for (int a = 0; a < k; a++) {
        if (cost[a] >= LAYOUT_INF)
            h[a] = LAYOUT_INF;
        if (h[a] < least) {
            least = h[a];
            d->x[i] = a;
        }
    }
    return least;
}

/* Levels a message to a least of 0. Returns what was taken off. Removed values of the
 * receiver get 0. */
static int64_t level(int64_t *out, const int64_t *cost, int k) {
    int64_t least = LAYOUT_INF;
    for (int b = 0; b < k; b++)
        if (cost[b] < LAYOUT_INF && out[b] < least)
            least = out[b];
    for (int b = 0; b < k; b++)
        out[b] = cost[b] < LAYOUT_INF ? out[b] - least : 0;
    return least;
}

/* out[b] = min_a p[a] + w[a, b]. All minima run at once, so the loops vectorize. */
static void push_down(int64_t *restrict out, const int64_t *restrict p,
                      const int64_t *restrict w, int ku, int kv) {
    for (int b = 0; b < kv; b++)
        out[b] = 2 * LAYOUT_INF;
    for (int a = 0; a < ku; a++, w += kv) {
        if (p[a] >= LAYOUT_INF)
            continue;
        for (int b = 0; b < kv; b++) {
            int64_t x = p[a] + w[b];
            out[b] = x < out[b] ? x : out[b];
        }
    }
}

static void push_up(int64_t *restrict out, const int64_t *restrict p,
                    const int64_t *restrict w, int ku, int kv) {
    for (int a = 0; a < ku; a++, w += kv) {
        int64_t least = 2 * LAYOUT_INF;
        for (int b = 0; b < kv; b++) {
            int64_t x = p[b] + w[b];
            least = x < least ? x : least;
        }
        out[a] = least;
    }
}

/* Sends a message along edge s away from i, forward (i is eu) or backward. Returns what
 * was levelled. */
static int64_t send(struct layout_dual *d, int s, int i, int64_t parts, bool forward) {
    int j = forward ? d->ev[s] : d->eu[s], ki = d->k[i], kj = d->k[j];
    const int64_t *h = d->hat + d->off[i];
    const int64_t *in = d->msg + (forward ? d->to_u[s] : d->to_v[s]);
    int64_t *out = d->msg + (forward ? d->to_v[s] : d->to_u[s]);
    for (int a = 0; a < ki; a++)
        d->tmp[a] = h[a] >= LAYOUT_INF ? LAYOUT_INF : floor_div(h[a], parts) - in[a];
    if (forward)
        push_down(out, d->tmp, d->w[s], ki, kj);
    else
        push_up(out, d->tmp, d->w[s], kj, ki);
    return level(out, d->cost + d->off[j], kj);
}

/* Returns what stays of hat at variable i when `sent` of its `parts` were sent. */
static int64_t rest(const struct layout_dual *d, int i, int64_t parts, int64_t sent) {
    const int64_t *h = d->hat + d->off[i];
    int64_t least = LAYOUT_INF;
    for (int a = 0; a < d->k[i]; a++) {
        if (h[a] >= LAYOUT_INF)
            continue;
        int64_t r = h[a] - sent * floor_div(h[a], parts);
        least = r < least ? r : least;
    }
    return least;
}

static int64_t parts_of(const struct layout_dual *d, int i) {
    int64_t f = d->fwd[i + 1] - d->fwd[i], b = d->bwd[i + 1] - d->bwd[i];
    return f > b ? f : b > 0 ? b : 1;
}

/* Returns the capacity of all rows, weighted with the multipliers. */
static int64_t capacity_charge(const struct layout_dual *d) {
    int64_t sum = 0;
    for (int r = 0; r < d->c->n_rows; r++)
        sum += d->c->cap[r] * (d->lambda_sum[r + 1] - d->lambda_sum[r]);
    return sum;
}

/* Sweeps once each way at the present multipliers. Returns the bound. */
static int64_t sweep(struct layout_dual *d) {
    for (int i = 0; i < d->n; i++) {
        gather(d, i);
        int64_t parts = parts_of(d, i);
        for (int64_t s = d->fwd[i]; s < d->fwd[i + 1]; s++)
            send(d, d->fwd_e[s], i, parts, true);
    }
    int64_t bound = d->c->base - capacity_charge(d);
    bool empty = false;
    for (int i = d->n - 1; i >= 0; i--) {
        empty |= gather(d, i) >= LAYOUT_INF;
        int64_t parts = parts_of(d, i);
        for (int64_t s = d->bwd[i]; s < d->bwd[i + 1]; s++)
            bound += send(d, d->bwd_e[s], i, parts, false);
        bound += rest(d, i, parts, d->bwd[i + 1] - d->bwd[i]);
    }
    d->bound = empty ? LAYOUT_INF : bound;
    return d->bound;
}

/* use[r] = what x uses in row r. */
static void count_use(struct layout_dual *d) {
    memset(d->use, 0, ((size_t)d->c->n_rows + 1) * sizeof *d->use);
    for (int i = 0; i < d->n; i++) {
        const struct layout_var *v = &d->c->var[d->var[i]];
        for (int64_t s = 0; s < v->seg.n; s++) {
            d->use[v->seg.p[s].lo] += v->seg.p[s].use[d->x[i]];
            d->use[v->seg.p[s].hi] -= v->seg.p[s].use[d->x[i]];
        }
    }
    for (int r = 0; r < d->c->n_rows; r++)
        d->use[r + 1] += d->use[r];
}

/* Averages the violations and their squares. Returns the largest average square. */
static double average(struct layout_dual *d) {
    double most = 0;
    count_use(d);
    for (int r = 0; r < d->c->n_rows; r++) {
        double g = (double)(d->use[r] - d->c->cap[r]);
        double moves = d->lambda[r] > 0 || g > 0 ? g : 0;
        d->grad[r] = d->smooth * d->grad[r] + (1 - d->smooth) * g;
        d->square[r] = MEMORY * d->square[r] + (1 - MEMORY) * moves * moves;
        most = d->square[r] > most ? d->square[r] : most;
    }
    return most;
}

double layout_dual_gap(const struct layout_dual *d, int64_t upper) {
    double gap = (double)upper - (double)d->bound, least = 1e-4 * fabs((double)d->bound);
    double most = 0.1 * fabs((double)d->bound) + (double)(INT64_C(1) << d->c->shift);
    return gap < least ? least : gap > most ? most : gap;
}

/* Moves the multipliers one step along the averaged violations, each scaled by its own
 * average size as in RMSProp: rows that swing widely would otherwise set the pace of
 * all. */
static void move_multipliers(struct layout_dual *d, int64_t upper) {
    double floor = 0.1 * sqrt(average(d)) + 1, rise = 0;
    for (int r = 0; r < d->c->n_rows; r++)
        if (d->lambda[r] > 0 || d->grad[r] > 0)
            rise += d->grad[r] * d->grad[r] / (sqrt(d->square[r]) + floor);
    if (rise == 0)
        return;
    double t = d->step * layout_dual_gap(d, upper) / rise;
    for (int r = 0; r < d->c->n_rows; r++) {
        double l = d->lambda[r] + t * d->grad[r] / (sqrt(d->square[r]) + floor);
        d->lambda[r] = l > 0 ? l : 0;
    }
}

int64_t layout_dual_sweep(struct layout_dual *d) {
    set_theta(d);
    return sweep(d);
}

void layout_dual_scale(struct layout_dual *d, double factor, int sweeps) {
    if (!d->kept) {
        d->kept = mem_array((size_t)d->n_msg + 1, sizeof *d->kept);
        memcpy(d->kept, d->msg, (size_t)d->n_msg * sizeof *d->kept);
    }
    for (int r = 0; r < d->c->n_rows; r++)
        d->lambda[r] = factor * d->best_lambda[r];
    set_theta(d);
    while (sweeps-- > 0)
        sweep(d);
    d->best = d->bound > d->best ? d->bound : d->best;
}

void layout_dual_settle(struct layout_dual *d) {
    if (d->kept)
        memcpy(d->msg, d->kept, (size_t)d->n_msg * sizeof *d->kept);
    free(d->kept);
    d->kept = NULL;
    size_t bytes = (size_t)d->c->n_rows * sizeof *d->lambda;
    memcpy(d->lambda, d->best_lambda, bytes);
    memcpy(d->c->lambda, d->best_lambda, bytes);
    set_theta(d);
    sweep(d);
    d->best = d->bound > d->best ? d->bound : d->best;
}

int64_t layout_dual_run(struct layout_dual *d, int rounds, int64_t upper,
                        double deadline_s) {
    size_t bytes = (size_t)d->c->n_rows * sizeof *d->lambda;
    for (int round = 0; round < rounds; round++) {
        set_theta(d);
        sweep(d);
        if (d->bound > d->best) {
            double rise = (double)d->bound - (double)d->best;
            d->stuck = rise > 1e-6 * fabs((double)d->bound) ? 0 : d->stuck + 1;
            d->best = d->bound;
            memcpy(d->best_lambda, d->lambda, bytes);
        } else {
            d->stuck++;
        }
        if (d->stuck >= PATIENCE) { /* back to the best point, with shorter steps */
            d->step *= 0.7;
            d->stuck = 0;
            memcpy(d->lambda, d->best_lambda, bytes);
            memset(d->grad, 0, (size_t)d->c->n_rows * sizeof *d->grad);
        }
        if (d->bound >= upper || layout_time_up(deadline_s) || d->step < 1e-5)
            break;
        if (d->c->n_rows)
            move_multipliers(d, upper);
    }
    if (!layout_time_up(deadline_s)) /* else nobody goes on from here */
        layout_dual_settle(d);
    return d->best;
}

/* Computes what stays at (i, a) after the last sweep, less the least of it. */
static void rests(const struct layout_dual *d, int i, int64_t *out) {
    const int64_t *h = d->hat + d->off[i];
    int64_t parts = parts_of(d, i), sent = d->bwd[i + 1] - d->bwd[i];
    int64_t least = rest(d, i, parts, sent);
    for (int a = 0; a < d->k[i]; a++)
        out[a] =
            h[a] >= LAYOUT_INF ? LAYOUT_INF : h[a] - sent * floor_div(h[a], parts) - least;
}

/* Prepares the matrix of edge s after the last sweep, w[a, b] + share[b] - mu[a] with mu
 * the message to eu: fills share with ev's part of hat less the message to ev. Returns the
 * least over all entries. */
static int64_t edge_share(struct layout_dual *d, int s, int64_t *share) {
    int v = d->ev[s], kv = d->k[v], ku = d->k[d->eu[s]];
    int64_t parts = parts_of(d, v), least = 2 * LAYOUT_INF;
    const int64_t *h = d->hat + d->off[v], *w = d->w[s];
    const int64_t *mu = d->msg + d->to_u[s], *mv = d->msg + d->to_v[s];
    const int64_t *cu = d->cost + d->off[d->eu[s]];
    for (int b = 0; b < kv; b++)
        share[b] = h[b] >= LAYOUT_INF ? LAYOUT_INF : floor_div(h[b], parts) - mv[b];
    for (int a = 0; a < ku; a++, w += kv) {
        if (cu[a] >= LAYOUT_INF)
            continue;
        for (int b = 0; b < kv; b++)
            if (share[b] < LAYOUT_INF && w[b] + share[b] - mu[a] < least)
                least = w[b] + share[b] - mu[a];
    }
    return least;
}

/* rho[b] = least over a of edge s, above the least of the whole edge. */
static void edge_rho(struct layout_dual *d, int s, int64_t *rho) {
    int kv = d->k[d->ev[s]], ku = d->k[d->eu[s]];
    int64_t least = edge_share(d, s, d->tmp);
    const int64_t *w = d->w[s], *mu = d->msg + d->to_u[s];
    const int64_t *cu = d->cost + d->off[d->eu[s]];
    for (int b = 0; b < kv; b++)
        rho[b] = LAYOUT_INF;
    for (int a = 0; a < ku; a++, w += kv) {
        if (cu[a] >= LAYOUT_INF)
            continue;
        for (int b = 0; b < kv; b++) {
            int64_t x = w[b] + d->tmp[b] - mu[a] - least;
            rho[b] = x < rho[b] ? x : rho[b];
        }
    }
}

void layout_dual_pairs(struct layout_dual *d, int s, int64_t *pairs) {
    int kv = d->k[d->ev[s]], ku = d->k[d->eu[s]];
    int64_t least = edge_share(d, s, d->tmp);
    const int64_t *w = d->w[s], *mu = d->msg + d->to_u[s];
    const int64_t *cu = d->cost + d->off[d->eu[s]];
    for (int a = 0; a < ku; a++, w += kv, pairs += kv)
        for (int b = 0; b < kv; b++) {
            bool gone =
                cu[a] >= LAYOUT_INF || w[b] >= LAYOUT_INF || d->tmp[b] >= LAYOUT_INF;
            pairs[b] = gone ? LAYOUT_INF : w[b] + d->tmp[b] - mu[a] - least;
        }
}

static inline int64_t capped_sum(int64_t a, int64_t b) {
    int64_t sum = a + b;
    return sum >= LAYOUT_INF ? LAYOUT_INF : sum;
}

void layout_dual_extra(struct layout_dual *d, int64_t *extra) {
    int most = 1;
    for (int i = 0; i < d->n; i++) {
        rests(d, i, extra + d->off[i]);
        most = d->k[i] > most ? d->k[i] : most;
    }
    int64_t *rho = mem_array((size_t)most, sizeof *rho);
    for (int s = 0; s < d->m; s++) {
        edge_rho(d, s, rho);
        int64_t *x = extra + d->off[d->ev[s]];
        for (int b = 0; b < d->k[d->ev[s]]; b++)
            x[b] = capped_sum(x[b], rho[b]);
    }
    free(rho);
}

/* Forbids, in c, the pairs of edge s whose bound is above `room`. */
static int64_t fix_edge(struct layout_dual *d, struct layout_core *c, int s,
                        const int64_t *extra, int64_t room, int64_t *rho) {
    int u = d->eu[s], v = d->ev[s], ku = d->k[u], kv = d->k[v];
    edge_rho(d, s, rho);
    int64_t least = edge_share(d, s, d->tmp), n = 0;
    const int64_t *mu = d->msg + d->to_u[s], *w = d->w[s];
    struct layout_edge *e = &c->edge[d->edge[s]]; /* as the core has it */
    bool flipped = d->owned[s] != NULL;
    int64_t *mine = NULL; /* its matrix, from the first change on */
    for (int a = 0; a < ku; a++, w += kv)
        for (int b = 0; b < kv; b++) {
            if (w[b] >= LAYOUT_INF)
                continue;
            int64_t eu = extra[d->off[u] + a], ev = extra[d->off[v] + b];
            bool gone = eu >= LAYOUT_INF || ev >= LAYOUT_INF || d->tmp[b] >= LAYOUT_INF;
            if (!gone)
                gone = w[b] + d->tmp[b] - mu[a] - least + eu + ev - rho[b] > room;
            if (gone) {
                if (!mine)
                    mine = e->w = layout_matrix_own(e->w, (size_t)ku * (size_t)kv);
                mine[flipped ? (int64_t)b * ku + a : (int64_t)a * kv + b] = LAYOUT_INF;
                n++;
            }
        }
    return n;
}

int64_t layout_dual_fix(struct layout_dual *d, struct layout_core *c, int64_t upper) {
    /* All costs are multiples of 2^shift: an answer below upper is at least one such
     * below. */
    int64_t room = upper - (INT64_C(1) << d->c->shift) - d->bound, n = 0;
    int64_t *extra = mem_array((size_t)d->off[d->n] + 1, sizeof *extra);
    int most = 1;
    layout_dual_extra(d, extra);
    for (int i = 0; i < d->n; i++) {
        struct layout_var *v = &c->var[d->var[i]];
        most = d->k[i] > most ? d->k[i] : most;
        for (int a = 0; a < d->k[i]; a++)
            if (v->cost[a] < LAYOUT_INF && extra[d->off[i] + a] > room) {
                v->cost[a] = LAYOUT_INF;
                n++;
            }
    }
    int64_t *rho = mem_array((size_t)most, sizeof *rho);
    for (int s = 0; s < d->m; s++)
        n += fix_edge(d, c, s, extra, room, rho);
    free(rho);
    free(extra);
    return n;
}
