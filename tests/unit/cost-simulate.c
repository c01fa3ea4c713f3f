/* The engine and the estimate: schedules worked out by hand, and random pipelines against
 * an independent longest-path computation. */
#include "cost/estimate.h"
#include "cost/simulate.h"

#include "../unit/tap.h"
#include "common/mem.h"
#include "common/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), 1);
}

/* ---- a chain of stages, built by hand ---------------------------------------------- */

enum { MAX_STAGES = 32, MAX_STEPS = 4 * SEG_COUNT * MAX_STAGES };

struct chain {
    int n, groups; /* stages go round the groups; 0: one for each stage */
    int64_t m;
    enum schedule schedule;
    double f[MAX_STAGES], b[MAX_STAGES], reduce[MAX_STAGES], update[MAX_STAGES];
    double down_pack[MAX_STAGES], down_move[MAX_STAGES]; /* from stage s to s + 1 */
    double up_pack[MAX_STAGES], up_move[MAX_STAGES];     /* from stage s + 1 to s */
    double overlap, norm;
    /* weight gradients, where the schedule has them apart; else in b */
    double w[MAX_STAGES];
    int64_t depth; /* of transfers; 0: 1 */
};

struct chain_input {
    struct sim_step steps[MAX_STEPS];
    int seg[MAX_STAGES * SEG_COUNT + 1];
    struct sim_transfer transfers[2 * MAX_STAGES];
    int chunks[MAX_STAGES];
    struct group_schedule groups[MAX_STAGES];
    struct sim_input in;
};

static void push(struct chain_input *x, int *n, enum sim_step_kind kind, int transfer,
                 double us) {
    x->steps[(*n)++] = (struct sim_step){.kind = kind,
                                         .transfer = transfer,
                                         .us = us,
                                         .compute_us = kind == SIM_WORK ? us : 0};
}

static int chain_groups(const struct chain *c) {
    return c->groups ? c->groups : c->n;
}

static void chain_schedules(const struct chain *c, struct chain_input *x) {
    int groups = chain_groups(c), n = 0;
    for (int k = 0; k < groups; k++) {
        int first = n;
        for (int s = k; s < c->n; s += groups)
            x->chunks[n++] = s;
        x->groups[k] =
            schedule_make(c->schedule, c->n, groups, x->chunks + first, n - first, c->m);
    }
}

/* Transfer 2s goes down from s to s + 1, transfer 2s + 1 up. */
static void chain_build(const struct chain *c, struct chain_input *x) {
    int n = 0;
    memset(x, 0, sizeof *x);
    chain_schedules(c, x);
    for (int s = 0; s < c->n; s++) {
        x->seg[s * SEG_COUNT] = n;
        if (s > 0)
            push(x, &n, SIM_RECV, 2 * s - 2, 0);
        push(x, &n, SIM_WORK, -1, c->f[s]);
        if (s + 1 < c->n)
            push(x, &n, SIM_SEND, 2 * s, c->down_pack[s]);
        bool apart = x->groups[s % chain_groups(c)].delay >= 0;
        for (int seg = SEG_BACKWARD; seg <= SEG_LAST_BACKWARD; seg++) {
            x->seg[s * SEG_COUNT + seg] = n;
            if (s + 1 < c->n)
                push(x, &n, SIM_RECV, 2 * s + 1, 0);
            push(x, &n, SIM_WORK, -1, c->b[s] + (apart ? 0 : c->w[s]));
            if (s > 0)
                push(x, &n, SIM_SEND, 2 * s - 1, c->up_pack[s - 1]);
        }
        for (int seg = SEG_WEIGHTS; seg <= SEG_LAST_WEIGHTS; seg++) {
            x->seg[s * SEG_COUNT + seg] = n;
            if (apart)
                push(x, &n, SIM_WORK, -1, c->w[s]);
        }
        x->seg[s * SEG_COUNT + SEG_REDUCE] = n;
        push(x, &n, SIM_WORK, -1, c->reduce[s]);
        x->seg[s * SEG_COUNT + SEG_NORM] = n;
        push(x, &n, SIM_NORM, -1, c->norm);
        x->seg[s * SEG_COUNT + SEG_UPDATE] = n;
        push(x, &n, SIM_WORK, -1, c->update[s]);
        x->seg[s * SEG_COUNT + SEG_PAIR] = x->seg[s * SEG_COUNT + SEG_AVERAGE] = n;
        x->transfers[2 * s] =
            (struct sim_transfer){s, s + 1, c->down_move[s], c->overlap, c->depth};
        x->transfers[2 * s + 1] =
            (struct sim_transfer){s + 1, s, c->up_move[s], c->overlap, c->depth};
    }
    x->seg[c->n * SEG_COUNT] = n;
    x->in = (struct sim_input){.n_groups = chain_groups(c),
                               .n_stages = c->n,
                               .n_transfers = 2 * (c->n - 1),
                               .groups = x->groups,
                               .steps = x->steps,
                               .seg = x->seg,
                               .transfers = x->transfers};
}

