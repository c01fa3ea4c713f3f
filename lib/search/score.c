/* Scoring: a candidate is the sum of its stages, a stage the sum of its ops.
 *
 * What an op costs depends on the stage's table of layouts alone, so a table is compiled
 * once, for a model with few blocks, and each instruction's time and bytes go to the op
 * that asked for it (table.c). Moving ops between stages then costs additions only. What
 * this leaves out - other conversions at a stage's edge, gaps between temporaries - the
 * final judgement has. */
#include "common/rng.h"
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

/* h must be mixed already: two small numbers would meet in the exclusive or. */
uint64_t search_mix(uint64_t h, uint64_t v) {
    return rng_mix(h ^ (v + 0x9e3779b97f4a7c15u));
}

/* Of the layouts of all places; word by word, since every score needs it. */
uint64_t search_layout_hash(const struct search_stage *st, uint64_t h) {
    _Static_assert(sizeof st->layout % 8 == 0, "whole words");
    for (size_t i = 0; i < sizeof st->layout; i += 8) {
        uint64_t word;
        memcpy(&word, (const char *)st->layout + i, 8);
        h = (h ^ word) * 0x9fb21c651e98df25u;
        h ^= h >> 29;
    }
    return rng_mix(h);
}

uint64_t candidate_hash(const struct candidate *c) {
    uint64_t h = search_mix(search_mix(1, (uint64_t)c->n_stages), (uint64_t)c->micro_batch);
    h = search_mix(h, (uint64_t)c->schedule);
    for (int k = 0; k < c->n_stages; k++) {
        const struct search_stage *st = &c->stages[k];
        h = search_mix(h, (uint64_t)st->first << 32 | (uint64_t)st->end);
        h = search_mix(h, (uint64_t)st->devices << 32 |
                              (uint64_t)st->recompute_blocks << 1 | (uint64_t)st->zero);
        h = search_mix(h, st->recompute_blocks ? st->recompute : 0);
        h = search_layout_hash(st, h);
    }
    return h;
}

/* ---- one stage ----------------------------------------------------------------------- */

struct stage_sum {
    struct estimate_stage time;
    int64_t fixed_bytes, temp, update_kept, update_temp, slot_bytes, staging;
    bool unknown; /* the profile lacks a part of it */
};

static void add_op(struct stage_sum *sum, const struct place_cost *p) {
    sum->time.forward_us += p->forward_us;
    sum->time.backward_us += p->backward_us;
    sum->time.reduce_us += p->reduce_us;
    sum->time.update_us += p->update_us;
    sum->fixed_bytes += p->fixed_bytes;
    sum->slot_bytes += p->slot_bytes;
    sum->update_kept += p->update_kept_bytes;
    if (p->update_temp_bytes > sum->update_temp)
        sum->update_temp = p->update_temp_bytes;
    if (p->temp_bytes > sum->temp)
        sum->temp = p->temp_bytes;
    sum->unknown |= p->unknown;
}

/* Do ranks first .. end-1 stand on more than one node? */
static bool crosses(const struct search *s, int first, int end) {
    return cluster_node_of(&s->p.cluster, first) != cluster_node_of(&s->p.cluster, end - 1);
}

static int first_block(const struct model *m, const struct search_stage *st) {
    int i = st->first;
    while (i < st->end && m->ops[i].block < 0)
        i++;
    return i < st->end ? m->ops[i].block : -1;
}

static bool is_made_again(const struct search *s, const struct search_stage *st, int op) {
    const struct model_op *o = &s->p.model->ops[op];
    return o->block >= 0 && (st->recompute >> o->place & 1) &&
           o->block - first_block(s->p.model, st) < st->recompute_blocks;
}

/* What comes in at the first op and goes out behind the last; what is kept for the
 * backward pass is kept where it is read. */
