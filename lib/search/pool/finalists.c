/* Finalists: which candidates are compiled and simulated, and when.
 *
 * The best candidate is evaluated as soon as there is one and when better ones turn up
 * (within a small share of the time), and all finalists are evaluated at the end. */
#include "common/progress.h"
#include "search/pool/incumbents.h"

#include <math.h>
#include <string.h>

/* Returns whether a plan of this class would be the first of its class at place `at`. If
 * only one plan is wanted, every plan counts as the first of its class. */
static bool is_first(const struct pool *pool, int at, uint64_t class) {
    for (int i = 0; i < at && pool->space->p.top > 1; i++)
        if (pool->plans[i].class == class)
            return false;
    return true;
}

/* Drops the slowest plan that is not the first of its class, or the slowest if all are. */
static void drop_slowest(struct pool *pool) {
    int i = pool->n_plans - 1;
    while (i > 0 && pool->plans[i].first)
        i--;
    i = pool->plans[i].first ? pool->n_plans - 1 : i;
    plan_destroy(pool->plans[i].plan.plan);
    memmove(&pool->plans[i], &pool->plans[i + 1],
            sizeof *pool->plans * (size_t)(--pool->n_plans - i));
}

/* Inserts the plan by its time. */
static void add_evaluated(struct pool *pool, struct evaluated j) {
    if (pool->n_plans == pool->max_best)
        drop_slowest(pool);
    int at = pool->n_plans;
    while (at > 0 && j.plan.time_us < pool->plans[at - 1].plan.time_us)
        at--;
    memmove(&pool->plans[at + 1], &pool->plans[at],
            sizeof *pool->plans * (size_t)(pool->n_plans - at));
    j.first = is_first(pool, at, j.class);
    for (int i = at; i < pool->n_plans; i++)
        pool->plans[i + 1].first &=
            pool->space->p.top == 1 || pool->plans[i + 1].class != j.class;
    pool->plans[at] = j;
    pool->n_plans++;
}

/* Returns the simulated time; INFINITY if the candidate does not fit or lacks profile
 * rows. */
static double evaluate_and_add(struct pool *pool, struct entry *k, bool both) {
    struct evaluated j = {.plan.member = k->member, .class = k->class};
    double best_us = pool->n_plans ? pool->plans[0].plan.time_us : INFINITY;
    struct evaluation v = eval_candidate(pool->ev, &k->c, best_us, both, &j.plan);
    k->evaluated = true;
    k->excess = v.good ? 0 : v.excess;
    k->fullest = v.fullest;
    if (!v.good)
        return INFINITY;
    j.plan.words = space_words(pool->space, &k->c);
    watch_plan(pool->budget->watch, k->member, j.plan.time_us);
    add_evaluated(pool, j);
    return j.plan.time_us;
}

void pool_take_plan(struct pool *pool, struct plan *plan, const struct candidate *c) {
    struct evaluated j = {.plan = {.plan = plan, .words = space_words(pool->space, c)},
                          .class = space_class(pool->space, c)};
    double best_us = pool->n_plans ? pool->plans[0].plan.time_us : INFINITY;
    if (eval_plan(pool->ev, &j.plan) && j.plan.time_us < best_us * (1 - 1e-9))
        add_evaluated(pool, j);
    else
        plan_destroy(plan);
}

double pool_limit_us(const struct pool *pool) {
    return pool->n_plans ? pool->plans[0].plan.time_us * (1 + pool->space->p.slack) : 0;
}

int pool_simplest(const struct pool *pool) {
    int best = 0;
    for (int i = 1; i < pool->n_plans; i++)
        if (pool->plans[i].plan.time_us <= pool_limit_us(pool) &&
            pool->plans[i].plan.words < pool->plans[best].plan.words)
            best = i;
    return best;
}

double pool_evaluate(struct pool *pool, const struct candidate *c, const char *member) {
    struct entry k = {.c = *c, .member = pool->member ? member : NULL};
    k.class = pool_class(pool, c);
    return evaluate_and_add(pool, &k, false);
}

