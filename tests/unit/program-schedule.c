/* Schedules: each action once and in an order that can run, on any number of groups and chunks; how
 * many micro-batches are held at once, counted in the lists themselves; and what a pipeline of
 * chunks needs of staging. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

static const int64_t HUGE_M = (int64_t)1 << 38;

struct pipeline {
    enum schedule schedule;
    int groups, chunks;
    int64_t m;
    int stages[64]; /* by group */
    struct group_schedule group[16];
};

static struct pipeline pipeline(enum schedule schedule, int groups, int chunks, int64_t m) {
    struct pipeline p = {schedule, groups, chunks, m, {0}, {{0}}};
    for (int g = 0; g < groups; g++)
        for (int c = 0; c < chunks; c++)
            p.stages[g * chunks + c] = c * groups + g;
    return p;
}

static void make(struct pipeline *p) {
    for (int g = 0; g < p->groups; g++)
        p->group[g] = schedule_make(p->schedule, p->groups * p->chunks, p->groups,
                                    p->stages + g * p->chunks, p->chunks, p->m);
}

/* All pipelines of up to four chunks that a schedule takes. */
static bool takes(enum schedule schedule, int chunks) {
    return chunks == 1 || schedule_traits(schedule)->stages != STAGES_ONE;
}

/* ---- every action once -------------------------------------------------------------------- */

static bool is_backward(enum segment s) {
    return s == SEG_BACKWARD || s == SEG_LAST_BACKWARD;
}

static bool is_weights(enum segment s) {
    return s == SEG_WEIGHTS || s == SEG_LAST_WEIGHTS;
}

/* Of a chunk: micro-batches in order, none left out, the last one called last. */
static bool complete(const struct group_schedule *s) {
    int64_t n = schedule_actions(s), seen[64][3] = {{0}}, ends[64][2] = {{0}}, norms = 0;
    bool good = true;
    for (int64_t i = 0; i < n; i++) {
        struct action a = schedule_action(s, i);
        if (a.index < 0) {
            norms += a.segment == SEG_NORM;
            good &= a.segment == SEG_REDUCE ? !norms : norms == 1;
            ends[a.stage][a.segment == SEG_UPDATE] += a.segment != SEG_NORM;
            continue;
        }
        int kind = is_backward(a.segment) ? 1 : is_weights(a.segment) ? 2 : 0;
        bool last = a.segment == SEG_LAST_BACKWARD || a.segment == SEG_LAST_WEIGHTS;
        good &= a.index == seen[a.stage][kind]++ && !norms;
        good &= kind == 0 || last == (a.index == s->micro_batches - 1);
        good &= kind == 0 || seen[a.stage][kind - 1] > a.index;
    }
    for (int c = 0; c < s->n_chunks; c++) {
        int stage = s->chunks[c];
        good &= seen[stage][0] == s->micro_batches && seen[stage][1] == s->micro_batches &&
                seen[stage][2] == (s->delay < 0 ? 0 : s->micro_batches) &&
                ends[stage][0] == 1 && ends[stage][1] == 1;
    }
    return good && norms == 1;
}

static void test_complete(void) {
    for (int schedule = 0; schedule < SCHEDULE_COUNT; schedule++) {
        int bad = 0, n = 0;
        for (int groups = 1; groups <= 6; groups++)
            for (int chunks = 1; chunks <= 4; chunks++)
                for (int64_t m = 1; m <= 20 && takes(schedule, chunks); m++) {
                    struct pipeline p =
                        pipeline((enum schedule)schedule, groups, chunks, m);
                    make(&p);
                    for (int g = 0; g < groups; g++, n++)
                        bad += !complete(&p.group[g]);
                }
        ok(!bad, "%s: every action once, of %d groups",
           schedule_name((enum schedule)schedule), n);
    }
}

/* ---- an order that can run ---------------------------------------------------------------- */

/* Runs all groups as far as they come: a forward waits for that of the stage before it, a backward
 * for that of the stage behind it. */
static bool runs(const struct pipeline *p) {
    int64_t next[16] = {0}, forward[64] = {0}, backward[64] = {0};
    int last = p->groups * p->chunks - 1;
    bool done = true;
    for (bool moved = true; moved;) {
        moved = false;
        for (int g = 0; g < p->groups; g++)
            for (;; next[g]++, moved = true) {
                struct action a = schedule_action(&p->group[g], next[g]);
                bool f = a.segment == SEG_FORWARD, b = is_backward(a.segment);
                if (a.index < 0 || (f && a.stage > 0 && forward[a.stage - 1] <= a.index) ||
                    (b && a.stage < last && backward[a.stage + 1] <= a.index))
                    break;
                forward[a.stage] += f;
                backward[a.stage] += b;
            }
    }
    for (int g = 0; g < p->groups; g++)
        done &= schedule_action(&p->group[g], next[g]).index < 0;
    return done;
}

