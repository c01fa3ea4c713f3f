/* In a round every group has its turn: a forward, a backward and a weight gradient, in the
 * order of schedule.c, after what it waits for. The i-th turn of group g comes in round i -
 * g. Position i among a group's forwards is of chunk i / groups % chunks, and of
 * micro-batch i % groups among those that go through the chunks together; backwards go
 * through the chunks the other way. A forward or backward waits for the last one of its
 * neighbour, from the round before or, for forwards without chunks, from the same round. So
 * only the ends of one round are kept.
 *
 * In a round neighbouring groups are mostly at the same chunk, whose stages are
 * consecutive. So a round is a few plain loops over numbers that lie side by side. */
#include "cost/estimate_turns.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

struct turns {
    int groups, chunks, stages;
    int64_t n;       /* positions */
    double *free;    /* [groups] when each is done with its work so far */
    double *forward; /* [groups] when the last forward of each ended */
    /* [-1 .. groups - 1] the same in the round before; -1: what the first group
     * waits for */
    double *before;
    double *backward; /* [groups + 1] as forward; [groups]: what the last group waits for */
    double *forward_us;         /* [stages] */
    double *forward_shared_us;  /* [stages + 1] with the stage before; 0 for the first */
    double *backward_us;        /* [stages] */
    double *backward_shared_us; /* [stages + 1] the same; 0 after the last */
    /* [stages]; NULL where not apart, which they never are in the first group */
    double *weights_us;
    double *
        cycle_before; /* [3 * groups] free, forward and backward one cycle before the middle */
};

static double max2(double a, double b) {
    return a > b ? a : b;
}

static double min2(double a, double b) {
    return a < b ? a : b;
}

/* Forwards of group g before its first backward. */
static int64_t turns_ahead(const struct turns *t, int group) {
    int behind = t->groups - 1 - group;
    return t->chunks > 1 ? (t->chunks - 1) * t->groups + 2 * behind + 1 : behind + 1;
}

/* The first stage of the chunk that a forward, or a backward, at this position belongs to. */
static int first_stage(const struct turns *t, int64_t position, bool back) {
    int chunk = (int)(position / t->groups % t->chunks);
    return (back ? t->chunks - 1 - chunk : chunk) * t->groups;
}

/* Without chunks all groups are at one position; each waits for the one before it. */
static void take_forwards_at_once(struct turns *t, int64_t round) {
    int64_t position = round + turns_ahead(t, 0) - 1;
    double there_us = 0;
    if (position < 0 || position >= t->n)
        return;
    for (int g = 0; g < t->groups; g++) {
        double end_us = max2(t->free[g], there_us) + t->forward_us[g];
        t->free[g] = t->forward[g] = end_us;
        there_us = end_us - t->forward_shared_us[g + 1];
    }
}

/* Takes the forwards of groups first .. end - 1, which are at one chunk. */
static void take_forwards_of(struct turns *t, int stage, int first, int end) {
    const double *restrict us = t->forward_us + stage, *restrict shared_us =
                                                           t->forward_shared_us + stage;
    const double *restrict before = t->before;
    double *restrict forward = t->forward, *restrict idle = t->free;
    t->before[-1] = stage ? t->before[t->groups - 1] : 0;
    for (int g = first; g < end; g++)
        forward[g] = idle[g] = max2(idle[g], before[g - 1] - shared_us[g]) + us[g];
}

/* With chunks each group is one position further than the next, and waits for what the one
 * before it did in the round before. */
static void take_forwards(struct turns *t, int64_t round) {
    int64_t at = round + turns_ahead(t, 0) - 1; /* of the first group */
    int g = at >= t->n ? (int)(at - t->n + 1) : 0;
    memcpy(t->before, t->forward, sizeof *t->forward * (size_t)t->groups);
    while (g < t->groups && g <= at) {
        int64_t last = at - (at - g) / t->groups * t->groups; /* at this chunk */
        int end = last < t->groups ? (int)last + 1 : t->groups;
        take_forwards_of(t, first_stage(t, at - g, false), g, end);
        g = end;
    }
}

/* Takes the backwards of groups first .. end - 1, which are at one chunk. What is not
 * overwritten yet is from the round before. */
static void take_backwards_of(struct turns *t, int stage, int first, int end) {
    const double *restrict us = t->backward_us + stage, *restrict shared_us =
                                                            t->backward_shared_us + stage;
    double *restrict backward = t->backward, *restrict idle = t->free;
    for (int g = first; g < end; g++)
        backward[g] = idle[g] = max2(idle[g], backward[g + 1] - shared_us[g + 1]) + us[g];
}

/* Each group is one position further than the one before it, and waits for what the next
 * one did in the round before. */
static void take_backwards(struct turns *t, int64_t round) {
    double first_us = t->backward[0];
    int g = round < 0 ? (int)-round : 0;
    while (g < t->groups && round + g < t->n) {
        int stage = first_stage(t, round + g, true);
        int64_t end = ((round + g) / t->groups + 1) * t->groups - round;
        end = end < t->n - round ? end : t->n - round;
        end = end < t->groups ? end : t->groups;
        t->backward[t->groups] = stage + t->groups < t->stages ? first_us : 0;
        take_backwards_of(t, stage, g, (int)end);
        g = (int)end;
    }
}

