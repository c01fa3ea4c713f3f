/* joint_dp.c - is there a plan in which no stage takes longer than T?
 *
 * A down-set is a set of last stages of the pipeline. Of two ways to build the same one the
 * way with no more devices and no smaller sum s of data degrees is never needed: a stage in
 * front of it has time that does not depend on s and memory that does not fall with s. So
 * per down-set and number of devices only the least s is kept, which makes the answer
 * exact. A stage is judged by cheap sums first (the fastest alternatives everywhere are
 * slower than T; the leanest do not fit; the fastest fit), and only where these leave it
 * open by the exact choice of alternatives.
 */
#include "solve/joint.h"

#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct joint_back {
    int small;  /* down-set before the stage */
    int degree; /* index */
    int d, k;   /* data degree; devices of the smaller down-set */
};

void joint_dp_init(struct joint_dp *dp, const struct joint_problem *p,
                   const struct joint_ideals *x, double deadline_s) {
    size_t cells = (size_t)x->n * (size_t)(p->devices + 1);
    int most = p->max_data < p->limit_s ? p->max_data : p->limit_s;
    *dp = (struct joint_dp){.p = p, .x = x, .deadline_s = deadline_s};
    dp->divisors = mem_array((size_t)most + 1, sizeof *dp->divisors);
    for (int d = 1; d <= most; d++)
        if (p->samples % d == 0)
            dp->divisors[dp->num_divisors++] = d;
    dp->s_min = mem_array(cells, sizeof *dp->s_min);
    dp->back = mem_array(cells, sizeof *dp->back);
}

void joint_dp_release(struct joint_dp *dp) {
    free(dp->divisors);
    free(dp->s_min);
    free(dp->back);
    joint_items_release(&dp->items);
}

static const uint64_t *set_bits(const struct joint_dp *dp, int set) {
    return dp->x->bits + (int64_t)set * dp->x->words;
}

/* One stage (pair, degree, d) under judgement; y is monotone, so two numbers remember all.
 */
struct trial {
    int small, large;
    const struct joint_sums *s;
    int d;
    int64_t yes, no; /* fits up to yes; does not from no on */
    bool made;       /* dp->items hold its nodes */
};

static bool fits(struct joint_dp *dp, struct trial *t, int64_t y, double limit) {
    const struct joint_problem *p = dp->p;
    const struct joint_sums *s = t->s;
    if (y <= t->yes || y >= t->no)
        return y <= t->yes;
    double need = s->a * (double)y + s->b;
    bool good = false;
    if (need > p->capacity * (1 + 1e-12)) {
        t->no = y; /* at no time at all */
        return false;
    }
    if (s->plain && s->fast_a * (double)y + s->fast_b <= p->capacity) {
        good = true; /* its time was compared with the limit before */
    } else {
        if (!t->made)
            joint_items_make(&dp->items, p, set_bits(dp, t->small), set_bits(dp, t->large),
                             s->degree);
        t->made = true;
        dp->knapsacks++;
        struct joint_pick pick = joint_knapsack(p, &dp->items, t->d, y, limit, limit, NULL);
        good = isfinite(pick.time) && pick.time <= limit;
        if (!good)
            dp->next = fmin(dp->next, pick.bound);
    }
    if (good)
        t->yes = y;
    else
        t->no = y;
    return good;
}

/* The larger down-set can be had with k devices and s: also with more devices. */
static void improve(struct joint_dp *dp, int set, int k, int s, struct joint_back back) {
    int64_t row = (int64_t)set * (dp->p->devices + 1);
    for (; k <= dp->p->devices && dp->s_min[row + k] > s; k++) {
        dp->s_min[row + k] = (uint16_t)s;
        dp->back[row + k] = back;
    }
}

/* All ways to put this stage in front of what is known of its smaller down-set. Device
 * counts run downwards, so s rises and the first refusal ends it. */