static void test_runs(void) {
    for (int schedule = 0; schedule < SCHEDULE_COUNT; schedule++) {
        int bad = 0, n = 0;
        for (int groups = 1; groups <= 8; groups++)
            for (int chunks = 1; chunks <= 4; chunks++)
                for (int64_t m = 1; m <= 36 && takes(schedule, chunks); m++, n++) {
                    struct pipeline p =
                        pipeline((enum schedule)schedule, groups, chunks, m);
                    make(&p);
                    bad += !runs(&p);
                }
        ok(!bad, "%s: %d pipelines come to their ends",
           schedule_name((enum schedule)schedule), n);
    }
}

/* ---- text --------------------------------------------------------------------------------- */

static void list_is(enum schedule schedule, int groups, int chunks, int64_t m, int group,
                    const char *want) {
    struct pipeline p = pipeline(schedule, groups, chunks, m);
    char got[1024] = "", *at = got;
    make(&p);
    for (int64_t i = 0; schedule_action(&p.group[group], i).index >= 0; i++) {
        struct action a = schedule_action(&p.group[group], i);
        at += sprintf(at, "%s%c%d", i ? " " : "", segment_letter(a.segment), (int)a.index);
        if (chunks > 1)
            at += sprintf(at, ".%d", a.stage);
    }
    ok(!strcmp(got, want), "%s, group %d of %d: %s", schedule_name(schedule), group, groups,
       got);
}

static void test_lists(void) {
    list_is(SCHEDULE_gpipe, 2, 1, 3, 0, "F0 F1 F2 B0 B1 L2");
    list_is(SCHEDULE_1f1b, 3, 1, 4, 0, "F0 F1 F2 B0 F3 B1 B2 L3");
    list_is(SCHEDULE_1f1b, 3, 1, 4, 2, "F0 B0 F1 B1 F2 B2 F3 L3");
    list_is(SCHEDULE_eager_1f1b, 3, 1, 6, 0, "F0 F1 F2 F3 F4 B0 F5 B1 B2 B3 B4 L5");
    list_is(SCHEDULE_eager_1f1b, 3, 1, 4, 1, "F0 F1 F2 B0 F3 B1 B2 L3");
    list_is(SCHEDULE_eager_1f1b, 3, 1, 3, 2, "F0 B0 F1 B1 F2 L2");
    list_is(SCHEDULE_gpipe, 2, 2, 2, 0, "F0.0 F1.0 F0.2 F1.2 B0.2 L1.2 B0.0 L1.0");
    list_is(SCHEDULE_interleaved, 2, 2, 3, 1,
            "F0.1 F1.1 F2.1 F0.3 B0.3 F1.3 B1.3 F2.3 L2.3 B0.1 B1.1 L2.1");
    list_is(SCHEDULE_zero_bubble, 3, 1, 4, 0, "F0 F1 F2 B0 F3 B1 B2 L3");
    list_is(SCHEDULE_zero_bubble, 3, 1, 4, 2, "F0 B0 F1 B1 F2 B2 W0 F3 L3 W1 W2 V3");
}

/* ---- slots -------------------------------------------------------------------------------- */

static struct plan *plan_of(const struct pipeline *p) {
    static struct model *m;
    int bounds[65];
    char set[32];
    snprintf(set, sizeof set, "layers=%d", p->groups * p->chunks);
    m = model_load("mlp", set, NULL);
    for (int s = 0; s <= p->groups * p->chunks; s++)
        bounds[s] = s < p->groups * p->chunks ? s : m->n_ops;
    struct plan *plan = plan_create(m, p->groups * p->chunks, bounds);
    plan->owns_model = true;
    plan->schedule = p->schedule;
    plan->n_groups = p->groups;
    plan->batch = p->m;
    plan->micro_batch = 1;
    for (int s = 0; s < plan->n_stages; s++)
        plan->stages[s].group = s % p->groups;
    struct err err = {0};
    if (plan_check(plan, &err) < 0)
        printf("# %s\n", err.msg);
    return plan;
}

/* From the first action of a kind to the last of another, in the list of a whole step. */
static int64_t widest(const struct group_schedule *s, int stage, bool from_forward,
                      bool to_weights) {
    int64_t held = 0, most = 0;
    for (int64_t i = 0; i < schedule_actions(s); i++) {
        struct action a = schedule_action(s, i);
        if (a.stage != stage || a.index < 0)
            continue;
        held += from_forward ? a.segment == SEG_FORWARD : is_backward(a.segment);
        most = held > most ? held : most;
        bool both = s->delay < 0 && is_backward(a.segment);
        held -= to_weights ? is_weights(a.segment) || both : is_backward(a.segment);
    }
    return most;
}

