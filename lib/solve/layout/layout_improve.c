/* layout_improve.c - batches of jobs: one raises the bound, the others improve the choice.
 *
 * The bound works on a copy of the problem that gets tighter: once a choice is known,
 * values and pairs that no cheaper choice uses are forbidden and the copy is reduced again.
 * If nothing is left of it, the choice was the best. When messages and multipliers no
 * longer move, branch and bound takes over, each time with more nodes.
 */
#include "solve/layout/layout_improve.h"

#include "common/progress.h"
#include "solve/layout/layout_local.h"
#include "solve/layout/layout_mix.h"
#include "solve/layout/layout_tree.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define JOBS           48            /* neighbourhoods per batch */
#define KERNELS        2             /* per batch: around the choice, with a target */
#define MIX            (1 + KERNELS) /* the first job of the mix ... */
#define FIRST          (MIX + LAYOUT_MIX_JOBS) /* ... and the first neighbourhood */
#define MOST_JOBS      192
#define FEWER          3    /* how often their number is halved where they find nothing */
#define SEARCHED       8000 /* values up to which branch and bound is tried early */
#define KINDS          6
#define SHORT          3e-4 /* shorter steps of the dual begin again ... */
#define AFRESH         0.05 /* ... with this */
#define CAUGHT         4    /* batches without progress after which messages begin again */
#define NEAR           0.2  /* gap below which kernels are searched */
#define FIRST_VARS     400  /* of a kernel at first ... */
#define MOST_VARS      1500
#define ROUNDS         60   /* of the dual in a batch ... */
#define MORE           180  /* ... where the bound rises, but no longer fast */
#define SLOW           5e-4 /* rise of the bound below which a tree does better ... */
#define TREE           400  /* ... in at most so many sweeps ... */
#define SAPLING        50   /* ... and at least so many */
#define RANDOM_FACTORS 2    /* choices per batch at multipliers drawn at random ... */
#define MOST_EXTRA     0.3  /* ... up to so much above the multipliers */

/* Factors of the multipliers at which choices are built. Above 1 they leave memory free,
 * which is otherwise used up by the variables that are decided first. */
static const double factors[] = {1, 1.01, 1.03, 1.06, 1.1, 1.2, 1.4, 2, 4};
#define FACTORS ((int)(sizeof factors / sizeof *factors))

struct bounder {
    struct layout_core tight; /* what may still be cheaper than the present choice */
    struct layout_dual d;
    struct layout_state state;
    bool live;        /* d and state are set up */
    bool current;     /* d has been swept since it was set up */
    bool empty;       /* nothing cheaper is left */
    int64_t upper;    /* at the last fixing */
    int64_t fixed_at; /* bound at the last fixing */
    int64_t nodes;    /* of the next branch and bound */
    int idle;         /* batches of the dual without progress */
    int64_t bound;    /* best so far */
    int64_t dual;     /* the same of the dual alone */
    bool by_search;
    int32_t *y; /* (core.n_vars) a choice found on the way */
    int64_t y_value;
    bool found;
    bool rising;      /* the bound is still far from where it will end */
    bool slow;        /* the dual hardly rises, and is near its best */
    int factor;       /* the one in `factors` that gave the best choice */
    int calls;        /* of the dual so far */
    int64_t paced_by; /* the choice's value when steps were last measured */
    struct layout_kernel kernels[KERNELS]; /* for the next batch */
    double open[KERNELS];                  /* variables that they are to have */
    struct layout_tree tree;               /* of decisions about the variables of d */
    int tree_sweeps;                       /* for it in the next batch */
};

struct batch {
    struct layout_improve *m;
    struct layout_whole whole;
    struct bounder b;
    struct layout_state check; /* on the core, to check and to descend */
    struct layout_job jobs[MOST_JOBS];
    struct layout_kernel kernels[KERNELS]; /* to be searched in this batch */
    struct layout_mix mix;
    double size[KINDS];
    double most_size; /* half of all variables, 500 at most */
    int barren;       /* batches in a row in which neighbourhoods found nothing */
    uint64_t count;   /* of jobs so far */
    int batch_number;
    int n_jobs;
    int next;      /* job to be taken: the bound, kernels, swings, neighbourhoods */
    double *lent;  /* (core.n_rows) multipliers for the next batch */
    double *doubt; /* (core.n_vars + 1) where it is to look first */
    pthread_mutex_t lock;
};

