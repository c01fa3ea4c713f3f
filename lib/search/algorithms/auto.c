/* auto - a portfolio of the other algorithms (after Huberman, Lukose, Hogg, "An Economics Approach to
 * Hard Computational Problems", Science 1997).
 *
 * A space small enough for branch and bound (branch.h) is left to that, which proves its result. Else
 * members set out in rounds. The members of a round stand in lanes: those of one lane work one after
 * the other on one state of the search, with its caches; lanes know nothing of each other and go
 * on at once, as far as there are threads. Between rounds the best candidates and the bound of all
 * lanes go to the first one, and the next round sets out from the best of them, unless the gap is
 * closed. So what a member does depends on neither the number of threads nor their speed: each ends by
 * its own measure of work, and rounds wait for all of their members. */
#include "search/algorithms/algorithms.h"
#include "search/algorithms/branch.h"
#include "search/bound/bound.h"
#include "search/pool/looks.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { LANES = 2, ROUNDS = 2, MOST_BRANCHES = 1000000 /* stages scored by dp */ };

/* No algorithm, but a member: what it finds is the bound. */
static int prove(struct search *s, struct err *err) {
    (void)err;
    s->bound_us = bound_us(s, NULL);
    watch_bound(s->watch, s->bound_us);
    return 0;
}

/* In this order where they share a lane. */
static const struct member {
    int round, lane;
    const char *name;      /* in the table of algorithms; of those it is one, */
    search_algorithm *run; /* or else this */
    int64_t most_stages;   /* that it scores; 0 = by its own measure */
} members[] = {
    {0, 0, "hops", NULL, 0},
    {0, 1, "bound", prove, 0},
    {1, 0, "gradient", NULL, 0},
    {1, 1, "mcmc", NULL, 100000},
};
enum { MEMBERS = sizeof members / sizeof *members };

struct portfolio {
    struct search *lanes[LANES]; /* the first is the caller's; NULL: not needed yet */
    int round;
    atomic_int next; /* lane that no thread has taken */
    double bound_us; /* kept from members, who would compare it with their estimates */
};

/* ---- lanes ------------------------------------------------------------------------------- */

static struct search *lane_make(const struct search *s) {
    struct search *l = mem_alloc(sizeof *l);
    search_begin(l, &s->p);
    search_check_pins(l, NULL); /* as good as they were for the caller */
    l->start_s = s->start_s;
    l->reserve_bytes = s->reserve_bytes;
    l->watch = s->watch;
    return l;
}

static void lane_free(struct search *l) {
    search_end(l);
    free(l);
}

static bool has_work(int round, int lane) {
    bool any = false;
    for (int i = 0; i < MEMBERS; i++)
        any |= members[i].round == round && members[i].lane == lane;
    return any;
}

/* A candidate of one lane in the words of another one. */
static void take_over(struct search *to, struct search *from, const struct candidate *c,
                      struct candidate *out) {
    candidate_copy(out, c);
    for (int k = 0; k < c->n_stages; k++) {
        struct search_stage *st = &out->stages[k];
        st->layouts = search_layouts(to, st->layouts);
        st->mesh = search_mesh_from(to, from, st);
    }
}

/* The best of a lane, those that could not be known or do not fit, and its bound. */
static void gather(struct search *to, struct search *from) {
    struct candidate c = candidate_make(to);
    for (int i = 0; i < from->n_kept + 2 && from != to; i++) {
        const struct kept *k = i < from->n_kept    ? &from->kept[i]
                               : i == from->n_kept ? &from->nearest
                                                   : &from->unknown;
        if (!k->c.n_stages || (i && i < from->n_kept && search_out_of_time(to)))
            continue;
        to->member = k->member;
        take_over(to, from, &k->c, &c);
        search_score(to, &c);
    }
    for (int64_t i = 0; i < from->looks.n && from != to; i++) {
        to->member = from->looks.p[i].k.member;
        take_over(to, from, &from->looks.p[i].k.c, &c);
        struct score score = search_score(to, &c);
        search_add_look(to, &c, &score);
    }
    candidate_release(&c);
}

