/* Exact stages: all strategies through the chain that no other beats.
 *
 * A strategy beats another one that ends at the same op, with the same layout and mark and
 * the same layout of the first op, if it takes no longer and holds no more of anything in
 * the formula of memory. */
#include "aceso/aceso_stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Peaks are searched range by range: none, up to 100 MiB, then 30 % more each time. Within
 * a range, bounds know how much memory the peak takes, which decides between long, cheap
 * runs and short ones: with 16 ranges 8 strategies to a state find better stages than 64
 * strategies without ranges. */
enum { PEAK_RANGES = 16 };

struct front {
    ARR(int) strategies; /* indices into solved->all */
};
struct candidates {
    ARR(struct aceso_strategy) all;
};

struct solver {
    const struct aceso_stages *st;
    const struct aceso_ask *ask;
    double in_flight;
    struct aceso_rest *to_least, *to_most; /* the rest up to the first and the last end */
    double peak_above, peak_most;          /* the present range of peaks */
    struct aceso_solved *out;
    struct front at[ACESO_MOST_LAYOUTS][2], next[ACESO_MOST_LAYOUTS][2];
    struct candidates found;
};

/* ---- fronts --------------------------------------------------------------------------------- */

/* Returns what a stage that ended here would hold, but for the last op's activations. */
static double held(const struct aceso_strategy *w) {
    return w->mib + w->peak + fmax(w->forward + w->backward, w->weights);
}

static int by_promise(const void *a, const void *b) {
    const struct aceso_strategy *x = a, *y = b;
    double hx = held(x), hy = held(y);
    if (x->least_us != y->least_us)
        return x->least_us < y->least_us ? -1 : 1;
    if (x->us != y->us)
        return x->us < y->us ? -1 : 1;
    return (hx > hy) - (hx < hy);
}

static bool beats(const struct aceso_strategy *a, const struct aceso_strategy *b) {
    return a->us <= b->us && a->mib <= b->mib && a->run <= b->run && a->peak <= b->peak &&
           a->weights <= b->weights && a->forward <= b->forward &&
           a->backward <= b->backward && a->first_layout == b->first_layout;
}

/* Keeps the strategies that no other beats, the most promising first, and at most as many
 * as asked for. A strategy is at least as promising as one that it beats, so it comes
 * first. */
static void keep(struct solver *s, struct front *to) {
    struct candidates *f = &s->found;
    to->strategies.n = 0;
    if (f->all.n)
        qsort(f->all.p, (size_t)f->all.n, sizeof *f->all.p, by_promise);
    for (int64_t i = 0; i < f->all.n; i++) {
        bool beaten = false;
        for (int64_t k = 0; k < to->strategies.n && !beaten; k++)
            beaten = beats(&s->out->all.p[to->strategies.p[k]], &f->all.p[i]);
        if (beaten)
            continue;
        if (to->strategies.n == s->ask->most_strategies) {
            s->out->thinned++;
            break;
        }
        arr_push(&to->strategies, (int)s->out->all.n);
        arr_push(&s->out->all, f->all.p[i]);
    }
}

static double least_us(const struct solver *s, const struct aceso_rest *rest,
                       const struct aceso_strategy *w) {
    return aceso_rest_us(rest, w->op, w->layout, w->mark, w->us,
                         w->mib + fmax(w->peak, s->peak_above),
                         fmax(w->forward + w->backward, w->weights));
}

static void add(struct solver *s, struct aceso_strategy *w) {
    if (w->us > s->ask->most_us || held(w) > s->st->limits->mib || w->peak > s->peak_most ||
        least_us(s, s->to_least, w) > s->ask->most_us)
        return;
    w->least_us = least_us(s, s->to_most, w);
    arr_push(&s->found.all, *w);
}

/* ---- a step --------------------------------------------------------------------------------- */

static void put_op(const struct solver *s, int i, int l, int mark,
                   struct aceso_strategy *w) {
    const struct aceso_cell *c = aceso_cells(s->st, i)[l];
    w->us += c->forward + c->backward + mark * c->forward;
    w->mib += s->st->m->state * c->weights;
    w->weights += c->weights;
    w->op = i;
    w->layout = (short)l;
    w->mark = (short)mark;
}

static void begin(struct solver *s, bool crosses_in) {
    int first = s->ask->first;
    const struct aceso_cell *const *cells = aceso_cells(s->st, first);
    for (int l = 0; l < s->st->n; l++)
        for (int mark = 0; mark < 2; mark++) {
            s->found.all.n = 0;
            if (cells[l] && aceso_may_mark(s->st, first, mark)) {
                struct aceso_strategy w = {
                    .us = aceso_message_us(&s->st->m->tables, cells[l]->input, crosses_in),
                    .mib = s->in_flight * cells[l]->input,
                    .before = -1,
                    .first_layout = (short)l};
                put_op(s, first, l, mark, &w);
                add(s, &w);
            }
            keep(s, &s->at[l][mark]);
        }
}

/* Returns strategy `at` with what op i - 1 leaves behind when op i follows, marked or not.
 * put_op adds op i itself. */
static struct aceso_strategy go_on(const struct solver *s, int at, int i, int mark) {
    const struct aceso_model *m = s->st->m;
    struct aceso_strategy w = s->out->all.p[at];
    const struct aceso_cell *c = aceso_cells(s->st, i - 1)[w.layout];
    double kept = m->ops[m->op_of[i - 1]].counts * c->activations;
    bool both = w.mark && mark;
    w.before = at;
    w.forward = fmax(w.forward, c->reserved_forward);
    w.backward = fmax(w.backward, c->reserved_backward);
    if (both)
        w.run += kept;
    if (!both || !aceso_drops_saved(m, i - 1))
        w.mib += s->in_flight * kept;
    if (!both || aceso_run_ends(m, i - 1)) {
        w.peak = fmax(w.peak, w.run);
        w.run = 0;
    }
    return w;
}

