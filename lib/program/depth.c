/* How many messages of a transfer may be under way at once.
 *
 * With too few, a schedule waits for ever: a group that sends ahead cannot get to what
 * another waits for. Where every stage has a group of its own, the distance of the stages
 * is enough, times the forwards by which each runs further ahead than the next. Chunks are
 * replayed: in each round every group runs its next action if what it needs was sent in the
 * rounds before. With the depths so found no send waits in this execution, and since what a
 * group does next does not depend on when messages come, no other execution stops either
 * (Kahn 1974). Validation runs the forwards alone, so they are replayed alone too. */
#include "program/link.h"

#include "common/mem.h"

#include <stdlib.h>

struct replay {
    const struct program *g;
    int64_t *forward, *backward; /* [stage] micro-batches done */
    /* [stage] for which activations, gradients have arrived */
    int64_t *activated, *derived;
    int64_t *next; /* [group] action */
};

static int64_t sent(const struct replay *r, const struct transfer *t, int stage) {
    return t->gradient ? r->backward[stage] : r->forward[stage];
}

/* Finds what has arrived for each stage before any group moves. */
static void look(struct replay *r) {
    for (int s = 0; s < r->g->n_stages; s++)
        r->activated[s] = r->derived[s] = INT64_MAX;
    for (int i = 0; i < r->g->n_transfers; i++) {
        const struct transfer *t = &r->g->transfers[i];
        int64_t *there = t->gradient ? &r->derived[t->to] : &r->activated[t->to];
        int64_t n = sent(r, t, t->from);
        if (t->tensor >= 0 && n < *there)
            *there = n;
    }
}

static bool move_group(struct replay *r, int group, int64_t micro_batches, bool training) {
    struct group_schedule s = schedule_of_group(r->g->plan, group, micro_batches);
    struct action a = schedule_action(&s, r->next[group]);
    while (!training && a.segment != SEG_FORWARD && a.index >= 0)
        a = schedule_action(&s, ++r->next[group]);
    bool forward = a.segment == SEG_FORWARD;
    bool backward = a.segment == SEG_BACKWARD || a.segment == SEG_LAST_BACKWARD;
    if (a.index < 0 || (forward && r->activated[a.stage] <= a.index) ||
        (backward && r->derived[a.stage] <= a.index))
        return false;
    r->forward[a.stage] += forward;
    r->backward[a.stage] += backward;
    r->next[group]++;
    return true;
}

static void measure(const struct replay *r) {
    for (int i = 0; i < r->g->n_transfers; i++) {
        struct transfer *t = &r->g->transfers[i];
        int64_t n = sent(r, t, t->from) - sent(r, t, t->to);
        if (t->tensor >= 0 && n > t->depth)
            t->depth = n;
    }
}

static void replay_chunks(const struct program *g, bool training) {
    size_t n = (size_t)g->n_stages;
    int64_t *counts = mem_array(5 * n, sizeof *counts), m = schedule_enough(g->plan);
    struct replay r = {
        g, counts, counts + n, counts + 2 * n, counts + 3 * n, counts + 4 * n};
    for (bool moved = true; moved;) {
        moved = false;
        look(&r);
        for (int k = 0; k < g->plan->n_groups; k++)
            moved |= move_group(&r, k, m, training);
        measure(&r);
    }
    free(counts);
}

void transfers_depth(struct program *g) {
    const struct plan *p = g->plan;
    int64_t m = plan_micro_batches(p);
    bool chunks = p->n_groups < p->n_stages,
         at_once = schedule_traits(p->schedule)->further == FURTHER_ALL;
    for (int i = 0; i < g->n_transfers; i++) {
        struct transfer *t = &g->transfers[i];
        int64_t apart = t->to > t->from ? t->to - t->from : t->from - t->to;
        t->depth = t->tensor < 0         ? 1
                   : (chunks && at_once) ? m
                                         : schedule_depth(p->schedule, apart, m);
    }
    for (int training = 0; training < 2 && chunks && !at_once; training++)
        replay_chunks(g, training);
}