/* ---- the bound ------------------------------------------------------------------- */

static void bounder_start(struct bounder *b, double step) {
    layout_dual_init(&b->d, &b->tight);
    layout_state_init(&b->state, &b->tight);
    b->d.step = step;
    b->state.deadline_s = b->tight.deadline_s;
    b->live = true;
    b->current = false;
}

static void bounder_stop(struct bounder *b) {
    if (!b->live)
        return;
    layout_state_release(&b->state);
    layout_dual_release(&b->d);
    b->live = false;
}

static void keep_choice(struct bounder *b, const int *x, int64_t value) {
    layout_core_choice(&b->tight, x, b->y);
    b->y_value = value;
    b->found = true;
}

/* Forbids what cannot be in a cheaper choice. If that reduces the copy, the dual starts
 * afresh. */
static void tighten(struct batch *t) {
    struct bounder *b = &t->b;
    int64_t values = b->d.off[b->d.n];
    if (layout_dual_fix(&b->d, &b->tight, t->m->value) == 0)
        return;
    b->upper = t->m->value;
    b->fixed_at = b->d.bound;
    double step = b->d.step;
    bounder_stop(b);
    layout_tree_release(&b->tree); /* variables change */
    if (layout_core_shrink(&b->tight, NULL) < 0) {
        b->empty = !interrupted();
        return;
    }
    bounder_start(b, step < 0.03 ? 0.03 : step);
    note_verbose("layout: %lld of %lld values left", (long long)b->d.off[b->d.n],
                 (long long)values);
}

/* Finds where the present choice costs more than the bound says it must. Returns the
 * fraction of values that no cheaper choice uses. */
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

/* Hands the multipliers to the neighbourhoods, matching rows of the tight copy by their
 * times. */
static void lend_multipliers(struct batch *t) {
    const struct layout_core *c = t->whole.c, *tight = &t->b.tight;
    memset(t->lent, 0, (size_t)c->n_rows * sizeof *t->lent);
    for (int r = 0, q = 0; r < c->n_rows; r++)
        if (q < tight->n_rows && tight->row_time[q] == c->row_time[r])
            t->lent[r] = tight->lambda[q++];
}

/* Makes the choice that was just built a start of the next batch's swings. */
static void add_start(struct batch *t) {
    struct bounder *b = &t->b;
    if (b->rising)
        return;
    int n = t->m->core->n_vars;
    int32_t *y = mem_array((size_t)n + 1, sizeof *y);
    int *x = mem_array((size_t)n + 1, sizeof *x);
    layout_core_choice(&b->tight, b->state.x, y);
    for (int i = 0; i < n; i++)
        x[i] = y[i];
    free(y);
    if (!layout_mix_add(&t->mix, x))
        free(x);
}

static void build_choice(struct batch *t, int factor, int tries) {
    struct bounder *b = &t->b;
    if (!layout_state_decode(&b->state, &b->d, tries))
        return;
    layout_state_descend(&b->state);
    add_start(t);
    if (b->state.value < (b->found ? b->y_value : t->m->value)) {
        keep_choice(b, b->state.x, b->state.value);
        b->factor = factor;
    }
}

/* Builds choices at multipliers drawn at random, so that the swings start from different
 * places. */
static void build_at_random(struct batch *t, int around) {
    struct rng r = {rng_bits(t->m->seed, 2, (uint64_t)t->batch_number), 0};
    for (int s = 0; s < RANDOM_FACTORS && !layout_time_up(t->m->deadline_s); s++) {
        layout_dual_scale(&t->b.d, 1 + MOST_EXTRA * rng_real(&r) * rng_real(&r), 3);
        build_choice(t, around, 3);
    }
}

/* Builds choices along the messages at several multiples of the multipliers: at all of
 * them to begin with, then only at the one that was best. */