static void extend(struct joint_dp *dp, struct trial *t, double limit) {
    const struct joint_problem *p = dp->p;
    int use = p->degrees[t->s->degree] * t->d, width = p->devices + 1;
    const uint16_t *from = dp->s_min + (int64_t)t->small * width;
    const uint16_t *to = dp->s_min + (int64_t)t->large * width;
    for (int k = p->devices - use; k >= 0 && from[k] != UINT16_MAX; k--) {
        int s = from[k] + t->d;
        if (k > 0 && from[k - 1] == from[k])
            continue; /* fewer devices do as well */
        if (s > p->limit_s)
            return;
        if (to[k + use] <= s)
            continue;
        if (!fits(dp, t, (s + t->d - 1) / t->d, limit))
            return;
        improve(dp, t->large, k + use, s,
                (struct joint_back){t->small, t->s->degree, t->d, k});
    }
}

static void extend_pair(struct joint_dp *dp, int small, const struct joint_pair *pair,
                        double limit) {
    const struct joint_problem *p = dp->p;
    double sync = joint_sync_factor(p);
    for (int i = 0; i < pair->count; i++) {
        const struct joint_sums *s = &dp->x->sums.p[pair->first + i];
        for (int j = 0; j < dp->num_divisors; j++) {
            int d = dp->divisors[j];
            if (p->degrees[s->degree] > p->devices / d)
                break;
            /* no slower than this with the fastest alternatives everywhere */
            double least = (s->base + sync * (d - 1) * s->w) / d;
            struct trial t = {small, pair->to, s, d, 0, INT64_MAX, false};
            if (least > limit)
                dp->next = fmin(dp->next, least);
            else
                extend(dp, &t, limit);
        }
    }
}

static double stage_time(struct joint_dp *dp, const struct joint_stage *st, int *picks) {
    const struct joint_problem *p = dp->p;
    joint_items_make(&dp->items, p, set_bits(dp, st->small), set_bits(dp, st->large),
                     st->degree);
    int64_t y = (st->s + st->d - 1) / st->d;
    return joint_knapsack(p, &dp->items, st->d, y, 0, INFINITY, picks).time;
}

static void trace(struct joint_dp *dp, struct joint_plan *plan) {
    int width = dp->p->devices + 1, set = dp->x->n - 1, k = dp->p->devices;
    plan->n = 0;
    plan->value = 0;
    while (set) {
        int64_t at = (int64_t)set * width + k;
        const struct joint_back *b = &dp->back[at];
        struct joint_stage *st = &plan->stages[plan->n++];
        *st = (struct joint_stage){b->small, set, b->degree, b->d, dp->s_min[at]};
        plan->value = fmax(plan->value, stage_time(dp, st, NULL));
        set = b->small;
        k = b->k;
    }
}

int joint_dp_run(struct joint_dp *dp, double limit, struct joint_plan *plan) {
    const struct joint_ideals *x = dp->x;
    int width = dp->p->devices + 1;
    memset(dp->s_min, 0xff, (size_t)x->n * (size_t)width * sizeof *dp->s_min);
    memset(dp->s_min, 0, (size_t)width * sizeof *dp->s_min);
    dp->next = INFINITY;
    for (int i = 0; i < x->n - 1; i++) {
        if (now_s() >= dp->deadline_s || interrupted())
            return -1;
        if (dp->s_min[(int64_t)i * width + width - 1] == UINT16_MAX)
            continue;
        for (int64_t j = x->start[i]; j < x->start[i + 1]; j++)
            extend_pair(dp, i, &x->pairs.p[j], limit);
    }
    if (dp->s_min[(int64_t)(x->n - 1) * width + width - 1] == UINT16_MAX)
        return 0;
    trace(dp, plan);
    return 1;
}

int joint_dp_reach(const struct joint_dp *dp) {
    int width = dp->p->devices + 1, most = 0;
    for (int i = 0; i < dp->x->n; i++)
        if (dp->s_min[(int64_t)i * width + width - 1] != UINT16_MAX &&
            dp->x->size[i] >= dp->x->size[most])
            most = i;
    return most;
}
