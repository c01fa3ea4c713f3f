/* Schedules as numbers.
 *
 * GPipe: one round of all micro-batches, all forwards first (Huang et al. 2019). 1F1B: a
 * stage with k stages behind it runs k forwards ahead of its first backward (Narayanan et
 * al. 2019). Interleaved: with v chunks on each of p groups, rounds of p micro-batches, and
 * a group runs (v - 1) rounds more ahead (Narayanan et al. 2021); what p leaves over is
 * spread over the rounds, the first ones first. ZB-H1: 1F1B in which stage s leaves weight
 * gradients until s more backwards have run, for when 1F1B would wait (Qi et al. 2023);
 * every stage then holds as much as the first of 1F1B. */
#include "program/program.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

struct group_schedule schedule_make(enum schedule schedule, int n_stages, int n_groups,
                                    const int *chunks, int n_chunks,
                                    int64_t micro_batches) {
    const struct schedule_traits *t = schedule_traits(schedule);
    int64_t m = micro_batches, behind = n_stages - 1 - chunks[0];
    struct group_schedule s = {
        .chunks = chunks,
        .n_chunks = n_chunks,
        .micro_batches = m,
        .round = 1,
        .ahead = t->further * behind + 1,
        .delay = -1,
        .together = SEG_COUNT,
    };
    if (t->further == FURTHER_ALL) {
        s.round = m;
        s.ahead = n_chunks * m;
    } else if (n_chunks > 1) {
        int64_t rounds = most(m / n_groups, 1);
        s.round = m / rounds;
        s.larger = m % rounds;
        s.ahead = (n_chunks - 1) * (s.round + (s.larger > 0)) +
                  2 * (n_groups - 1 - chunks[0]) + 1;
    }
    if (schedule_splits(schedule, chunks[0]))
        s.delay = chunks[0];
    s.ahead = least(s.ahead, n_chunks * m);
    s.delay = least(s.delay, m);
    return s;
}

struct group_schedule schedule_of_group(const struct plan *p, int group,
                                        int64_t micro_batches) {
    int first = p->first_chunk[group];
    struct group_schedule s =
        schedule_make(p->schedule, p->n_stages, p->n_groups, p->chunks + first,
                      p->first_chunk[group + 1] - first, micro_batches);
    s.together = p->average == AVERAGE_pairs ? SEG_PAIR
                 : p->average == AVERAGE_all ? SEG_AVERAGE
                                             : SEG_COUNT;
    return s;
}

double schedule_share(const struct plan *p, enum segment segment) {
    enum segment together = p->average == AVERAGE_pairs ? SEG_PAIR : SEG_AVERAGE;
    return segment < SEG_PAIR    ? 1
           : segment == together ? 1.0 / (double)p->average_every
                                 : 0;
}

/* The chunk of the n-th forward among those of all chunks, and its micro-batch. */
static int64_t in_rounds(const struct group_schedule *s, int64_t n, int64_t *index) {
    int64_t round = s->round + 1, first = 0, larger = s->larger * s->n_chunks * round;
    if (n >= larger) {
        n -= larger;
        first = s->larger * round--;
    }
    int64_t in_round = n % (s->n_chunks * round);
    *index = first + n / (s->n_chunks * round) * round + in_round % round;
    return in_round / round;
}

/* The n-th forward, backward or weight gradient. */
static struct action nth(const struct group_schedule *s, enum segment segment, int64_t n) {
    int64_t index = n, k = s->n_chunks > 1 ? in_rounds(s, n, &index) : 0;
    if (segment != SEG_FORWARD) {
        k = s->n_chunks - 1 - k;
        if (index == s->micro_batches - 1)
            segment = segment == SEG_BACKWARD ? SEG_LAST_BACKWARD : SEG_LAST_WEIGHTS;
    }
    return (struct action){segment, s->chunks[k], index};
}

