/* dp - stages, sub-meshes, layouts, micro-batch, recompute and ZeRO at once.
 *
 * First the pipelines that the stages solver cuts, for every micro-batch: exact by dynamic programming
 * for uniform styles and cuts between blocks (slice.c); their layouts then by the layout solver, their
 * cuts balanced. Then branch and bound over everything else, where the ways of stages can be listed
 * (choices.h): stage by stage from the first on, with its end, its devices and its way. A branch is
 * given up where no candidate of it can be as fast as the best one:
 *
 *   - the bound of its micro-batch (bound.h);
 *   - a group of devices that is busy longer than that, or holds more than its memory;
 *   - all devices together: the work so far, and what is left at the floors of its ops.
 *
 * Leaves are scored like any other candidate. Nothing is given up that is estimated within
 * SEARCH_SLACK of the best, so that the simulator has all of them to choose from. If it ends, the best
 * plan is proven to be that. */
#include "search/algorithms.h"
#include "search/bound.h"
#include "search/choices.h"
#include "search/devices.h"
#include "search/floors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double MOST_WAYS = 3e5;

/* ---- what the solvers give ------------------------------------------------------------------ */

struct best {
    struct candidate c, next;
    struct score score;
    bool any;
};

static void offer(struct search *s, struct best *b, struct candidate *c) {
    if (!search_legal(s, c))
        return;
    struct score score = search_score(s, c);
    if (b->any && !score_better(&score, &b->score))
        return;
    candidate_copy(&b->c, c);
    b->score = score;
    b->any = true;
}

/* Under every schedule, with one stage on each group and with several. */
static void offer_schedules(struct search *s, struct best *b, struct candidate *c) {
    struct candidate chunked = candidate_make(s);
    for (int f = 0; f < SCHEDULE_COUNT; f++) {
        c->schedule = (enum schedule)f;
        if (search_has_schedule(s, c->schedule) && c->schedule != SCHEDULE_interleaved)
            offer(s, b, c);
    }
    for (int chunks = 2; chunks <= MOST_CHUNKS; chunks++)
        if (search_has_schedule(s, SCHEDULE_interleaved) &&
            search_chunk(s, c, chunks, &chunked))
            offer(s, b, &chunked);
    candidate_release(&chunked);
}

/* Layouts of all stages, then cuts, as long as that helps. */
static void polish(struct search *s, struct best *b) {
    enum { ROUNDS = 4 };
    for (int round = 0; round < ROUNDS && !search_stopped(s); round++) {
        struct score before = b->score;
        for (int k = 0; k < b->c.n_stages; k++) {
            candidate_copy(&b->next, &b->c);
            if (search_relayout(s, &b->next, k))
                offer(s, b, &b->next);
        }
        candidate_copy(&b->next, &b->c);
        if (search_balance(s, &b->next))
            offer(s, b, &b->next);
        if (!score_better(&b->score, &before))
            break;
    }
}

static void solve_slices(struct search *s) {
    const struct search_problem *p = search_problem_of(s);
    struct best b = {.c = candidate_make(s), .next = candidate_make(s)};
    for (int i = p->n_micro - 1; i >= 0 && !search_stopped(s); i--) {
        b.any = false;
        for (int shard = 0; shard < 2; shard++)
            if (search_slice(s, p->micro[i], shard, &b.next))
                offer_schedules(s, &b, &b.next);
        if (b.any)
            polish(s, &b);
    }
    candidate_release(&b.c);
    candidate_release(&b.next);
}

/* ---- branch and bound ------------------------------------------------------------------------ */

struct branch {
    struct search *s;
    const struct search_problem *p;
    struct choices *choices;
    struct candidate c;
    double m;        /* micro-batches */
    double *rest_us; /* [n_ops + 1] least time on a device of all ops from one on */
    double *busy_us; /* [groups] */
    int *rank;       /* [groups] the first of each */
    bool places;     /* groups may stand anywhere; else in their order */
    bool *used;      /* [devices] by the groups so far, where places are free */
    double all_us;   /* of all devices together, so far */
    bool cut_short;  /* stopped, or too many ways */
};