static void take_round(struct turns *t, int64_t round) {
    (t->chunks > 1 ? take_forwards : take_forwards_at_once)(t, round);
    take_backwards(t, round);
    if (!t->weights_us || round < 0 || round >= t->n)
        return;
    const double *us = t->weights_us + first_stage(t, round, true);
    for (int g = 1; g < t->groups; g++)
        t->free[g] += us[g];
}

/* The time of one micro-batch in all stages of a group. */
static double micro_batch_us(const struct estimate_stage *st, int group, int groups,
                             int stages) {
    double us = 0;
    for (int k = group; k < stages; k += groups)
        us += st[k].forward_us + st[k].backward_us + st[k].weights_us;
    return us;
}

/* Whole rounds of micro-batches up to the steady state: more where few groups share
 * little. */
static int64_t few_micro_batches(int groups, int chunks) {
    enum { LEAST = 32 };
    int64_t rounds = chunks + 3, least = (LEAST + groups - 1) / groups;
    return groups * (rounds > least ? rounds : least);
}

/* The tables are one allocation, which begins at `free`. */
static struct turns turns_make(const struct estimate_stage *st, int n, int groups) {
    struct turns t = {.groups = groups, .chunks = n / groups, .stages = n};
    size_t g = (size_t)groups, s = (size_t)n;
    t.free = mem_array(7 * g + 2 + 5 * s + 2, sizeof *t.free);
    t.forward = t.free + g;
    t.before = t.forward + g + 1;
    t.backward = t.before + g;
    t.forward_us = t.backward + g + 1;
    t.forward_shared_us = t.forward_us + s;
    t.backward_us = t.forward_shared_us + s + 1;
    t.backward_shared_us = t.backward_us + s;
    t.weights_us = t.backward_shared_us + s + 1;
    t.cycle_before = t.weights_us + s;
    for (int k = 0; k < n; k++) {
        t.forward_us[k] = st[k].forward_us;
        t.forward_shared_us[k] = k ? st[k].forward_shared_us : 0;
        t.backward_us[k] = st[k].backward_us;
        t.backward_shared_us[k] = st[k].backward_shared_us;
        t.weights_us[k] = st[k].weights_us;
    }
    return t;
}

/* ---- what is left out of the middle ----------------------------------------------------- */

/* Rounds after which every group is at the same chunk again. */
static int64_t cycle_rounds(const struct turns *t) {
    return t->chunks > 1 ? (int64_t)t->chunks * t->groups : 1;
}

static void note_cycle(struct turns *t) {
    size_t size = sizeof *t->free * (size_t)t->groups;
    memcpy(t->cycle_before, t->free, size);
    memcpy(t->cycle_before + t->groups, t->forward, size);
    memcpy(t->cycle_before + 2 * t->groups, t->backward, size);
}

/* The least by which anything is later than one cycle before. */
static double least_cycle_us(const struct turns *t) {
    const double *now[] = {t->free, t->forward, t->backward};
    double least = t->free[0] - t->cycle_before[0];
    for (int i = 0; i < 3; i++)
        for (int g = 0; g < t->groups; g++)
            least = min2(least, now[i][g] - t->cycle_before[i * t->groups + g]);
    return least;
}

/* Leaves out `micros` micro-batches. A cycle is made of maxima and sums, so if it makes
 * everything later by at least some time, so does each cycle after it: adding that is never
 * too much. Nor is adding what a group does itself. Only the former sees groups that wait
 * for each other's chunks in turn, only the latter a slow group that others do not wait for
 * yet. */
static void skip(struct turns *t, const struct estimate_stage *st, int64_t micros) {
    double cycles = (double)(micros * t->chunks) / (double)cycle_rounds(t);
    double all_us = cycles * least_cycle_us(t);
    for (int g = 0; g < t->groups; g++) {
        t->free[g] +=
            max2(all_us, (double)micros * micro_batch_us(st, g, t->groups, t->stages));
        t->forward[g] += all_us;
        t->backward[g] += all_us;
    }
}

double turns_us(enum schedule schedule, const struct estimate_stage *st, int n, int groups,
                int64_t m) {
    struct turns t = turns_make(st, n, groups);
    int64_t few =
        t.chunks > 1 ? few_micro_batches(groups, t.chunks) : 3 * (int64_t)groups + 4;
    few = few < m ? few : m;
    t.n = t.chunks * few;
    if (!schedule_traits(schedule)->splits)
        t.weights_us = NULL;
    int64_t middle = (t.n - turns_ahead(&t, 0)) / 2;
    for (int64_t round = 1 - turns_ahead(&t, 0); round < t.n; round++) {
        if (round == middle - cycle_rounds(&t))
            note_cycle(&t);
        if (round == middle && few < m)
            skip(&t, st, m - few);
        take_round(&t, round);
    }
    double end = 0;
    for (int g = 0; g < groups; g++) {
        for (int k = g; k < n; k += groups)
            t.free[g] += st[k].reduce_us;
        end = max2(end, t.free[g]);
    }
    free(t.free);
    return end;
}
