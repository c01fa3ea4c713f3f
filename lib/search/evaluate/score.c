/* Scores: a candidate costs the sum of its stages and of what passes between them.
 *
 * A stage's own part is looked up, or computed from its prefix sums; what is sent
 * depends on both neighbours. The sums leave out gaps between temporaries and waiting for
 * collectives, which only an evaluation has (evaluation.c). */
#include "search/evaluate/score_impl.h"
#include "search/space/devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool score_better(const struct score *a, const struct score *b) {
    if (a->unknown != b->unknown)
        return b->unknown;
    if (a->overflow != b->overflow)
        return a->overflow < b->overflow;
    return a->time_us < b->time_us * (1 - 1e-12);
}

/* ---- one stage ----------------------------------------------------------------------- */

static bool inside(const struct search_stage *st, int op) {
    return op >= st->first && op < st->end;
}

/* Corrects the load of a stage for the edges that cross its ends, which the prefix
 * sums count as a whole. */
static void cut_edges(struct evaluate *ev, const struct prefix *t,
                      const struct search_stage *st, struct load *l) {
    struct graph *g = &ev->graph;
    const struct crossing *in = &ev->space->crossings[st->first],
                          *out = &ev->space->crossings[st->end];
    for (int i = 0; i < in->n; i++) {
        const struct edge *e = &g->b->s.edges[in->edges[i]];
        load_add(l, graph_edge(g, &t->st, e, st->first, st->end, t->layouts), 1);
    }
    for (int i = 0; i < out->n; i++) {
        const struct edge *e = &g->b->s.edges[out->edges[i]];
        if (!inside(st, e->origin))
            continue;
        const struct load *whole = prefix_edge(ev, t, e);
        if (whole)
            load_add(l, whole, -1);
        load_add(l, graph_edge(g, &t->st, e, st->first, st->end, t->layouts), 1);
    }
}

/* Returns the largest temporaries of the stage. Tensors that leave the stage have
 * buffers of their own at its end, so the ops that make them count as if they stood
 * alone. */
static int64_t most_temp(struct evaluate *ev, const struct prefix *t,
                         const struct search_stage *st, int64_t *update_temp) {
    struct graph *g = &ev->graph;
    const struct crossing *out = &ev->space->crossings[st->end];
    int64_t most = prefix_temp(ev->space, t, st->first, st->end, update_temp);
    for (int i = 0; i < out->n; i++) {
        const struct edge *e = &g->b->s.edges[out->edges[i]];
        const struct load *l =
            inside(st, e->origin) ? graph_node(g, &t->st, g->b->x.of[e->origin], t->layouts)
                                  : NULL;
        most = l && l->temp > most ? l->temp : most;
    }
    return most;
}

/* Sums the part of a stage's score that does not depend on its neighbours. */
static struct stage_sum sum_stage(struct evaluate *ev, const struct prefix *t,
                                  const struct search_stage *st) {
    struct load l = prefix_until(ev->space, t, st->end),
                before = prefix_until(ev->space, t, st->first);
    load_add(&l, &before, -1);
    cut_edges(ev, t, st, &l);
    l.temp = most_temp(ev, t, st, &l.update_temp);
    if ((st->recompute_level && st->recompute_blocks) || ev->space->pinned.recompute) {
        struct load recompute = eval_recompute(ev, t, st);
        load_add(&l, &recompute, 1);
    }
    const double *v = l.v;
    struct stage_sum sum = {.forward_us = v[LOAD_forward],
                            .backward_us = v[LOAD_backward],
                            .weights_us = v[LOAD_weights],
                            .reduce_us = v[LOAD_before_norm],
                            .update_us = v[LOAD_update],
                            .fixed = v[LOAD_fixed],
                            .temp = (double)l.temp,
                            .update_temp = v[LOAD_across] + (double)l.update_temp,
                            .groups = prefix_groups(ev->space, t, st->first, st->end),
                            .missing = v[LOAD_missing] > 0.5};
    memcpy(sum.slot, &v[LOAD_slot], sizeof sum.slot);
    double reduce_us = 0;
    for (int i = 0; i < LOAD_REDUCTIONS && l.over[i]; i++)
        reduce_us +=
            graph_reduce_us(&ev->graph, &t->st, l.over[i], l.elems[i], &sum.missing);
    sum.reduce_us += reduce_us - space_hidden_us(ev->space, reduce_us, sum.backward_us);
    sum.update_us += graph_reduce_us(&ev->graph, &t->st, 0, v[LOAD_filled], &sum.missing);
    return sum;
}