/* Nothing slower than that is of use. */
static double limit_us(const struct search *s) {
    return s->n_kept ? SEARCH_SLACK * s->kept[0].score.time_us : INFINITY;
}

static void find_rest(struct branch *b, struct floors *f) {
    const struct graph *g = &b->s->graph;
    int n = g->x.model->n_ops;
    double *least = mem_array((size_t)n, sizeof *least);
    for (int i = 0; i < n; i++) {
        least[i] = INFINITY;
        for (int d = 1; d <= b->p->devices; d++) {
            struct floor_op o = floors_at(f, i, b->c.micro_batch, d);
            least[i] = fmin(least[i], d * floor_least(&o, b->m, 1, 0));
        }
    }
    b->rest_us[g->s.n_ops] = 0;
    for (int i = g->s.n_ops - 1; i >= 0; i--)
        b->rest_us[i] = b->rest_us[i + 1] + least[g->x.of[i]];
    free(least);
}

static double way_us(const struct branch *b, const struct stage_sum *sum) {
    return b->m * (sum->forward_us + sum->backward_us + sum->weights_us) + sum->reduce_us +
           sum->update_us;
}

/* With one stage on each group it is known how many micro-batches are in flight. */
static bool fits(const struct branch *b, int k, const struct stage_sum *sum) {
    struct stage_bytes bytes = {0};
    if (!b->p->memory_bytes)
        return true;
    struct in_flight f = candidate_in_flight(b->s, &b->c, k);
    int group = k % b->c.n_groups;
    int64_t limit = search_memory(b->p, b->rank[group], b->c.stages[k].devices);
    stage_bytes_add(&bytes, sum, &f);
    return stage_bytes_sum(&bytes) <=
           SEARCH_MEMORY_SLACK * (double)(limit - b->s->reserve_bytes);
}

static void take_stage(struct branch *b, int k, int first, int left);

static void take_way(struct branch *b, int k, const struct way *w, int left) {
    int group = k % b->c.n_groups, devices = b->c.stages[k].devices;
    int place = b->c.stages[k].place;
    double us = way_us(b, w->sum), busy = b->busy_us[group], all = b->all_us;
    double limit = limit_us(b->s);
    if (busy + us > limit ||
        all + us * devices + b->rest_us[w->st.end] > limit * b->p->devices ||
        !fits(b, k, w->sum))
        return;
    if (k < b->c.n_groups && b->c.n_groups == b->c.n_stages && left &&
        b->rest_us[w->st.end] > limit * left)
        return;
    b->c.stages[k] = w->st;
    b->c.stages[k].place = place;
    if (k == b->c.n_stages - 1) {
        if (search_legal(b->s, &b->c))
            search_score(b->s, &b->c);
        return;
    }
    b->busy_us[group] += us;
    b->all_us += us * devices;
    take_stage(b, k + 1, w->st.end, left);
    b->busy_us[group] = busy;
    b->all_us = all;
}

/* The group's place is settled. */
static void take_ways(struct branch *b, int k, int devices, int left) {
    struct search_stage st = b->c.stages[k];
    int rank = b->rank[k % b->c.n_groups];
    bool apart = b->c.schedule == SCHEDULE_zero_bubble && k > 0;
    st.devices = devices;
    const struct ways *w = choices_of(b->choices, &st, b->c.micro_batch, rank, apart);
    b->cut_short |= !w || search_stopped(b->s);
    for (int64_t i = 0; w && i < w->n && !b->cut_short; i++) {
        b->c.stages[k].devices = devices;
        b->c.stages[k].place = b->places ? rank : 0;
        take_way(b, k, &w->p[i], left);
    }
}