static void build_choices(struct batch *t) {
    struct bounder *b = &t->b;
    bool all = t->m->value == LAYOUT_INF || b->calls < 4;
    int around = b->factor;
    bool none = t->m->value == LAYOUT_INF, late = layout_time_up(t->m->deadline_s);
    b->state.deadline_s =
        none ? 0 : t->m->deadline_s; /* a late answer is better than none */
    build_choice(t, 0, none && !late ? 20 : 3);
    if (b->tight.n_rows == 0)
        return;
    for (int p = 1; p < FACTORS && !layout_time_up(t->m->deadline_s); p++)
        if (all || p == around) {
            layout_dual_scale(&b->d, factors[p], 3);
            build_choice(t, p, 3);
        }
    if (!all && !b->rising)
        build_at_random(t, around);
    if (!layout_time_up(t->m->deadline_s))
        layout_dual_settle(&b->d);
}

/* The steps of the multipliers are a fraction of the gap and shrink when they prove too
 * long. A better choice makes the gap smaller, which must not shorten them a second
 * time. */
static void keep_pace(struct batch *t) {
    struct bounder *b = &t->b;
    if (t->m->value < b->paced_by && b->calls > 0) {
        double step = b->d.step * layout_dual_gap(&b->d, b->paced_by) /
                      layout_dual_gap(&b->d, t->m->value);
        b->d.step = step < 1 ? step : 1;
    }
    b->paced_by = t->m->value;
}

static void improve_dual(struct batch *t) {
    struct bounder *b = &t->b;
    int64_t before = b->dual;
    if (b->idle == CAUGHT &&
        b->d.off[b->d.n] > SEARCHED) { /* messages can get stuck; multipliers do not */
        bounder_stop(b);
        bounder_start(b, AFRESH);
    }
    int rounds = b->rising || (b->idle && b->idle < CAUGHT) ? ROUNDS : MORE;
    rounds = b->calls < 3 ? 10 << b->calls : rounds; /* few at first, for an early choice */
    b->calls++;
    if (b->d.step < SHORT) /* it may only be stuck on a ridge */
        b->d.step = AFRESH;
    keep_pace(t);
    layout_dual_run(&b->d, rounds, t->m->value, t->m->deadline_s);
    b->dual = b->d.best > before ? b->d.best : before;
    b->bound = b->dual > b->bound ? b->dual : b->bound;
    lend_multipliers(t);
    double rise = (double)b->dual - (double)before, level = fabs((double)b->dual);
    b->idle = rise > 2e-5 * level ? 0 : b->idle + 1;
    b->rising = rise > 0.01 * level;
    b->slow = rise < SLOW * level && (double)b->d.best > (double)b->dual - SLOW * level;
    build_choices(t);
}

static void search_exactly(struct batch *t) {
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
        keep_choice(b, s.x, s.upper);
    b->nodes *= 2;
    free(s.x);
}

/* Returns the values of the present choice; -1 where a value is gone. */
static int *present_values(const struct batch *t) {
    const struct bounder *b = &t->b;
    int *keep = mem_array((size_t)b->d.n + 1, sizeof *keep);
    for (int i = 0; i < b->d.n; i++) {
        const struct layout_var *v = &b->tight.var[b->d.var[i]];
        keep[i] = -1;
        for (int a = 0; a < v->k && keep[i] < 0; a++) {
            keep[i] = a;
            for (int64_t s = 0; s < v->pick.n; s++)
                if (v->pick.p[s].strategy[a] != t->m->x[v->pick.p[s].node])
                    keep[i] = -1;
        }
    }
    return keep;
}

/* Makes the kernels of the next batch: one around the present choice and, once the dual
 * hardly moves, one of all values that an answer below a target could use. */
static void next_kernels(struct batch *t) {
    struct bounder *b = &t->b;
    struct layout_kernel *k = b->kernels;
    int64_t value = t->m->value;
    if (b->rising || (double)(value - b->d.bound) > NEAR * fabs((double)b->d.bound))
        return;
    int *keep = present_values(t);
    int64_t reach = layout_kernel_reach(&b->d, keep, (int)b->open[0]);
    layout_kernel_make(&k[0], &b->d, reach, keep);
    free(keep);
    if (b->idle > 0) {
        int64_t target = b->d.bound + layout_kernel_reach(&b->d, NULL, (int)b->open[1]);
        target = target > b->bound ? target : b->bound + 1;
        layout_kernel_aim(&k[1], &b->d, target < value ? target : value);
    }
    for (int s = 0; s < KERNELS; s++)
        if (k[s].vars > MOST_VARS)
            layout_kernel_drop(&k[s]);
}

