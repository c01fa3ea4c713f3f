/* The closed form. Every action waits for the one before it in its stage and for the
 * message that it needs, so the time of a pipeline is the longest path through these waits.
 *
 * GPipe is a flow shop of equal jobs, twice: the slowest stage's time per micro-batch, plus
 * one micro-batch through all others.
 *
 * 1F1B, seen from stage k of S, that runs a = S - k forwards ahead: until its first
 * backward the path goes down from stage 0 to some stage e at or below k, and comes back up
 * to k. Down there it can dwell on a slow forward, S - e - 1 micro-batches long. Then M - a
 * pairs of backward and forward at k, then the same as in the beginning with backwards. The
 * estimate is the maximum over k, each with its best e: suffix maxima make that O(S).
 * Stages with more than M forwards ahead behave as in GPipe.
 *
 * On its way through the stages a micro-batch gains what neighbours do of it at the same time;
 * where a stage sets the pace, all of its time counts. */
#include "cost/estimate.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

static double max2(double a, double b) {
    return a > b ? a : b;
}

/* What a micro-batch's way through the pipeline grows by with this stage, there and back. */
static double passing_us(const struct estimate_stage *st) {
    return st->forward_us - st->forward_shared_us + st->backward_us -
           st->backward_shared_us;
}

static double gpipe_us(const struct estimate_stage *st, int n, int64_t m) {
    double sum = 0, forward = 0, backward = 0;
    for (int s = 0; s < n; s++) {
        sum += passing_us(&st[s]);
        forward = max2(forward, st[s].forward_us);
        backward = max2(backward, st[s].backward_us);
    }
    return sum + (double)(m - 1) * (forward + backward);
}

/* Walks k from the last stage up to the first that alternates. Terms relative to stage 0:
 * through[e] = sum of f + b of stages 0..e, less what they share. */
struct walk {
    double through;           /* of stages 0..k */
    double forward, backward; /* sums over stages 0..k */
    double slow_f, slow_b;    /* largest of stages 0..k */
};

static struct walk *walks(const struct estimate_stage *st, int n, struct walk *w) {
    struct walk at = {0};
    for (int s = 0; s < n; s++) {
        at.through += passing_us(&st[s]);
        at.forward += st[s].forward_us - st[s].forward_shared_us;
        at.backward += st[s].backward_us - st[s].backward_shared_us;
        at.slow_f = max2(at.slow_f, st[s].forward_us);
        at.slow_b = max2(at.slow_b, st[s].backward_us);
        w[s] = at;
    }
    return w;
}

static double alternating_us(const struct estimate_stage *st, int n, int64_t m) {
    enum { FEW = 64 };
    struct walk few[FEW], *w = n <= FEW ? few : mem_array((size_t)n, sizeof *w);
    double best = 0, warm = 0, cool = 0;
    walks(st, n, w);
    for (int k = n - 1; k >= 0 && n - k <= m; k--) {
        warm = max2(warm, w[k].through + (n - k - 1) * w[k].slow_f);
        cool = max2(cool, w[k].through + (n - k - 1) * w[k].slow_b);
        double ramps =
            w[k].forward + warm - w[k].through + w[k].backward + cool - w[k].through;
        double steady = (double)(m - (n - k)) * (st[k].forward_us + st[k].backward_us);
        best = max2(best, ramps + steady);
    }
    if (w != few)
        free(w);
    return best;
}

/* Turns: one after the other every group has a turn, a forward, a backward and a weight gradient, in
 * the order of schedule.c; what a group waits for had its turn before. The i-th of group g comes in
 * round i - g. Position i among a group's forwards is micro-batch i % groups, and so on, of chunk
 * i / groups % chunks; backwards go through the chunks the other way. What a forward or backward waits
 * for is the last that its neighbour did: in the round before, and forwards without chunks in the same
 * round. So the ends of one round are all that is kept. */
