/* exhaustive - the oracle of small spaces: every cut of the ops into stages, every
 * division of the devices and, where these differ, every order of groups on them,
 * every micro-batch and schedule, and in every stage every layout of every op, level
 * of ZeRO and number of recomputed blocks.
 *
 * The cost of a stage depends on the others only through what passes between them. So
 * the strategies of a stage are listed once, without those that another strategy beats
 * whatever the neighbours are (strategies.h), and what is left is combined. The number
 * of combinations still grows fast, so a space is refused if it has too many
 * strategies of stages or too many candidates.
 *
 * presets - the same, but all ops of a stage are laid out in one uniform preset
 * (space.h), for spaces in which layouts of single ops cannot be listed. */
#include "search/algorithms/algorithms.h"
#include "search/state.h"

#include <stdlib.h>
#include <string.h>

static const double MOST_CANDIDATES = 2e7, MOST_STRATEGIES = 2e6;

struct walk {
    struct search *s;
    const struct search_problem *p;
    struct candidate c;
    struct choices *choices;
    const struct strategies **strategies; /* [stages] the strategies of each stage of `c` */
    bool count_only;
    double count;
};

static bool goes_on(const struct walk *w) {
    return w->count <= MOST_CANDIDATES &&
           strategies_listed(w->choices) <= MOST_STRATEGIES &&
           !budget_stopped(&w->s->budget);
}

static void combine(struct walk *w, int k) {
    if (k == w->c.n_stages) {
        if (eval_legal(&w->s->eval, &w->c))
            pool_score(&w->s->pool, &w->c);
        return;
    }
    int place = w->c.stages[k].place;
    for (int64_t i = 0; i < w->strategies[k]->n && goes_on(w); i++) {
        w->c.stages[k] = w->strategies[k]->p[i].st;
        w->c.stages[k].place = place;
        combine(w, k + 1);
    }
}

/* Combines all strategies of stages whose cuts, devices and schedule are set, or only
 * counts the combinations. */
static void walk_strategies(struct walk *w) {
    double n = 1;
    for (int k = 0; k < w->c.n_stages; k++) {
        bool apart = schedule_splits(w->c.schedule, k);
        w->strategies[k] = strategies_of(w->choices, &w->c.stages[k], w->c.micro_batch,
                                         candidate_rank(&w->c, k), apart);
        n *= w->strategies[k] ? (double)w->strategies[k]->n : 0;
    }
    if (w->count_only)
        w->count += n;
    else if (n > 0)
        combine(w, 0);
}

static void walk_schedules(struct walk *w) {
    unsigned which = space_schedules_of(&w->s->space, &w->c);
    for (int f = 0; f < SCHEDULE_COUNT; f++) {
        w->c.schedule = (enum schedule)f;
        if (which >> f & 1)
            walk_strategies(w);
    }
}

/* Tries the groups in every order, but only one of the orders that no cost can tell apart.
 * `order` has [groups] entries, of which the first n are settled. */
static void walk_places(struct walk *w, int *order, int n, struct memo *met) {
    int groups = w->c.n_groups;
    if (n == groups) {
        candidate_place(&w->c, order);
        void **seen = memo_slot(met, space_place_hash(&w->s->space, &w->c));
        if (*seen)
            return;
        *seen = w;
        walk_schedules(w);
        return;
    }
    for (int i = n; i < groups && goes_on(w); i++) {
        int moved = order[i];
        memmove(&order[n + 1], &order[n], sizeof *order * (size_t)(i - n));
        order[n] = moved;
        walk_places(w, order, n + 1, met);
        memmove(&order[n], &order[n + 1], sizeof *order * (size_t)(i - n));
        order[i] = moved;
    }
}

static void walk_orders(struct walk *w) {
    int *order = mem_array((size_t)w->c.n_groups, sizeof *order);
    struct memo met = {0};
    for (int g = 0; g < w->c.n_groups; g++)
        order[g] = g;
    walk_places(w, order, 0, &met);
    memo_release(&met, NULL);
    candidate_place(&w->c, order);
    free(order);
}

/* Tries every number of devices for group g and those behind it. If there are more
 * stages than groups, a group has the same devices in all of its stages. */
