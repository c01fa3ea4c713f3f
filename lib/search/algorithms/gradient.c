/* gradient - gradient descent on a relaxed problem (lib/solve/relax/relax.h) with
 * probabilities for the cuts, the layout of every node and the recompute of every
 * stage, which sharpen until each is decided. The idea is pipeDejavu's, which relaxes
 * the choice of a whole stage to one softmax; here every single choice has one, and
 * the temperature falls.
 *
 * The number and devices of the stages, the micro-batch and ZeRO cannot be relaxed
 * without mixing meshes, so they form the fixed shape of a start. The best starts of hops
 * give their shapes, and nothing else. All starts descend from random logits, and
 * successive halving decides which continue. The best results are rounded, repaired
 * (search_balance cuts their ops anew within the memory) and polished by single hops. */
#include "search/algorithms/gradient.h"
#include "search/algorithms/improve.h"

#include "common/progress.h"
#include "search/algorithms/algorithms.h"
#include "search/algorithms/hops.h"

#include <math.h>
#include <stdlib.h>

enum {
    SHAPES = 12,
    STARTS = 24,     /* descents, dealt out to the shapes in turn */
    FROM_STARTS = 2, /* more, of the shape of the plan that the search starts from */
    ROUNDED = 8,     /* results that become plans */
    POLISHED = 3,    /* of these, at most */
    /* No further plan is polished once polishing has scored this many stages: the
     * descent then ended far from a good plan. */
    MOST_SCORED = 250000,
};

static bool has_shape(const struct space *sp, const struct candidate *c) {
    int units = structure_units(&sp->blocks.s);
    return c->n_groups == c->n_stages &&
           c->n_stages <= (units < GRADIENT_UNITS ? units : GRADIENT_UNITS);
}

/* Returns whether both candidates have the same micro-batch and number of stages, and the
 * same devices and ZeRO in each stage. */
static bool same_shape(const struct candidate *a, const struct candidate *b) {
    bool same = a->n_stages == b->n_stages && a->micro_batch == b->micro_batch;
    for (int k = 0; same && k < a->n_stages; k++)
        same = a->stages[k].devices == b->stages[k].devices &&
               a->stages[k].zero == b->stages[k].zero;
    return same;
}

/* Makes the shapes of the best starts, each once, and returns their number. The entry after
 * them is the shape of the plan that the search starts from, or NULL if there is no such
 * plan or its shape cannot be used or is among them. The plan takes no start's place, so
 * that the portfolio finds what gradient finds alone. */
static int find_shapes(struct search *s, struct gradient_shape **shapes) {
    int64_t all;
    struct option *starts = hops_starts(s, &all);
    int n = 0;
    bool apart = s->has_from && has_shape(&s->space, &s->from);
    for (int64_t i = 0; i < all && n < SHAPES && !budget_stopped(&s->budget); i++) {
        bool seen = !has_shape(&s->space, &starts[i].c);
        for (int j = 0; j < n; j++)
            seen |= same_shape(&starts[i].c, &shapes[j]->c);
        if (!seen)
            shapes[n++] = gradient_shape_make(&s->eval, &starts[i].c);
    }
    for (int64_t i = 0; i < all; i++)
        candidate_release(&starts[i].c);
    free(starts);
    for (int j = 0; j < n; j++)
        apart &= !same_shape(&s->from, &shapes[j]->c);
    shapes[n] = apart ? gradient_shape_make(&s->eval, &s->from) : NULL;
    return n;
}

static void take(struct search *s, const struct candidate *c, struct option *best) {
    if (!eval_legal(&s->eval, c))
        return;
    struct score score = pool_score(&s->pool, c);
    if (score.unknown || !score_better(&score, &best->score))
        return;
    candidate_copy(&best->c, c);
    best->score = score;
}

/* Scores the rounded answer as it is and with its ops balanced; false if neither is
 * legal and fully profiled. */
static bool round_off(struct search *s, const struct gradient_shape *g,
                      const struct relax_answer *a, struct option *out) {
    struct candidate c = candidate_make(&s->space);
    out->score = (struct score){.unknown = true, .time_us = INFINITY};
    gradient_decode(&s->space, g, a, &c);
    if (space_place_stages(&s->space, &c)) {
        take(s, &c, out);
        if (eval_legal(&s->eval, &c) && search_balance(s, &c, INFINITY))
            take(s, &c, out);
    }
    candidate_release(&c);
    return !out->score.unknown;
}

static const struct gradient_shape *shape_of(struct gradient_shape *const *shapes,
                                             const struct relax_answer *a) {
    int i = 0;
    while (&shapes[i]->relaxed != a->problem)
        i++;
    return shapes[i];
}

/* Descends from all starts and rounds the best results as long as there is time. Fills
 * at most ROUNDED options and returns how many. */
static int descend(struct search *s, struct gradient_shape *const *shapes, int n_shapes,
                   struct option *out) {
    const struct relax_problem *starts[STARTS + FROM_STARTS];
    struct relax_answer answers[ROUNDED];
    struct solve_limits limits = {.seed = space_problem_of(&s->space)->seed,
                                  .threads = space_problem_of(&s->space)->threads,
                                  .time_budget_s = budget_left_s(&s->budget) / 2};
    int found = 0, n_starts = 0;
    for (int i = 0; i < STARTS && n_shapes; i++)
        starts[n_starts++] = &shapes[i % n_shapes]->relaxed;
    for (int i = 0; i < FROM_STARTS && shapes[n_shapes]; i++)
        starts[n_starts++] = &shapes[n_shapes]->relaxed;
    int n = n_starts ? relax_race(starts, n_starts, &limits, answers, ROUNDED) : 0;
    for (int i = 0; i < n; i++) {
        out[found].c = candidate_make(&s->space);
        if (!budget_stopped(&s->budget) &&
            round_off(s, shape_of(shapes, &answers[i]), &answers[i], &out[found]))
            found++;
        else
            candidate_release(&out[found].c);
        relax_answer_release(&answers[i]);
    }
    return found;
}

/* Polishes the best rounded results, as long as polishing those before took little work. */
int search_gradient(struct search *s, struct err *err) {
    (void)err;
    struct gradient_shape *shapes[SHAPES + 1];
    struct option found[ROUNDED];
    int n_shapes = find_shapes(s, shapes);
    int n = descend(s, shapes, n_shapes, found);
    qsort(found, (size_t)n, sizeof *found, option_by_score);
    int64_t before = s->budget.work;
    for (int i = 0; i < n; i++) {
        bool little = s->budget.work - before < MOST_SCORED;
        if (i < POLISHED && little && !budget_stopped(&s->budget))
            hops_polish(s, &found[i], 1, true);
        candidate_release(&found[i].c);
    }
    for (int i = 0; i <= n_shapes; i++)
        gradient_shape_free(shapes[i]);
    if (!budget_stopped(&s->budget))
        search_mark_complete(s, 0);
    return 0;
}