static void add_boundaries(const struct search *s, const struct candidate *c, int k,
                           int first_rank, const struct table *t, struct stage_sum *sum) {
    const struct model *m = s->p.model;
    const struct search_stage *st = &c->stages[k];
    const struct crossing *in = &s->crossings[st->first], *out = &s->crossings[st->end];
    int end = first_rank + st->devices;
    bool far_in = k > 0 && crosses(s, first_rank - c->stages[k - 1].devices, end);
    bool far_out =
        k + 1 < c->n_stages && crosses(s, first_rank, end + c->stages[k + 1].devices);
    for (int i = 0; i < in->n && k > 0; i++) {
        const struct place_cost *p = &t->place[m->ops[in->producer[i]].place];
        sum->time.forward_us += p->take_us[far_in];
        sum->unknown |= p->unknown_take;
        if (in->producer[i] + p->last_reader >= st->first)
            sum->slot_bytes += p->passed_bytes;
    }
    for (int i = 0; i < out->n && k + 1 < c->n_stages; i++) {
        int op = out->producer[i];
        const struct place_cost *p = &t->place[m->ops[op].place];
        sum->time.backward_us += p->take_us[far_out];
        sum->unknown |= p->unknown_take;
        if (op >= st->first && op + p->first_reader >= st->end && !is_made_again(s, st, op))
            sum->slot_bytes -= p->passed_bytes;
    }
}

/* Packing what stage `to` takes from stage k: room for all that its devices take
 * together, shared among those of stage k, and the time, which is known for one block. */
static double add_staging(struct search *s, const struct candidate *c, int k, int to,
                          const struct table **tables, struct stage_sum *sum) {
    const struct model *m = s->p.model;
    const struct crossing *x = &s->crossings[c->stages[to > k ? to : k].first];
    int64_t from = c->stages[k].devices, devices = c->stages[to].devices;
    double us = 0;
    for (int i = 0; i < x->n; i++) {
        int place = m->ops[x->producer[i]].place;
        const struct place_cost *p = &tables[k]->place[place];
        int64_t bytes = (tables[to]->place[place].result_bytes * devices + from - 1) / from;
        sum->staging += bytes;
        if (bytes <= p->result_bytes) {
            us += p->pack_us * (double)bytes / (double)p->result_bytes;
        } else {
            us += cost_copy_us(&s->cost, bytes / 4, p->result_bytes / 4);
            sum->unknown |= search_lacks(s);
        }
    }
    return us;
}

/* What a stage does for its neighbours. */
static void couple(struct search *s, const struct candidate *c, int k,
                   const struct table **tables, struct stage_sum *sum) {
    if (k > 0)
        sum->time.backward_us += add_staging(s, c, k, k - 1, tables, sum);
    if (k + 1 < c->n_stages)
        sum->time.forward_us += add_staging(s, c, k, k + 1, tables, sum);
}

/* Tied parameters of which this stage (it has these places) holds the home or a copy
 * only. */
static void add_ties(const struct search *s, uint64_t places, const struct table *t,
                     struct stage_sum *sum) {
    bool far = crosses(s, 0, s->p.devices);
    for (int i = 0; i < s->n_ties; i++) {
        const struct tie *tie = &s->ties[i];
        if ((places >> tie->copy & 1) == (places >> tie->home & 1))
            continue;
        bool home = places >> tie->home & 1;
        const struct place_cost *p = &t->place[home ? tie->home : tie->copy];
        *(home ? &sum->time.reduce_us : &sum->time.update_us) += p->tied_us[far];
        sum->fixed_bytes += home ? 0 : p->tied_bytes;
        sum->unknown |= p->unknown_take;
    }
}