/* All runs of so many devices that are free. */
static void take_places(struct branch *b, int k, int devices, int left) {
    int n = 0; /* free ones up to this rank */
    for (int r = 0; r < b->p->devices && !b->cut_short; r++) {
        n = b->used[r] ? 0 : n + 1;
        int first = r + 1 - devices;
        if (n < devices)
            continue;
        b->rank[k] = first;
        memset(&b->used[first], true, (size_t)devices);
        take_ways(b, k, devices, left);
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
    take_ways(b, k, devices, left);
}

/* Stage k from this op on; `left` devices are for it and the groups behind it. */
static void take_stage(struct branch *b, int k, int first, int left) {
    int n_ops = b->p->model->n_ops, n = b->c.n_stages, groups = b->c.n_groups;
    int last = n_ops - (n - 1 - k), behind = groups - 1 - k;
    for (int end = k == n - 1 ? n_ops : first + 1; end <= last && !b->cut_short; end++) {
        if (k < n - 1 && !search_may_cut(b->s, n, k + 1, first, end))
            continue;
        b->c.stages[k] = (struct search_stage){.first = first, .end = end};
        if (behind < 0)
            take_devices(b, k, b->c.stages[k % groups].devices, 0);
        for (int d = behind ? 1 : left; behind >= 0 && d <= left - behind; d++) {
            b->c.stages[k] = (struct search_stage){.first = first, .end = end};
            take_devices(b, k, d, left - d);
        }
    }
}

static void take_schedules(struct branch *b) {
    unsigned which = search_schedules_of(b->s, &b->c);
    for (int f = 0; f < SCHEDULE_COUNT; f++) {
        b->c.schedule = (enum schedule)f;
        if ((which >> f & 1) && !b->cut_short)
            take_stage(b, 0, 0, b->p->devices);
    }
}

static void take_groups(struct branch *b) {
    bool go_round = search_has_schedule(b->s, SCHEDULE_interleaved);
    for (int groups = 1; groups <= search_max_groups(b->s); groups++)
        for (int chunks = 1; chunks <= (go_round && groups > 1 ? MOST_CHUNKS : 1);
             chunks++) {
            b->c.n_groups = groups;
            b->c.n_stages = groups * chunks;
            if (b->c.n_stages <= search_room(b->s) &&
                search_may_have_stages(b->s, b->c.n_stages) &&
                (chunks == 1 || (int64_t)b->m % groups == 0))
                take_schedules(b);
        }
}

/* Returns whether all of the space was gone through. */
static bool branch_and_bound(struct search *s) {
    const struct search_problem *p = search_problem_of(s);
    struct branch b = {.s = s,
                       .p = p,
                       .choices = choices_make(s, MOST_WAYS, false),
                       .c = candidate_make(s)};
    struct floors *f = floors_make(s);
    double *micro_us = mem_array((size_t)p->n_micro, sizeof *micro_us);
    search_be_exact(s);
    b.rest_us = mem_array((size_t)p->model->n_ops + 1, sizeof *b.rest_us);
    b.busy_us = mem_array((size_t)search_max_groups(s), sizeof *b.busy_us);
    b.rank = mem_array((size_t)search_max_groups(s), sizeof *b.rank);
    b.used = mem_array((size_t)p->devices, sizeof *b.used);
    b.places = search_has_places(s);
    bound_us(s, micro_us);
    for (int i = p->n_micro - 1; i >= 0 && !b.cut_short; i--) {
        if (micro_us[i] > limit_us(s))
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
    floors_free(f);
    candidate_release(&b.c);
    choices_free(b.choices);
    return !b.cut_short;
}

int search_dp(struct search *s, struct err *err) {
    (void)err;
    solve_slices(s);
    bool all = branch_and_bound(s);
    if (!search_stopped(s)) {
        search_mark_complete(s, 0);
        s->proven = all && !s->reserve_bytes;
    }
    return 0;
}