const struct stage_sum *eval_stage_sum(struct evaluate *ev, const struct prefix *t,
                                       const struct search_stage *st) {
    uint64_t key = stage_hash(st, memo_mix(memo_mix(5, (uint64_t)t->st.micro_batch),
                                           (uint64_t)t->st.first_rank << 1 | t->st.apart));
    void **slot = memo_slot(&ev->sums, key);
    if (!*slot) {
        struct stage_sum *sum = mem_alloc(sizeof *sum);
        *sum = sum_stage(ev, t, st);
        *slot = sum;
    }
    return *slot;
}

bool eval_nearly_fits(const struct evaluate *ev, const struct score *score) {
    enum { PART = 16 };
    return !score->unknown && score->overflow > 0 &&
           score->overflow <= ev->space->p.memory_bytes / PART;
}

/* ---- legal candidates ------------------------------------------------------------------ */

/* Returns whether several stages may share each group. The number of groups has to divide
 * that of micro-batches and, if all devices are equal, the groups have one size, as in
 * Megatron-LM; the bound relies on that (bound_interleaved.h). */
static bool may_go_round(const struct space *sp, const struct candidate *c) {
    bool even = space_has_places(sp) || c->stages[0].devices * c->n_groups == sp->p.devices;
    for (int g = 1; g < c->n_groups && !space_has_places(sp); g++)
        even &= c->stages[g].devices == c->stages[0].devices;
    return even && (sp->p.batch / c->micro_batch) % c->n_groups == 0;
}

/* Layouts are checked last, because that needs prefix sums. */
bool eval_legal(struct evaluate *ev, const struct candidate *c) {
    const struct space *sp = ev->space;
    if (!space_obeys(sp, c) || (c->n_groups < c->n_stages && !may_go_round(sp, c)))
        return false;
    for (int k = 0; k < c->n_stages; k++) {
        const struct search_stage *st = &c->stages[k];
        const struct search_stage *home = &c->stages[k % c->n_groups];
        if (st->first >= st->end || st->devices < 1 || st->devices != home->devices ||
            st->place != home->place)
            return false;
    }
    int *rank = mem_array((size_t)c->n_stages, sizeof *rank);
    bool legal = true;
    candidate_ranks(c, rank);
    for (int k = 0; k < c->n_stages && legal; k++)
        legal = prefix_legal(sp, candidate_prefix(ev, c, k, rank[k]), c->stages[k].first,
                             c->stages[k].end);
    free(rank);
    return legal;
}

/* ---- candidates ---------------------------------------------------------------------- */

static struct work work_begin(const struct candidate *c) {
    size_t n = (size_t)c->n_stages + 1;
    struct work w = {.c = c, .n = c->n_stages};
    w.prefixes = mem_array(n, sizeof *w.prefixes + sizeof *w.sums + sizeof *w.times +
                                  sizeof *w.staging + sizeof *w.messages + sizeof *w.rank +
                                  sizeof *w.first_passing);
    w.sums = (const struct stage_sum **)(w.prefixes + n);
    w.times = (struct estimate_stage *)(w.sums + n);
    w.staging = (double *)(w.times + n);
    w.messages = w.staging + n;
    w.rank = (int *)(w.messages + n);
    w.first_passing = w.rank + n;
    candidate_ranks(c, w.rank);
    return w;
}

/* By how many bytes a group of devices exceeds its memory; negative where it does not. */
static double group_excess(struct evaluate *ev, const struct work *w, int g) {
    struct stage_bytes bytes = {0};
    double beside = 0;
    for (int k = g; k < w->n; k += w->c->n_groups) {
        struct in_flight f = candidate_in_flight(ev, w->c, k);
        stage_bytes_add(&bytes, w->sums[k], &f);
        beside += w->staging[k] + (ev->exact ? 0 : work_communicators(ev, w, k));
    }
    double most = (double)eval_room(ev, w->rank[g], w->c->stages[g].devices);
    most *= ev->exact ? SEARCH_MEMORY_SLACK : 1;
    return stage_bytes_sum(&bytes) + beside - most;
}

/* Finds the group of devices that comes nearest to its memory limit or exceeds it
 * most, and by how much. */
static void sum_memory(struct evaluate *ev, const struct work *w, struct score *out) {
    double worst = -INFINITY;
    for (int g = 0; g < w->c->n_groups; g++) {
        double excess = group_excess(ev, w, g);
        if (excess > worst) {
            worst = excess;
            out->fullest = g;
        }
    }
    if (ev->space->p.memory_bytes && worst > 0)
        out->overflow = (int64_t)worst;
}