static double chain_us(const struct chain *c) {
    struct chain_input x;
    struct simulation sim;
    chain_build(c, &x);
    if (simulate_run(&x.in, NULL, NULL, &sim, NULL) < 0)
        return -1;
    double us = sim.time_us;
    simulation_release(&sim);
    return us;
}

/* One stage whose last backward starts two collectives, 40 and 10 long, and works 30 beside. */
static double started_us(double first, double second) {
    struct sim_step steps[] = {
        {.kind = SIM_WORK, .us = 1},
        {.kind = SIM_WORK, .us = 100},
        {.kind = SIM_START, .work = 0, .us = 40, .overlap = first},
        {.kind = SIM_START, .work = 1, .us = 10, .overlap = second},
        {.kind = SIM_WORK, .us = 30},
        {.kind = SIM_WAIT, .work = 0},
        {.kind = SIM_WAIT, .work = 1},
        {.kind = SIM_NORM},
    };
    int seg[] = {0, 1, 2, 5, 5, 5, 7, 8, 8}, stage = 0;
    struct group_schedule group = schedule_make(SCHEDULE_1f1b, 1, 1, &stage, 1, 2);
    struct sim_input in = {.n_groups = 1,
                           .n_stages = 1,
                           .groups = &group,
                           .n_works = 2,
                           .steps = steps,
                           .seg = seg};
    struct simulation sim;
    if (simulate_run(&in, NULL, NULL, &sim, NULL) < 0)
        return -1;
    double us = sim.time_us - 102; /* less the forwards and the first backward */
    simulation_release(&sim);
    return us;
}

static void started_ok(double first, double second, double want, const char *text) {
    double got = started_us(first, second);
    ok(near(got, want), "%s: %g, got %g", text, want, got);
}

static void test_started(void) {
    started_ok(1, 1, 50, "two collectives one after the other, computation beside");
    started_ok(0, 0, 80, "nothing overlaps: all adds up");
    started_ok(1, 0, 80, "one that overlaps nothing waits for the one before it");
}

/* ---- an independent toy: longest paths by relaxation ------------------------------- */

/* Every step of every action is a node with an end time; all are raised again and again
 * until nothing changes. A wait is an edge; nothing here knows of clocks or work lists. */
struct node {
    int stage, kind, transfer, k; /* k-th message of the transfer */
    double us, end;
};

struct toy {
    const struct chain_input *x;
    struct node *nodes;
    int n, first[MAX_STAGES + 1];
};

static void toy_expand(struct toy *t) {
    const struct sim_input *in = &t->x->in;
    int count[4 * MAX_STAGES] = {
        0}; /* messages of a transfer, at the sender and receiver */
    for (int s = 0; s < in->n_stages; s++) {
        t->first[s] = t->n;
        for (int64_t i = 0; i < schedule_actions(&in->groups[s]); i++) {
            struct action a = schedule_action(&in->groups[s], i);
            int j = s * SEG_COUNT + (int)a.segment;
            for (int k = in->seg[j]; k < in->seg[j + 1]; k++) {
                const struct sim_step *st = &in->steps[k];
                struct node *v = &t->nodes[t->n++];
                *v = (struct node){s, (int)st->kind, st->transfer, 0, st->us, 0};
                if (st->kind == SIM_SEND)
                    v->k = count[2 * st->transfer]++;
                if (st->kind == SIM_RECV)
                    v->k = count[2 * st->transfer + 1]++;
            }
        }
    }
    t->first[in->n_stages] = t->n;
}

/* The k-th message of a transfer at one end; or the norm of a stage, which is never its
 * first node. */
