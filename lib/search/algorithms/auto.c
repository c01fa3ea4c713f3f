/* auto - a portfolio of the other algorithms (after Huberman, Lukose, Hogg, "An
 * Economics Approach to Hard Computational Problems", Science 1997).
 *
 * A space that is small enough for branch and bound (branch.h) is left to dp or ilp,
 * which prove their result. Otherwise the members of the portfolio run in rounds.
 * Every member belongs to a lane. The members of one lane run one after the other on
 * one search state and share its caches; different lanes share nothing and run in
 * parallel as far as there are threads. After each round the best candidates and the
 * lower bounds of all lanes are merged into the first lane, whose next round starts
 * from the best plan, unless that is near the bound already. Every member stops after a
 * fixed amount of work, and a round waits for all of its members, so the result
 * depends neither on the number of threads nor on their speed. */
#include "search/algorithms/algorithms.h"
#include "search/algorithms/branch.h"
#include "search/bound/bound.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { LANES = 2, ROUNDS = 3, MOST_BRANCHES = 1000000 /* stages scored by dp or ilp */ };

/* Gaps: up to NEAR no further round runs, from FAR on mcmc also starts from random
 * pipelines. Further rounds helped in 21 of 54 settings, by up to 60 %; twice by 0.3 %
 * where the gap of the first round was 8 %, once by 0.4 % where it was 6.4 %. Random
 * pipelines were better starts than the rest in five, whose gaps were 26 to 89 %. */
static const double NEAR = 0.06, FAR = 0.2;

/* Runs as a member of the portfolio, but computes only the lower bound. */
static int prove(struct search *s, struct err *err) {
    (void)err;
    s->budget.bound_us = bound_us(&s->eval, NULL);
    watch_bound(s->budget.watch, s->budget.bound_us);
    return 0;
}

/* Members that share a lane run in this order. */
static const struct member {
    int round, lane;
    const char *name;
    search_algorithm *run;
    int64_t
        most_stages; /* stages that it may score without a better plan; 0 = its own limit */
    double least_gap; /* it runs only where the gap is at least this */
} members[] = {
    {0, 0, "hops", search_hops, 0, 0},
    {0, 1, "bound", prove, 0, 0}, /* beside hops */
    /* In one of 60 odd settings the plan of hops was slower than that of grid, by 2.8 %. */
    {1, 0, "grid", search_grid, 0, 0},
    /* Where neither hops nor grid found a plan that fits, these never did. */
    {2, 0, "gradient", search_gradient, 0, 0},
    {2, 0, "mcmc", search_mcmc, 40000, 0},
    /* Starts from random pipelines, not from the best plan: of 36 settings one got
     * faster, by 16 %. */
    {2, 1, "mcmc", search_mcmc, 200000, FAR},
};
enum { MEMBERS = sizeof members / sizeof *members };

struct portfolio {
    struct search *lanes[LANES]; /* the first is the caller's; NULL: not needed so far */
    int round;
    atomic_int next; /* the first lane that no thread has taken */
    /* Members are not told the bound: they would compare it with their estimates,
     * which may be below it, and stop too early. */
    double bound_us;
    double gap; /* between the best plan and the bound; 0 where no bound was asked for */
};

/* ---- lanes ------------------------------------------------------------------------------- */

static struct search *lane_make(const struct evaluate *ev) {
    struct search *l = mem_alloc(sizeof *l);
    search_begin(l, &ev->space->p);
    /* The caller's check of the pins has already succeeded. */
    space_check_pins(&l->space, NULL);
    l->budget.start_s = ev->budget->start_s;
    l->eval.reserve_bytes = ev->reserve_bytes;
    l->budget.watch = ev->budget->watch;
    return l;
}

/* Frees a lane, and adds the number of candidates that it scored to the first lane's. */
static void lane_free(struct search *first, struct search *l) {
    if (!l)
        return;
    first->budget.candidates += l->budget.candidates;
    search_end(l);
    free(l);
}

