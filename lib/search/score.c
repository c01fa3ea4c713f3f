/* Scoring: a candidate is the sum of its stages, a stage the sum of its ops.
 *
 * What an op costs depends on the stage's table of layouts alone, so a table is compiled once, for
 * a model with few blocks, and each instruction's time and bytes go to the op that asked for it
 * (table.c). Moving ops between stages then costs additions only. What this leaves out - other
 * conversions at a stage's edge, gaps between temporaries - the final judgement has. */
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
    uint64_t h = search_mix((uint64_t)c->n_stages, (uint64_t)c->micro_batch * 4 + c->schedule);
    for (int k = 0; k < c->n_stages; k++) {
        const struct search_stage *st = &c->stages[k];
        h = search_mix(h, (uint64_t)st->first << 32 | (uint64_t)st->end);
        h = search_mix(h, (uint64_t)st->devices << 32 | (uint64_t)st->recompute_blocks << 1 |
                       (uint64_t)st->zero);
        h = search_mix(h, st->recompute_blocks ? st->recompute : 0);
        h = search_layout_hash(st, h);
    }
    return h;
}

/* ---- one stage ------------------------------------------------------------------------------ */

struct stage_sum {
    struct estimate_stage time;
    int64_t fixed_bytes, update_temp, temp, slot_bytes;
};

static void add_op(struct stage_sum *sum, const struct place_cost *p) {
    sum->time.forward_us += p->forward_us;
    sum->time.backward_us += p->backward_us;
    sum->time.reduce_us += p->reduce_us;
    sum->time.update_us += p->update_us;
    sum->fixed_bytes += p->fixed_bytes;
    sum->slot_bytes += p->slot_bytes;
    sum->update_temp += p->update_temp_bytes;
    if (p->temp_bytes > sum->temp)
        sum->temp = p->temp_bytes;
}

/* Do ranks first .. end-1 stand on more than one node? */
static bool crosses(const struct search *s, int first, int end) {
    int64_t per_node = s->p.cluster.devices_per_node;
    return first / per_node != (end - 1) / per_node;
}

/* What comes in at the first op and goes out behind the last. */
static void add_boundaries(const struct search *s, const struct candidate *c, int k,
                           int first_rank, const struct table *t, struct stage_sum *sum) {
    const struct model *m = s->p.model;
    const struct search_stage *st = &c->stages[k];
    const struct crossing *in = &s->crossings[st->first], *out = &s->crossings[st->end];
    int end = first_rank + st->devices;
    bool far_in = k > 0 && crosses(s, first_rank - c->stages[k - 1].devices, end);
    bool far_out = k + 1 < c->n_stages &&
                   crosses(s, first_rank, end + c->stages[k + 1].devices);
    for (int i = 0; i < in->n && k > 0; i++) {
        const struct place_cost *p = &t->place[m->ops[in->producer[i]].place];
        sum->time.forward_us += p->take_us[far_in];
        sum->time.backward_us += p->pack_us;
    }
    for (int i = 0; i < out->n && k + 1 < c->n_stages; i++) {
        const struct place_cost *p = &t->place[m->ops[out->producer[i]].place];
        sum->time.forward_us += p->pack_us;
        sum->time.backward_us += p->take_us[far_out];
    }
}

/* False when the profile does not know all of it. */
static bool sum_stage(struct search *s, const struct candidate *c, int k, int first_rank,
                      struct stage_sum *sum, double *norm_us) {
    const struct model *m = s->p.model;
    const struct search_stage *st = &c->stages[k];
    int64_t micro_batch = c->micro_batch;
    const struct table *plain = search_table(s, st, micro_batch, first_rank, false);
    const struct table *again = st->recompute_blocks && st->recompute
                                    ? search_table(s, st, micro_batch, first_rank, true)
                                    : plain;
    *sum = (struct stage_sum){0};
    if (plain->unknown || again->unknown)
        return false;
    *norm_us = plain->norm_us;
    uint64_t places = 0;
    int first_block = -1;
    for (int i = st->first; i < st->end; i++) {
        const struct model_op *op = &m->ops[i];
        if (op->block >= 0 && first_block < 0)
            first_block = op->block;
        bool flagged = op->block >= 0 && op->block - first_block < st->recompute_blocks;
        const struct place_cost *p = &(flagged ? again : plain)->place[op->place];
        add_op(sum, p);
        places |= (uint64_t)1 << op->place;
        int home = s->home_place[op->place];
        if (home >= 0 && !(places >> home & 1))
            sum->fixed_bytes += p->tied_bytes;
    }
    add_boundaries(s, c, k, first_rank, plain, sum);
    return true;
}

/* ---- candidates --------------------------------------------------------------------------------- */

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

struct score search_score(struct search *s, const struct candidate *c) {
    struct estimate_stage times[SEARCH_MAX_STAGES];
    struct score out = {.time_us = INFINITY};
    int64_t m = s->p.batch / c->micro_batch, worst = INT64_MIN;
    double norm = 0, slowest = -1;
    int rank = 0;
    s->scored++;
    for (int k = 0; k < c->n_stages; k++) {
        struct stage_sum st;
        if (!sum_stage(s, c, k, rank, &st, &norm)) {
            s->unknown++;
            out.unknown = true;
            return out;
        }
        rank += c->stages[k].devices;
        times[k] = st.time;
        int64_t temp = st.temp > st.update_temp ? st.temp : st.update_temp;
        int64_t bytes = st.fixed_bytes + temp +
                        st.slot_bytes * schedule_in_flight(c->schedule, k, c->n_stages, m);
        if (bytes > worst) {
            worst = bytes;
            out.fullest = k;
        }
        double busy = (double)m * (st.time.forward_us + st.time.backward_us) + st.time.reduce_us +
                      st.time.update_us;
        if (busy > slowest) {
            slowest = busy;
            out.slowest = k;
        }
    }
    if (s->p.memory_bytes && worst > s->p.memory_bytes)
        out.overflow = worst - s->p.memory_bytes;
    out.time_us = estimate_us(c->schedule, times, c->n_stages, m, norm);
    keep(s, c, &out);
    return out;
}
