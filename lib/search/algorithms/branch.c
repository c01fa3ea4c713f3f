/* Branch and bound (see branch.h). Stages are settled from the first to the last: where
 * each ends, its devices and its strategy. A branch is cut off where no candidate in it
 * can fit and be as fast as the best one, because of
 *
 *   - the lower bound for its micro-batch (bound.h);
 *   - a group of devices that would be busy for too long, or would exceed its memory;
 *   - the work of all devices together: that of the stages so far, plus the lower bounds
 *     of the remaining ops.
 *
 * If the caller has a lower bound over all strategies of a stage, groups and devices are
 * tested for time before the strategies are listed, and only strategies are listed that
 * are not too slow by themselves. Leaves are scored like any other candidate. */
#include "search/algorithms/branch.h"

#include "search/bound/bound.h"
#include "search/bound/op_bounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double MOST_STRATEGIES = 1e6;

struct branch {
    struct search *s;
    const struct search_problem *p;
    struct choices *choices;
    struct candidate c;
    double m; /* number of micro-batches */
    /* [n_ops + 1] the least device-microseconds of an op and all ops after it */
    double *rest_us;
    double *busy_us; /* [groups] microseconds so far */
    int *rank;       /* [groups] the first rank of each */
    /* Devices or links differ, so groups may stand on any ranks; otherwise they stand
     * in order. */
    bool places;
    bool *used;    /* [devices] taken by a group; only if `places` */
    double all_us; /* device-microseconds of all devices so far */
    int64_t most;  /* the value of budget.work at which to give up */
    /* The search was stopped, or there were too many strategies or stages. */
    bool cut_short;
    branch_bound *least_us;
    void *ctx;
};

/* A plan slower than this need not be looked at. */
static double limit_us(const struct pool *pool) {
    double known =
        pool->space->p.beat_us > 0 ? SEARCH_SLACK * pool->space->p.beat_us : INFINITY;
    return pool->n_best ? fmin(known, SEARCH_SLACK * pool->best[0].score.time_us) : known;
}

/* Sums, from the last op to the first, the least device-microseconds of each op over all
 * numbers of devices. */
static void find_rest(struct branch *b, struct op_bounds *f) {
    const struct blocks *g = &b->s->space.blocks;
    int n = g->x.model->n_ops;
    double *least = mem_array((size_t)n, sizeof *least);
    for (int i = 0; i < n; i++) {
        least[i] = INFINITY;
        for (int d = 1; d <= b->p->devices; d++) {
            struct op_bound o = op_bounds_at(f, i, b->c.micro_batch, d);
            least[i] = fmin(least[i], d * op_bound_least(&o, b->m, 1, 0));
        }
    }
    b->rest_us[g->s.n_ops] = 0;
    for (int i = g->s.n_ops - 1; i >= 0; i--)
        b->rest_us[i] = b->rest_us[i + 1] + least[g->x.of[i]];
    free(least);
}

static double strategy_us(const struct branch *b, const struct stage_sum *sum) {
    return b->m * (sum->forward_us + sum->backward_us + sum->weights_us) + sum->reduce_us +
           sum->update_us;
}

/* Returns whether the stage alone fits into its devices' memory. The micro-batches in
 * flight are known, because the schedule and the numbers of stages and groups are set. */
static bool fits(const struct branch *b, int k, const struct stage_sum *sum) {
    struct stage_bytes bytes = {0};
    if (!b->p->memory_bytes)
        return true;
    struct in_flight f = candidate_in_flight(&b->s->eval, &b->c, k);
    int group = k % b->c.n_groups;
    int64_t room = eval_room(&b->s->eval, b->rank[group], b->c.stages[k].devices);
    stage_bytes_add(&bytes, sum, &f);
    return stage_bytes_sum(&bytes) <= SEARCH_MEMORY_SLACK * (double)room;
}

/* Returns whether a stage k that takes `us` would keep its group, or all devices together,
 * busy for longer than limit_us. Ops from `end` on count with their lower bounds. */
static bool exceeds(const struct branch *b, int k, double us, int devices, int end) {
    double limit = limit_us(&b->s->pool);
    return b->busy_us[k % b->c.n_groups] + us > limit ||
           b->all_us + us * devices + b->rest_us[end] > limit * b->p->devices;
}