static bool takes_part(const struct portfolio *f, const struct member *m, int lane) {
    return m->round == f->round && m->lane == lane && f->gap >= m->least_gap;
}

static bool has_work(const struct portfolio *f, int lane) {
    bool any = false;
    for (int i = 0; i < MEMBERS; i++)
        any |= takes_part(f, &members[i], lane);
    return any;
}

/* Translates a candidate of one lane to another lane, which has its own store of layouts
 * and meshes. */
static void take_over(const struct space *to, const struct space *from,
                      const struct candidate *c, struct candidate *out) {
    candidate_copy(out, c);
    for (int k = 0; k < c->n_stages; k++) {
        struct search_stage *st = &out->stages[k];
        st->layouts = space_layouts(to, st->layouts);
        st->mesh = space_mesh_from(to, from, st);
    }
}

/* Scores an entry of one lane's pool in another lane's pool. c is scratch, and receives the
 * candidate as translated to that lane. */
static struct score hand_over(struct pool *to, const struct pool *from,
                              const struct entry *k, struct candidate *c) {
    to->member = k->member;
    take_over(to->space, from->space, &k->c, c);
    return pool_score(to, c);
}

/* Merges what one lane found into another: its best candidates, those that do not fit or
 * lack profile rows, and its incumbents. */
static void gather(struct pool *to, struct pool *from) {
    struct candidate c = candidate_make(to->space);
    for (int i = 0; i < from->n_best + 2; i++) {
        const struct entry *k = i < from->n_best    ? &from->best[i]
                                : i == from->n_best ? &from->nearest
                                                    : &from->unknown;
        if (!k->c.n_stages || (i && i < from->n_best && budget_out_of_time(to->budget)))
            continue;
        hand_over(to, from, k, &c);
    }
    for (int i = 0; i < from->n_near; i++)
        hand_over(to, from, &from->near[i], &c);
    for (int64_t i = 0; i < from->incumbents.n; i++) {
        struct score score = hand_over(to, from, &from->incumbents.p[i].k, &c);
        pool_add_incumbent(to, &c, &score);
    }
    candidate_release(&c);
}

/* Prepares a lane for its next round, in which it starts from the best plan if `starts`. */
static void set_out(struct search *l, struct pool *best, bool starts) {
    l->budget.evaluate_s = best->budget->evaluate_s;
    l->eval.reserve_bytes = best->ev->reserve_bytes;
    if (best->n_best && starts) {
        take_over(&l->space, best->space, &best->best[0].c, &l->from);
        l->has_from = true;
    }
}

/* ---- rounds ------------------------------------------------------------------------------ */

static void run_lane(const struct portfolio *f, int lane) {
    struct search *s = f->lanes[lane];
    for (int i = 0; i < MEMBERS; i++) {
        const struct member *m = &members[i];
        bool known = m->run == prove &&
                     (f->bound_us > 0 || (s->space.p.no_bound && s->budget.gap <= 0));
        if (!takes_part(f, m, lane) || known || budget_stopped(&s->budget))
            continue;
        s->pool.member = m->name;
        s->budget.share = m->most_stages;
        m->run(s, NULL);
    }
    s->pool.member = NULL;
    s->budget.share = 0;
}

static void *run_lanes(void *arg) {
    struct portfolio *f = arg;
    for (int i; (i = atomic_fetch_add(&f->next, 1)) < LANES;)
        if (f->lanes[i])
            run_lane(f, i);
    return NULL;
}

static int threads_of(const struct space *sp) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = sp->p.threads > 0 ? sp->p.threads : cores < 1 ? 1 : (int)cores;
    return n < LANES ? n : LANES;
}

/* A lane that has no work in this round gives its memory back. */
static void prepare_lane(struct portfolio *f, int lane) {
    struct search *s = f->lanes[0], **l = &f->lanes[lane];
    if (!has_work(f, lane)) {
        lane_free(s, *l);
        *l = NULL;
        return;
    }
    if (!*l)
        *l = lane_make(&s->eval);
    set_out(*l, &s->pool, false);
    graph_borrow(&(*l)->eval.graph, &s->eval.graph);
}