/* Sets out from the best plan so far. */
static void set_out(struct search *l, struct search *best) {
    l->judge_s = best->judge_s;
    l->reserve_bytes = best->reserve_bytes;
    if (best->n_kept) {
        take_over(l, best, &best->kept[0].c, &l->from);
        l->has_from = true;
    }
}

/* ---- rounds ------------------------------------------------------------------------------ */

static void run_lane(const struct portfolio *f, int lane) {
    struct search *s = f->lanes[lane];
    for (int i = 0; i < MEMBERS; i++) {
        const struct member *m = &members[i];
        bool known =
            m->run == prove && (f->bound_us > 0 || (s->p.no_bound && s->p.gap <= 0));
        if (m->round != f->round || m->lane != lane || known || search_stopped(s))
            continue;
        s->member = m->name;
        s->most_stages = m->most_stages;
        (m->run ? m->run : algorithm_find(m->name)->run)(s, NULL);
    }
    s->member = NULL;
    s->most_stages = 0;
}

static void *run_lanes(void *arg) {
    struct portfolio *f = arg;
    for (int i; (i = atomic_fetch_add(&f->next, 1)) < LANES;)
        if (has_work(f->round, i))
            run_lane(f, i);
    return NULL;
}

static int threads_of(const struct search *s) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = s->p.threads > 0 ? s->p.threads : cores < 1 ? 1 : (int)cores;
    return n < LANES ? n : LANES;
}

static void run_round(struct portfolio *f, int round) {
    struct search *s = f->lanes[0];
    pthread_t others[LANES];
    int n = 0;
    f->round = round;
    f->next = 0;
    for (int i = 0; i < LANES; i++) {
        if (!f->lanes[i] && has_work(round, i))
            f->lanes[i] = lane_make(s);
        if (f->lanes[i] && (round || i))
            set_out(f->lanes[i], s);
        if (f->lanes[i] && i)
            graph_borrow(&f->lanes[i]->graph, &s->graph);
    }
    while (n < threads_of(s) - 1 && !pthread_create(&others[n], NULL, run_lanes, f))
        n++;
    run_lanes(f);
    while (n > 0)
        pthread_join(others[--n], NULL);
    for (int i = 1; i < LANES; i++)
        if (f->lanes[i]) {
            gather(s, f->lanes[i]);
            f->bound_us = fmax(f->bound_us, f->lanes[i]->bound_us);
            f->lanes[i]->bound_us = 0;
        }
    s->member = NULL;
    search_look(s);
    if (s->n_kept)
        search_verify(s);
    search_keep_winners(s);
}

/* By the simulator's word. */
static bool gap_closed(const struct portfolio *f) {
    struct search *s = f->lanes[0];
    return f->bound_us > 0 && search_simulated_us(s) * (1 - s->p.gap) <= f->bound_us;
}

static void run_rounds(struct search *s) {
    struct portfolio f = {.lanes = {s}, .bound_us = s->bound_us};
    struct candidate from = candidate_make(s);
    bool has_from = s->has_from;
    candidate_copy(&from, &s->from);
    s->bound_us = 0;
    for (int round = 0; round < ROUNDS && !search_out_of_time(s); round++) {
        run_round(&f, round);
        if (round + 1 < ROUNDS && gap_closed(&f))
            break;
    }
    candidate_copy(&s->from, &from);
    s->has_from = has_from;
    s->bound_us = f.bound_us;
    candidate_release(&from);
    for (int i = 1; i < LANES; i++)
        if (f.lanes[i]) {
            s->scored += f.lanes[i]->scored;
            lane_free(f.lanes[i]);
        }
}

/* Returns whether it ended. */
static bool branch_and_bound(struct search *s) {
    if (!branch_is_small(s))
        return false;
    s->member = "dp";
    s->most_stages = MOST_BRANCHES;
    search_dp(s, NULL);
    s->most_stages = 0;
    s->member = NULL;
    s->exact = s->proven;
    return s->proven;
}

int search_auto(struct search *s, struct err *err) {
    if (s->p.source) /* it remembers what one search asked it */
        return search_hops(s, err);
    if (!branch_and_bound(s) && !search_out_of_time(s))
        run_rounds(s);
    s->complete = !search_out_of_time(s);
    return 0;
}
