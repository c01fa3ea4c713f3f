/* hops - iterative bottleneck alleviation (after Liu et al., Aceso, EuroSys 2024).
 *
 * Take the stage that exceeds memory or, if all fit, the slowest one. Try every
 * primitive that relieves it: move ops to a neighbour, trade devices, change the
 * layout, the micro-batch, recompute, ZeRO or the schedule, split or merge stages.
 * Each result is scored as it is and with the ops balanced over all stages
 * (balance.c). If none is better at once, follow the most promising ones several hops
 * deep, because relieving one stage may first burden another. No plan is visited
 * twice.
 *
 * The starts are balanced pipelines of every useful depth and micro-batch, each in its
 * best uniform presets. The good ones are improved a little, then the best of several
 * kinds with layouts of single ops. Which kind is best only shows late, and no chain of
 * improvements leads from one kind to another. So the best ones are annealed (mcmc.h),
 * and the winner is followed deeper, shaken by a few random changes and improved
 * again. The seed decides what is random. */
#include "search/algorithms/hops.h"

#include "search/algorithms/algorithms.h"
#include "search/algorithms/mcmc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_STARTS = 8,       /* starts that are improved */
    SHALLOW_HOPS = 1,     /* for starts and finalists */
    FINALISTS = 6,        /* kinds whose best is improved op by op */
    ANNEALED = 2,         /* kinds whose best is annealed */
    DEEP_HOPS = 4,        /* for the winner */
    MORE_CHAINS = 1,      /* in which the winner is annealed again */
    FEW_SCORED = 15000,   /* stages: a phase that scored fewer improves more plans, */
    MANY_SCORED = 40000,  /* and one that scored more ends, though not before its first */
    MUCH_SCORED = 200000, /* of the whole search: then the winner is not annealed again */
    DEEP_SCORED = 40000,  /* stages that deep hops may score */
    CHAIN_SCORED = 16000, /* stages that a chain of annealing scores, about, */
    LEAST_STEPS = 1000,   /* but its changes stay within these numbers */
    MOST_STEPS = 6000,
    SHAKES = 3, /* more while few stages were scored */
    MOST_SHAKES = 5,
    SHAKE_CHANGES = 2,
};

/* Candidates slower than the best by more than the factor NEAR are not improved; while
 * few stages were scored, the factor is NEAR_WHILE_FEW. Those slower by more than
 * NEAR_ANNEALED are not annealed. A start that is a fifth slower may end up a fifth
 * faster once its ops are laid out one by one. */
static const double NEAR = 1.1, NEAR_WHILE_FEW = 1.25, NEAR_ANNEALED = 1.03;

/* ---- following ----------------------------------------------------------------------- */

/* Replaces *c by a plan at most `hops` primitives away that is better than hp->limit;
 * returns false if it finds none. */
static bool relieve(struct hops *hp, struct candidate *c, struct score *score, int hops,
                    bool fine) {
    if (budget_stopped(&hp->s->budget) || hp->s->budget.work > hp->most)
        return false;
    struct options *o = hp->options = &hp->levels[hops];
    o->n = 0;
    hops_expand(hp, c, score, fine && hops == hp->max_hops);
    int chosen = -1;
    if (o->n && score_better(&o->p[0].score, &hp->limit))
        chosen = 0;
    for (int i = 0; i < o->n && chosen < 0 && hops > 1; i++)
        if (relieve(hp, &o->p[i].c, &o->p[i].score, hops - 1, fine))
            chosen = i;
    if (chosen >= 0) {
        candidate_copy(c, &o->p[chosen].c);
        *score = o->p[chosen].score;
    }
    return chosen >= 0;
}

/* Relieves the first or the last stage although another one is the slowest. They hold
 * the embedding and the head, whose update and whose part of the first and the last
 * micro-batch make the step longer too. */
static bool relieve_ends(struct hops *hp, struct option *o) {
    const int ends[] = {0, o->c.n_stages - 1};
    for (int i = 0; i < 2; i++) {
        struct score as = o->score;
        as.slowest = ends[i];
        if (ends[i] == o->score.slowest || o->score.overflow ||
            !relieve(hp, &o->c, &as, 1, true))
            continue;
        o->score = as;
        return true;
    }
    return false;
}

/* Improves *o until no better plan is found within hp->max_hops. */
static void improve(struct hops *hp, struct option *o, bool fine) {
    o->score = pool_score(&hp->s->pool, &o->c);
    do
        hp->limit = o->score;
    while (!o->score.unknown && relieve(hp, &o->c, &o->score, hp->max_hops, fine));
}

/* Improves a copy of *o, relieving its ends too, and replaces *o by the copy if that
 * gains much: *o then gets that far and farther (moe:1.3B on 24 devices ends 2.4 %
 * faster). If it gains little, the copy is only kept in the pool, because *o may get
 * farther from where it is: for gpt:13B on 32 devices it ends 1 % faster than the copy
 * would. */