/* Gradients of copies go from later stages to earlier ones, new values the other way. */
static struct action at_end(const struct group_schedule *s, int64_t i) {
    int v = s->n_chunks;
    if (i < v)
        return (struct action){SEG_REDUCE, s->chunks[v - 1 - i], -1};
    if (i == v)
        return (struct action){SEG_NORM, s->chunks[0], -1};
    i -= v + 1;
    return i < v ? (struct action){SEG_UPDATE, s->chunks[i], -1}
                 : (struct action){s->together, s->chunks[i - v], -1};
}

int64_t schedule_actions(const struct group_schedule *s) {
    int64_t n = s->n_chunks * s->micro_batches;
    int64_t at_end = (s->together == SEG_COUNT ? 2 : 3) * s->n_chunks + 1;
    return (s->delay < 0 ? 2 : 3) * n + at_end;
}

struct action schedule_action(const struct group_schedule *s, int64_t i) {
    int64_t n = s->n_chunks * s->micro_batches, delay = s->delay < 0 ? n : s->delay;
    if (i < s->ahead)
        return nth(s, SEG_FORWARD, i);
    i -= s->ahead;
    /* Turns b .. end - 1 are alike: each has a backward, and what else there is. */
    for (int64_t b = 0, end; b < n; b = end) {
        bool weights = b >= delay, forward = b < n - s->ahead;
        int64_t width = 1 + weights + forward;
        end = weights ? n : delay;
        end = forward ? least(end, n - s->ahead) : end;
        if (i >= (end - b) * width) {
            i -= (end - b) * width;
            continue;
        }
        b += i / width;
        i %= width;
        return i == 0              ? nth(s, SEG_BACKWARD, b)
               : weights && i == 1 ? nth(s, SEG_WEIGHTS, b - delay)
                                   : nth(s, SEG_FORWARD, b + s->ahead);
    }
    if (s->delay >= 0 && i < delay)
        return nth(s, SEG_WEIGHTS, n - delay + i);
    return at_end(s, s->delay < 0 ? i : i - delay);
}

int64_t schedule_depth(enum schedule schedule, int64_t apart, int64_t micro_batches) {
    int further = schedule_traits(schedule)->further;
    return least(further == FURTHER_ALL ? apart : further * apart, micro_batches);
}

/* ---- what follows from the order ----------------------------------------------------------- */

/* Leaves out multiples of the groups, so that rounds keep their sizes. */
int64_t schedule_enough(const struct plan *p) {
    int64_t m = plan_micro_batches(p), groups = p->n_groups;
    int64_t enough = most(3 * (int64_t)p->n_stages + 4,
                          groups < p->n_stages ? groups * (groups + 2) : 0);
    return m <= enough ? m : m - (m - enough) / groups * groups;
}

/* Finds the slots by counting a chunk's segments as they come. */
static void count_slots(const struct group_schedule *s, int stage,
                        int64_t slots[POOL_COUNT]) {
    int64_t n = schedule_actions(s), forward = 0, backward = 0, weights = 0;
    for (int64_t i = 0; i < n; i++) {
        struct action a = schedule_action(s, i);
        if (a.stage != stage || a.index < 0)
            continue;
        forward += a.segment == SEG_FORWARD;
        slots[POOL_FORWARD_BACKWARD] =
            most(slots[POOL_FORWARD_BACKWARD], forward - backward);
        backward += a.segment == SEG_BACKWARD || a.segment == SEG_LAST_BACKWARD;
        if (s->delay < 0)
            weights = backward;
        slots[POOL_FORWARD_WEIGHTS] = most(slots[POOL_FORWARD_WEIGHTS], forward - weights);
        slots[POOL_BACKWARD_WEIGHTS] =
            most(slots[POOL_BACKWARD_WEIGHTS], backward - weights);
        weights += a.segment == SEG_WEIGHTS || a.segment == SEG_LAST_WEIGHTS;
    }
}

