/* layout_improve.c - batches of jobs: one raises the bound, the others improve the choice.
 *
 * The bound works on a copy of the problem that gets tighter: once a choice is known,
 * values and pairs that no cheaper choice uses are forbidden and the copy is reduced again.
 * If nothing is left of it, the choice was the best. When messages and multipliers no
 * longer move, branch and bound takes over, each time with more nodes.
 */
#include "solve/layout_improve.h"

#include "common/progress.h"
#include "solve/layout_lns.h"
#include "solve/layout_local.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define JOBS      12 /* neighbourhoods per batch */
#define MOST_JOBS 192
#define SEARCHED  8000 /* values up to which branch and bound is tried early */
#define KINDS     6

struct bounder {
    struct layout_core tight; /* what may still be cheaper than the present choice */
    struct layout_dual d;
    struct layout_state state;
    bool live;        /* d and state are set up */
    bool empty;       /* nothing cheaper is left */
    int64_t upper;    /* at the last fixing */
    int64_t fixed_at; /* bound at the last fixing */
    int64_t nodes;    /* of the next branch and bound */
    int idle;         /* batches of the dual without progress */
    int64_t bound;    /* best so far */
    bool by_search;
    int32_t *y; /* (core.n_vars) a choice found on the way */
    bool found;
};

struct batch {
    struct layout_improve *m;
    struct layout_whole whole;
    struct bounder b;
    struct layout_state check; /* on the core, to check and to descend */
    struct layout_job jobs[MOST_JOBS];
    double size[KINDS];
    uint64_t count; /* of jobs so far */
    int turn;
    int n_jobs;
    int next;      /* job to be taken: 0 is the bound */
    double *lent;  /* (core.n_rows) multipliers for the next batch */
    double *doubt; /* (core.n_vars + 1) where it is to look first */
    pthread_mutex_t lock;
};

/* ---- the bound ------------------------------------------------------------------- */

static void bounder_start(struct bounder *b, double step) {
    layout_dual_init(&b->d, &b->tight);
    layout_state_init(&b->state, &b->tight);
    b->d.step = step;
    b->live = true;
}

static void bounder_stop(struct bounder *b) {
    if (!b->live)
        return;
    layout_state_release(&b->state);
    layout_dual_release(&b->d);
    b->live = false;
}

static void keep_choice(struct bounder *b, const int *x) {
    layout_core_choice(&b->tight, x, b->y);
    b->found = true;
}

/* Forbids what cannot be in a cheaper choice; starts afresh if that was much. */
static void tighten(struct batch *t) {
    struct bounder *b = &t->b;
    int64_t values = b->d.off[b->d.n];
    if (layout_dual_fix(&b->d, t->m->value) == 0)
        return;
    b->upper = t->m->value;
    b->fixed_at = b->d.bound;
    double step = b->d.step;
    bounder_stop(b);
    b->empty = layout_core_shrink(&b->tight, NULL) < 0;
    if (b->empty)
        return;
    bounder_start(b, step < 0.03 ? 0.03 : step);
    note_verbose("layout: %lld of %lld values left", (long long)b->d.off[b->d.n],
                 (long long)values);
}

/* Where the present choice costs more than the bound says it must. Returns the share of
 * values that no cheaper choice uses. */
static double set_doubt(struct batch *t) {
    struct bounder *b = &t->b;
    struct layout_whole *w = &t->whole;
    int n = w->c->n_vars;
    double gap = (double)(t->m->value - b->d.bound) + 1;
    double *doubt = mem_array((size_t)n + 1, sizeof *doubt);
    int64_t *extra = mem_array((size_t)b->d.off[b->d.n] + 1, sizeof *extra);
    layout_dual_extra(&b->d, extra);
    for (int i = 0; i < b->d.n; i++) {
        const struct layout_var *v = &b->tight.var[b->d.var[i]];
        for (int64_t s = 0; s < v->pick.n; s++) {
            const struct layout_pick *p = &v->pick.p[s];
            double x = gap; /* the value is gone */
            for (int a = 0; a < v->k; a++)
                if (p->strategy[a] == t->m->x[p->node] &&
                    (double)extra[b->d.off[i] + a] < x)
                    x = (double)extra[b->d.off[i] + a];
            doubt[p->node] = x / gap;
        }
    }
    for (int i = 0; i < n; i++)
        t->doubt[i + 1] = t->doubt[i] + (w->c->var[i].k > 1 ? 0.02 + doubt[i] : 0);
    int64_t gone = 0;
    for (int64_t a = 0; a < b->d.off[b->d.n]; a++)
        gone += (double)extra[a] > gap;
    free(extra);
    free(doubt);
    return (double)gone / ((double)b->d.off[b->d.n] + 1);
}

