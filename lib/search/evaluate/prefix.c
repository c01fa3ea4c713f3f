/* Prefix sums of the strategy graph, for one setting and one set of layouts.
 *
 * Instances of a repeat that the deduplicated model leaves out cost as much as the
 * second instance, so the sum of everything in front of any op of the whole model
 * follows from a few dozen numbers. */
#include "search/evaluate/evaluate.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PREFIX_BYTES = 40 << 20, MOST_SUMS = 1 << 18 };

static void prefix_free(void *p) {
    struct prefix *t = p;
    if (t)
        free(t->until);
    free(t);
}

/* All arrays of a prefix share one allocation, whose size counts for eval_trim. */
static struct prefix *prefix_make(struct evaluate *ev) {
    const struct blocks *g = &ev->space->blocks;
    size_t n = (size_t)g->x.model->n_ops + 1, repeats = (size_t)g->s.n_repeats;
    size_t edges = (size_t)g->xs.n_edges, readers = (size_t)g->xs.n_readers;
    struct prefix *t = mem_alloc(sizeof *t);
    size_t spans = n / TEMP_SPAN + 1;
    size_t bytes = (n + repeats) * (sizeof *t->until + sizeof *t->brief) +
                   3 * (n + spans) * sizeof *t->temp +
                   (edges + readers) * sizeof *t->taken + n * sizeof *t->illegal;
    t->until = mem_alloc(bytes);
    t->instance = t->until + n;
    t->brief = (struct brief *)(t->instance + repeats);
    t->temp = (int64_t *)(t->brief + n + repeats);
    t->update_temp = t->temp + n;
    t->temp_of_span = t->update_temp + n;
    t->update_temp_of_span = t->temp_of_span + spans;
    t->groups = (uint64_t *)(t->update_temp_of_span + spans);
    t->groups_of_span = t->groups + n;
    t->taken = (struct shard_size *)(t->groups_of_span + spans);
    t->given = t->taken + readers;
    t->illegal = (int *)(t->given + edges);
    ev->prefix_bytes += (int64_t)bytes;
    return t;
}

/* Ranks whose links are equal share one setting, and so their prefix sums. */
static struct setting setting_of(const struct space *sp, const struct search_stage *st,
                                 int64_t micro_batch, int first_rank, bool apart) {
    int alias = (int)cluster_alias(&sp->p.cluster, first_rank, st->devices);
    return (struct setting){.devices = st->devices,
                            .micro_batch = micro_batch,
                            .first_rank = alias,
                            .zero = st->zero,
                            .mesh = st->mesh,
                            .apart = apart,
                            .regather = st->regather};
}

/* Prefixes are found by everything that the sums depend on; layouts and meshes are
 * interned, so their addresses identify them. */
const struct prefix *eval_prefix(struct evaluate *ev, const struct search_stage *st,
                                 int64_t micro_batch, int first_rank, bool apart) {
    struct setting setting = setting_of(ev->space, st, micro_batch, first_rank, apart);
    uint64_t key =
        memo_mix(memo_mix(1, (uint64_t)(uintptr_t)st->layouts), (uint64_t)setting.devices);
    key = memo_mix(memo_mix(key, (uint64_t)micro_batch), (uint64_t)setting.first_rank);
    key = memo_mix(memo_mix(key, (uint64_t)setting.regather << 3 |
                                     (uint64_t)setting.zero << 1 | setting.apart),
                   (uint64_t)(uintptr_t)setting.mesh);
    void **slot = memo_slot(&ev->prefixes, key);
    if (*slot)
        return *slot;
    struct prefix *t = prefix_make(ev);
    t->st = setting;
    t->layouts = st->layouts;
    stage_mesh(setting.devices, setting.mesh, &t->mesh);
    prefix_fill(ev, t);
    *slot = t;
    return t;
}

const struct prefix *candidate_prefix(struct evaluate *ev, const struct candidate *c, int k,
                                      int first_rank) {
    bool apart = schedule_splits(c->schedule, k);
    return eval_prefix(ev, &c->stages[k], c->micro_batch, first_rank, apart);
}

/* Where groups have several stages, counting means walking through the schedule, so
 * the result is kept. */
struct in_flight candidate_in_flight(struct evaluate *ev, const struct candidate *c,
                                     int k) {
    struct in_flight f;
    int64_t m = ev->space->p.batch / c->micro_batch;
    if (c->n_groups == c->n_stages) {
        schedule_pools(c->schedule, k, c->n_stages, c->n_groups, m, f.n);
        return f;
    }
    uint64_t key = memo_mix(memo_mix(1 + (uint64_t)c->schedule, (uint64_t)c->n_stages),
                            (uint64_t)c->n_groups);
    void **slot =
        memo_slot(&ev->in_flight, memo_mix(memo_mix(key, (uint64_t)m), (uint64_t)k));
    if (!*slot) {
        *slot = mem_alloc(sizeof f);
        schedule_pools(c->schedule, k, c->n_stages, c->n_groups, m,
                       ((struct in_flight *)*slot)->n);
    }
    return *(struct in_flight *)*slot;
}