/* How many of the first n forwards of all chunks are those of the k-th. */
static int64_t of_chunk(const struct group_schedule *s, int64_t k, int64_t n) {
    int64_t round = s->round + 1, larger = s->larger * s->n_chunks * round, before = 0;
    if (n > larger) {
        n -= larger;
        before = s->larger * round--;
    }
    int64_t all = s->n_chunks * round, rest = n % all - k * round;
    return before + n / all * round + (rest < 0 ? 0 : least(rest, round));
}

/* How many of the k-th chunk are held after so many backwards, and `ahead` more
 * forwards. */
static int64_t held_after(const struct group_schedule *s, int64_t k, int64_t backwards) {
    int64_t n = s->n_chunks * s->micro_batches, b = backwards < 0 ? 0 : backwards;
    b = least(b, n - s->ahead);
    return of_chunk(s, k, s->ahead + b) - of_chunk(s, s->n_chunks - 1 - k, b);
}

/* The most of the k-th chunk that are held at once, where weight gradients are not apart:
 * at the beginning, or where its forwards of a round end or its backwards begin. */
static int64_t most_held(const struct group_schedule *s, int64_t k) {
    int64_t held = held_after(s, k, 0), at = 0, n = s->n_chunks * s->micro_batches;
    for (int64_t i = 0; at < n && s->n_chunks > 1; i++) {
        int64_t round = s->round + (i < s->larger);
        held = most(held, held_after(s, k, at + (k + 1) * round - s->ahead));
        held = most(held, held_after(s, k, at + (s->n_chunks - 1 - k) * round));
        at += s->n_chunks * round;
    }
    return held;
}

static void find_slots(const struct group_schedule *s, int stage,
                       int64_t slots[POOL_COUNT]) {
    int k = 0;
    if (s->delay >= 0) {
        count_slots(s, stage, slots);
        return;
    }
    while (s->chunks[k] != stage)
        k++;
    slots[POOL_FORWARD_BACKWARD] = slots[POOL_FORWARD_WEIGHTS] = most_held(s, k);
}

void schedule_slots(const struct plan *p, int stage, int64_t slots[POOL_COUNT]) {
    int64_t m = plan_micro_batches(p);
    struct group_schedule s = schedule_of_group(p, p->stages[stage].group, m);
    /* all forwards come before any backward */
    bool all = s.ahead == s.n_chunks * m && s.delay < 0;
    slots[POOL_FORWARD_BACKWARD] = slots[POOL_FORWARD_WEIGHTS] = all ? m : 0;
    slots[POOL_BACKWARD_WEIGHTS] = 0;
    s = schedule_of_group(p, p->stages[stage].group, schedule_enough(p));
    if (!all)
        find_slots(&s, stage, slots);
}

void schedule_pools(enum schedule schedule, int stage, int n_stages, int n_groups,
                    int64_t micro_batches, int64_t slots[POOL_COUNT]) {
    int v = n_stages / n_groups, group = stage % n_groups;
    int *chunks = mem_array((size_t)v, sizeof *chunks);
    /* So many rounds reach the steady state. */
    int64_t m = v > 1 ? least(micro_batches, (int64_t)(v + 2) * n_groups) : micro_batches;
    for (int i = 0; i < v; i++)
        chunks[i] = group + i * n_groups;
    struct group_schedule s = schedule_make(schedule, n_stages, n_groups, chunks, v, m);
    slots[POOL_FORWARD_BACKWARD] = least(s.ahead, m);
    slots[POOL_FORWARD_WEIGHTS] = least(s.ahead + most(s.delay, 0), m);
    slots[POOL_BACKWARD_WEIGHTS] = s.delay < 0 ? 0 : least(s.delay + 1, m);
    if (v > 1) {
        memset(slots, 0, sizeof *slots * POOL_COUNT);
        find_slots(&s, stage, slots);
    }
    free(chunks);
}