/* The multipliers, for the parts: rows of the tight copy by their times. */
static void lend_prices(struct batch *t) {
    const struct layout_core *c = t->whole.c, *tight = &t->b.tight;
    memset(t->lent, 0, (size_t)c->n_rows * sizeof *t->lent);
    for (int r = 0, q = 0; r < c->n_rows; r++)
        if (q < tight->n_rows && tight->row_time[q] == c->row_time[r])
            t->lent[r] = tight->lambda[q++];
}

static void dual_turn(struct batch *t) {
    struct bounder *b = &t->b;
    int64_t before = b->bound;
    layout_dual_run(&b->d, 60, t->m->value, t->m->deadline_s);
    b->bound = b->d.best > b->bound ? b->d.best : b->bound;
    lend_prices(t);
    bool much = (double)(b->bound - before) > 2e-5 * fabs((double)b->bound);
    b->idle = much ? 0 : b->idle + 1;
    if (layout_state_decode(&b->state, &b->d, 20)) {
        layout_state_descend(&b->state);
        if (b->state.value < t->m->value)
            keep_choice(b, b->state.x);
    }
}

static void search_turn(struct batch *t) {
    struct bounder *b = &t->b;
    struct layout_search s = {.core = &b->tight,
                              .upper = t->m->value,
                              .max_nodes = b->nodes,
                              .deadline_s = t->m->deadline_s,
                              .root_rounds = 60,
                              .gap = t->m->gap};
    s.x = mem_array((size_t)b->tight.n_vars + 1, sizeof *s.x);
    layout_search_run(&s);
    if (s.bound > b->bound) {
        b->bound = s.bound;
        b->by_search = true;
    }
    if (s.found)
        keep_choice(b, s.x);
    b->nodes *= 2;
    free(s.x);
}

/* The job for the bound. */
static void bound_turn(struct batch *t) {
    struct bounder *b = &t->b;
    b->found = false;
    if (b->empty)
        return;
    if (b->idle >= 8 && b->d.off[b->d.n] > SEARCHED + 100 * t->turn) {
        if (t->turn % 6) /* now and then is enough */
            return;
        b->d.step = b->d.step < 0.03 ? 0.03 : b->d.step;
    } else if (b->idle >= 8) {
        search_turn(t);
        if (t->m->value < b->upper) /* a better choice: worth tightening again */
            b->idle = 4;
        return;
    }
    dual_turn(t);
    if (t->m->value == LAYOUT_INF)
        return;
    double gone = set_doubt(t);
    if (gone > 0.1 ||
        (b->idle == 6 && (b->d.bound > b->fixed_at || t->m->value < b->upper)))
        tighten(t);
}

/* ---- the batch ------------------------------------------------------------------- */

static void *worker(void *arg) {
    struct batch *t = arg;
    for (;;) {
        pthread_mutex_lock(&t->lock);
        int j = t->next++;
        pthread_mutex_unlock(&t->lock);
        if (j > t->n_jobs)
            return NULL;
        if (j == 0)
            bound_turn(t);
        else if (t->m->deadline_s == 0 || now_s() < t->m->deadline_s)
            layout_job_run(&t->jobs[j - 1]);
    }
}