/* Evaluates the incumbents from number `first` on whose score is at most `most_us`. Once
 * there is a plan, stops when time is up. Of incumbents that were noted together, those
 * behind the first one that fits are left out. */
static void evaluate_incumbents(struct pool *pool, int64_t first, double most_us) {
    bool good = false;
    for (int64_t i = first; i < pool->incumbents.n; i++) {
        if (pool->n_plans && (interrupted() || budget_time_left_s(pool->budget) <= 0))
            return;
        struct incumbent *l = &pool->incumbents.p[i];
        good &= l->instead;
        if (!good && l->k.score.time_us <= most_us)
            good = isfinite(evaluate_and_add(pool, &l->k, true));
    }
}

/* The first candidate is evaluated at once. Once there is a plan, others are evaluated
 * only if they promise to be faster, and for about a twentieth of the time at most, so
 * that evaluations do not slow the search down. Under a budget all incumbents are
 * evaluated, and nothing else (incumbents.h). */
void pool_evaluate_best(struct pool *pool) {
    struct entry *best = &pool->best[0];
    double wait = pool->n_plans ? 20 : 2;
    if (budget_is_limited(pool->budget)) {
        evaluate_incumbents(pool, pool->incumbents_evaluated, INFINITY);
        pool->incumbents_evaluated = pool->incumbents.n;
    }
    if (budget_is_limited(pool->budget) || best->evaluated ||
        now_s() - pool->last_evaluated_s < wait * pool->budget->evaluate_s ||
        (pool->n_plans && best->score.time_us >= pool->plans[0].plan.time_us))
        return;
    evaluate_and_add(pool, best, false);
    pool->last_evaluated_s = now_s();
}

/* Drops the plans that were evaluated on the way, so that a search that ends by itself
 * gives the same plans on machines of any speed. Returns the best of them, in case no
 * finalist fits. */
static struct evaluated drop_evaluated(struct pool *pool) {
    struct evaluated best = {0};
    if (pool->n_plans)
        best = pool->plans[0];
    for (int i = 1; i < pool->n_plans; i++)
        plan_destroy(pool->plans[i].plan.plan);
    for (int i = 0; i < pool->n_best; i++)
        pool->best[i].evaluated = false;
    pool->n_plans = 0;
    return best;
}

double pool_simulated_us(struct pool *pool) {
    struct search_plan plan = {0};
    if (!pool->n_best)
        return INFINITY;
    double best_us = pool->n_plans ? pool->plans[0].plan.time_us : INFINITY;
    bool good = eval_candidate(pool->ev, &pool->best[0].c, best_us, true, &plan).good;
    double us = good ? plan.time_us : INFINITY;
    plan_destroy(plan.plan);
    return us;
}

static void note_excess(struct pool *pool, const struct entry *k) {
    if (k->excess && (!pool->refused.bytes || k->excess < pool->refused.bytes))
        pool->refused = space_shortage(pool->space, &k->c, k->fullest, k->excess);
}

/* Sets listed_us after an algorithm that listed all plans: one that was not evaluated is
 * no faster than its score allows. */
static void note_listed(struct pool *pool) {
    double rest_us = pool->n_best == pool->max_best
                         ? pool->best[pool->n_best - 1].score.time_us
                         : INFINITY;
    if (!pool->proven || !pool->n_plans || pool->space->p.top > 1)
        return;
    for (int i = pool->n_best - 1; i >= 0; i--)
        if (!pool->best[i].evaluated)
            rest_us = pool->best[i].score.time_us;
    pool->listed_us = fmin(pool->plans[0].plan.time_us, rest_us / SEARCH_SLACK);
}

/* Returns the slowest of the plans that are wanted; NULL while there are too few. */
static const struct evaluated *last_wanted(const struct pool *pool) {
    int n = 0;
    for (int i = 0; i < pool->n_plans; i++)
        if (pool->plans[i].first && ++n == pool->space->p.top)
            return &pool->plans[i];
    return NULL;
}