struct turns {
    const struct estimate_stage *st;
    int groups, chunks;
    bool apart;                 /* weight gradients, but for those of the first group */
    int64_t n;                  /* positions */
    double *free;               /* [groups] when each is done with what it did so far */
    double *forward, *backward; /* [groups] when the last of each ended */
    unsigned char *chunk;       /* [n] of the forward at each position */
};

static int64_t turns_ahead(const struct turns *t, int group) {
    int behind = t->groups - 1 - group;
    return t->chunks > 1 ? (t->chunks - 1) * t->groups + 2 * behind + 1 : behind + 1;
}

static int stage_at(const struct turns *t, int group, int64_t i, bool back) {
    int chunk = t->chunk[i];
    return (back ? t->chunks - 1 - chunk : chunk) * t->groups + group;
}

/* before_us: when the forward of the group in front ended. */
static void take_forward(struct turns *t, int group, int64_t i, double before_us) {
    int k = stage_at(t, group, i, false);
    const struct estimate_stage *st = &t->st[k];
    double there = k > 0 ? before_us - st->forward_shared_us : 0;
    t->free[group] = t->forward[group] = max2(t->free[group], there) + st->forward_us;
}

/* behind_us: when the backward of the group behind ended. */
static void take_backward(struct turns *t, int group, int64_t i, double behind_us) {
    int k = stage_at(t, group, i, true);
    bool last = k + 1 == t->groups * t->chunks;
    double there = last ? 0 : behind_us - t->st[k + 1].backward_shared_us;
    t->free[group] = t->backward[group] =
        max2(t->free[group], there) + t->st[k].backward_us;
}

/* Every group has its turn. */
static void take_round(struct turns *t, int64_t round) {
    int last = t->groups - 1;
    double before_us = t->forward[last], behind_us = t->backward[0];
    for (int g = 0; g <= last; g++) {
        int64_t i = round + g, forward = i + turns_ahead(t, g) - 1, weights = round;
        double was_us = t->forward[g];
        if (forward >= 0 && forward < t->n)
            take_forward(t, g, forward, before_us);
        if (i >= 0 && i < t->n)
            take_backward(t, g, i, g < last ? t->backward[g + 1] : behind_us);
        if (t->apart && g > 0 && weights >= 0 && weights < t->n)
            t->free[g] += t->st[stage_at(t, g, weights, true)].weights_us;
        before_us = t->chunks > 1 ? was_us : t->forward[g];
    }
}

/* Of a group's stages. */
static double micro_batch_us(const struct turns *t, int group) {
    double us = 0;
    for (int k = group; k < t->groups * t->chunks; k += t->groups)
        us += t->st[k].forward_us + t->st[k].backward_us + t->st[k].weights_us;
    return us;
}

/* Whole rounds, until things go as they will: where few groups share little, that takes longer. */
static int64_t few_micro_batches(int groups, int chunks) {
    enum { LEAST = 32 };
    int64_t rounds = chunks + 3, least = (LEAST + groups - 1) / groups;
    return groups * (rounds > least ? rounds : least);
}

