/* joint_dp.c - decides whether there is a plan in which no stage takes longer than T.
 *
 * A down-set is a set of last stages of the pipeline. Of two partial plans for the same
 * down-set, one with no more devices and no larger sum s of data degrees is never worse:
 * the time of a stage in front of it does not depend on s, and its memory does not fall
 * with s. So each down-set stores only labels (devices k, sum s) that no other beats in
 * both, and the answer is exact.
 *
 * Each set is visited after those that it contains. A set with labels is extended by every
 * larger set that one more stage can reach. Pairs are not listed: which sets can be reached
 * follows from tests of rising cost: how many devices the nodes between and those outside
 * need at least at T (joint_table.c), whether one set contains the other, whether the label
 * would be new, the stage itself, by sums over its nodes, and last the exact choice of
 * alternatives.
 */
#include "solve/joint/joint.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A label of a down-set; labels stand by rising k and falling s. */
struct joint_label {
    int k, s;
    int from, from_k; /* the set before this stage, and which of its labels */
    int degree, d;
};

struct joint_labels {
    struct joint_label *p;
    int n, cap;
};

/* One question: all stages within `limit`. */
struct run {
    struct joint_dp *dp;
    const struct joint_table *t;
    double limit, sync;
    double room[JOINT_MEASURES]; /* what a device holds */
    double slack;                /* rounding of numbers of devices */
};

/* One stage under test at one degree. Whether it fits is monotone in y, so two numbers per
 * data degree hold all answers. */
struct trial {
    int small, large, degree;
    bool made, runs;
    struct joint_sums s;
    int64_t *yes, *no; /* [divisor]: fits up to yes; does not from no on */
};

void joint_dp_init(struct joint_dp *dp, const struct joint_problem *p,
                   const struct joint_table *t) {
    int most = p->max_data < p->limit_s ? p->max_data : p->limit_s;
    *dp = (struct joint_dp){.p = p, .t = t, .prune = true};
    dp->divisors = mem_array((size_t)most + 1, sizeof *dp->divisors);
    for (int d = 1; d <= most; d++)
        if (p->samples % d == 0)
            dp->divisors[dp->num_divisors++] = d;
    int width = p->devices + 2;
    dp->first_d = mem_array((size_t)(p->num_degrees * width), sizeof *dp->first_d);
    for (int g = 0; g < p->num_degrees; g++)
        for (int n = 0, i = 0; n < width; n++) {
            while (i < dp->num_divisors && p->degrees[g] * dp->divisors[i] < n)
                i++;
            dp->first_d[g * width + n] = i;
        }
    dp->labels = mem_array((size_t)t->n, sizeof *dp->labels);
    dp->need = mem_array((size_t)t->n, sizeof *dp->need);
}

void joint_dp_release(struct joint_dp *dp) {
    free(dp->divisors);
    free(dp->first_d);
    free(dp->labels);
    free(dp->need);
    arena_release(&dp->arena);
    joint_items_release(&dp->items);
}

static const uint64_t *set_bits(const struct joint_table *t, int set) {
    return t->bits + (int64_t)set * t->words;
}

/* ---- labels -------------------------------------------------------------------------- */

static bool known(const struct joint_labels *l, int k, int s) {
    for (int i = 0; i < l->n && l->p[i].k <= k; i++)
        if (l->p[i].s <= s)
            return true;
    return false;
}

/* Adds a label that is not known, and drops those that it beats. */
static void add_label(struct joint_dp *dp, struct joint_labels *l, struct joint_label x) {
    int at = 0, end;
    while (at < l->n && l->p[at].k < x.k)
        at++;
    for (end = at; end < l->n && l->p[end].s >= x.s;)
        end++;
    if (at == end && l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 1;
        struct joint_label *more = arena_array(&dp->arena, (size_t)l->cap, sizeof *more);
        memcpy(more, l->p ? l->p : more, (size_t)l->n * sizeof *more);
        l->p = more;
    }
    memmove(l->p + at + 1, l->p + end, (size_t)(l->n - end) * sizeof *l->p);
    l->p[at] = x;
    l->n += 1 - (end - at);
}

/* ---- one stage --------------------------------------------------------------------- */

static void evaluate(struct run *r, struct trial *t) {
    struct joint_dp *dp = r->dp;
    joint_items_make(&dp->items, dp->p, set_bits(r->t, t->small), set_bits(r->t, t->large),
                     t->degree);
    t->made = true;
    t->runs = joint_items_sum(&dp->items, &t->s);
    for (int i = 0; i < dp->num_divisors; i++) {
        int d = dp->divisors[i];
        double least = (t->s.base + r->sync * (d - 1) * t->s.w) / d;
        t->yes[i] = 0;
        t->no[i] = t->runs && least <= r->limit ? INT64_MAX : 0;
    }
    dp->evaluated++;
}