static void find_next(struct solver *s, int i, int l, int mark) {
    const struct aceso_stages *st = s->st;
    const double *convert = st->convert_us + (size_t)(st->m->pair_of[i] * st->n * st->n);
    for (int k = 0; k < st->n; k++) {
        double us = convert[k * st->n + l];
        for (int before = 0; before < 2 && us < INFINITY; before++) {
            if (before && mark && !aceso_may_recompute(st, i - 1))
                continue;
            for (int64_t j = 0; j < s->at[k][before].strategies.n; j++) {
                struct aceso_strategy w =
                    go_on(s, s->at[k][before].strategies.p[j], i, mark);
                w.us += us;
                put_op(s, i, l, mark, &w);
                add(s, &w);
            }
        }
    }
}

static bool advance(struct solver *s, int i) {
    bool any = false;
    for (int l = 0; l < s->st->n; l++)
        for (int mark = 0; mark < 2; mark++) {
            s->found.all.n = 0;
            if (aceso_cells(s->st, i)[l] && aceso_may_mark(s->st, i, mark))
                find_next(s, i, l, mark);
            keep(s, &s->next[l][mark]);
            any |= s->next[l][mark].strategies.n > 0;
        }
    for (int l = 0; l < s->st->n; l++)
        for (int mark = 0; mark < 2; mark++) {
            struct front was = s->at[l][mark];
            s->at[l][mark] = s->next[l][mark];
            s->next[l][mark] = was;
        }
    return any;
}

/* ---- ends ----------------------------------------------------------------------------------- */

/* Records the stage that ends behind op i with strategy `at`, if it fits and is the
 * fastest. */
static void end_strategy(struct solver *s, int i, int at) {
    const struct aceso_model *m = s->st->m;
    const struct aceso_strategy *w = &s->out->all.p[at];
    const struct aceso_layout l = s->st->layout[w->layout];
    const struct aceso_cell *c = aceso_cells(s->st, i)[w->layout];
    const struct aceso_cell *to =
        aceso_cell_find(&m->tables, m->op_of[i], s->st->micro_batch / l.dp,
                        s->st->layout[w->first_layout].tp, l.algorithm);
    struct aceso_strategy ended = *w;
    ended.mib += s->in_flight * m->ops[m->op_of[i]].counts * c->activations;
    /* A run up to the end counts unless the last op but one is corrected (aceso_cost.c). */
    if (i > s->ask->first && !m->ops[m->op_of[i - 1]].corrected)
        ended.peak = fmax(w->peak, w->run);
    if (!to || held(&ended) > s->st->limits->mib)
        return;
    for (int crosses = 0; crosses < 2; crosses++) {
        double us = w->us + aceso_message_us(&m->tables, to->output, crosses);
        int k = i + 1 - s->ask->first;
        if (us < s->out->us[crosses][k] && us <= s->ask->most_us) {
            s->out->us[crosses][k] = us;
            s->out->best[crosses][k] = at;
        }
    }
}

static void walk(struct solver *s, bool crosses_in) {
    begin(s, crosses_in);
    for (int i = s->ask->first; i < s->ask->most; i++) {
        if (i > s->ask->first && !advance(s, i))
            break;
        for (int l = 0; l < s->st->n; l++)
            for (int mark = 0; mark < 2; mark++)
                for (int64_t k = 0; k < s->at[l][mark].strategies.n; k++)
                    end_strategy(s, i, s->at[l][mark].strategies.p[k]);
    }
}

void aceso_stage_solve(const struct aceso_stages *st, const struct aceso_ask *ask,
                       bool crosses_in, struct aceso_solved *out) {
    struct solver s = {.st = st, .ask = ask, .in_flight = ask->behind + 1, .out = out};
    size_t n = (size_t)(ask->most - ask->first + 1);
    *out = (struct aceso_solved){0};
    for (int crosses = 0; crosses < 2; crosses++) {
        out->us[crosses] = mem_array(n, sizeof *out->us[crosses]);
        out->best[crosses] = mem_array(n, sizeof *out->best[crosses]);
        for (size_t i = 0; i < n; i++)
            out->us[crosses][i] = INFINITY;
    }
    s.to_least = aceso_rest_create(st, ask, ask->least);
    s.to_most = aceso_rest_create(st, ask, ask->most);
    for (int k = 0; k < PEAK_RANGES; k++) {
        s.peak_above = k ? s.peak_most : 0;
        s.peak_most = k == PEAK_RANGES - 1 ? INFINITY : k ? 100 * pow(1.3, k - 1) : 0;
        walk(&s, crosses_in);
    }
    for (int l = 0; l < ACESO_MOST_LAYOUTS; l++)
        for (int mark = 0; mark < 2; mark++) {
            arr_release(&s.at[l][mark].strategies);
            arr_release(&s.next[l][mark].strategies);
        }
    arr_release(&s.found.all);
    aceso_rest_destroy(s.to_least);
    aceso_rest_destroy(s.to_most);
}

void aceso_stage_trace(const struct aceso_stages *st, const struct aceso_solved *s,
                       bool crosses, int n, struct aceso_config *c) {
    for (int w = s->best[crosses][n]; w >= 0; w = s->all.p[w].before) {
        c->layout[s->all.p[w].op] = st->layout[s->all.p[w].layout];
        c->recompute[s->all.p[w].op] = s->all.p[w].mark;
    }
}

void aceso_solved_release(struct aceso_solved *s) {
    for (int crosses = 0; crosses < 2; crosses++) {
        free(s->us[crosses]);
        free(s->best[crosses]);
    }
    arr_release(&s->all);
}
