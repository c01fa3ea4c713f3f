/* Simpler plans: of the plans within `slack` of the fastest, the one that needs the
 * fewest words is handed out first.
 *
 * The algorithms look for speed alone, so their last improvements make plans uneven
 * for very little. Here the best candidates of several kinds are made even again: cuts
 * moved between blocks, or equally many blocks in each stage; one rule of recompute;
 * one preset; one level of ZeRO; in all combinations. Candidates whose score is within
 * the slack are simulated, the simplest first, until one keeps it. */
#include "search/algorithms/grid.h"
#include "search/run/runs.h"

#include <math.h>
#include <stdlib.h>

enum {
    MOST_KINDS = 8,    /* entries of the pool that are made even, each of another kind */
    MOST_PRESETS = 4,  /* presets of a candidate's stages, each tried in all stages */
    MOST_ROUNDS = 8,   /* of moving every cut */
    MOST_EVALUATED = 8 /* candidates that are simulated */
};

/* Scores err by a few percent in either direction. */
static const double SCORE_ERROR = 1.02;

struct simple {
    struct candidate c;
    double time_us; /* estimated */
    int words;
};

struct simplifier {
    struct search *s;
    struct grid grid;
    double limit_us;
    int words; /* only candidates with fewer words are of interest */
    struct candidate cut, recomputed, next;
    struct memo seen;
    ARR(struct simple) found;
};

/* ---- candidates that are evened out ------------------------------------------------------- */

/* Keeps the candidate f->next if it needs fewer words and its score is near enough to
 * the limit. */
static void offer(struct simplifier *f) {
    struct search *s = f->s;
    void **seen = memo_slot(&f->seen, candidate_hash(&f->next));
    if (*seen || budget_stopped(&s->budget))
        return;
    *seen = f;
    int words = space_words(&s->space, &f->next);
    if (words >= f->words || !eval_legal(&s->eval, &f->next))
        return;
    struct score score = pool_score(&s->pool, &f->next);
    if (score.unknown || score.overflow || score.time_us > SCORE_ERROR * f->limit_us)
        return;
    struct simple one = {candidate_make(&s->space), score.time_us, words};
    candidate_copy(&one.c, &f->next);
    arr_push(&f->found, one);
}

/* Tries ZeRO as it is, and the level of each stage in all stages. */
static void offer_zero(struct simplifier *f) {
    offer(f);
    for (int k = 0; k < f->next.n_stages; k++) {
        int zero = f->next.stages[k].zero;
        bool new = true, regather = f->next.stages[k].regather;
        for (int i = 0; i < k; i++)
            new &= f->next.stages[i].zero != zero;
        struct candidate was = candidate_make(&f->s->space);
        candidate_copy(&was, &f->next);
        for (int i = 0; new &&i < f->next.n_stages; i++) {
            f->next.stages[i].zero = zero;
            f->next.stages[i].regather = regather;
        }
        if (new)
            offer(f);
        candidate_copy(&f->next, &was);
        candidate_release(&was);
    }
}

/* Tries layouts as they are, and the preset of each stage in all stages. */
static void offer_presets(struct simplifier *f) {
    const struct space *sp = &f->s->space;
    candidate_copy(&f->next, &f->recomputed);
    offer_zero(f);
    for (int k = 0, n = 0; k < f->recomputed.n_stages && n < MOST_PRESETS; k++) {
        if (k && f->recomputed.stages[k].layouts == f->recomputed.stages[k - 1].layouts)
            continue;
        int differ;
        struct preset preset = space_nearest_preset(sp, &f->recomputed.stages[k],
                                                    f->recomputed.micro_batch, &differ);
        candidate_copy(&f->next, &f->recomputed);
        for (int i = 0; i < f->next.n_stages; i++)
            space_apply_preset(sp, &f->next.stages[i], f->next.micro_batch, preset);
        offer_zero(f);
        n++;
    }
}

/* Tries recompute as it is, and each level of it in all blocks of all stages. */
static void offer_recompute(struct simplifier *f) {
    candidate_copy(&f->recomputed, &f->cut);
    for (int level = -1; level < RECOMPUTE_LEVELS; level++) {
        for (int k = 0; level >= 0 && k < f->cut.n_stages; k++) {
            struct search_stage *st = &f->recomputed.stages[k];
            st->recompute_level = level;
            st->recompute_blocks = level ? space_stage_blocks(&f->s->space, st) : 0;
        }
        offer_presets(f);
    }
}

/* Moves each cut to the nearest start of a block; false if a stage would lose all its
 * ops. */
static bool snap(const struct space *sp, struct candidate *c) {
    for (int k = 0; k + 1 < c->n_stages; k++) {
        int cut = c->stages[k].end, at = space_block_begin(sp, cut);
        int next = at;
        while (next == at && cut + 1 < sp->p.model->n_ops)
            next = space_block_begin(sp, ++cut);
        at = c->stages[k].end - at <= next - c->stages[k].end ? at : next;
        if (at <= c->stages[k].first || at >= sp->p.model->n_ops)
            return false;
        c->stages[k].end = c->stages[k + 1].first = at;
    }
    return true;
}