static bool fits(struct run *r, struct trial *t, int i, int64_t y) {
    const struct joint_problem *p = r->dp->p;
    const struct joint_sums *s = &t->s;
    if (!t->made)
        evaluate(r, t);
    if (y <= t->yes[i] || y >= t->no[i])
        return y < t->no[i];
    bool good = false;
    if (s->a * (double)y + s->b > p->capacity * (1 + 1e-12)) {
        good = false; /* at no time at all */
    } else if (s->plain && s->fast_a * (double)y + s->fast_b <= p->capacity) {
        good = true; /* its time was compared with the limit before */
    } else {
        r->dp->knapsacks++;
        good = joint_fits(p, &r->dp->items, r->dp->divisors[i], y, r->limit, &r->dp->open);
    }
    if (good)
        t->yes[i] = y;
    else
        t->no[i] = y;
    return good;
}

/* ---- all stages between two sets ----------------------------------------------------- */

/* Extends one label by this stage. The least data degree that fits is enough, because a
 * larger one takes more devices and adds more to s. */
static void extend(struct run *r, struct trial *t, const struct joint_label *l, int first) {
    struct joint_dp *dp = r->dp;
    const struct joint_problem *p = dp->p;
    struct joint_labels *to = &dp->labels[t->large];
    for (int i = first; i < dp->num_divisors; i++) {
        int d = dp->divisors[i], k = l->k + p->degrees[t->degree] * d, s = l->s + d;
        int64_t y = 1 + (l->s + d - 1) / d;
        if (k + dp->need[t->large] > p->devices || s > p->limit_s || known(to, k, s))
            return;
        if (fits(r, t, i, y)) {
            add_label(dp, to, (struct joint_label){k, s, t->small, l->k, t->degree, d});
            return;
        }
    }
}

/* Returns whether all labels are known that a stage with degrees t and d, or more, could
 * make. */
static bool all_known(const struct joint_dp *dp, const struct joint_labels *from, int large,
                      int t, int d) {
    for (int i = 0; i < from->n; i++)
        if (!known(&dp->labels[large], from->p[i].k + t * d, from->p[i].s + d))
            return false;
    return true;
}

/* Tries the stage between two sets on `fewest` to `most` devices. */
static void extend_pair(struct run *r, struct trial *t, int small, int large, int fewest,
                        int most) {
    const struct joint_dp *dp = r->dp;
    const struct joint_problem *p = dp->p;
    const struct joint_labels *from = &dp->labels[small];
    r->dp->pairs++;
    t->small = small;
    t->large = large;
    for (int g = 0; g < p->num_degrees && p->degrees[g] <= most; g++) {
        int first = dp->first_d[g * (p->devices + 2) + fewest], t_degree = p->degrees[g];
        if (first == dp->num_divisors || t_degree * dp->divisors[first] > most ||
            all_known(dp, from, large, t_degree, dp->divisors[first]))
            continue;
        t->degree = g;
        t->made = false;
        for (int i = 0; i < from->n; i++)
            extend(r, t, &from->p[i], first);
    }
}

/* ---- all sets ------------------------------------------------------------------------ */