static int toy_find(const struct toy *t, int stage, int kind, int transfer, int k) {
    int i = t->first[stage];
    while (t->nodes[i].kind != kind ||
           (kind != SIM_NORM && (t->nodes[i].transfer != transfer || t->nodes[i].k != k)))
        i++;
    return i;
}

static double toy_begin(const struct toy *t, int i) {
    return i > t->first[t->nodes[i].stage] ? t->nodes[i - 1].end : 0;
}

static double toy_end(const struct toy *t, int i) {
    const struct node *v = &t->nodes[i];
    const struct sim_transfer *x =
        v->transfer >= 0 ? &t->x->in.transfers[v->transfer] : NULL;
    double at = toy_begin(t, i);
    if (v->kind == SIM_SEND && v->k > 0)
        at = fmax(at, t->nodes[toy_find(t, x->to, SIM_RECV, v->transfer, v->k - 1)].end);
    if (v->kind == SIM_RECV) {
        double posted = t->nodes[toy_find(t, x->from, SIM_SEND, v->transfer, v->k)].end;
        double hidden = fmin(fmax(at - posted, 0), x->overlap * x->move_us);
        return fmax(at, posted) + x->move_us - hidden;
    }
    for (int s = 0; v->kind == SIM_NORM && s < t->x->in.n_stages; s++)
        at = fmax(at, toy_begin(t, toy_find(t, s, SIM_NORM, 0, 0)));
    return at + v->us;
}

/* Valid where the end of a receive grows with its inputs: it does, for hidden <=
 * waiting. */
static double toy_us(const struct chain_input *x) {
    struct toy t = {.x = x, .nodes = mem_array(65536, sizeof *t.nodes)};
    toy_expand(&t);
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < t.n; i++) {
            double end = toy_end(&t, i);
            changed |= end > t.nodes[i].end + 1e-9;
            t.nodes[i].end = end;
        }
    }
    double us = 0;
    for (int i = 0; i < t.n; i++)
        us = fmax(us, t.nodes[i].end);
    free(t.nodes);
    return us;
}

static struct chain random_chain(struct rng *r, double p2p) {
    struct chain c = {.n = 1 + (int)rng_below(r, 6),
                      .m = 1 + rng_below(r, 12),
                      .schedule = (enum schedule)rng_below(r, SCHEDULE_COUNT),
                      .norm = rng_real(r)};
    for (int s = 0; s < c.n; s++) {
        c.f[s] = 1 + 9 * rng_real(r);
        c.b[s] = 2 + 9 * rng_real(r);
        c.w[s] = 9 * rng_real(r);
        c.reduce[s] = 5 * rng_real(r);
        c.update[s] = 5 * rng_real(r);
        c.down_pack[s] = p2p * rng_real(r);
        c.down_move[s] = 3 * p2p * rng_real(r);
        c.up_pack[s] = p2p * rng_real(r);
        c.up_move[s] = 3 * p2p * rng_real(r);
    }
    return c;
}

/* ---- by hand ----------------------------------------------------------------------- */

static void test_balanced(void) {
    for (int schedule = 0; schedule < SCHEDULE_COUNT; schedule++)
        for (int n = 1; n <= 5; n++) {
            bool good = true;
            for (int64_t m = 1; m <= 20; m++) {
                struct chain c = {.n = n, .m = m, .schedule = (enum schedule)schedule};
                for (int s = 0; s < n; s++) {
                    c.f[s] = 10;
                    c.b[s] = 20;
                }
                good &= near(chain_us(&c), (double)(m - 1 + n) * 30);
            }
            ok(good, "%s, %d balanced stages: (M-1+S)(f+b)",
               schedule_name((enum schedule)schedule), n);
        }
}

/* Microseconds that a group waits when forward, backward and weight gradients of all its stages
 * take 60 each. */
static double bubble_us(enum schedule schedule, int groups, int chunks, int64_t m) {
    struct chain c = {
        .n = groups * chunks, .groups = groups, .m = m, .schedule = schedule, .depth = 8};
    for (int s = 0; s < c.n; s++)
        c.f[s] = c.b[s] = c.w[s] = 60.0 / chunks;
    return chain_us(&c) - (double)m * 180;
}

/* The papers' bubbles, of p groups: (p - 1)(F + B + W) for GPipe and 1F1B, which is (p - 1) of
 * (m + p - 1) of the time; a v-th of it with v chunks (Narayanan et al. 2021); (p - 1)(F + B - W)
 * for ZB-H1, a third where all three are alike (Qi et al. 2023). With 3 chunks the last two meet. */