/* The stage that bounds time is the longest one of the busiest group. */
static void sum_time(const struct evaluate *ev, const struct work *w, struct score *out) {
    int64_t m = ev->space->p.batch / w->c->micro_batch;
    double slowest = -1;
    for (int g = 0; g < w->c->n_groups; g++) {
        double busy = 0, most = -1;
        int stage = g;
        for (int k = g; k < w->n; k += w->c->n_groups) {
            const struct estimate_stage *t = &w->times[k];
            double us = (double)m * (t->forward_us + t->backward_us + t->weights_us) +
                        t->reduce_us + t->update_us;
            busy += us;
            if (us > most) {
                most = us;
                stage = k;
            }
        }
        if (busy > slowest) {
            slowest = busy;
            out->slowest = stage;
        }
    }
    out->time_us =
        estimate_us(w->c->schedule, w->times, w->n, w->c->n_groups, m, ev->graph.norm_us);
}

/* Messages are added to the times of the stages on both sides before anything is
 * summed. The caller frees w.prefixes. */
static struct work work_of(struct evaluate *ev, const struct candidate *c) {
    struct work w = work_begin(c);
    for (int k = 0; k < w.n; k++) {
        w.prefixes[k] = candidate_prefix(ev, c, k, w.rank[k]);
        const struct stage_sum *sum = w.sums[k] =
            eval_stage_sum(ev, w.prefixes[k], &c->stages[k]);
        w.times[k] = (struct estimate_stage){.forward_us = sum->forward_us,
                                             .backward_us = sum->backward_us,
                                             .weights_us = sum->weights_us,
                                             .reduce_us = sum->reduce_us,
                                             .update_us = sum->update_us};
        w.missing |= sum->missing;
    }
    eval_add_messages(ev, &w);
    return w;
}

struct score eval_score(struct evaluate *ev, const struct candidate *c) {
    struct score out = {.time_us = INFINITY};
    eval_trim(ev);
    ev->budget->candidates++;
    ev->budget->work += c->n_stages;
    struct work w = work_of(ev, c);
    sum_memory(ev, &w, &out);
    sum_time(ev, &w, &out);
    out.unknown = w.missing || ev->graph.norm_missing;
    free(w.prefixes);
    return out;
}

void eval_overflows(struct evaluate *ev, const struct candidate *c, double *bytes) {
    struct work w = work_of(ev, c);
    for (int g = 0; g < c->n_groups; g++)
        bytes[g] = group_excess(ev, &w, g);
    free(w.prefixes);
}

/* Returns equal numbers for stages that are compiled to the same instructions. */
static uint64_t stage_identity(const struct space *sp, const struct search_stage *st) {
    const struct blocks *g = &sp->blocks;
    uint64_t h = memo_mix(memo_mix(1, (uint64_t)st->first << 32 | (uint64_t)st->end),
                          (uint64_t)st->devices << 2 | (uint64_t)search_zero_of(st));
    for (int i = st->first; i < st->end;
         i = structure_next_distinct(&sp->blocks.s, st->first, i)) {
        uint64_t word = 0;
        memcpy(&word, &st->layouts[g->x.node_of[g->x.of[i]]], sizeof *st->layouts);
        h = memo_mix(h, word);
    }
    if (st->recompute_level && st->recompute_blocks)
        h = memo_mix(h,
                     (uint64_t)st->recompute_level << 32 | (uint64_t)st->recompute_blocks);
    h = st->regather ? memo_mix(h, 1) : h;
    return st->mesh ? memo_mix(h, (uint64_t)(uintptr_t)st->mesh) : h;
}

uint64_t eval_identity(const struct evaluate *ev, const struct candidate *c) {
    uint64_t hash = memo_mix(memo_mix(1, (uint64_t)c->schedule), (uint64_t)c->micro_batch);
    int *rank = mem_array((size_t)c->n_stages, sizeof *rank);
    candidate_ranks(c, rank);
    hash = memo_mix(hash, (uint64_t)c->n_groups);
    for (int k = 0; k < c->n_stages; k++)
        hash = memo_mix(memo_mix(hash, stage_identity(ev->space, &c->stages[k])),
                        (uint64_t)rank[k]);
    free(rank);
    return hash;
}

/* ---- the evaluator ----------------------------------------------------------------------- */

void eval_begin(struct evaluate *ev, const struct space *sp, struct budget *b) {
    const struct search_problem *p = &sp->p;
    *ev = (struct evaluate){.space = sp, .budget = b};
    cost_init(&ev->cost, p->provider, &sp->p.cluster);
    graph_init(&ev->graph, &sp->blocks, &ev->cost, p->devices, p->optimizer, p->dtype);
    ev->graph.plan.logits = p->logits;
}

void eval_end(struct evaluate *ev) {
    eval_forget_prefixes(ev);
    memo_release(&ev->sums, free);
    memo_release(&ev->recomputes, NULL);
    free(ev->fewest);
    memo_release(&ev->in_flight, free);
    memo_release(&ev->evaluations, free);
    arr_release(&ev->passing);
    graph_release(&ev->graph);
    cost_release(&ev->cost);
}