/* Returns the first position from lo on where used[0] >= least, or n. */
static int first_from(const struct joint_table *t, int lo, double least) {
    int hi = t->n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (t->used[0][mid] < least)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool contains(const uint64_t *large, const uint64_t *small, int words) {
    for (int i = 0; i < words; i++)
        if (small[i] & ~large[i])
            return false;
    return true;
}

/* Tries the stages in front of set i whose larger set is one of from..to-1. Returns false
 * when stopped. */
static bool extend_range(struct run *r, struct trial *trial, int i, int from, int to) {
    const struct joint_table *t = r->t;
    const struct joint_dp *dp = r->dp;
    const uint64_t *bits = set_bits(t, i);
    int left = dp->p->devices - dp->labels[i].p[0].k;
    for (int j = from; j < to; j++) {
        if (((j - from) & 4095) == 4095 && joint_stopped(dp->p))
            return false;
        if (left <= dp->need[j] || !contains(set_bits(t, j), bits, t->words))
            continue;
        double fewest =
            isinf(r->room[0]) ? 0 : (t->used[0][j] - t->used[0][i]) / r->room[0] - r->slack;
        if (fewest <= left - dp->need[j])
            extend_pair(r, trial, i, j, (int)ceil(fmax(fewest, 0)), left - dp->need[j]);
    }
    return true;
}

/* Extends the labels of one set. Sets are sorted by what they use, so those within reach of
 * the devices that are left stand together. */
static bool extend_set(struct run *r, struct trial *trial, int i) {
    const struct joint_table *t = r->t;
    double room = r->room[0] * (1 + 1e-9);
    int left = r->dp->p->devices - r->dp->labels[i].p[0].k;
    int end =
        isinf(room) ? t->n : first_from(t, i, t->used[0][i] + (left + r->slack) * room);
    return extend_range(r, trial, i, i + 1, end);
}

static void find_needs(struct run *r) {
    const struct joint_table *t = r->t;
    for (int m = 0; m < JOINT_MEASURES; m++) {
        const struct joint_measure *x = &t->bound->m[m];
        r->room[m] = (x->time > 0 ? x->time * r->limit : 0) +
                     (x->memory > 0 ? x->memory * t->p->capacity : 0);
    }
    for (int i = 0; i < t->n; i++) {
        double need = r->dp->prune && i < t->n - 1;
        for (int m = 0; m < JOINT_MEASURES && r->dp->prune; m++)
            if (r->room[m] > 0)
                need = fmax(need, ceil((t->bound->m[m].total - t->used[m][i]) / r->room[m] -
                                       r->slack));
        r->dp->need[i] = need < INT32_MAX / 2 ? (int)need : INT32_MAX / 2;
    }
}

/* ---- the plan ---------------------------------------------------------------------- */

void joint_plan_init(struct joint_plan *plan, const struct joint_problem *p) {
    *plan = (struct joint_plan){.words = (p->nodes + 63) / 64, .value = INFINITY};
    plan->stages = mem_array((size_t)p->nodes, sizeof *plan->stages);
    plan->sets =
        mem_array(((size_t)p->nodes + 1) * (size_t)plan->words, sizeof *plan->sets);
}

void joint_plan_copy(struct joint_plan *to, const struct joint_plan *from) {
    to->n = from->n;
    to->value = from->value;
    memcpy(to->stages, from->stages, (size_t)from->n * sizeof *to->stages);
    memcpy(to->sets, from->sets,
           ((size_t)from->n + 1) * (size_t)from->words * sizeof *to->sets);
}

void joint_plan_release(struct joint_plan *plan) {
    free(plan->stages);
    free(plan->sets);
}

static void trace(struct joint_dp *dp, struct joint_plan *plan) {
    const struct joint_table *t = dp->t;
    size_t bytes = (size_t)t->words * sizeof *t->bits;
    int set = t->n - 1, k = dp->labels[set].p[0].k;
    plan->n = 0;
    plan->value = 0;
    while (set) {
        const struct joint_label *l = dp->labels[set].p;
        while (l->k != k)
            l++;
        plan->stages[plan->n] = (struct joint_stage){l->degree, l->d, l->s};
        memcpy(plan->sets + (int64_t)plan->n++ * t->words, set_bits(t, set), bytes);
        joint_items_make(&dp->items, dp->p, set_bits(t, l->from), set_bits(t, set),
                         l->degree);
        int64_t y = (l->s + l->d - 1) / l->d;
        double time = joint_knapsack(dp->p, &dp->items, l->d, y, 0, INFINITY, NULL).time;
        plan->value = fmax(plan->value, time);
        set = l->from;
        k = l->from_k;
    }
    memset(plan->sets + (int64_t)plan->n * t->words, 0, bytes);
}

int joint_dp_run(struct joint_dp *dp, double limit, struct joint_plan *plan) {
    const struct joint_table *t = dp->t;
    struct run r = {.dp = dp,
                    .t = t,
                    .limit = limit,
                    .sync = joint_sync_factor(dp->p),
                    .slack = 1e-7 + 4 * DBL_EPSILON * dp->p->nodes * dp->p->devices *
                                        dp->p->devices};
    struct joint_labels *full = &dp->labels[t->n - 1];
    int answer = 0;
    arena_release(&dp->arena);
    memset(dp->labels, 0, (size_t)t->n * sizeof *dp->labels);
    dp->open = INFINITY;
    find_needs(&r);
    if (dp->need[0] > dp->p->devices)
        return 0;
    struct trial trial = {0};
    trial.yes = mem_array((size_t)dp->num_divisors, sizeof *trial.yes);
    trial.no = mem_array((size_t)dp->num_divisors, sizeof *trial.no);
    add_label(dp, &dp->labels[0], (struct joint_label){0});
    for (int i = 0; i < t->n - 1 && !full->n && answer == 0; i++)
        if (dp->labels[i].n && (joint_stopped(dp->p) || !extend_set(&r, &trial, i)))
            answer = -1;
    free(trial.yes);
    free(trial.no);
    if (full->n) {
        trace(dp, plan);
        answer = 1;
    }
    return answer;
}

const uint64_t *joint_dp_reach(const struct joint_dp *dp) {
    const struct joint_table *t = dp->t;
    int most = 0, best = -1;
    for (int i = 0; i < t->n; i++) {
        int size = 0;
        for (int w = 0; w < t->words; w++)
            size += __builtin_popcountll(set_bits(t, i)[w]);
        if (dp->labels[i].n && size > best) {
            most = i;
            best = size;
        }
    }
    return set_bits(t, most);
}