static void improve_ends(struct hops *hp, struct option *o) {
    static const double MUCH = 0.98;
    struct option copy = {.c = candidate_make(&hp->s->space)};
    candidate_copy(&copy.c, &o->c);
    memo_clear(&hp->seen);
    do
        improve(hp, &copy, true);
    while (!copy.score.unknown && relieve_ends(hp, &copy));
    if (!copy.score.overflow && copy.score.time_us < MUCH * o->score.time_us) {
        candidate_copy(&o->c, &copy.c);
        o->score = copy.score;
    }
    candidate_release(&copy.c);
}

/* Changes *o at random a few times, whatever that costs. */
static void shake(struct hops *hp, struct option *o) {
    for (int i = 0; i < SHAKE_CHANGES; i++) {
        struct options *all = hp->options = &hp->levels[0];
        struct score at = o->score;
        all->n = 0;
        at.slowest = (int)rng_below(&hp->rng, o->c.n_stages);
        at.overflow = 0;
        hops_expand(hp, &o->c, &at, false);
        if (!all->n)
            return;
        const struct option *chosen = &all->p[rng_below(&hp->rng, all->n)];
        candidate_copy(&o->c, &chosen->c);
        o->score = chosen->score;
    }
}

/* ---- the algorithm ------------------------------------------------------------------- */

static int most_zero(const struct candidate *c) {
    int most = 0;
    for (int k = 0; k < c->n_stages; k++)
        most = c->stages[k].zero > most ? c->stages[k].zero : most;
    return most;
}

/* Returns whether both have the same depth, micro-batch and highest level of ZeRO and,
 * if there is only one group, the same layouts. Improving two such candidates mostly
 * ends at the same plan. */
static bool same_kind(const struct candidate *a, const struct candidate *b) {
    return a->n_groups == b->n_groups && a->micro_batch == b->micro_batch &&
           most_zero(a) == most_zero(b) &&
           (a->n_groups > 1 || a->stages[0].layouts == b->stages[0].layouts);
}

/* Sorts the candidates best first, and moves the best one of each of the `kinds` best
 * kinds to the front. */
static void sort_kinds(struct option *o, int64_t n, int64_t kinds) {
    if (n)
        qsort(o, (size_t)n, sizeof *o, option_by_score);
    for (int64_t i = 0, at = 0; i < n && at < kinds; i++) {
        int64_t k = 0;
        while (k < at && !same_kind(&o[k].c, &o[i].c))
            k++;
        if (k < at)
            continue;
        struct option first = o[i];
        memmove(&o[at + 1], &o[at], sizeof *o * (size_t)(i - at));
        o[at++] = first;
    }
}

/* Returns whether this phase may improve its i-th candidate. It is meant to improve
 * `meant` of them, but fewer if they take much work, and more if they take little. */
static bool go_on(const struct hops *hp, int64_t i, int64_t meant) {
    int64_t most = i < meant ? MANY_SCORED : FEW_SCORED;
    return (!i || hp->s->budget.work - hp->scored_before < most) &&
           !budget_stopped(&hp->s->budget);
}

/* Keeps the best starts of every schedule for the finalists, because the estimates of
 * improved candidates may be too low. */
static void keep_alternatives(struct pool *pool, const struct option *starts, int64_t n) {
    enum { EACH = 3 };
    int seen[SCHEDULE_COUNT] = {0};
    for (int64_t i = 0; i < n; i++)
        if (seen[starts[i].c.schedule]++ < EACH)
            pool_keep_alternative(pool, &starts[i].c, &starts[i].score);
}

static void hops_init(struct hops *hp, struct search *s) {
    const struct search_problem *p = space_problem_of(&s->space);
    int deep = p->max_hops ? p->max_hops : DEEP_HOPS;
    *hp = (struct hops){.s = s, .rng = {p->seed, 0}};
    hp->next = candidate_make(&s->space);
    hp->balanced_next = candidate_make(&s->space);
    hp->levels = mem_array((size_t)deep + 1, sizeof *hp->levels);
    for (int i = 0; i < (deep + 1) * WIDTH; i++)
        hp->levels[i / WIDTH].p[i % WIDTH].c = candidate_make(&s->space);
    hp->max_hops = deep;
    hp->most = INT64_MAX;
}

static void hops_release(struct hops *hp, int deep) {
    for (int i = 0; i < (deep + 1) * WIDTH; i++)
        candidate_release(&hp->levels[i / WIDTH].p[i % WIDTH].c);
    free(hp->levels);
    candidate_release(&hp->next);
    candidate_release(&hp->balanced_next);
    memo_release(&hp->seen, NULL);
}

