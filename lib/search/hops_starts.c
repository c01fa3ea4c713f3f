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

/* The best uniform style of an even pipeline with n stages; where memory is limited, with
 * ZeRO or without. */
static bool best_start(struct search *s, int n, int64_t micro_batch, struct option *best,
                       struct candidate *c) {
    bool found = false;
    const struct search_problem *p = search_problem_of(s);
    int most =
        search_mesh_axes(s, &(struct search_stage){.end = p->model->n_ops,
                                                   .devices = (p->devices + n - 1) / n});
    int variants = p->memory_bytes ? 4 : 2;
    for (int j = 0; j <= most && !search_stopped(s); j++) {
        for (int v = 0; v < variants; v++) {
            struct style style = {j, ~0u, v & 1};
            if ((v & 1 && (!j || !search_has_sequence(s))) ||
                (j < most && !splits_batch(s, n, micro_batch, style)) ||
                !search_even(s, n, micro_batch, style, c))
                continue;
            for (int k = 0; k < n; k++)
                c->stages[k].zero = v >> 1;
            if (search_legal(s, c))
                score_start(s, c, best, &found);
        }
    }
    return found;
}

int option_by_score(const void *a, const void *b) {
    const struct option *x = a, *y = b;
    return score_better(&x->score, &y->score) ? -1 : score_better(&y->score, &x->score);
}

/* Depths that divide the devices, powers of two and all small ones, as long as each stage has a
 * block or an op outside blocks: splits and merges reach the others. */
static bool is_depth(const struct search *s, int k) {
    int max = search_max_stages(s);
    if (s->pinned.n_stages)
        return k == s->pinned.n_stages;
    return k <= 4 || (k <= structure_units(&s->graph.s) &&
                      (!(k & (k - 1)) || k == max || s->p.devices % k == 0));
}

/* Of each depth with each micro-batch the best; sorted. Fewer micro-batches than stages leave
 * more than half of the devices idle; smaller ones are better starts. */
struct option *hops_starts(struct search *s, int64_t *n) {
    const struct search_problem *p = search_problem_of(s);
    ARR(struct option) starts = {0};
    struct candidate scratch = candidate_make(s);
    struct option o = {.c = candidate_make(s)};
    for (int k = 1; k <= search_max_stages(s); k++) {
        for (int i = p->n_micro - 1; is_depth(s, k) && i >= 0 && !search_stopped(s); i--) {
            bool rests = i && p->batch / p->micro[i] < k;
            if (rests || !best_start(s, k, p->micro[i], &o, &scratch))
                continue;
            arr_push(&starts, o);
            o.c = candidate_make(s);
        }
    }
    for (int i = 0; i < p->n_micro && !search_stopped(s); i++) {
        bool found = false;
        if (!search_slice(s, p->micro[i], &scratch) || !search_legal(s, &scratch))
            continue;
        score_start(s, &scratch, &o, &found);
        for (int64_t k = 0; k < starts.n; k++)
            found &= candidate_hash(&starts.p[k].c) != candidate_hash(&o.c);
        if (found) {
            arr_push(&starts, o);
            o.c = candidate_make(s);
        }
    }
    candidate_release(&o.c);
    candidate_release(&scratch);
    if (starts.n)
        qsort(starts.p, (size_t)starts.n, sizeof *starts.p, option_by_score);
    *n = starts.n;
    return starts.p;
}
