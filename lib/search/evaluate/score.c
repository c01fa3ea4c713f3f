/* Scoring: a candidate is the sum of its stages, and of what crosses their bounds.
 *
 * A stage's own part is looked up, or taken from its prefix sums; neighbours settle who sends how
 * much. What the sums leave out - gaps between temporaries, waiting for collectives - the
 * final judgement has. */
#include "search/evaluate/overlap.h"
#include "search/pool/looks.h"
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

static uint64_t stage_hash(const struct search_stage *st, uint64_t h) {
    h = memo_mix(h, (uint64_t)st->first << 32 | (uint64_t)st->end);
    h = memo_mix(h, (uint64_t)st->devices << 2 | (uint64_t)st->zero);
    if (st->again_level)
        h = memo_mix(h, (uint64_t)st->again_level << 32 | (uint64_t)st->again_blocks);
    if (st->mesh)
        h = memo_mix(h, (uint64_t)(uintptr_t)st->mesh);
    h = st->regather ? memo_mix(h, 1) : h;
    return memo_mix(h, (uint64_t)(uintptr_t)st->layouts);
}

/* The same for stages that are compiled to the same: layouts of ops in other stages do not
 * matter. */
static uint64_t identity_of(const struct search *s, const struct search_stage *st) {
    const struct graph *g = &s->graph;
    uint64_t h = memo_mix(memo_mix(1, (uint64_t)st->first << 32 | (uint64_t)st->end),
                          (uint64_t)st->devices << 2 | (uint64_t)search_zero_of(st));
    for (int i = st->first; i < st->end; i = search_next_distinct(s, st->first, i)) {
        uint64_t word = 0;
        memcpy(&word, &st->layouts[g->x.node_of[g->x.of[i]]], sizeof *st->layouts);
        h = memo_mix(h, word);
    }
    if (st->again_level && st->again_blocks)
        h = memo_mix(h, (uint64_t)st->again_level << 32 | (uint64_t)st->again_blocks);
    h = st->regather ? memo_mix(h, 1) : h;
    return st->mesh ? memo_mix(h, (uint64_t)(uintptr_t)st->mesh) : h;
}