static int evaluated_of(const struct pool *pool, uint64_t class) {
    int n = 0;
    for (int i = 0; i < pool->n_plans; i++)
        n += pool->plans[i].class == class;
    return n;
}

/* Without a plan to hand out, any candidate may be evaluated. An interrupted search that
 * has one only evaluates more promising candidates, and only as long as the user does
 * not notice. */
static bool may_evaluate(const struct pool *pool, const struct entry *k, double begin_s) {
    static const double UNNOTICED_S = 0.05;
    if (!pool->n_plans)
        return true;
    if (!interrupted())
        return budget_time_left_s(pool->budget) >= pool->budget->evaluate_s;
    return k->score.time_us < pool->plans[0].plan.time_us &&
           pool->budget->evaluate_s < UNNOTICED_S && now_s() - begin_s < UNNOTICED_S;
}

static const double USUAL_SLACK = 1.05; /* scores rarely differ more from simulated times */

/* Evaluates candidates best first, only some of each class, until the next score is
 * above the time of the last wanted plan by more than scores usually err. */
static void evaluate_finalists(struct pool *pool) {
    double slack = pool->ev->exact ? SEARCH_SLACK : USUAL_SLACK;
    double begin_s = now_s();
    pool->refused.bytes = 0;
    pool->listed_us = 0;
    for (int i = 0; i < pool->n_best; i++) {
        struct entry *k = &pool->best[i];
        const struct evaluated *last = last_wanted(pool);
        if (!may_evaluate(pool, k, begin_s))
            return;
        if (last && k->score.time_us > slack * last->plan.time_us)
            break;
        int64_t more =
            k->class == pool->best[0].class ? space_spare(pool->space)
                                            : space_spare(pool->space) / pool->space->p.top;
        if (evaluated_of(pool, k->class) > more)
            continue;
        if (!k->evaluated)
            evaluate_and_add(pool, k, !budget_out_of_time(pool->budget));
        note_excess(pool, k);
    }
    note_listed(pool);
}

static void evaluate_alternatives(struct pool *pool) {
    for (int i = 0; i < pool->n_alternatives && !budget_out_of_time(pool->budget); i++) {
        struct entry *k = &pool->alternatives[i];
        if (!pool->n_plans || k->score.time_us < pool->plans[0].plan.time_us)
            evaluate_and_add(pool, k, true);
    }
}

/* The fastest one that fits is good enough: the others are slower. */
static void evaluate_near(struct pool *pool) {
    for (int i = 0; i < pool->n_near && !budget_out_of_time(pool->budget); i++) {
        struct entry *k = &pool->near[i];
        if (pool->n_plans && k->score.time_us >= pool->plans[0].plan.time_us)
            return;
        if (isfinite(evaluate_and_add(pool, k, true)))
            return;
    }
}

/* A search that ended by itself may only hand out what does not depend on the
 * machine's speed. A plan evaluated on the way is only its fallback, unless there was a
 * budget. */
void pool_evaluate_finalists(struct pool *pool) {
    if (budget_out_of_time(pool->budget)) {
        if (!budget_is_limited(pool->budget) || interrupted() || !pool->n_plans)
            evaluate_finalists(pool);
        return;
    }
    struct evaluated other = drop_evaluated(pool), *fallback = &pool->fallback;
    evaluate_finalists(pool);
    evaluate_alternatives(pool);
    evaluate_near(pool);
    evaluate_incumbents(
        pool, 0, pool->n_plans ? USUAL_SLACK * pool->plans[0].plan.time_us : INFINITY);
    if (budget_is_limited(pool->budget) && pool->n_plans && other.plan.plan &&
        other.plan.time_us < pool->plans[0].plan.time_us) {
        add_evaluated(pool, other);
        return;
    }
    if (other.plan.plan &&
        (!fallback->plan.plan || other.plan.time_us < fallback->plan.time_us)) {
        struct evaluated was = *fallback;
        *fallback = other;
        other = was;
    }
    plan_destroy(other.plan.plan);
}
