/* Starts of hops: pipelines of every useful depth with every micro-batch, in their best uniform
 * style, balanced; and those that the stages solver slices. */
#include "search/hops.h"

#include <stdlib.h>

/* ---- starts -------------------------------------------------------------------------- */

static void take_better(struct option *best, bool *found, const struct candidate *c,
                        struct score score) {
    if (score.unknown || (*found && !score_better(&score, &best->score)))
        return;
    best->score = score;
    candidate_copy(&best->c, c);
    *found = true;
}

/* A uniform candidate, cut at blocks and balanced; where nothing fits with as much
 * recompute as can be. */
static void score_start(struct search *s, struct candidate *c, struct option *best,
                        bool *found) {
    take_better(best, found, c, search_score(s, c));
    bool fits = search_balance(s, c);
    if (!search_legal(s, c))
        return;
    for (int k = 0; k < c->n_stages && !fits; k++) {
        c->stages[k].again_blocks = search_stage_blocks(s, &c->stages[k]);
        c->stages[k].again_level = c->stages[k].again_blocks ? AGAIN_LEVELS - 1 : 0;
    }
    take_better(best, found, c, search_score(s, c));
}

/* Is the micro-batch split on every axis that a style leaves to it? If not, devices do the
 * same work twice, and the style with one model axis more is the better start. */
static bool splits_batch(const struct search *s, int n, int64_t micro_batch,
                         struct style style) {
    int devices = search_problem_of(s)->devices;
    return search_splits_batch(devices / n, micro_batch, style) ||
           search_splits_batch((devices + n - 1) / n, micro_batch, style);
}

/* Of an even pipeline with n stages in each uniform style, with this level of ZeRO. */
static void score_styles(struct search *s, int n, int64_t micro_batch, int zero,
                         struct option *best, bool *found, struct candidate *c) {
    const struct search_problem *p = search_problem_of(s);
    int most =
        search_mesh_axes(s, &(struct search_stage){.end = p->model->n_ops,
                                                   .devices = (p->devices + n - 1) / n});
    for (int j = 0; j <= most && !search_stopped(s); j++) {
        for (int seq = 0; seq <= (j && search_has_sequence(s)); seq++) {
            struct style style = {j, ~0u, seq};
            if ((j < most && !splits_batch(s, n, micro_batch, style)) ||
                !search_even(s, n, micro_batch, style, c))
                continue;
            for (int k = 0; k < n; k++)
                c->stages[k].zero = zero;
            if (search_legal(s, c))
                score_start(s, c, best, found);
        }
    }
}

/* The best of these; where memory is limited, with the optimizer's state sharded or not. */
static bool best_start(struct search *s, int n, int64_t micro_batch, struct option *best,
                       struct candidate *c) {
    bool found = false;
    int levels = search_problem_of(s)->memory_bytes ? search_zero_levels(s) : 1;
    for (int zero = 0; zero < levels && zero <= ZERO_OPTIMIZER; zero++)
        score_styles(s, n, micro_batch, zero, best, &found, c);
    return found;
}

/* The best with the highest level of ZeRO: of use where there is no pipeline, or where the best
 * without does not fit. */
static bool sharded_start(struct search *s, int n, int64_t micro_batch, bool fits,
                          struct option *best, struct candidate *c) {
    bool found = false;
    int highest = search_zero_levels(s) - 1;
    if (highest > ZERO_OPTIMIZER && (n == 1 || !fits))
        score_styles(s, n, micro_batch, highest, best, &found, c);
    return found;
}

int option_by_score(const void *a, const void *b) {
    const struct option *x = a, *y = b;
    return score_better(&x->score, &y->score) ? -1 : score_better(&y->score, &x->score);
}

/* Depths that divide the devices, powers of two and all small ones, as long as each stage has a
 * block or an op outside blocks: splits and merges reach the others. */
static bool is_depth(const struct search *s, int k) {
    int max = search_max_groups(s);
    if (s->pinned.n_stages)
        return k == s->pinned.n_stages;
    return k <= 4 || (k <= structure_units(&s->graph.s) &&
                      (!(k & (k - 1)) || k == max || s->p.devices % k == 0));
}

struct starts {
    struct search *s;
    ARR(struct option) list;
    struct candidate scratch;
};

static void push(struct starts *st, struct option *o) {
    arr_push(&st->list, *o);
    o->c = candidate_make(st->s);
}

/* Fewer micro-batches than stages leave more than half of the devices idle; smaller ones are better
 * starts. */
static void add_even(struct starts *st, struct option *o) {
    struct search *s = st->s;
    const struct search_problem *p = search_problem_of(s);
    for (int k = 1; k <= search_max_groups(s); k++)
        for (int i = p->n_micro - 1; is_depth(s, k) && i >= 0 && !search_stopped(s); i--) {
            bool rests = i && p->batch / p->micro[i] < k, fits = false;
            if (!rests && best_start(s, k, p->micro[i], o, &st->scratch)) {
                fits = !o->score.overflow;
                push(st, o);
            }
            if (!rests && sharded_start(s, k, p->micro[i], fits, o, &st->scratch))
                push(st, o);
        }
}

static void add_sliced(struct starts *st, bool shard, struct option *o) {
    struct search *s = st->s;
    const struct search_problem *p = search_problem_of(s);
    for (int i = 0; i < p->n_micro && !search_stopped(s); i++) {
        bool found = false;
        if (!search_slice(s, p->micro[i], shard, &st->scratch) ||
            !search_legal(s, &st->scratch))
            continue;
        score_start(s, &st->scratch, o, &found);
        for (int64_t k = 0; k < st->list.n; k++)
            found &= candidate_hash(&st->list.p[k].c) != candidate_hash(&o->c);
        if (found)
            push(st, o);
    }
}

static bool any_fits(const struct starts *st) {
    for (int64_t i = 0; i < st->list.n; i++)
        if (!st->list.p[i].score.overflow)
            return true;
    return false;
}

/* Of each depth with each micro-batch the best; sorted. */
struct option *hops_starts(struct search *s, int64_t *n) {
    struct starts st = {.s = s, .scratch = candidate_make(s)};
    struct option o = {.c = candidate_make(s)};
    add_even(&st, &o);
    add_sliced(&st, false, &o);
    if (!any_fits(&st) && search_zero_levels(s) > 1 + ZERO_OPTIMIZER)
        add_sliced(&st, true, &o);
    candidate_release(&o.c);
    candidate_release(&st.scratch);
    if (st.list.n)
        qsort(st.list.p, (size_t)st.list.n, sizeof *st.list.p, option_by_score);
    *n = st.list.n;
    return st.list.p;
}