/* Until all groups have reduced. */
static double turns_us(enum schedule schedule, const struct estimate_stage *st, int n,
                       int groups, int64_t m) {
    int chunks = n / groups;
    int64_t few = chunks > 1 ? few_micro_batches(groups, chunks) : 3 * (int64_t)groups + 4;
    few = few < m ? few : m;
    struct turns t = {.st = st,
                      .groups = groups,
                      .chunks = chunks,
                      .apart = schedule == SCHEDULE_zero_bubble,
                      .n = chunks * few};
    t.free = mem_alloc(3 * (size_t)groups * sizeof *t.free + (size_t)t.n);
    t.forward = t.free + groups;
    t.backward = t.forward + groups;
    t.chunk = (unsigned char *)(t.backward + groups);
    for (int64_t i = 0, chunk = 0; i < t.n; i += groups, chunk = (chunk + 1) % chunks)
        memset(t.chunk + i, (int)chunk, (size_t)(t.n - i < groups ? t.n - i : groups));
    int64_t middle = (t.n - turns_ahead(&t, 0)) / 2;
    for (int64_t round = 1 - turns_ahead(&t, 0); round < t.n; round++) {
        for (int g = 0; g < groups && round == middle && few < m; g++)
            t.free[g] += (double)(m - few) * micro_batch_us(&t, g);
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

static double update_us(const struct estimate_stage *st, int n, int groups) {
    double most = 0;
    for (int g = 0; g < groups; g++) {
        double us = 0;
        for (int k = g; k < n; k += groups)
            us += st[k].update_us;
        most = max2(most, us);
    }
    return most;
}

double estimate_us(enum schedule schedule, const struct estimate_stage *stages, int n,
                   int groups, int64_t micro_batches, double norm_us) {
    if (groups < n || schedule == SCHEDULE_zero_bubble)
        return turns_us(schedule, stages, n, groups, micro_batches) + norm_us +
               update_us(stages, n, groups);
    double pipe = schedule == SCHEDULE_gpipe ? gpipe_us(stages, n, micro_batches)
                                             : alternating_us(stages, n, micro_batches);
    /* Stage s is done when its last backward is: earlier than stage 0 by those before it.
     */
    double before = 0, norm = 0, update = 0;
    for (int s = 0; s < n; s++) {
        before -= stages[s].backward_shared_us;
        norm = max2(norm, pipe - before + stages[s].reduce_us);
        update = max2(update, stages[s].update_us);
        before += stages[s].backward_us;
    }
    return norm + norm_us + update;
}

/* One stage's numbers from its costs. */
static struct estimate_stage stage_of(const struct stage_cost *sc) {
    return (struct estimate_stage){
        .forward_us = sc->us[SEG_FORWARD] + sc->p2p_us[SEG_FORWARD],
        .backward_us = sc->us[SEG_BACKWARD] + sc->p2p_us[SEG_BACKWARD],
        .weights_us = sc->us[SEG_WEIGHTS] + sc->p2p_us[SEG_WEIGHTS],
        .reduce_us = sc->reduce_us,
        .update_us = sc->update_us,
    };
}

/* Of groups in any order: all that a group does, behind the forwards that come before its first. */
static double groups_us(const struct plan *p, const struct estimate_stage *st,
                        double norm_us) {
    double norm = 0, update = 0, before = 0, m = (double)plan_micro_batches(p);
    for (int s = 0; s < p->n_stages; s++) {
        int group = p->stages[s].group;
        double pipe = before, after = 0;
        before += st[s].forward_us;
        if (p->chunks[p->first_chunk[group]] != s)
            continue;
        for (int i = p->first_chunk[group]; i < p->first_chunk[group + 1]; i++) {
            const struct estimate_stage *c = &st[p->chunks[i]];
            pipe += m * (c->forward_us + c->backward_us) + c->reduce_us;
            after += c->update_us;
        }
        norm = max2(norm, pipe);
        update = max2(update, after);
    }
    return norm + norm_us + update;
}

double estimate_program_us(const struct program *g, struct cost *c) {
    struct estimate_stage *st = mem_array((size_t)g->n_stages, sizeof *st);
    double norm_us = 0;
    for (int s = 0; s < g->n_stages; s++) {
        struct stage_cost sc;
        cost_stage(c, g->plan, &g->stages[s], &sc);
        st[s] = stage_of(&sc);
        norm_us = max2(norm_us, sc.norm_us);
    }
    const struct plan *p = g->plan;
    int64_t m = plan_micro_batches(p);
    bool known = p->n_groups == p->n_stages ||
                 (p->schedule == SCHEDULE_interleaved && m % p->n_groups == 0);
    double us = known ? estimate_us(p->schedule, st, g->n_stages, p->n_groups, m, norm_us)
                      : groups_us(p, st, norm_us);
    free(st);
    return us;
}
