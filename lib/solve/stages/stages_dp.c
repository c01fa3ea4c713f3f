/* stages_dp.c - passes of the stages solver.
 *
 * The inner loop of every pass runs over the number of devices left, because there both
 * sides of g[l][d] = min(g[l][d], g[k+1][d - size] + time) lie side by side in memory.
 * Memory limits depend on the number of successors, which breaks this. So the fast passes
 * relax them, and only stages_dp_labels keeps them, on the few triples that the bounds
 * leave.
 */
#include "solve/stages/stages_dp.h"

#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TRIPLES 60000000

void stages_dp_init(struct stages_dp *dp, const struct stages_problem *p,
                    double deadline_s) {
    *dp = (struct stages_dp){.p = p, .deadline_s = deadline_s, .width = p->devices + 1};
    size_t cells = (size_t)(p->layers + 1) * (size_t)dp->width;
    dp->start = mem_array((size_t)p->layers + 1, sizeof *dp->start);
    dp->suffix = mem_array(cells, sizeof *dp->suffix);
    dp->prefix = mem_array(cells, sizeof *dp->prefix);
}

void stages_dp_release(struct stages_dp *dp) {
    free(dp->start);
    free(dp->suffix);
    free(dp->prefix);
    arr_release(&dp->triples);
}

bool stages_dp_stopped(const struct stages_dp *dp) {
    return interrupted() || now_s() >= dp->deadline_s;
}

/* ---- candidate stages ------------------------------------------------------------ */

struct rows {
    double *t; /* [config][layer] */
    int *succ;
    int *end;    /* [config]: rows hold stages that end before this layer */
    double *now; /* [config]: t at the present layer, INFINITY from end on */
    int *live;   /* choices whose rows go on, in order */
    int *alike;  /* [choice] the next one on the same devices, in a ring */
};

static bool same_place(const struct stages_choice *a, const struct stages_choice *b) {
    return a->size == b->size && a->lo == b->lo && a->hi == b->hi &&
           stages_choice_step(a) == stages_choice_step(b);
}

static void find_alike(const struct stages_problem *p, int *alike) {
    for (int j = 0; j < p->num_choices; j++) {
        int i = (j + 1) % p->num_choices;
        while (!same_place(&p->choices[i], &p->choices[j]))
            i = (i + 1) % p->num_choices;
        alike[j] = i;
    }
}

/* Returns whether another choice on the same devices is at least as fast and allows as
 * many successors. */
static bool dominated(const struct stages_problem *p, const struct rows *r, int j, int k) {
    const struct stages_choice *c = &p->choices[j];
    double t = r->now[c->config];
    int succ = r->succ[(int64_t)c->config * p->layers + k];
    for (int i = r->alike[j]; i != j; i = r->alike[i]) {
        const struct stages_choice *o = &p->choices[i];
        if (r->now[o->config] > t)
            continue;
        int other = r->succ[(int64_t)o->config * p->layers + k];
        if (other >= succ && (r->now[o->config] < t || other > succ || i < j))
            return true;
    }
    return false;
}

/* Adds the stage that ends at layer k with choice j if it is worth having. */
static void build_cell(struct stages_dp *dp, const struct rows *r, int k, int j,
                       double limit) {
    const struct stages_problem *p = dp->p;
    int c = p->choices[j].config, succ = r->succ[(int64_t)c * p->layers + k];
    int need = k < p->layers - 1; /* a stage before the end has a successor */
    if (isinf(r->now[c]) || succ < need)
        return;
    struct stages_triple t = {
        .time = r->now[c], .k = (uint16_t)k, .choice = (uint16_t)j, .succ = (uint16_t)succ};
    if (t.time <= limit && !dominated(p, r, j, k))
        arr_push(&dp->triples, t);
}