static void test_bubbles(void) {
    for (int p = 4; p <= 8; p += 4)
        for (int64_t m = p; m <= 5 * p; m += p / 2 + 1) {
            double ramp = 180 * (p - 1);
            double one = bubble_us(SCHEDULE_1f1b, p, 1, m);
            double two = bubble_us(SCHEDULE_interleaved, p, 2, m);
            double three = bubble_us(SCHEDULE_interleaved, p, 3, m);
            double zero = bubble_us(SCHEDULE_zero_bubble, p, 1, m);
            ok(near(bubble_us(SCHEDULE_gpipe, p, 1, m), ramp) && near(one, ramp) &&
                   near(one / (one + (double)m * 180), (p - 1.0) / ((double)m + p - 1)) &&
                   near(two, ramp / 2) && near(three, ramp / 3) && near(zero, ramp / 3),
               "%d groups, %d micro-batches: bubbles 1f1b %g, interleaved %g and %g, "
               "zero-bubble %g",
               p, (int)m, one, two, three, zero);
        }
}

/* Two stages, gpipe, three micro-batches; f 1 and 10, pack 1, move 3. The sender fills its
 * staging at 2, at 6 (after the first message is taken at 5) and at 19 (second taken at
 * 18). The receiver takes at 2, 15, 28 for 3 each and works until 15, 28, 41; backwards
 * 0. */
static void test_staging(void) {
    struct chain c = {.n = 2,
                      .m = 3,
                      .schedule = SCHEDULE_gpipe,
                      .f = {1, 10},
                      .down_pack = {1},
                      .down_move = {3}};
    ok(near(chain_us(&c), 41), "a receive takes its time on the receiver: 41, got %g",
       chain_us(&c));
    c.f[0] = 20; /* now the receiver waits: posted at 21, 42, 63; 63 + 3 + 10 */
    ok(near(chain_us(&c), 76), "a receive waits for the message: 76, got %g", chain_us(&c));
    c.f[0] = 1;
    c.overlap = 1; /* the second and third lie there for 3 and more: 2 + 3 + 3 * 10 */
    ok(near(chain_us(&c), 35), "a message moves while the receiver works: 35, got %g",
       chain_us(&c));
    /* The sender's own end: third pack may begin when the second message is taken. */
    struct chain_input x;
    struct simulation sim;
    c.overlap = 0;
    chain_build(&c, &x);
    simulate_run(&x.in, NULL, NULL, &sim, NULL);
    ok(near(sim.stages[0].p2p_us, 3) && near(sim.stages[0].compute_us, 3) &&
           near(sim.stages[0].bubble_us, 35),
       "the sender's time: 3 compute, 3 packing, 35 waiting");
    ok(near(sim.stages[1].p2p_us, 9) && near(sim.stages[1].compute_us, 30) &&
           near(sim.stages[1].bubble_us, 2) && sim.slowest == 1,
       "the receiver's time: 30 compute, 9 moving, 2 waiting; it is the bottleneck");
    simulation_release(&sim);
}

static void test_norm(void) {
    struct chain c = {.n = 2,
                      .m = 1,
                      .f = {5, 5},
                      .b = {5, 5},
                      .reduce = {1, 30},
                      .update = {2, 3},
                      .norm = 4};
    /* Stage 1 ends its backward at 15 and reduces until 45; 4 for the norm, 3 for the
     * update. */
    ok(near(chain_us(&c), 52), "the norm waits for all: 52, got %g", chain_us(&c));
}

static void test_deadlock(void) {
    struct chain c = {.n = 2, .m = 1};
    struct chain_input x;
    struct simulation sim;
    struct err err = {0};
    chain_build(&c, &x);
    x.steps[0] =
        (struct sim_step){.kind = SIM_RECV, .transfer = 1}; /* F waits for B's gradient */
    ok(simulate_run(&x.in, NULL, NULL, &sim, &err) < 0 && strstr(err.msg, "waits forever"),
       "a deadlock is found: %s", err.msg);
}

/* ---- random ------------------------------------------------------------------------ */