/* Moves the cut behind stage k to the block before or after it. */
static bool move_cut(const struct space *sp, struct candidate *c, int k, bool back) {
    struct search_stage *st = &c->stages[k], *next = st + 1;
    int at = st->end;
    if (back)
        at = space_block_begin(sp, at - 1);
    else
        while (at < next->end && space_block_begin(sp, at) <= st->end)
            at++;
    if (at <= st->first || at >= next->end)
        return false;
    st->end = next->first = at;
    int blocks = space_stage_blocks(sp, st), others = space_stage_blocks(sp, next);
    st->recompute_blocks = blocks < st->recompute_blocks ? blocks : st->recompute_blocks;
    next->recompute_blocks =
        others < next->recompute_blocks ? others : next->recompute_blocks;
    return true;
}

/* Moves cuts between blocks back and forth as long as that makes the plan faster. */
static void improve_cuts(struct simplifier *f) {
    struct search *s = f->s;
    if (!eval_legal(&s->eval, &f->cut))
        return;
    struct score best = eval_score(&s->eval, &f->cut);
    bool better = true;
    for (int round = 0; round < MOST_ROUNDS && better; round++) {
        better = false;
        for (int i = 0; i < 2 * (f->cut.n_stages - 1) && !budget_stopped(&s->budget); i++) {
            candidate_copy(&f->next, &f->cut);
            if (!move_cut(&s->space, &f->next, i / 2, i % 2) ||
                !eval_legal(&s->eval, &f->next))
                continue;
            struct score score = eval_score(&s->eval, &f->next);
            if (!score_better(&score, &best))
                continue;
            best = score;
            candidate_copy(&f->cut, &f->next);
            better = true;
        }
    }
}

/* Tries cuts as they are, between blocks, and with equally many blocks in each stage. */
static void even_out(struct simplifier *f, const struct candidate *c) {
    candidate_copy(&f->cut, c);
    offer_recompute(f);
    if (!f->s->space.p.pins && snap(&f->s->space, &f->cut)) {
        improve_cuts(f);
        offer_recompute(f);
    }
    candidate_copy(&f->cut, c);
    if (grid_cut_blocks(&f->grid, &f->cut))
        offer_recompute(f);
}

/* Returns whether both are the same pipeline, apart from what is made even. */
static bool same_kind(const struct candidate *a, const struct candidate *b) {
    return a->n_stages == b->n_stages && a->n_groups == b->n_groups &&
           a->micro_batch == b->micro_batch && a->schedule == b->schedule;
}

/* Copies one candidate of each kind, because scoring reorders the pool. */
static int kinds_of(const struct simplifier *f, struct candidate *kinds) {
    const struct pool *pool = &f->s->pool;
    int n = 0;
    for (int i = 0; i < pool->n_best + pool->n_alternatives && n < MOST_KINDS; i++) {
        const struct entry *k =
            i < pool->n_best ? &pool->best[i] : &pool->alternatives[i - pool->n_best];
        bool new = k->score.time_us <= SCORE_ERROR * f->limit_us;
        for (int j = 0; j < n; j++)
            new &= !same_kind(&kinds[j], &k->c);
        if (!new)
            continue;
        kinds[n] = candidate_make(&f->s->space);
        candidate_copy(&kinds[n++], &k->c);
    }
    return n;
}

/* ---- the simplest of them ------------------------------------------------------------------ */

static int simplest_first(const void *a, const void *b) {
    const struct simple *x = a, *y = b;
    if (x->words != y->words)
        return x->words < y->words ? -1 : 1;
    return (x->time_us > y->time_us) - (x->time_us < y->time_us);
}

static void evaluate(struct simplifier *f) {
    struct pool *pool = &f->s->pool;
    if (f->found.n)
        qsort(f->found.p, (size_t)f->found.n, sizeof *f->found.p, simplest_first);
    for (int64_t i = 0; i < f->found.n && i < MOST_EVALUATED; i++) {
        if (budget_out_of_time(&f->s->budget))
            return;
        if (pool_evaluate(pool, &f->found.p[i].c, "simplify") <= f->limit_us)
            return;
    }
}

/* What is found joins the plans; which of them comes first is decided when they are
 * handed out. */
void search_simplify(struct search *s) {
    struct pool *pool = &s->pool;
    if (s->space.p.slack <= 0 || !pool->n_plans)
        return;
    struct simplifier f = {.s = s, .limit_us = pool_limit_us(pool)};
    struct candidate kinds[MOST_KINDS];
    f.words = pool->plans[pool_simplest(pool)].plan.words;
    f.cut = candidate_make(&s->space);
    f.recomputed = candidate_make(&s->space);
    f.next = candidate_make(&s->space);
    grid_init(&f.grid, s);
    int n = kinds_of(&f, kinds);
    for (int i = 0; i < n; i++)
        even_out(&f, &kinds[i]);
    evaluate(&f);
    for (int i = 0; i < n; i++)
        candidate_release(&kinds[i]);
    for (int64_t i = 0; i < f.found.n; i++)
        candidate_release(&f.found.p[i].c);
    arr_release(&f.found);
    memo_release(&f.seen, NULL);
    grid_release(&f.grid);
    candidate_release(&f.cut);
    candidate_release(&f.recomputed);
    candidate_release(&f.next);
}