static void run_jobs(struct batch *t) {
    int extra = t->m->threads - 1;
    pthread_t thread[64];
    extra = extra > 63 ? 63 : extra;
    t->next = 0;
    int started = 0;
    while (started < extra && pthread_create(&thread[started], NULL, worker, t) == 0)
        started++;
    worker(t);
    for (int i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

/* Takes a candidate over if it is allowed and cheaper. */
static bool offer(struct batch *t, const int *x, bool descend) {
    struct layout_improve *m = t->m;
    if (!layout_state_set(&t->check, x))
        return false;
    if (descend)
        layout_state_descend(&t->check);
    if (t->check.value >= m->value)
        return false;
    m->value = t->check.value;
    memcpy(m->x, t->check.x, (size_t)m->core->n_vars * sizeof *m->x);
    return true;
}

static void merge_job(struct batch *t, struct layout_job *j, int *x) {
    double *size = &t->size[j->kind];
    if (j->better) {
        memcpy(x, t->m->x, (size_t)t->m->core->n_vars * sizeof *x);
        for (int q = 0; q < j->n; q++)
            x[j->set[q]] = j->y[j->set[q]];
        offer(t, x, false);
    }
    *size *= !j->done || j->work > 20000000 ? 0.9 : j->better ? 1 : 1.05;
    *size = *size < 8 ? 8 : *size > 500 ? 500 : *size;
    layout_job_release(j);
}

static void merge(struct batch *t) {
    struct layout_improve *m = t->m;
    int *x = mem_array((size_t)m->core->n_vars + 1, sizeof *x);
    int64_t before = m->value;
    for (int j = 0; j < t->n_jobs; j++)
        merge_job(t, &t->jobs[j], x);
    if (t->b.found) {
        for (int i = 0; i < m->core->n_vars; i++)
            x[i] = t->b.y[i];
        offer(t, x, true);
    }
    memcpy(t->whole.doubt, t->doubt, ((size_t)m->core->n_vars + 1) * sizeof *t->doubt);
    memcpy(m->core->lambda, t->lent, (size_t)m->core->n_rows * sizeof *t->lent);
    m->bound = t->b.empty ? m->value : t->b.bound < m->value ? t->b.bound : m->value;
    m->by_search = t->b.by_search;
    if (m->value < before)
        layout_whole_set(&t->whole, m->x, m->value);
    free(x);
}

static void new_jobs(struct batch *t) {
    int64_t many = t->b.nodes / 32 * JOBS; /* as long as the search for the bound takes */
    t->n_jobs = t->m->value == LAYOUT_INF ? 0 : many < MOST_JOBS ? (int)many : MOST_JOBS;
    for (int j = 0; j < t->n_jobs; j++, t->count++)
        t->jobs[j] = (struct layout_job){.w = &t->whole,
                                         .seed = rng_bits(t->m->seed, 1, t->count),
                                         .kind = (int)(t->count % KINDS),
                                         .size = (int)t->size[t->count % KINDS],
                                         .deadline_s = t->m->deadline_s};
}

static bool finished(const struct batch *t) {
    const struct layout_improve *m = t->m;
    int64_t unit = INT64_C(1) << m->core->shift;
    if (m->value < LAYOUT_INF &&
        (m->bound > m->value - unit ||
         (double)(m->value - m->bound) <= m->gap * fabs((double)m->bound)))
        return true;
    if (t->b.empty || (m->deadline_s > 0 && now_s() > m->deadline_s) || interrupted())
        return true;
    return false;
}

void layout_improve_run(struct layout_improve *m) {
    struct batch t = {.m = m, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct bounder *b = &t.b;
    layout_whole_init(&t.whole, m->core);
    layout_state_init(&t.check, m->core);
    for (int k = 0; k < KINDS; k++)
        t.size[k] = 40;
    layout_whole_set(&t.whole, m->x, m->value);
    layout_part(&b->tight, &t.whole, NULL, 0);
    b->bound = m->bound;
    b->fixed_at = INT64_MIN;
    b->upper = LAYOUT_INF;
    b->nodes = 32;
    b->y = mem_array((size_t)m->core->n_vars + 1, sizeof *b->y);
    bounder_start(b, 1);
    t.doubt = mem_array((size_t)m->core->n_vars + 1, sizeof *t.doubt);
    memcpy(t.doubt, t.whole.doubt, ((size_t)m->core->n_vars + 1) * sizeof *t.doubt);
    t.lent = mem_array((size_t)m->core->n_rows + 1, sizeof *t.lent);
    double start = now_s();
    for (; t.turn == 0 || !finished(&t); t.turn++) {
        new_jobs(&t);
        run_jobs(&t);
        merge(&t);
        double unit = (double)(INT64_C(1) << m->core->shift);
        note_verbose("layout: %.1f s, turn %d: value %.0f bound %.0f; sizes %.0f %.0f %.0f",
                     now_s() - start, t.turn, (double)m->value / unit,
                     (double)m->bound / unit, t.size[0], t.size[1], t.size[2]);
    }
    bounder_stop(b);
    layout_core_release(&b->tight);
    free(b->y);
    free(t.lent);
    free(t.doubt);
    layout_state_release(&t.check);
    layout_whole_release(&t.whole);
}