static void build_row(struct stages_dp *dp, const struct rows *r, int l, double limit) {
    const struct stages_problem *p = dp->p;
    int n = p->num_choices;
    for (int c = 0; c < p->num_configs; c++) {
        int64_t at = (int64_t)c * p->layers;
        r->end[c] = stages_row(p, l, c, limit, r->t + at, r->succ + at);
    }
    for (int j = 0; j < n; j++)
        r->live[j] = j;
    for (int k = l; k < p->layers && n > 0; k++) {
        int kept = 0;
        for (int i = 0; i < n; i++) {
            int c = p->choices[r->live[i]].config;
            r->now[c] = k < r->end[c] ? r->t[(int64_t)c * p->layers + k] : INFINITY;
            if (k < r->end[c])
                r->live[kept++] = r->live[i];
        }
        n = kept;
        for (int i = 0; i < n; i++)
            build_cell(dp, r, k, r->live[i], limit);
    }
}

bool stages_dp_build(struct stages_dp *dp, double limit, struct err *err) {
    const struct stages_problem *p = dp->p;
    size_t n = (size_t)p->num_configs * (size_t)p->layers;
    size_t configs = (size_t)p->num_configs;
    struct rows r = {mem_array(n, sizeof *r.t),
                     mem_array(n, sizeof *r.succ),
                     mem_array(configs, sizeof *r.end),
                     mem_array(configs, sizeof *r.now),
                     mem_array((size_t)p->num_choices + 1, sizeof *r.live),
                     mem_array((size_t)p->num_choices + 1, sizeof *r.alike)};
    bool good = true;
    find_alike(p, r.alike);
    dp->triples.n = 0;
    for (int l = 0; l < p->layers && good; l++) {
        dp->start[l] = dp->triples.n;
        if (!stages_dp_stopped(dp))
            build_row(dp, &r, l, limit);
        if (dp->triples.n > MAX_TRIPLES) {
            err_system(err, "more than %d candidate stages", MAX_TRIPLES);
            good = false;
        }
    }
    dp->start[p->layers] = dp->triples.n;
    free(r.t);
    free(r.succ);
    free(r.end);
    free(r.now);
    free(r.live);
    free(r.alike);
    return good;
}

/* ---- relaxed passes -------------------------------------------------------------- */

/* Handles four doubles at a time where the machine can, which halves the time of the whole
 * solver. */
#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_WIDE 1
#ifdef __clang__
#define WIDE __attribute__((target("avx2")))
#else
#define WIDE __attribute__((target("avx2"), optimize("O3")))
#endif
#else
#define HAVE_WIDE 0
#define WIDE
#endif

static inline __attribute__((always_inline)) void
sum_loop(double *restrict g, const double *restrict f, double w, int n) {
    for (int i = 0; i < n; i++) {
        double x = f[i] + w;
        g[i] = x < g[i] ? x : g[i];
    }
}

static inline __attribute__((always_inline)) void
max_loop(double *restrict g, const double *restrict f, double m, int n) {
    for (int i = 0; i < n; i++) {
        double x = f[i] > m ? f[i] : m;
        g[i] = x < g[i] ? x : g[i];
    }
}

typedef void row_fn(double *restrict g, const double *restrict f, double w, int n);

/* Runs the row of a choice over numbers of devices that are `step` apart. */
static void stepped(row_fn *row, double *g, const double *f, double w,
                    const struct stages_choice *c) {
    int step = stages_choice_step(c);
    if (step == 1)
        row(g, f, w, c->hi - c->lo + 1);
    for (int i = 0; step > 1 && i <= c->hi - c->lo; i += step)
        row(g + i, f + i, w, 1);
}

static void sum_plain(double *restrict g, const double *restrict f, double w, int n) {
    sum_loop(g, f, w, n);
}
static void max_plain(double *restrict g, const double *restrict f, double w, int n) {
    max_loop(g, f, w, n);
}
WIDE static void sum_wide(double *restrict g, const double *restrict f, double w, int n) {
    sum_loop(g, f, w, n);
}
WIDE static void max_wide(double *restrict g, const double *restrict f, double w, int n) {
    max_loop(g, f, w, n);
}