/* Returns whether the candidate fits and is slower than the best by at most the factor
 * `near`. If the best does not fit, or `near` is infinite, any candidate is worth a
 * try. */
static bool is_near(const struct option *o, const struct option *best, double near) {
    return best->score.overflow || isinf(near) ||
           (!o->score.overflow && o->score.time_us <= near * best->score.time_us);
}

/* Returns whether the candidate is worth improving in this phase. While few stages were
 * scored, one that does not fit is worth it too: where memory is tight, what fits at
 * once may be several times slower than what others become. */
static bool is_worth(const struct hops *hp, const struct option *o,
                     const struct option *best) {
    bool few = hp->s->budget.work - hp->scored_before < FEW_SCORED;
    if (few && o->score.overflow)
        return true;
    return is_near(o, best, fmax(few ? NEAR_WHILE_FEW : NEAR, hp->gained));
}

/* Improves a candidate of this phase and notes the factor by which it got faster,
 * because slower ones may gain as much. The factor of one that did not fit before is
 * infinite. */
static void improve_in_phase(struct hops *hp, struct option *o, bool fine) {
    bool fitted = !o->score.overflow;
    double before_us = o->score.time_us;
    improve(hp, o, fine);
    if (!fitted)
        hp->gained = INFINITY;
    else if (!o->score.overflow)
        hp->gained = fmax(hp->gained, before_us / o->score.time_us);
}

static void take_better(struct option *best, const struct option *o) {
    if (!score_better(&o->score, &best->score))
        return;
    candidate_copy(&best->c, &o->c);
    best->score = o->score;
}

/* Anneals *o and improves the result. */
static void anneal(struct hops *hp, struct option *o) {
    int steps = CHAIN_SCORED / o->c.n_stages;
    steps = steps < LEAST_STEPS ? LEAST_STEPS : steps > MOST_STEPS ? MOST_STEPS : steps;
    memo_clear(&hp->seen);
    mcmc_refine(hp->s, &hp->rng, steps, &o->c, &o->score);
    improve(hp, o, true);
}

/* Anneals the best candidate again, in several chains. */
static void anneal_more(struct hops *hp, struct option *best) {
    struct option o = {.c = candidate_make(&hp->s->space)};
    for (int i = 0; i < MORE_CHAINS && hp->s->budget.work < MUCH_SCORED &&
                    !budget_stopped(&hp->s->budget);
         i++) {
        candidate_copy(&o.c, &best->c);
        o.score = best->score;
        anneal(hp, &o);
        take_better(best, &o);
    }
    candidate_release(&o.c);
}

/* Shakes and improves copies of the best candidate and keeps what is better. */
static void shake_and_improve(struct hops *hp, struct option *best) {
    struct option o = {.c = candidate_make(&hp->s->space)};
    hp->scored_before = hp->s->budget.work;
    for (int i = 0; i < MOST_SHAKES && go_on(hp, i, SHAKES); i++) {
        memo_clear(&hp->seen);
        candidate_copy(&o.c, &best->c);
        o.score = best->score;
        shake(hp, &o);
        improve(hp, &o, true);
        take_better(best, &o);
    }
    candidate_release(&o.c);
}

/* If the best plan turns out larger than estimated, scores all candidates again with
 * less memory. Those that no longer fit are improved, unless they are slow, because
 * they may be far faster than all that fit. */
static void settle(struct hops *hp, struct option *o, int64_t n, bool fine) {
    bool fitted[MAX_STARTS] = {0};
    double best_us = INFINITY; /* the fastest that fits */
    if (!pool_settle(&hp->s->pool))
        return;
    for (int64_t i = 0; i < n; i++) {
        if (i < MAX_STARTS)
            fitted[i] = !o[i].score.overflow;
        o[i].score = pool_score(&hp->s->pool, &o[i].c);
        if (!o[i].score.overflow)
            best_us = fmin(best_us, o[i].score.time_us);
    }
    for (int64_t i = 0; i < n && i < MAX_STARTS; i++) {
        if (!fitted[i] || !o[i].score.overflow || o[i].score.time_us > NEAR * best_us)
            continue;
        memo_clear(&hp->seen);
        improve(hp, &o[i], fine);
        if (!o[i].score.overflow)
            best_us = fmin(best_us, o[i].score.time_us);
    }
}

/* Improves the plan that the search starts from, if it has one, and puts it in front
 * of the starts. */
static struct option *put_from_first(struct hops *hp, struct option *starts, int64_t *all) {
    if (!hp->s->has_from)
        return starts;
    starts = mem_grow(starts, (size_t)*all + 1, sizeof *starts);
    memmove(starts + 1, starts, (size_t)*all * sizeof *starts);
    starts[0] = (struct option){.c = candidate_make(&hp->s->space)};
    candidate_copy(&starts[0].c, &hp->s->from);
    improve(hp, &starts[0], true);
    memo_clear(&hp->seen);
    ++*all;
    return starts;
}