static void test_toy(uint64_t seed) {
    struct rng r = {seed, 0};
    int bad = 0, n = 400;
    for (int i = 0; i < n; i++) {
        struct chain c = random_chain(&r, i % 4 ? 2 : 0);
        struct chain_input x;
        if (i % 3 == 0)
            c.overlap = rng_real(&r);
        chain_build(&c, &x);
        double a = chain_us(&c), b = toy_us(&x);
        if (!near(a, b) && !bad++)
            printf("# %d stages, %d micro-batches: %g, toy %g\n", c.n, (int)c.m, a, b);
    }
    ok(!bad, "%d random pipelines as in the toy simulation (seed %llu)", n,
       (unsigned long long)seed);
}

static double chain_estimate(const struct chain *c) {
    struct estimate_stage st[MAX_STAGES];
    for (int s = 0; s < c->n; s++) {
        bool apart = schedule_splits(c->schedule, s);
        st[s] = (struct estimate_stage){
            .forward_us = c->f[s] + (s ? c->down_move[s - 1] : 0) +
                          (s + 1 < c->n ? c->down_pack[s] : 0),
            .backward_us = c->b[s] + (apart ? 0 : c->w[s]) + (s ? c->up_pack[s - 1] : 0) +
                           (s + 1 < c->n ? c->up_move[s] : 0),
            .weights_us = apart ? c->w[s] : 0,
            .reduce_us = c->reduce[s],
            .update_us = c->update[s]};
    }
    return estimate_us(c->schedule, st, c->n, chain_groups(c), c->m, c->norm);
}

/* Stages that go round two groups or three, in whole rounds. */
static struct chain random_interleaved(struct rng *r, double p2p) {
    struct chain c;
    do
        c = random_chain(r, p2p);
    while (c.n < 4 || c.n == 5);
    c.groups = c.n == 6 ? 2 + (int)rng_below(r, 2) : 2;
    c.m *= c.groups;
    c.depth = c.m;
    return c;
}

static void test_estimate(uint64_t seed, double p2p, enum schedule schedule,
                          double within) {
    struct rng r = {seed, 0};
    double worst = 0, sum = 0, above = 0;
    int n = 4000, exact = 0;
    for (int i = 0; i < n; i++) {
        struct chain c = schedule == SCHEDULE_interleaved ? random_interleaved(&r, p2p)
                                                          : random_chain(&r, p2p);
        c.schedule = schedule;
        if (schedule != SCHEDULE_interleaved)
            c.depth = schedule_depth(schedule, 1, c.m);
        double us = chain_us(&c), e = chain_estimate(&c) / us - 1;
        worst = fmax(worst, fabs(e));
        above = fmax(above, e);
        sum += fabs(e);
        exact += fabs(e) < 1e-9;
    }
    ok(worst <= within && above < 1e-9,
       "estimate of %s, transfers up to %g: a lower bound, %.3f %% off, at worst %.2f %%; "
       "%.1f %% are exact",
       schedule_name(schedule), p2p, 100 * sum / n, 100 * worst, 100.0 * exact / n);
}

int main(void) {
    test_balanced();
    test_bubbles();
    test_staging();
    test_norm();
    test_started();
    test_deadlock();
    test_toy(1);
    test_toy((uint64_t)getpid());
    test_estimate(2, 0, SCHEDULE_gpipe, 1e-9);
    test_estimate(3, 0, SCHEDULE_1f1b, 1e-9);
    test_estimate(4, 3, SCHEDULE_gpipe, 0.05);
    test_estimate(5, 3, SCHEDULE_1f1b, 0.01);
    test_estimate(6, 30, SCHEDULE_gpipe, 0.35);
    test_estimate(7, 30, SCHEDULE_1f1b, 0.2);
    test_estimate(8, 0, SCHEDULE_interleaved, 0.06);
    test_estimate(9, 0, SCHEDULE_zero_bubble, 1e-9);
    test_estimate(10, 3, SCHEDULE_interleaved, 0.05);
    test_estimate(11, 3, SCHEDULE_zero_bubble, 0.01);
    test_estimate(14, 0, SCHEDULE_eager_1f1b, 1e-9);
    test_estimate(15, 3, SCHEDULE_eager_1f1b, 0.01);
    test_estimate(16, 30, SCHEDULE_eager_1f1b, 0.2);
    test_estimate(12, 30, SCHEDULE_interleaved, 0.1);
    test_estimate(13, 30, SCHEDULE_zero_bubble, 0.2);
    return done_testing();
}