uint64_t candidate_hash(const struct candidate *c) {
    uint64_t h = memo_mix(memo_mix(1, (uint64_t)c->n_stages), (uint64_t)c->micro_batch);
    h = memo_mix(h, (uint64_t)c->n_groups);
    h = memo_mix(h, (uint64_t)c->schedule);
    for (int k = 0; k < c->n_stages; k++) {
        h = stage_hash(&c->stages[k], h);
        h = c->stages[k].place ? memo_mix(h, (uint64_t)c->stages[k].place) : h;
    }
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

/* Of temporaries: what passes the stage's end arrives in buffers of its own. */
static int64_t most_temp(struct search *s, const struct prefix *t,
                         const struct search_stage *st, int64_t *update_temp) {
    struct graph *g = &s->graph;
    const struct crossing *out = &s->crossings[st->end];
    int64_t most = prefix_temp(s, t, st->first, st->end, update_temp);
    for (int i = 0; i < out->n; i++) {
        const struct edge *e = &g->s.edges[out->edges[i]];
        const struct load *l = inside(st, e->origin)
                                   ? graph_node(g, &t->st, g->x.of[e->origin], t->layouts)
                                   : NULL;
        most = l && l->temp > most ? l->temp : most;
    }
    return most;
}

static struct stage_sum sum_stage(struct search *s, const struct prefix *t,
                                  const struct search_stage *st) {
    struct load l = prefix_until(s, t, st->end), before = prefix_until(s, t, st->first);
    load_add(&l, &before, -1);
    cut_edges(s, t, st, &l);
    l.temp = most_temp(s, t, st, &l.update_temp);
    if ((st->again_level && st->again_blocks) || s->pinned.again) {
        struct load again = search_again(s, t, st);
        load_add(&l, &again, 1);
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
                            .missing = v[LOAD_missing] > 0.5};
    memcpy(sum.slot, &v[LOAD_slot], sizeof sum.slot);
    double reduce_us = 0;
    for (int i = 0; i < LOAD_REDUCTIONS && l.reduce[i].axes; i++)
        reduce_us += graph_reduce_us(&s->graph, &t->st, l.reduce[i].axes, l.reduce[i].elems,
                                     &sum.missing);
    sum.reduce_us += reduce_us - search_hidden_us(s, reduce_us, sum.backward_us);
    sum.update_us += graph_reduce_us(&s->graph, &t->st, 0, v[LOAD_filled], &sum.missing);
    return sum;
}

const struct stage_sum *search_stage_sum(struct search *s, const struct prefix *t,
                                         const struct search_stage *st) {
    uint64_t key = stage_hash(st, memo_mix(memo_mix(5, (uint64_t)t->st.micro_batch),
                                           (uint64_t)t->st.first_rank << 1 | t->st.apart));
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
    candidate_ranks(c, w.rank);
    return w;
}

static void remember(const struct search *s, struct kept *k, const struct candidate *c,
                     const struct score *score, uint64_t hash, uint64_t class) {
    candidate_copy(&k->c, c);
    k->member = s->member;
    k->score = *score;
    k->hash = hash;
    k->class = class;
    k->judged = false;
    k->excess = 0;
}

/* The place whose candidate goes for one that comes to stand at `at`: where several plans are wanted and
 * there are enough of its class, the worst of these; else a new one or the worst of all. -1: it
 * is that itself. */
static int room_for(struct search *s, uint64_t class, int at) {
    enum { OF_A_CLASS = 4 };
    int alike = 0, last = -1;
    for (int i = 0; i < s->n_kept && s->p.top > 1; i++)
        if (s->kept[i].class == class) {
            alike++;
            last = i;
        }
    if (alike >= OF_A_CLASS)
        return last < at ? -1 : last;
    return s->n_kept < s->max_kept ? s->n_kept++ : s->max_kept - 1;
}

static void add_rival(struct search *s, const struct candidate *c,
                      const struct score *score) {
    struct kept *k = &s->rivals[s->n_rivals++];
    if (!k->c.stages)
        k->c = candidate_make(s);
    remember(s, k, c, score, candidate_hash(c), s->p.top > 1 ? search_class(s, c) : 0);
}

void search_keep_rival(struct search *s, const struct candidate *c,
                       const struct score *score) {
    if (s->n_rivals < MOST_RIVALS && !score->overflow && !score->unknown)
        add_rival(s, c, score);
}

void search_keep_winners(struct search *s) {
    const char *member = s->member;
    int64_t n = s->p.top + search_spare(s);
    for (int i = 0; i < s->n_kept && i < n && s->n_rivals < MOST_RIVALS + MOST_WINNERS;
         i++) {
        s->member = s->kept[i].member;
        add_rival(s, &s->kept[i].c, &s->kept[i].score);
    }
    s->member = member;
}

static void keep(struct search *s, const struct work *w, const struct score *score) {
    const struct candidate *c = w->c;
    if (score->unknown || score->overflow) {
        struct kept *k = score->unknown ? &s->unknown : &s->nearest;
        bool *has = score->unknown ? &s->has_unknown : &s->has_nearest;
        if (!*has || score->overflow < k->score.overflow)
            remember(s, k, c, score, 0, 0);
        *has = true;
        return;
    }
    int at = s->n_kept;
    while (at > 0 && score_better(score, &s->kept[at - 1].score))
        at--;
    if (at == s->max_kept)
        return;
    uint64_t hash = memo_mix(memo_mix(1, (uint64_t)c->schedule), (uint64_t)c->micro_batch);
    hash = memo_mix(hash, (uint64_t)c->n_groups);
    for (int k = 0; k < w->n; k++)
        hash =
            memo_mix(memo_mix(hash, identity_of(s, &c->stages[k])), (uint64_t)w->rank[k]);
    for (int i = 0; i < s->n_kept; i++)
        if (s->kept[i].hash == hash)
            return;
    if (s->exact && !search_may_be_best(s, c, score))
        return;
    uint64_t class = s->p.top > 1 ? search_class(s, c) : 0;
    int n = room_for(s, class, at);
    if (n < 0)
        return;
    struct kept last = s->kept[n];
    memmove(&s->kept[at + 1], &s->kept[at], sizeof *s->kept * (size_t)(n - at));
    s->kept[at] = last;
    remember(s, &s->kept[at], c, score, hash, class);
    search_look_if_due(s);
}

/* The group that comes nearest to its memory or misses most, and by how much. */
static void judge_memory(struct search *s, const struct work *w, struct score *out) {
    double worst = -INFINITY;
    for (int g = 0; g < w->c->n_groups; g++) {
        struct stage_bytes bytes = {0};
        double staging = 0;
        for (int k = g; k < w->n; k += w->c->n_groups) {
            struct in_flight f = candidate_in_flight(s, w->c, k);
            stage_bytes_add(&bytes, w->sums[k], &f);
            staging += w->staging[k];
        }
        int64_t limit = search_memory(&s->p, w->rank[g], w->c->stages[g].devices);
        double most = limit ? (double)(limit - s->reserve_bytes) : 0;
        most *= s->exact ? SEARCH_MEMORY_SLACK : 1;
        if (stage_bytes_sum(&bytes) + staging - most > worst) {
            worst = stage_bytes_sum(&bytes) + staging - most;
            out->fullest = g;
        }
    }
    if (s->p.memory_bytes && worst > 0)
        out->overflow = (int64_t)worst;
}

static void judge_time(const struct search *s, const struct work *w, struct score *out) {
    int64_t m = s->p.batch / w->c->micro_batch;
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
        estimate_us(w->c->schedule, w->times, w->n, w->c->n_groups, m, s->graph.norm_us);
}

struct score search_score(struct search *s, const struct candidate *c) {
    struct score out = {.time_us = INFINITY};
    search_trim(s);
    struct work w = work_begin(c);
    s->scored++;
    s->stages_scored += c->n_stages;
    if (s->p.source) {
        out = source_score(s, c);
        keep(s, &w, &out);
        free(w.prefixes);
        return out;
    }
    for (int k = 0; k < w.n; k++) {
        w.prefixes[k] = candidate_prefix(s, c, k, w.rank[k]);
        const struct stage_sum *sum = w.sums[k] =
            search_stage_sum(s, w.prefixes[k], &c->stages[k]);
        w.times[k] = (struct estimate_stage){.forward_us = sum->forward_us,
                                             .backward_us = sum->backward_us,
                                             .weights_us = sum->weights_us,
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
