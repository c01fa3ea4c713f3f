/* exhaustive - the oracle of small spaces: every cut of the ops into stages, every
 * division of the devices, every style, recompute level, ZeRO, micro-batch and schedule.
 *
 * Stages are independent but for what passes between them, so their sums are shared and
 * the candidates are cheap; still their number grows fast, and beyond MOST it is refused. */
#include "search/algorithms.h"
#include "search/space.h"

#include <stdlib.h>
#include <string.h>

static const double MOST = 2e7;

/* How a stage may be laid out, with ZeRO: each way once. */
struct choices {
    bool known;
    ARR(struct choice {
        const struct layout *layouts;
        const struct mesh *mesh;
        int zero;
    })
    list;
};

struct walk {
    struct search *s;
    const struct search_problem *p;
    struct candidate c;
    int n;                   /* stages */
    struct choices *choices; /* by devices, then by stage: of the micro-batch at hand */
    bool count_only;
    double count;
};

static void add_choice(struct choices *to, struct search_stage st) {
    for (int64_t i = 0; i < to->list.n; i++)
        if (to->list.p[i].layouts == st.layouts && to->list.p[i].zero == st.zero)
            return;
    arr_push(&to->list, (struct choice){st.layouts, st.mesh, st.zero});
}

/* A single device has nothing to shard. What is pinned depends on the stage's ops: stage k then has
 * choices of its own, found anew each time. */
static const struct choices *choices_of(struct walk *w, int k) {
    struct search_stage st = w->c.stages[k];
    bool pinned = search_pinned_mesh(w->s, st.first, st.end) != NULL;
    struct choices *to = &w->choices[pinned ? w->p->devices + 1 + k : st.devices];
    struct style style;
    if (pinned) {
        to->list.n = 0;
        to->known = false;
    }
    int levels = st.devices > 1 ? search_zero_levels(w->s) : 1;
    for (int i = 0; !to->known && search_style(w->s, &st, i, &style); i++) {
        search_apply_style(w->s, &st, w->c.micro_batch, style);
        for (st.zero = 0; st.zero < levels; st.zero++)
            add_choice(to, st);
    }
    to->known = true;
    return to;
}

static void forget_choices(struct walk *w) {
    for (int d = 0; d <= w->p->devices + search_room(w->s); d++) {
        arr_release(&w->choices[d].list);
        w->choices[d] = (struct choices){0};
    }
}

static int again_levels(const struct walk *w, const struct search_stage *st) {
    return search_stage_blocks(w->s, st) ? AGAIN_LEVELS : 1;
}

/* Schedules that the stages may have, as bits; a single stage has none to choose. */
static unsigned schedules_of(const struct walk *w) {
    unsigned interleaved = 1u << SCHEDULE_interleaved;
    if (w->c.n_groups < w->n)
        return w->p->schedules & interleaved;
    return w->n > 1 ? w->p->schedules & ~interleaved : 1u << search_first_schedule(w->s);
}

static void walk_schedules(struct walk *w) {
    unsigned which = schedules_of(w);
    for (int f = 0; f < SCHEDULE_COUNT; f++) {
        w->c.schedule = (enum schedule)f;
        if ((which >> f & 1) && search_legal(w->s, &w->c))
            search_score(w->s, &w->c);
    }
}

static void walk_choices(struct walk *w, int k) {
    if (search_stopped(w->s))
        return;
    if (k == w->n) {
        walk_schedules(w);
        return;
    }
    struct search_stage *st = &w->c.stages[k];
    const struct choices *all = choices_of(w, k);
    int levels = again_levels(w, st);
    for (int64_t i = 0; i < all->list.n * levels; i++) {
        st->layouts = all->list.p[i / levels].layouts;
        st->mesh = all->list.p[i / levels].mesh;
        st->zero = all->list.p[i / levels].zero;
        st->again_level = (int)(i % levels);
        st->again_blocks = st->again_level ? search_stage_blocks(w->s, st) : 0;
        walk_choices(w, k + 1);
    }
}

static void count_choices(struct walk *w) {
    double n = 0;
    for (unsigned which = schedules_of(w); which; which &= which - 1)
        n++;
    for (int k = 0; k < w->n; k++)
        n *= (double)choices_of(w, k)->list.n * again_levels(w, &w->c.stages[k]);
    w->count += n;
}

/* Of group g; stages behind the groups have those of the first on theirs. */
static void walk_devices(struct walk *w, int g, int left) {
    int groups = w->c.n_groups;
    for (int d = g == groups - 1 ? left : 1; d <= left - (groups - 1 - g); d++) {
        for (int k = g; k < w->n; k += groups)
            w->c.stages[k].devices = d;
        if (g + 1 < groups)
            walk_devices(w, g + 1, left - d);
        else if (w->count_only)
            count_choices(w);
        else
            walk_choices(w, 0);
        if (w->count > MOST)
            return;
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

/* With one stage on each group, or with several that go round. */
static void walk_groups(struct walk *w) {
    bool go_round = search_has_schedule(w->s, SCHEDULE_interleaved);
    for (int groups = 1; groups <= search_max_groups(w->s); groups++)
        for (int chunks = 1; chunks <= (go_round && groups > 1 ? MOST_CHUNKS : 1);
             chunks++) {
            w->c.n_groups = groups;
            w->n = w->c.n_stages = groups * chunks;
            if (w->n > search_room(w->s) || w->count > MOST ||
                !search_may_have_stages(w->s, w->n) ||
                (chunks > 1 && w->p->batch / w->c.micro_batch % groups))
                continue;
            if (chunks > 1 || groups == 1 || schedules_of(w))
                walk_cuts(w, 0, 0);
        }
}

static double walk_all(struct search *s, bool count_only) {
    struct walk w = {.s = s,
                     .p = search_problem_of(s),
                     .c = candidate_make(s),
                     .count_only = count_only};
    w.choices = mem_array((size_t)(w.p->devices + 1 + search_room(s)), sizeof *w.choices);
    for (int i = 0; i < w.p->n_micro; i++) {
        w.c.micro_batch = w.p->micro[i];
        walk_groups(&w);
        forget_choices(&w);
    }
    free(w.choices);
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