/* Candidates that are scored in a row share stages, so older sums are seldom asked for. */
void eval_trim(struct evaluate *ev) {
    if (ev->sums.n >= MOST_SUMS)
        memo_release(&ev->sums, free);
    if (ev->prefix_bytes < MOST_PREFIX_BYTES)
        return;
    memo_release(&ev->prefixes, prefix_free);
    ev->prefix_bytes = 0;
}

void eval_forget_prefixes(struct evaluate *ev) {
    memo_release(&ev->prefixes, prefix_free);
    prefix_forget_filling(ev);
}

/* ---- stretches of the whole model ------------------------------------------------------ */

/* Returns the index in `brief` of one instance of the op's repeat. */
static int instance_of(const struct blocks *g, int op) {
    return g->x.model->n_ops + 1 + g->s.repeat_of[op];
}

struct load prefix_until(const struct space *sp, const struct prefix *t, int op) {
    const struct blocks *g = &sp->blocks;
    int n = g->x.left_out[op];
    struct load l = t->until[g->x.of[op]];
    if (n > 0)
        load_add(&l, &t->instance[g->s.repeat_of[op]], n);
    return l;
}

double prefix_time_us(const struct space *sp, const struct prefix *t, int op) {
    const struct blocks *g = &sp->blocks;
    int n = g->x.left_out[op];
    double us = t->brief[g->x.of[op]].time_us;
    return n > 0 ? us + n * t->brief[instance_of(g, op)].time_us : us;
}

/* Adds n times the load of one instance for instances that the deduplicated model
 * leaves out. */
struct brief prefix_brief(const struct space *sp, const struct prefix *t, int op) {
    const struct blocks *g = &sp->blocks;
    int n = g->x.left_out[op];
    struct brief b = t->brief[g->x.of[op]];
    if (n > 0) {
        const struct brief *more = &t->brief[instance_of(g, op)];
        b.time_us += n * more->time_us;
        b.forward_us += n * more->forward_us;
        b.backward_us += n * more->backward_us;
        b.fixed += n * more->fixed;
        for (int p = 0; p < POOL_COUNT; p++)
            b.slot[p] += n * more->slot[p];
        b.across += n * more->across;
    }
    return b;
}

/* Returns the largest of v[first .. end-1]. Whole spans are looked up in of_span. */
static int64_t largest(const int64_t *v, const int64_t *of_span, int first, int end) {
    int64_t most = 0;
    for (int i = first; i < end;) {
        bool whole = i % TEMP_SPAN == 0 && i + TEMP_SPAN <= end;
        int64_t next = whole ? of_span[i / TEMP_SPAN] : v[i];
        most = next > most ? next : most;
        i += whole ? TEMP_SPAN : 1;
    }
    return most;
}

/* Finds the range of the deduplicated model that stands for ops first .. end-1: from the
 * op for the first to the op for the last, and all of the second instance of a repeat
 * where it stands for instances in between. */
static void small_range(const struct blocks *g, int first, int end, int *from, int *to) {
    int r = g->s.repeat_of[first];
    *from = g->x.of[first];
    *to = g->x.of[end - 1] + 1;
    if (r >= 0 && r == g->s.repeat_of[end - 1] && *to - *from != end - first) {
        const struct repeat *repeat = &g->s.repeats[r];
        int second = g->x.of[repeat->first + repeat->period];
        *from = *from < second ? *from : second;
        *to = *to > second + repeat->period ? *to : second + repeat->period;
    } else if (r >= 0 && structure_instance(&g->s, first) > 0) {
        /* a partial instance, followed by whole ones */
        const struct repeat *repeat = &g->s.repeats[r];
        int second = g->x.of[repeat->first + repeat->period];
        if (end - first >= repeat->period && *from < second + repeat->period)
            *from = second;
    }
}

int64_t prefix_temp(const struct space *sp, const struct prefix *t, int first, int end,
                    int64_t *update_temp) {
    int from, to;
    small_range(&sp->blocks, first, end, &from, &to);
    *update_temp = largest(t->update_temp, t->update_temp_of_span, from, to);
    return largest(t->temp, t->temp_of_span, from, to);
}

uint64_t prefix_groups(const struct space *sp, const struct prefix *t, int first, int end) {
    uint64_t all = 0;
    int from, to;
    small_range(&sp->blocks, first, end, &from, &to);
    for (int i = from; i < to;) {
        bool whole = i % TEMP_SPAN == 0 && i + TEMP_SPAN <= to;
        all |= whole ? t->groups_of_span[i / TEMP_SPAN] : t->groups[i];
        i += whole ? TEMP_SPAN : 1;
    }
    return all;
}

bool prefix_legal(const struct space *sp, const struct prefix *t, int first, int end) {
    const struct blocks *g = &sp->blocks;
    for (int i = first; i < end; i++) {
        int r = g->s.repeat_of[i];
        if (!prefix_op_is_legal(t, g->x.of[i]))
            return false;
        if (r < 0)
            continue;
        /* one instance stands for all */
        const struct repeat *repeat = &g->s.repeats[r];
        if (i + 1 - repeat->period >= (first > repeat->first ? first : repeat->first))
            i = repeat->first + repeat->period * repeat->count - 1;
    }
    return true;
}
