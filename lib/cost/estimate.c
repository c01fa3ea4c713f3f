/* The closed form. Every action waits for the one before it in its stage and for the
 * message that it needs, so the time of a pipeline is the longest path through these waits.
 *
 * GPipe is a flow shop of equal jobs, twice: the slowest stage's time per micro-batch, plus
 * one micro-batch through all others.
 *
 * 1F1B is seen from a stage k of S that runs a = S - k forwards ahead, or further. Until
 * its first backward the path goes down from stage 0 to some stage e at or below k, and
 * comes back up to k. Down there it can dwell on a slow forward, for a - 1 micro-batches of
 * e's a. Then come M - a pairs of backward and forward at k, then the same as at the
 * beginning with backwards. The estimate is the maximum over k, each with its best e;
 * suffix maxima make that O(S). With more than M forwards ahead, a stage behaves as in
 * GPipe.
 *
 * A micro-batch on its way through the stages gains the time that neighbours work on it
 * together. Where a stage sets the pace, all of its time counts. */
#include "cost/estimate.h"

#include "common/mem.h"
#include "cost/estimate_turns.h"

#include <stdlib.h>

static double max2(double a, double b) {
    return a > b ? a : b;
}

/* How much this stage adds to a micro-batch's way through the pipeline, there and back. */
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

/* What alternating_us needs to know of stages 0..k while k goes up from the last stage.
 * Sums leave out what neighbours share. */
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

static double alternating_us(const struct estimate_stage *st, int n, int further,
                             int64_t m) {
    enum { FEW = 64 };
    struct walk few[FEW], *w = n <= FEW ? few : mem_array((size_t)n, sizeof *w);
    double best = 0, warm = 0, cool = 0;
    walks(st, n, w);
    int64_t ahead = 0;
    for (int k = n - 1; k >= 0 && ahead < m; k--) {
        ahead = (int64_t)further * (n - k - 1) + 1;
        ahead = ahead < m ? ahead : m;
        warm = max2(warm, w[k].through + (double)(ahead - 1) * w[k].slow_f);
        cool = max2(cool, w[k].through + (double)(ahead - 1) * w[k].slow_b);
        double ramps =
            w[k].forward + warm - w[k].through + w[k].backward + cool - w[k].through;
        double steady = (double)(m - ahead) * (st[k].forward_us + st[k].backward_us);
        best = max2(best, ramps + steady);
    }
    if (w != few)
        free(w);
    return best;
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
    const struct schedule_traits *t = schedule_traits(schedule);
    if (groups < n || t->splits)
        return turns_us(schedule, stages, n, groups, micro_batches) + norm_us +
               update_us(stages, n, groups);
    double pipe = t->further == FURTHER_ALL
                      ? gpipe_us(stages, n, micro_batches)
                      : alternating_us(stages, n, t->further, micro_batches);
    /* Stage s ends with its last backward: sooner than stage 0 by those before it.
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

static struct estimate_stage stage_of(const struct stage_cost *sc) {
    return (struct estimate_stage){
        .forward_us = sc->us[SEG_FORWARD] + sc->p2p_us[SEG_FORWARD],
        .backward_us = sc->us[SEG_BACKWARD] + sc->p2p_us[SEG_BACKWARD],
        .weights_us = sc->us[SEG_WEIGHTS] + sc->p2p_us[SEG_WEIGHTS],
        .reduce_us = sc->reduce_us,
        .update_us = sc->update_us,
    };
}

/* For groups in any order: all that one does, after the forwards before its first stage. */
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
    bool known =
        p->n_groups == p->n_stages ||
        (schedule_traits(p->schedule)->stages == STAGES_ROUND && m % p->n_groups == 0);
    double us = known ? estimate_us(p->schedule, st, g->n_stages, p->n_groups, m, norm_us)
                      : groups_us(p, st, norm_us);
    free(st);
    return us;
}