static void test_slots(void) {
    for (int schedule = 0; schedule < SCHEDULE_COUNT; schedule++) {
        int bad = 0, n = 0;
        for (int groups = 1; groups <= 4; groups++)
            for (int chunks = 1; chunks <= 3; chunks++)
                for (int64_t m = 1; m <= 90 && takes(schedule, chunks); m += 1 + m / 6) {
                    struct pipeline p =
                        pipeline((enum schedule)schedule, groups, chunks, m);
                    struct plan *plan = plan_of(&p);
                    make(&p);
                    for (int s = 0; s < groups * chunks; s++, n++) {
                        const struct group_schedule *g = &p.group[s % groups];
                        int64_t slots[POOL_COUNT];
                        schedule_slots(plan, s, slots);
                        bad += slots[POOL_FORWARD_BACKWARD] != widest(g, s, true, false);
                        bad += slots[POOL_FORWARD_WEIGHTS] != widest(g, s, true, true);
                        bad += slots[POOL_BACKWARD_WEIGHTS] !=
                               (g->delay < 0 ? 0 : widest(g, s, false, true));
                        int64_t same[POOL_COUNT];
                        schedule_pools(p.schedule, s, groups * chunks, groups, m, same);
                        bad += (chunks == 1 ||
                                (m % groups == 0 && schedule != SCHEDULE_gpipe)) &&
                               memcmp(slots, same, sizeof same) != 0;
                    }
                    plan_destroy(plan);
                }
        ok(!bad, "%s: slots of %d stages as their lists need",
           schedule_name((enum schedule)schedule), n);
    }
}

/* ZB-H1 holds on every group what 1F1B holds on the first. */
static void test_zero_bubble_memory(void) {
    struct pipeline p = pipeline(SCHEDULE_zero_bubble, 8, 1, 40);
    struct plan *plan = plan_of(&p);
    bool good = true;
    for (int s = 0; s < 8; s++) {
        int64_t slots[POOL_COUNT];
        schedule_slots(plan, s, slots);
        good &= slots[POOL_FORWARD_BACKWARD] == 8 - s && slots[POOL_FORWARD_WEIGHTS] == 8 &&
                slots[POOL_BACKWARD_WEIGHTS] == (s ? s + 1 : 0);
    }
    ok(good, "zero-bubble on 8 groups: 8 - s until the backward, 8 until the weights'");
    plan_destroy(plan);
}

/* No list is ever written down. */
static void test_huge(void) {
    struct pipeline p = pipeline(SCHEDULE_interleaved, 4, 3, HUGE_M + 3);
    struct plan *plan = plan_of(&p);
    struct group_schedule s = schedule_of_group(plan, 2, HUGE_M + 3);
    int64_t slots[POOL_COUNT], n = schedule_actions(&s);
    schedule_slots(plan, 6, slots);
    struct action a = schedule_action(&s, n - 8);
    ok(n == 6 * (HUGE_M + 3) + 7 && a.segment == SEG_LAST_BACKWARD &&
           a.index == HUGE_M + 2 && a.stage == 2 && slots[POOL_FORWARD_BACKWARD] < 16,
       "%lld actions, %lld slots", (long long)n, (long long)slots[POOL_FORWARD_BACKWARD]);
    plan_destroy(plan);
}

/* ---- staging ------------------------------------------------------------------------------ */

/* Messages under way at most, of a chain of 12 stages on 4 groups; -1: it does not run. */
static int64_t deepest(int64_t m) {
    struct pipeline p = pipeline(SCHEDULE_interleaved, 4, 3, m);
    struct plan *plan = plan_of(&p);
    struct program *g = program_compile(plan, NULL);
    struct err err = {0};
    int64_t most = program_validate(g, &err) < 0 ? -1 : 0;
    if (most < 0)
        printf("# %lld micro-batches: %s\n", (long long)m, err.msg);
    for (int t = 0; most >= 0 && t < g->n_transfers; t++)
        most = g->transfers[t].depth > most ? g->transfers[t].depth : most;
    program_destroy(g);
    plan_destroy(plan);
    return most;
}

/* What the last group makes the first takes when it has gone through its round: as many messages as
 * a round has micro-batches, at most 7 where 4 groups do not divide them. */
static void test_depth(void) {
    int64_t even = 0, uneven = 0, least = 1;
    for (int64_t m = 1; m <= 24; m++) {
        int64_t depth = deepest(m), *most = m % 4 ? &uneven : &even;
        *most = depth > *most ? depth : *most;
        least = depth < least ? depth : least;
    }
    ok(least >= 0 && even == 4 && uneven == 7,
       "messages under way: %lld, or %lld where 4 groups do not divide the micro-batches",
       (long long)even, (long long)uneven);
}

int main(void) {
    test_complete();
    test_runs();
    test_lists();
    test_slots();
    test_zero_bubble_memory();
    test_huge();
    test_depth();
    return done_testing();
}
