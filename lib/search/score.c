/* Scoring: a candidate is the sum of its stages, and of what crosses their bounds.
 *
 * A stage's own part is looked up, or taken from its prefix sums; neighbours settle who sends how
 * much. What the sums leave out - gaps between temporaries, waiting for collectives - the
 * final judgement has. */
#include "search/search_impl.h"

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

static uint64_t stage_hash(const struct search_stage *st, uint64_t h) {
    h = memo_mix(h, (uint64_t)st->first << 32 | (uint64_t)st->end);
    h = memo_mix(h, (uint64_t)st->devices << 1 | (uint64_t)(st->zero != 0));
    if (st->again_level)
        h = memo_mix(h, (uint64_t)st->again_level << 32 | (uint64_t)st->again_blocks);
    if (st->mesh)
        h = memo_mix(h, (uint64_t)(uintptr_t)st->mesh);
    return memo_mix(h, (uint64_t)(uintptr_t)st->layouts);
}

/* The same for stages that are compiled to the same: layouts of ops in other stages do not
 * matter. */
static uint64_t identity_of(const struct search *s, const struct search_stage *st) {
    const struct graph *g = &s->graph;
    uint64_t h = memo_mix(memo_mix(1, (uint64_t)st->first << 32 | (uint64_t)st->end),
                          (uint64_t)st->devices << 1 | (uint64_t)(st->zero != 0));
    for (int i = st->first; i < st->end; i = search_next_distinct(s, i)) {
        uint64_t word = 0;
        memcpy(&word, &st->layouts[g->x.node_of[g->x.of[i]]], sizeof *st->layouts);
        h = memo_mix(h, word);
    }
    if (st->again_level && st->again_blocks)
        h = memo_mix(h, (uint64_t)st->again_level << 32 | (uint64_t)st->again_blocks);
    return st->mesh ? memo_mix(h, (uint64_t)(uintptr_t)st->mesh) : h;
}

uint64_t candidate_hash(const struct candidate *c) {
    uint64_t h = memo_mix(memo_mix(1, (uint64_t)c->n_stages), (uint64_t)c->micro_batch);
    h = memo_mix(h, (uint64_t)c->schedule);
    for (int k = 0; k < c->n_stages; k++)
        h = stage_hash(&c->stages[k], h);
    return h;
}

/* ---- one stage ----------------------------------------------------------------------- */

static bool inside(const struct search_stage *st, int op) {
    return op >= st->first && op < st->end;
}

/* Edges that the stage's bounds cut. */
static void cut_edges(struct search *s, const struct prefix *t,
                      const struct search_stage *st, struct load *l) {
    struct graph *g = &s->graph;
    const struct crossing *in = &s->crossings[st->first], *out = &s->crossings[st->end];
    for (int i = 0; i < in->n; i++) {
        const struct edge *e = &g->s.edges[in->edges[i]];
        load_add(l, graph_edge(g, &t->st, e, st->first, st->end, t->layouts), 1);
    }
    for (int i = 0; i < out->n; i++) {
        const struct edge *e = &g->s.edges[out->edges[i]];
        if (!inside(st, e->origin))
            continue;
        const struct load *whole = prefix_edge(s, t, e);
        if (whole)
            load_add(l, whole, -1);
        load_add(l, graph_edge(g, &t->st, e, st->first, st->end, t->layouts), 1);
    }
}

static struct stage_sum sum_stage(struct search *s, const struct prefix *t,
                                  const struct search_stage *st) {
    struct stage_sum sum = {.load = prefix_until(s, t, st->end)};
    struct load before = prefix_until(s, t, st->first);
    load_add(&sum.load, &before, -1);
    cut_edges(s, t, st, &sum.load);
    int64_t update_temp, temp = prefix_temp(s, t, st->first, st->end, &update_temp);
    sum.load.temp = temp;
    sum.load.update_temp = update_temp;
    if ((st->again_level && st->again_blocks) || s->pinned.again) {
        struct load again = search_again(s, t, st);
        load_add(&sum.load, &again, 1);
    }
    const double *v = sum.load.v;
    sum.missing = v[LOAD_missing] > 0.5;
    sum.forward_us = v[LOAD_forward];
    sum.backward_us = v[LOAD_backward];
    sum.reduce_us = v[LOAD_before_norm];
    for (int i = 0; i < LOAD_REDUCTIONS && sum.load.reduce[i].axes; i++)
        sum.reduce_us += graph_reduce_us(&s->graph, &t->st, sum.load.reduce[i].axes,
                                         sum.load.reduce[i].elems, &sum.missing);
    sum.update_us = v[LOAD_update] +
                    graph_reduce_us(&s->graph, &t->st, 0, v[LOAD_filled], &sum.missing);
    return sum;
}