/* Returns whether the stage is too slow whichever strategy it takes. */
static bool too_slow(const struct branch *b, int k, const struct search_stage *st, int rank,
                     bool apart) {
    return b->least_us &&
           exceeds(b, k, b->least_us(b->ctx, st, b->c.micro_batch, rank, apart),
                   st->devices, st->end);
}

static void take_stage(struct branch *b, int k, int first, int left);

/* Takes a strategy for stage k and goes on with the next stage, unless the branch is cut
 * off. Scores the candidate if it is complete. */
static void take_strategy(struct branch *b, int k, const struct strategy *w, int left) {
    int group = k % b->c.n_groups, devices = b->c.stages[k].devices;
    int place = b->c.stages[k].place;
    double us = strategy_us(b, &w->sum), busy = b->busy_us[group], all = b->all_us;
    if (exceeds(b, k, us, devices, w->st.end) || !fits(b, k, &w->sum))
        return;
    if (k < b->c.n_groups && b->c.n_groups == b->c.n_stages && left &&
        b->rest_us[w->st.end] > limit_us(&b->s->pool) * left)
        return;
    b->c.stages[k] = w->st;
    b->c.stages[k].place = place;
    if (k == b->c.n_stages - 1) {
        if (eval_legal(&b->s->eval, &b->c))
            pool_score(&b->s->pool, &b->c);
        return;
    }
    b->busy_us[group] += us;
    b->all_us += us * devices;
    take_stage(b, k + 1, w->st.end, left);
    b->busy_us[group] = busy;
    b->all_us = all;
}

/* Lists the strategies of stage k, whose ops and devices are set, and tries each of
 * them. */
static void take_strategies(struct branch *b, int k, int devices, int left) {
    struct search_stage st = b->c.stages[k];
    int rank = b->rank[k % b->c.n_groups];
    bool apart = schedule_splits(b->c.schedule, k);
    st.devices = devices;
    if (too_slow(b, k, &st, rank, apart))
        return;
    if (b->least_us)
        strategies_limit(b->choices, limit_us(&b->s->pool));
    const struct strategies *w =
        strategies_of(b->choices, &st, b->c.micro_batch, rank, apart);
    b->cut_short |= !w || budget_stopped(&b->s->budget) || b->s->budget.work > b->most;
    for (int64_t i = 0; w && i < w->n && !b->cut_short; i++) {
        b->c.stages[k].devices = devices;
        b->c.stages[k].place = b->places ? rank : 0;
        take_strategy(b, k, &w->p[i], left);
    }
}

/* Tries stage k on every run of this many free ranks. */
static void take_places(struct branch *b, int k, int devices, int left) {
    int n = 0; /* free ranks in a row that end here */
    for (int r = 0; r < b->p->devices && !b->cut_short; r++) {
        n = b->used[r] ? 0 : n + 1;
        int first = r + 1 - devices;
        if (n < devices)
            continue;
        b->rank[k] = first;
        memset(&b->used[first], true, (size_t)devices);
        take_strategies(b, k, devices, left);
        memset(&b->used[first], false, (size_t)devices);
    }
}

static void take_devices(struct branch *b, int k, int devices, int left) {
    if (b->places && k < b->c.n_groups) {
        take_places(b, k, devices, left);
        return;
    }
    if (k < b->c.n_groups)
        b->rank[k] = b->p->devices - left - devices;
    take_strategies(b, k, devices, left);
}

/* Tries every end and every number of devices for stage k, which begins with op
 * `first`; `left` devices remain for its group and those behind it. */
static void take_stage(struct branch *b, int k, int first, int left) {
    int n_ops = b->p->model->n_ops, n = b->c.n_stages, groups = b->c.n_groups;
    int last = n_ops - (n - 1 - k), behind = groups - 1 - k;
    for (int end = k == n - 1 ? n_ops : first + 1; end <= last && !b->cut_short; end++) {
        if (k < n - 1 && !space_may_cut(&b->s->space, n, k + 1, first, end))
            continue;
        b->c.stages[k] = (struct search_stage){.first = first, .end = end};
        if (behind < 0)
            take_devices(b, k, b->c.stages[k % groups].devices, 0);
        bool even = groups < n && !b->places;
        for (int d = behind ? 1 : left; behind >= 0 && d <= left - behind; d++) {
            if (even && d * groups != b->p->devices)
                continue;
            b->c.stages[k] = (struct search_stage){.first = first, .end = end};
            take_devices(b, k, d, left - d);
        }
    }
}