/* Raises the bound by a tree of decisions once the dual hardly makes progress. */
static void grow_tree(struct batch *t) {
    struct bounder *b = &t->b;
    if (!b->slow)
        return;
    int *x = present_values(t);
    int64_t bound =
        layout_tree_grow(&b->tree, &b->d, x, t->m->value, b->tree_sweeps, t->m->deadline_s);
    free(x);
    int sweeps = bound > b->bound ? 2 * b->tree_sweeps : b->tree_sweeps / 2;
    b->tree_sweeps = sweeps < SAPLING ? SAPLING : sweeps > TREE ? TREE : sweeps;
    if (bound > b->bound) {
        b->bound = bound;
        b->by_search = true;
    }
    note_verbose("layout: a bound of %.0f with %lld leaves",
                 (double)bound / (double)(INT64_C(1) << t->m->core->shift),
                 (long long)b->tree.leaf.n);
}

/* Continues the dual, and tightens the copy where that is worth it. */
static void raise_bound(struct batch *t) {
    struct bounder *b = &t->b;
    improve_dual(t);
    b->current = true;
    if (t->m->value == LAYOUT_INF || layout_time_up(t->m->deadline_s))
        return;
    double gone = set_doubt(t);
    next_kernels(t);
    grow_tree(t);
    if (gone > 0.1 ||
        (b->idle == 6 && (b->d.bound > b->fixed_at || t->m->value < b->upper)))
        tighten(t);
}

/* Runs the job that raises the bound. */
static void bound_job(struct batch *t) {
    struct bounder *b = &t->b;
    b->found = false;
    if (b->empty)
        return;
    if (b->idle < 8) {
        raise_bound(t);
    } else if (b->d.off[b->d.n] <= SEARCHED + 100 * t->batch_number) {
        search_exactly(t);
        if (t->m->value < b->upper) /* a better choice: worth tightening again */
            b->idle = 4;
    } else if (t->batch_number % 6 == 0) { /* now and then is enough */
        raise_bound(t);
    } else if (b->current) {
        next_kernels(t);
        grow_tree(t);
    }
}

/* ---- the batch ------------------------------------------------------------------- */