static void walk_devices(struct walk *w, int g, int left) {
    int groups = w->c.n_groups, least = g == groups - 1 ? left : 1;
    bool even = groups < w->c.n_stages && !space_has_places(&w->s->space);
    for (int d = least; d <= left - (groups - 1 - g) && goes_on(w); d++) {
        if (even && d * groups != w->p->devices)
            continue;
        for (int k = g; k < w->c.n_stages; k += groups)
            w->c.stages[k].devices = d;
        if (g + 1 < groups)
            walk_devices(w, g + 1, left - d);
        else if (space_has_places(&w->s->space))
            walk_orders(w);
        else
            walk_schedules(w);
    }
}

static void walk_cuts(struct walk *w, int k, int first) {
    int n_ops = w->p->model->n_ops, n = w->c.n_stages;
    struct search_stage *st = &w->c.stages[k];
    *st = (struct search_stage){.first = first, .end = n_ops};
    if (k == n - 1) {
        walk_devices(w, 0, w->p->devices);
        return;
    }
    for (int end = first + 1; end <= n_ops - (n - 1 - k) && goes_on(w); end++) {
        st->end = end;
        if (space_may_cut(&w->s->space, n, k + 1, first, end))
            walk_cuts(w, k + 1, end);
    }
}

/* Tries every number of groups, with one stage on each or with several (interleaved). */
static void walk_groups(struct walk *w) {
    bool go_round = space_goes_round(&w->s->space);
    for (int groups = 1; groups <= space_max_groups(&w->s->space); groups++)
        for (int chunks = 1; chunks <= (go_round && groups > 1 ? MOST_CHUNKS : 1);
             chunks++) {
            w->c.n_groups = groups;
            w->c.n_stages = groups * chunks;
            if (w->c.n_stages > space_stage_limit(&w->s->space) || !goes_on(w) ||
                !space_may_have_stages(&w->s->space, w->c.n_stages) ||
                (chunks > 1 && w->p->batch / w->c.micro_batch % groups))
                continue;
            if (chunks > 1 || groups == 1 || space_schedules_of(&w->s->space, &w->c))
                walk_cuts(w, 0, 0);
        }
}

static void walk_all(struct walk *w, bool count_only) {
    w->count_only = count_only;
    for (int i = 0; i < w->p->n_micro; i++) {
        w->c.micro_batch = w->p->micro[i];
        walk_groups(w);
    }
}

static int too_many(const struct walk *w, const char *name, struct err *err) {
    if (strategies_listed(w->choices) > MOST_STRATEGIES)
        err_no(err, "%s: more than %.0f strategies of stages", name, MOST_STRATEGIES);
    else
        err_no(err, "%s: more than %.0f candidates", name, MOST_CANDIDATES);
    return err_hint(err, "--max-stages and --micro-batch make the space smaller; the other "
                         "algorithms need no list of all plans");
}

/* Counts the candidates first, and lists them only if there are few enough. */
static int walk_space(struct search *s, bool presets, struct err *err) {
    struct walk w = {.s = s,
                     .p = space_problem_of(&s->space),
                     .c = candidate_make(&s->space),
                     .choices = strategies_make(&s->eval, MOST_STRATEGIES, presets)};
    w.strategies =
        mem_array((size_t)space_stage_limit(&s->space), sizeof(struct strategies *));
    walk_all(&w, true);
    bool small =
        w.count <= MOST_CANDIDATES && strategies_listed(w.choices) <= MOST_STRATEGIES;
    if (small && !presets)
        pool_be_exact(&s->pool);
    if (small)
        walk_all(&w, false);
    int rc = small ? 0 : too_many(&w, presets ? "presets" : "exhaustive", err);
    if (small && !budget_stopped(&s->budget)) {
        search_mark_complete(s, w.count);
        s->pool.proven = !presets && !s->eval.reserve_bytes;
    }
    strategies_free(w.choices);
    free(w.strategies);
    candidate_release(&w.c);
    return rc;
}

int search_exhaustive(struct search *s, struct err *err) {
    return walk_space(s, false, err);
}

int search_presets(struct search *s, struct err *err) {
    return walk_space(s, true, err);
}
