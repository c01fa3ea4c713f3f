/* exhaustive - the oracle of small spaces: every cut of the ops into stages, every
 * division of the devices, every style, recompute level, ZeRO, micro-batch and schedule.
 *
 * Stages are independent but for what passes between them, so their sums are shared and
 * the candidates are cheap; still their number grows fast, and beyond MOST it is refused. */
#include "search/space.h"

#include <stdlib.h>
#include <string.h>

static const double MOST = 2e7;

enum {
    SCHEDULES = SCHEDULE_1f1b + 1
}; /* gpipe and 1f1b: those that search_score estimates */

struct walk {
    struct search *s;
    const struct search_problem *p;
    struct candidate c;
    int n; /* stages */
    bool count_only;
    double count;
};

/* The i-th choice of a stage: style x recompute x ZeRO; false when there is none. */
static bool choose(struct walk *w, int k, int i) {
    struct search *s = w->s;
    struct search_stage *st = &w->c.stages[k];
    int axes = search_mesh_axes(s, st), seq = search_has_sequence(s) ? 2 : 1;
    int zero = i % 2, level = i / 2 % AGAIN_LEVELS, rest = i / 2 / AGAIN_LEVELS;
    int v = rest % seq, j = rest / seq;
    if (j > axes)
        return false;
    st->zero = zero;
    st->again_level = level;
    st->again_blocks = level ? search_stage_blocks(s, st) : 0;
    search_apply_style(s, st, w->c.micro_batch, (struct style){j, ~0u, v == 1});
    return true;
}

static int choices(const struct walk *w, const struct search_stage *st) {
    return (search_mesh_axes(w->s, st) + 1) * (search_has_sequence(w->s) ? 2 : 1) *
           AGAIN_LEVELS * 2;
}

static void walk_choices(struct walk *w, int k) {
    if (search_stopped(w->s))
        return;
    if (k == w->n) {
        for (int f = 0; f < (w->n > 1 ? SCHEDULES : 1); f++) {
            w->c.schedule = w->n > 1 ? (enum schedule)f : search_first_schedule(w->s);
            if (search_legal(w->s, &w->c))
                search_score(w->s, &w->c);
        }
        return;
    }
    for (int i = 0; choose(w, k, i); i++)
        walk_choices(w, k + 1);
}

static void walk_devices(struct walk *w, int k, int left) {
    if (k == w->n - 1) {
        w->c.stages[k].devices = left;
        if (w->count_only) {
            double n = w->n > 1 ? SCHEDULES : 1;
            for (int i = 0; i < w->n; i++)
                n *= choices(w, &w->c.stages[i]);
            w->count += n;
        } else {
            walk_choices(w, 0);
        }
        return;
    }
    for (int d = 1; d <= left - (w->n - 1 - k) && w->count <= MOST; d++) {
        w->c.stages[k].devices = d;
        walk_devices(w, k + 1, left - d);
    }
}

static void walk_cuts(struct walk *w, int k, int first) {
    const struct model *m = w->p->model;
    struct search_stage *st = &w->c.stages[k];
    st->first = first;
    if (k == w->n - 1) {
        st->end = m->n_ops;
        walk_devices(w, 0, w->p->devices);
        return;
    }
    for (int end = first + 1; end <= m->n_ops - (w->n - 1 - k) && w->count <= MOST; end++) {
        st->end = end;
        if (search_may_cut(w->s, w->n, k + 1, first, end))
            walk_cuts(w, k + 1, end);
        if (search_stopped(w->s))
            return;
    }
}

static double walk_all(struct search *s, bool count_only) {
    struct walk w = {.s = s,
                     .p = search_problem_of(s),
                     .c = candidate_make(s),
                     .count_only = count_only};
    for (int i = 0; i < w.p->n_micro; i++) {
        w.c.micro_batch = w.p->micro[i];
        for (w.n = w.c.n_stages = 1; w.n <= search_max_stages(s) && w.count <= MOST;
             w.c.n_stages = ++w.n)
            if (search_may_have_stages(s, w.n))
                walk_cuts(&w, 0, 0);
    }
    candidate_release(&w.c);
    return w.count;
}

int search_exhaustive(struct search *s, struct err *err) {
    double space = walk_all(s, true);
    if (space > MOST) {
        err_no(err, "exhaustive: more than %.0f candidates", MOST);
        return err_hint(
            err, "--max-stages and --micro-batch make the space smaller; --algorithm "
                 "hops needs no list of all plans");
    }
    walk_all(s, false);
    if (!search_stopped(s))
        search_mark_complete(s, space);
    return 0;
}