static void *worker(void *arg) {
    struct batch *t = arg;
    for (;;) {
        pthread_mutex_lock(&t->lock);
        int j = t->next++;
        pthread_mutex_unlock(&t->lock);
        if (j >= FIRST + t->n_jobs)
            return NULL;
        if (j == 0)
            bound_job(t);
        else if (t->m->value == LAYOUT_INF || layout_time_up(t->m->deadline_s))
            continue;
        else if (j <= KERNELS)
            layout_kernel_run(&t->kernels[j - 1]);
        else if (j < FIRST)
            layout_mix_run(&t->mix, j - MIX);
        else
            layout_job_run(&t->jobs[j - FIRST]);
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

/* Makes a candidate the present choice if it is allowed and cheaper. */
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

/* Offers a choice that is given as strategies of the core's stub. */
static void offer_choice(struct batch *t, const int32_t *y, int *x) {
    for (int i = 0; i < t->m->core->n_vars; i++)
        x[i] = y[i];
    offer(t, x, true);
}

static void merge_job(struct batch *t, struct layout_job *j, int *x) {
    double *size = &t->size[j->kind];
    if (j->better) {
        t->barren = 0;
        memcpy(x, t->m->x, (size_t)t->m->core->n_vars * sizeof *x);
        for (int q = 0; q < j->n; q++)
            x[j->set[q]] = j->y[q];
        offer(t, x, false);
    }
    *size *= !j->done || j->work > 20000000 ? 0.9 : j->better ? 1 : 1.05;
    *size = *size > t->most_size ? t->most_size : *size;
    *size = *size < 8 ? 8 : *size;
    layout_job_release(j);
}

/* Takes over what the search of a kernel found, and adapts the size of later ones. */
static void merge_kernel(struct batch *t, struct layout_kernel *k, double *open, int *x) {
    if (k->found)
        offer_choice(t, k->y, x);
    else if (k->target && k->done && k->target > t->b.bound) {
        t->b.bound = k->target; /* all below it was searched */
        t->b.by_search = true;
    }
    if (k->live || k->done || k->large)
        *open *= k->done && !k->large ? 1.5 : 0.8;
    *open = *open < 50 ? 50 : *open > MOST_VARS ? MOST_VARS : *open;
    layout_kernel_release(k);
}

static void merge(struct batch *t) {
    struct layout_improve *m = t->m;
    int *x = mem_array((size_t)m->core->n_vars + 1, sizeof *x);
    int64_t before = m->value;
    for (int k = 0; k < KERNELS; k++)
        merge_kernel(t, &t->kernels[k], &t->b.open[k], x);
    for (const int *y; (y = layout_mix_next(&t->mix));)
        offer(t, y, true);
    layout_mix_end(&t->mix);
    t->barren++;
    for (int j = 0; j < t->n_jobs; j++)
        merge_job(t, &t->jobs[j], x);
    if (t->b.found)
        offer_choice(t, t->b.y, x);
    memcpy(t->whole.doubt, t->doubt, ((size_t)m->core->n_vars + 1) * sizeof *t->doubt);
    memcpy(m->core->lambda, t->lent, (size_t)m->core->n_rows * sizeof *t->lent);
    m->bound = t->b.empty ? m->value : t->b.bound < m->value ? t->b.bound : m->value;
    m->by_search = t->b.by_search;
    if (m->value < before)
        layout_whole_set(&t->whole, m->x, m->value);
    free(x);
}

static void new_jobs(struct batch *t) {
    for (int k = 0; k < KERNELS; k++) {
        t->kernels[k] = t->b.kernels[k];
        t->kernels[k].upper = t->m->value;
        t->kernels[k].deadline_s = t->m->deadline_s;
        t->b.kernels[k] = (struct layout_kernel){0};
    }
    /* As many neighbourhoods as take about as long as the search for the bound, and few
     * while multipliers are still far off. */
    int64_t many = t->b.rising ? JOBS / 4 : t->b.nodes / 32 * JOBS;
    layout_mix_begin(&t->mix, &t->whole, rng_bits(t->m->seed, 3, (uint64_t)t->batch_number),
                     t->b.rising ? 1 : LAYOUT_MIX_SWINGS, t->m->deadline_s);
    many = many < MOST_JOBS ? many : MOST_JOBS;
    many >>= t->barren < FEWER ? t->barren : FEWER;
    t->n_jobs = t->m->value == LAYOUT_INF ? 0 : (int)many;
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
    int open = 0;
    for (int i = 0; i < m->core->n_vars; i++)
        open += m->core->var[i].k > 1;
    t.most_size = open < 1000 ? open / 2 : 500;
    layout_whole_set(&t.whole, m->x, m->value);
    layout_part(&b->tight, &t.whole, NULL, 0);
    b->bound = b->dual = m->bound;
    b->fixed_at = INT64_MIN;
    b->upper = LAYOUT_INF;
    b->nodes = 32;
    b->tree_sweeps = TREE / 2;
    for (int k = 0; k < KERNELS; k++)
        b->open[k] = FIRST_VARS;
    b->y = mem_array((size_t)m->core->n_vars + 1, sizeof *b->y);
    bounder_start(b, 1);
    t.doubt = mem_array((size_t)m->core->n_vars + 1, sizeof *t.doubt);
    memcpy(t.doubt, t.whole.doubt, ((size_t)m->core->n_vars + 1) * sizeof *t.doubt);
    t.lent = mem_array((size_t)m->core->n_rows + 1, sizeof *t.lent);
    double start = now_s();
    for (; t.batch_number == 0 || !finished(&t); t.batch_number++) {
        new_jobs(&t);
        run_jobs(&t);
        merge(&t);
        double unit = (double)(INT64_C(1) << m->core->shift);
        note_verbose(
            "layout: %.1f s, batch %d: value %.0f bound %.0f; sizes %.0f %.0f %.0f",
            now_s() - start, t.batch_number, (double)m->value / unit,
            (double)m->bound / unit, t.size[0], t.size[1], t.size[2]);
    }
    bounder_stop(b);
    layout_tree_release(&b->tree);
    layout_mix_release(&t.mix);
    for (int k = 0; k < KERNELS; k++)
        layout_kernel_release(&b->kernels[k]);
    layout_core_release(&b->tight);
    free(b->y);
    free(t.lent);
    free(t.doubt);
    layout_state_release(&t.check);
    layout_whole_release(&t.whole);
}