const struct stage_sum *search_stage_sum(struct search *s, const struct prefix *t,
                                         const struct search_stage *st) {
    uint64_t key = stage_hash(
        st, memo_mix(memo_mix(5, (uint64_t)t->st.micro_batch), (uint64_t)t->st.first_rank));
    void **slot = memo_slot(&s->sums, key);
    if (!*slot) {
        struct stage_sum *sum = mem_alloc(sizeof *sum);
        *sum = sum_stage(s, t, st);
        *slot = sum;
    }
    return *slot;
}

/* ---- candidates ---------------------------------------------------------------------- */

static struct work work_begin(const struct candidate *c) {
    size_t n = (size_t)c->n_stages + 1;
    struct work w = {.c = c, .n = c->n_stages};
    w.prefixes =
        mem_array(n, sizeof *w.prefixes + sizeof *w.sums + sizeof *w.times +
                         sizeof *w.staging + sizeof *w.rank + sizeof *w.first_passing);
    w.sums = (const struct stage_sum **)(w.prefixes + n);
    w.times = (struct estimate_stage *)(w.sums + n);
    w.staging = (double *)(w.times + n);
    w.rank = (int *)(w.staging + n);
    w.first_passing = w.rank + n;
    for (int k = 0, rank = 0; k < w.n; rank += c->stages[k++].devices)
        w.rank[k] = rank;
    return w;
}

static void remember(struct kept *k, const struct candidate *c, const struct score *score,
                     uint64_t hash) {
    candidate_copy(&k->c, c);
    k->score = *score;
    k->hash = hash;
    k->judged = false;
    k->excess = 0;
}

static void keep(struct search *s, const struct work *w, const struct score *score) {
    const struct candidate *c = w->c;
    if (score->unknown || score->overflow) {
        struct kept *k = score->unknown ? &s->unknown : &s->nearest;
        bool *has = score->unknown ? &s->has_unknown : &s->has_nearest;
        if (!*has || score->overflow < k->score.overflow)
            remember(k, c, score, 0);
        *has = true;
        return;
    }
    int at = s->n_kept;
    while (at > 0 && score_better(score, &s->kept[at - 1].score))
        at--;
    if (at == s->max_kept)
        return;
    uint64_t hash = memo_mix(memo_mix(1, (uint64_t)c->schedule), (uint64_t)c->micro_batch);
    for (int k = 0; k < w->n; k++)
        hash = memo_mix(hash, identity_of(s, &c->stages[k]));
    for (int i = 0; i < s->n_kept; i++)
        if (s->kept[i].hash == hash)
            return;
    int n = s->n_kept < s->max_kept ? s->n_kept++ : s->max_kept - 1;
    struct kept last = s->kept[n];
    memmove(&s->kept[at + 1], &s->kept[at], sizeof *s->kept * (size_t)(n - at));
    s->kept[at] = last;
    remember(&s->kept[at], c, score, hash);
    search_verify(s);
}

/* The fullest stage, and by how much it misses. */
static void judge_memory(const struct search *s, const struct work *w, struct score *out) {
    int64_t m = s->p.batch / w->c->micro_batch;
    double worst = -INFINITY;
    for (int k = 0; k < w->n; k++) {
        double bytes =
            w->staging[k] +
            stage_bytes(w->sums[k], (double)schedule_in_flight(w->c->schedule, k, w->n, m));
        if (bytes > worst) {
            worst = bytes;
            out->fullest = k;
        }
    }
    double most = (double)(s->p.memory_bytes - s->reserve_bytes);
    if (s->p.memory_bytes && worst > most)
        out->overflow = (int64_t)(worst - most);
}

static void judge_time(const struct search *s, const struct work *w, struct score *out) {
    int64_t m = s->p.batch / w->c->micro_batch;
    double slowest = -1;
    for (int k = 0; k < w->n; k++) {
        const struct estimate_stage *t = &w->times[k];
        double busy =
            (double)m * (t->forward_us + t->backward_us) + t->reduce_us + t->update_us;
        if (busy > slowest) {
            slowest = busy;
            out->slowest = k;
        }
    }
    out->time_us = estimate_us(w->c->schedule, w->times, w->n, m, s->graph.norm_us);
}

struct score search_score(struct search *s, const struct candidate *c) {
    struct score out = {.time_us = INFINITY};
    search_trim(s);
    struct work w = work_begin(c);
    s->scored++;
    s->stages_scored += c->n_stages;
    for (int k = 0; k < w.n; k++) {
        w.prefixes[k] = search_prefix(s, &c->stages[k], c->micro_batch, w.rank[k]);
        const struct stage_sum *sum = w.sums[k] =
            search_stage_sum(s, w.prefixes[k], &c->stages[k]);
        w.times[k] = (struct estimate_stage){.forward_us = sum->forward_us,
                                             .backward_us = sum->backward_us,
                                             .reduce_us = sum->reduce_us,
                                             .update_us = sum->update_us};
        w.missing |= sum->missing;
    }
    search_add_messages(s, &w);
    judge_memory(s, &w, &out);
    judge_time(s, &w, &out);
    out.unknown = w.missing || s->graph.norm_missing;
    keep(s, &w, &out);
    free(w.prefixes);
    return out;
}