/* Runs all members of a round and merges what they found into the first lane. Threads
 * beyond the first are a bonus: where none can be created, this thread runs all lanes. */
static void run_round(struct portfolio *f, int round) {
    struct search *s = f->lanes[0];
    pthread_t others[LANES];
    int n = 0;
    f->round = round;
    if (round)
        pool_give_back(&s->pool);
    f->next = 0;
    if (round)
        set_out(s, &s->pool, true);
    for (int i = 1; i < LANES; i++)
        prepare_lane(f, i);
    while (n < threads_of(&s->space) - 1 && !pthread_create(&others[n], NULL, run_lanes, f))
        n++;
    run_lanes(f);
    while (n > 0)
        pthread_join(others[--n], NULL);
    for (int i = 1; i < LANES; i++)
        if (f->lanes[i]) {
            gather(&s->pool, &f->lanes[i]->pool);
            f->bound_us = fmax(f->bound_us, f->lanes[i]->budget.bound_us);
            f->lanes[i]->budget.bound_us = 0;
        }
    s->pool.member = NULL;
    pool_note_incumbent(&s->pool);
    if (s->pool.n_best)
        pool_evaluate_best(&s->pool);
    pool_keep_winners(&s->pool);
}

/* Returns whether another round is not worth its time; `us` is the simulated time of the
 * best plan. Either that plan is within NEAR or the requested gap of the lower bound, or it
 * would not beat beat_us even if it were faster by NEAR, or no plan fits after grid ran. */
static bool is_enough(const struct portfolio *f, double us) {
    const struct search *s = f->lanes[0];
    double beat_us = s->space.p.beat_us;
    bool closed = f->gap <= fmax(s->budget.gap, NEAR);
    bool hopeless = f->round > 0 && !s->pool.n_best;
    return (f->bound_us > 0 && closed) || (beat_us > 0 && us * (1 - NEAR) > beat_us) ||
           hopeless;
}

/* While members run, the bound is kept out of their budgets; it is put back at the
 * end, together with the caller's plan to start from. */
static void run_rounds(struct search *s) {
    struct portfolio f = {.lanes = {s}, .bound_us = s->budget.bound_us};
    struct candidate from = candidate_make(&s->space);
    bool has_from = s->has_from;
    candidate_copy(&from, &s->from);
    s->budget.bound_us = 0;
    for (int round = 0; round < ROUNDS && !budget_out_of_time(&s->budget); round++) {
        run_round(&f, round);
        if (round + 1 == ROUNDS)
            break;
        double us = pool_simulated_us(&s->pool);
        f.gap = f.bound_us > 0 || !s->pool.n_best ? 1 - f.bound_us / us : 0;
        if (is_enough(&f, us))
            break;
    }
    candidate_copy(&s->from, &from);
    s->has_from = has_from;
    s->budget.bound_us = f.bound_us;
    candidate_release(&from);
    for (int i = 1; i < LANES; i++)
        lane_free(s, f.lanes[i]);
}

/* Returns whether the search ended with a proof. In the smallest spaces ilp runs,
 * because it lists only those strategies of a stage that the best plan can have. */
static bool branch_and_bound(struct search *s) {
    bool tiny = branch_may_end(s);
    if (!tiny && !branch_is_small(s))
        return false;
    s->pool.member = tiny ? "ilp" : "dp";
    s->budget.share = MOST_BRANCHES;
    (tiny ? search_ilp : search_dp)(s, NULL);
    s->budget.share = 0;
    s->pool.member = NULL;
    s->eval.exact = s->pool.proven;
    return s->pool.proven;
}

int search_auto(struct search *s, struct err *err) {
    (void)err;
    if (!branch_and_bound(s) && !budget_out_of_time(&s->budget))
        run_rounds(s);
    s->complete = !budget_out_of_time(&s->budget);
    return 0;
}