/* False when the profile does not know all of it. */
static bool sum_stage(struct search *s, const struct candidate *c, int k, int first_rank,
                      struct stage_sum *sum, const struct table **used) {
    const struct model *m = s->p.model;
    const struct search_stage *st = &c->stages[k];
    int64_t micro_batch = c->micro_batch;
    const struct table *plain = search_table(s, st, micro_batch, first_rank, false);
    const struct table *again = st->recompute_blocks && st->recompute
                                    ? search_table(s, st, micro_batch, first_rank, true)
                                    : plain;
    *sum = (struct stage_sum){0};
    *used = plain;
    uint64_t places = 0;
    int first = first_block(m, st);
    for (int i = st->first; i < st->end; i++) {
        const struct model_op *op = &m->ops[i];
        bool flagged = op->block >= 0 && op->block - first < st->recompute_blocks;
        const struct place_cost *p = &(flagged ? again : plain)->place[op->place];
        add_op(sum, p);
        places |= (uint64_t)1 << op->place;
    }
    add_ties(s, places, plain, sum);
    add_boundaries(s, c, k, first_rank, plain, sum);
    return !sum->unknown;
}

/* ---- candidates ---------------------------------------------------------------------- */

static void keep(struct search *s, const struct candidate *c, const struct score *score) {
    if (score->unknown) {
        s->unknown++;
        return;
    }
    if (score->overflow) {
        if (!s->has_nearest || score_better(score, &s->nearest.score)) {
            s->nearest.c = *c;
            s->nearest.score = *score;
            s->has_nearest = true;
        }
        return;
    }
    int at = s->n_kept;
    while (at > 0 && score_better(score, &s->kept[at - 1].score))
        at--;
    if (at == s->max_kept)
        return;
    uint64_t hash = candidate_hash(c);
    for (int i = 0; i < s->n_kept; i++)
        if (s->kept[i].hash == hash)
            return;
    int n = s->n_kept < s->max_kept ? s->n_kept++ : s->max_kept - 1;
    memmove(&s->kept[at + 1], &s->kept[at], sizeof *s->kept * (size_t)(n - at));
    s->kept[at] = (struct kept){*c, *score, hash};
}

/* The fullest stage, and by how much it misses. */
static void judge_memory(const struct search *s, const struct candidate *c,
                         const struct stage_sum *sums, struct score *out) {
    int64_t m = s->p.batch / c->micro_batch, worst = INT64_MIN;
    for (int k = 0; k < c->n_stages; k++) {
        const struct stage_sum *st = &sums[k];
        int64_t update = st->update_kept + st->update_temp;
        int64_t bytes = st->fixed_bytes + (st->temp > update ? st->temp : update) +
                        st->staging +
                        st->slot_bytes * schedule_in_flight(c->schedule, k, c->n_stages, m);
        if (bytes > worst) {
            worst = bytes;
            out->fullest = k;
        }
    }
    int64_t most = s->p.memory_bytes - s->reserve_bytes;
    if (s->p.memory_bytes && worst > most)
        out->overflow = worst - most;
}

struct score search_score(struct search *s, const struct candidate *c) {
    struct estimate_stage times[SEARCH_MAX_STAGES];
    struct stage_sum sums[SEARCH_MAX_STAGES];
    const struct table *tables[SEARCH_MAX_STAGES];
    struct score out = {.time_us = INFINITY};
    int64_t m = s->p.batch / c->micro_batch;
    double slowest = -1;
    int rank = 0;
    s->scored++;
    for (int k = 0; k < c->n_stages; k++) {
        if (!sum_stage(s, c, k, rank, &sums[k], &tables[k])) {
            out.unknown = true;
            keep(s, c, &out);
            return out;
        }
        rank += c->stages[k].devices;
    }
    for (int k = 0; k < c->n_stages; k++) {
        couple(s, c, k, tables, &sums[k]);
        out.unknown |= sums[k].unknown;
        times[k] = sums[k].time;
        double busy = (double)m * (times[k].forward_us + times[k].backward_us) +
                      times[k].reduce_us + times[k].update_us;
        if (busy > slowest) {
            slowest = busy;
            out.slowest = k;
        }
    }
    judge_memory(s, c, sums, &out);
    if (!out.unknown)
        out.time_us = estimate_us(c->schedule, times, c->n_stages, m,
                                  tables[c->n_stages - 1]->norm_us);
    keep(s, c, &out);
    return out;
}