static void take_schedules(struct branch *b) {
    unsigned which = space_schedules_of(&b->s->space, &b->c);
    for (int f = 0; f < SCHEDULE_COUNT; f++) {
        b->c.schedule = (enum schedule)f;
        if ((which >> f & 1) && !b->cut_short)
            take_stage(b, 0, 0, b->p->devices);
    }
}

static void take_groups(struct branch *b) {
    bool go_round = space_goes_round(&b->s->space);
    for (int groups = 1; groups <= space_max_groups(&b->s->space); groups++)
        for (int chunks = 1; chunks <= (go_round && groups > 1 ? MOST_CHUNKS : 1);
             chunks++) {
            b->c.n_groups = groups;
            b->c.n_stages = groups * chunks;
            if (b->c.n_stages <= space_stage_limit(&b->s->space) &&
                space_may_have_stages(&b->s->space, b->c.n_stages) &&
                (chunks == 1 || (int64_t)b->m % groups == 0))
                take_schedules(b);
        }
}

/* Returns whether the whole space was searched. */
static bool branch_and_bound(struct search *s, branch_bound *least_us, void *ctx) {
    const struct search_problem *p = space_problem_of(&s->space);
    struct branch b = {.s = s,
                       .p = p,
                       .choices = strategies_make(&s->eval, MOST_STRATEGIES, false),
                       .c = candidate_make(&s->space),
                       .most =
                           s->budget.share ? s->budget.work + s->budget.share : INT64_MAX,
                       .least_us = least_us,
                       .ctx = ctx};
    struct op_bounds *f = op_bounds_make(&s->eval, NULL);
    double *micro_us = mem_array((size_t)p->n_micro, sizeof *micro_us);
    pool_be_exact(&s->pool);
    b.rest_us = mem_array((size_t)p->model->n_ops + 1, sizeof *b.rest_us);
    b.busy_us = mem_array((size_t)space_max_groups(&s->space), sizeof *b.busy_us);
    b.rank = mem_array((size_t)space_max_groups(&s->space), sizeof *b.rank);
    b.used = mem_array((size_t)p->devices, sizeof *b.used);
    b.places = space_has_places(&s->space);
    bound_us(&s->eval, micro_us);
    for (int i = p->n_micro - 1; i >= 0 && !b.cut_short; i--) {
        if (micro_us[i] > limit_us(&s->pool))
            continue;
        b.c.micro_batch = p->micro[i];
        b.m = (double)(p->batch / p->micro[i]);
        find_rest(&b, f);
        take_groups(&b);
    }
    free(micro_us);
    free(b.used);
    free(b.rank);
    free(b.busy_us);
    free(b.rest_us);
    op_bounds_free(f);
    candidate_release(&b.c);
    strategies_free(b.choices);
    return !b.cut_short;
}

bool branch_is_small(struct search *s) {
    return strategies_can_be_listed(&s->eval, MOST_STRATEGIES);
}

/* On two devices mlp:mnist and gpt or transformer:nano with one layer (15 to 17 ops)
 * end after at most 0.7 s of CPU. A llama with one layer (19 ops) does not end, and
 * neither do most models on three devices. */
bool branch_may_end(const struct search *s) {
    enum { DEVICES = 2, OPS = 18 };
    const struct search_problem *p = space_problem_of(&s->space);
    return p->devices <= DEVICES && p->model->n_ops <= OPS;
}

void branch_to_proof(struct search *s, branch_bound *least_us, void *ctx) {
    bool all = branch_and_bound(s, least_us, ctx);
    if (!budget_stopped(&s->budget)) {
        search_mark_complete(s, 0);
        s->pool.proven = all && !s->eval.reserve_bytes;
    }
}