static row_fn *row_function(enum stages_dp_kind kind) {
#if HAVE_WIDE
    if (__builtin_cpu_supports("avx2"))
        return kind == STAGES_DP_SUM ? sum_wide : max_wide;
#endif
    return kind == STAGES_DP_SUM ? sum_plain : max_plain;
}

static void fill(double *g, int64_t n, double v) {
    for (int64_t i = 0; i < n; i++)
        g[i] = v;
}

bool stages_dp_suffix(struct stages_dp *dp, double limit, enum stages_dp_kind kind,
                      double *g) {
    const struct stages_problem *p = dp->p;
    row_fn *row = row_function(kind);
    dp->passes++;
    fill(g, dp->width * (p->layers + 1), INFINITY);
    fill(g + dp->width * p->layers, p->use_all ? 1 : dp->width, 0);
    for (int l = p->layers - 1; l >= 0; l--) {
        double *gl = g + dp->width * l;
        if (stages_dp_stopped(dp))
            return false;
        for (int64_t i = dp->start[l]; i < dp->start[l + 1]; i++) {
            const struct stages_triple *t = &dp->triples.p[i];
            const struct stages_choice *c = &p->choices[t->choice];
            if (t->time <= limit)
                stepped(row, gl + c->lo, g + dp->width * (t->k + 1) + c->lo - c->size,
                        t->time, c);
        }
        for (int d = 1; d <= p->devices && !p->use_all; d++)
            gl[d] = fmin(gl[d], gl[d - 1]);
    }
    return true;
}

bool stages_dp_prefix(struct stages_dp *dp, double limit, double *q) {
    const struct stages_problem *p = dp->p;
    row_fn *row = row_function(STAGES_DP_SUM);
    dp->passes++;
    fill(q, dp->width * (p->layers + 1), INFINITY);
    q[p->devices] = 0;
    for (int l = 0; l < p->layers; l++) {
        double *ql = q + dp->width * l;
        if (stages_dp_stopped(dp))
            return false;
        for (int d = p->devices; d > 0 && !p->use_all; d--)
            ql[d - 1] = fmin(ql[d - 1], ql[d]);
        for (int64_t i = dp->start[l]; i < dp->start[l + 1]; i++) {
            const struct stages_triple *t = &dp->triples.p[i];
            const struct stages_choice *c = &p->choices[t->choice];
            if (t->time <= limit)
                stepped(row, q + dp->width * (t->k + 1) + c->lo - c->size, ql + c->lo,
                        t->time, c);
        }
    }
    return true;
}

/* Returns the least a[i] + b[i]. Four minima run at a time, so that they do not wait for
 * each other. */
static double least_sum(const double *a, const double *b, int n) {
    double m[4] = {INFINITY, INFINITY, INFINITY, INFINITY};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++) {
            double x = a[i + j] + b[i + j];
            m[j] = x < m[j] ? x : m[j];
        }
    for (; i < n; i++)
        m[0] = fmin(m[0], a[i] + b[i]);
    return fmin(fmin(m[0], m[1]), fmin(m[2], m[3]));
}

static double least_of(const double *a, const double *b, const struct stages_choice *c) {
    int step = stages_choice_step(c);
    double least = INFINITY;
    if (step == 1)
        return least_sum(a, b, c->hi - c->lo + 1);
    for (int i = 0; i <= c->hi - c->lo; i += step)
        least = fmin(least, a[i] + b[i]);
    return least;
}