/* Moves the fastest start that nearly fits behind the best one, if the best one fits but
 * takes much longer. Returns whether it moved one. For t5:3B on 96 devices with 0.28 GB
 * each, the best plan of a grid that fits by estimate takes 8.0 s, and one that exceeds
 * the memory by 3 % takes 1.9 s. */
static bool put_nearly_fitting_second(const struct hops *hp, struct option *o, int64_t n) {
    static const double FASTER = 0.7;
    int64_t at = 0;
    for (int64_t i = 1; i < n; i++)
        if (eval_nearly_fits(&hp->s->eval, &o[i].score) &&
            o[i].score.time_us < (at ? 1 : FASTER) * o[at].score.time_us)
            at = i;
    if (!at || o[0].score.overflow)
        return false;
    struct option nearly = o[at];
    memmove(&o[2], &o[1], sizeof *o * (size_t)(at - 1));
    o[1] = nearly;
    return true;
}

/* Improves the starts that are worth it, without layouts of single ops. Returns how
 * many. */
static int64_t improve_starts(struct hops *hp, struct option *starts, int64_t all) {
    int64_t n = 0;
    hp->scored_before = hp->s->budget.work;
    hp->gained = 1;
    settle(hp, starts, all, false);
    sort_kinds(starts, all, MAX_STARTS);
    bool second = put_nearly_fitting_second(hp, starts, all);
    while (n < all && go_on(hp, n, MAX_STARTS) &&
           ((second && n == 1) || is_worth(hp, &starts[n], &starts[0])))
        improve_in_phase(hp, &starts[n++], false);
    return n;
}

/* Improves the best candidates again with layouts of single ops, which gain the last few
 * percent, and anneals the best of these. */
static void finish(struct hops *hp, struct option *o, int64_t n) {
    hp->scored_before = hp->s->budget.work;
    hp->gained = 1;
    settle(hp, o, n, true);
    sort_kinds(o, n, FINALISTS);
    for (int64_t i = 0;
         i < n && i < FINALISTS && go_on(hp, i, FINALISTS) && is_worth(hp, &o[i], &o[0]);
         i++) {
        memo_clear(&hp->seen);
        improve_in_phase(hp, &o[i], true);
    }
    settle(hp, o, n, true);
    sort_kinds(o, n, ANNEALED);
    for (int64_t i = 0; i < n && i < ANNEALED && is_near(&o[i], &o[0], NEAR_ANNEALED);
         i++) {
        improve_ends(hp, &o[i]);
        anneal(hp, &o[i]);
    }
    sort_kinds(o, n, 1);
}

/* Improves the best candidate with more hops, in about DEEP_SCORED scored stages. */
static void follow_deep(struct hops *hp, struct option *best, int deep) {
    int shallow = hp->max_hops;
    hp->max_hops = deep;
    hp->most = hp->s->budget.work + DEEP_SCORED;
    memo_clear(&hp->seen);
    improve(hp, best, true);
    hp->max_hops = shallow;
    hp->most = INT64_MAX;
}

/* Runs all phases, from the first plan to the last shake. A stopped search passes
 * through the remaining ones as well, but they do no work then. */
int search_hops(struct search *s, struct err *err) {
    (void)err;
    struct hops hp;
    hops_init(&hp, s);
    int deep = hp.max_hops;
    int64_t all;
    bool new = !s->pool.n_best && !s->eval.reserve_bytes;
    hops_first(s);
    if (new && !budget_stopped(&s->budget))
        s->first_us = pool_first_us(&s->pool, LOOK_PIPELINE);
    pool_note_incumbent(&s->pool);
    struct option *starts = hops_starts(s, &all);
    starts = put_from_first(&hp, starts, &all);
    keep_alternatives(&s->pool, starts, all);
    hp.max_hops = deep < SHALLOW_HOPS ? deep : SHALLOW_HOPS;
    int64_t n = improve_starts(&hp, starts, all);
    finish(&hp, starts, n);
    if (n) {
        settle(&hp, starts, n, true);
        follow_deep(&hp, &starts[0], deep);
        anneal_more(&hp, &starts[0]);
        shake_and_improve(&hp, &starts[0]);
        improve_ends(&hp, &starts[0]);
    }
    if (!budget_stopped(&s->budget))
        search_mark_complete(s, 0);
    for (int64_t i = 0; i < all; i++)
        candidate_release(&starts[i].c);
    free(starts);
    hops_release(&hp, deep);
    return 0;
}

void hops_polish(struct search *s, struct option *o, int hops, bool fine) {
    struct hops hp;
    hops_init(&hp, s);
    int deep = hp.max_hops;
    hp.max_hops = hops < deep ? hops : deep;
    improve(&hp, o, fine);
    hops_release(&hp, deep);
}