bool stages_dp_filter(struct stages_dp *dp, double lo, double best) {
    const struct stages_problem *p = dp->p;
    int64_t kept = 0, from = 0;
    for (int l = 0; l < p->layers; l++) {
        const double *q = dp->prefix + dp->width * l;
        int64_t end = dp->start[l + 1];
        if (stages_dp_stopped(dp)) { /* leave what is not yet judged as it is */
            memmove(dp->triples.p + kept, dp->triples.p + from,
                    (size_t)(dp->triples.n - from) * sizeof *dp->triples.p);
            for (int i = l; i <= p->layers; i++)
                dp->start[i] -= i == l ? 0 : from - kept;
            dp->start[l] = kept;
            dp->triples.n -= from - kept;
            return false;
        }
        dp->start[l] = kept;
        for (int64_t i = from; i < end; i++) {
            struct stages_triple t = dp->triples.p[i];
            const struct stages_choice *c = &p->choices[t.choice];
            const double *s = dp->suffix + dp->width * (t.k + 1) - c->size;
            double least = least_of(q + c->lo, s + c->lo, c);
            if (least + t.time + (p->micro_batches - 1) * fmax(t.time, lo) < best)
                dp->triples.p[kept++] = t;
        }
        from = end;
    }
    dp->start[p->layers] = dp->triples.n = kept;
    return true;
}

/* ---- plans ----------------------------------------------------------------------- */

void stages_plan_init(struct stages_plan *plan, const struct stages_problem *p) {
    int most = p->layers < p->devices ? p->layers : p->devices;
    *plan = (struct stages_plan){.value = INFINITY, .max = INFINITY, .sum = INFINITY};
    plan->stages = mem_array((size_t)most + 1, sizeof *plan->stages);
}

void stages_plan_copy(struct stages_plan *to, const struct stages_plan *from) {
    struct stages_stage *keep = to->stages;
    *to = *from;
    to->stages = keep;
    memcpy(keep, from->stages, (size_t)from->n * sizeof *keep);
}

void stages_plan_finish(struct stages_plan *plan, const struct stages_problem *p) {
    plan->sum = plan->max = 0;
    for (int i = 0; i < plan->n; i++) {
        plan->sum += plan->stages[i].time;
        plan->max = fmax(plan->max, plan->stages[i].time);
    }
    plan->value = plan->sum + (p->micro_batches - 1) * plan->max;
}

static void plan_add(const struct stages_dp *dp, struct stages_plan *plan, int l, int d,
                     const struct stages_triple *t) {
    plan->stages[plan->n++] = (struct stages_stage){.first = l,
                                                    .last = t->k,
                                                    .choice = t->choice,
                                                    .device = dp->p->devices - d,
                                                    .time = t->time};
}

void stages_dp_trace(const struct stages_dp *dp, double limit, const double *g,
                     struct stages_plan *plan) {
    const struct stages_problem *p = dp->p;
    int l = 0, d = p->devices;
    plan->n = 0;
    while (l < p->layers) {
        const double *gl = g + dp->width * l;
        while (!p->use_all && d > 0 && gl[d - 1] <= gl[d])
            d--;
        int64_t i = dp->start[l];
        const struct stages_triple *t;
        for (;; i++) { /* the sum that made gl[d] is found again bit for bit */
            t = &dp->triples.p[i];
            const struct stages_choice *c = &p->choices[t->choice];
            if (t->time <= limit && stages_choice_allows(c, d) &&
                g[dp->width * (t->k + 1) + d - c->size] + t->time == gl[d])
                break;
        }
        plan_add(dp, plan, l, d, t);
        l = t->k + 1;
        d -= p->choices[t->choice].size;
    }
    stages_plan_finish(plan, p);
}

bool stages_dp_fits(const struct stages_dp *dp, const struct stages_plan *plan) {
    const struct stages_problem *p = dp->p;
    for (int s = 0; s < plan->n; s++) {
        const struct stages_stage *st = &plan->stages[s];
        int64_t i = dp->start[st->first];
        while (dp->triples.p[i].k != st->last || dp->triples.p[i].choice != st->choice)
            i++;
        if (dp->triples.p[i].succ < plan->n - 1 - s)
            return false;
    }
    return plan->n <= p->max_stages;
}
