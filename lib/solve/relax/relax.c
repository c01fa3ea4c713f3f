/* relax.c - the race of descents (relax_run.h), and the evaluation of their rounded
 * results. Of many starts most end alike or badly, which shows early. So all go a little
 * way, the better half continues, and so on (successive halving; Jamieson and Talwalkar,
 * AISTATS 2016). What counts is the value of the rounded answer after polishing: each cut
 * moves to where the longer of its two stages is shortest, and each choice to what is best
 * for its stage, until none moves. Descents do not depend on each other, so the number of
 * threads changes nothing. */
#include "solve/relax/relax.h"

#include "common/mem.h"
#include "common/progress.h"
#include "common/rng.h"
#include "solve/relax/relax_run.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 240, RUNGS = 4, MOST_SWEEPS = 200 };

/* ---- what an answer is worth ----------------------------------------------------------- */

/* Sums of the times and bytes of all units before one, for each stage with its present
 * choices. */
struct bill {
    const struct relax_problem *p;
    double deadline_s;              /* now_s() at which polishing ends */
    double *time, *bytes;           /* [stages x (units + 1)] */
    double *class_us, *class_bytes; /* [classes] scratch */
};

/* Returns the time of a class in stage k without its edges, which add_edges adds for all
 * classes at once. */
static double class_time(const struct relax_problem *p, const struct relax_answer *a, int k,
                         int class, double *bytes) {
    const struct relax_costs *c = p->costs[k];
    const int *choice = a->choice + k * p->n_nodes;
    int more = a->option[k] * p->n_classes + class;
    double time = c->more_time[more];
    *bytes = c->more_fixed[more] + p->in_flight[k] * c->more_slot[more];
    for (int i = p->nodes_of[class]; i < p->nodes_of[class + 1]; i++) {
        int v = p->nodes[i], j = c->first[v] + choice[v];
        time += c->time[j];
        *bytes += c->fixed[j] + p->in_flight[k] * c->slot[j];
    }
    return time;
}

static void add_edges(struct bill *b, const struct relax_answer *a, int k) {
    const struct relax_costs *c = b->p->costs[k];
    const int *choice = a->choice + k * b->p->n_nodes;
    for (int i = 0; i < c->n_edges; i++) {
        const struct relax_edge *e = &c->edges[i];
        int nb = c->first[e->b + 1] - c->first[e->b];
        b->class_us[e->class] += e->time[choice[e->a] * nb + choice[e->b]];
    }
}

/* Computes the sums of stage k. */
static void bill_stage(struct bill *b, const struct relax_answer *a, int k) {
    const struct relax_problem *p = b->p;
    double *time = b->time + k * (p->n_units + 1), *bytes = b->bytes + k * (p->n_units + 1);
    for (int d = 0; d < p->n_classes; d++)
        b->class_us[d] = class_time(p, a, k, d, &b->class_bytes[d]);
    add_edges(b, a, k);
    for (int u = 0; u < p->n_units; u++) {
        time[u + 1] = time[u];
        bytes[u + 1] = bytes[u];
        for (int i = p->counts_of[u]; i < p->counts_of[u + 1]; i++) {
            time[u + 1] += p->counts[i].times * b->class_us[p->counts[i].class];
            bytes[u + 1] += p->counts[i].times * b->class_bytes[p->counts[i].class];
        }
    }
}

static struct bill bill_of(const struct relax_problem *p, const struct relax_answer *a,
                           double deadline_s) {
    size_t cells = (size_t)p->n_stages * ((size_t)p->n_units + 1);
    size_t classes = (size_t)p->n_classes;
    struct bill b = {.p = p,
                     .deadline_s = deadline_s,
                     .time = mem_array(2 * (cells + classes), sizeof *b.time)};
    b.bytes = b.time + cells;
    b.class_us = b.bytes + cells;
    b.class_bytes = b.class_us + classes;
    for (int k = 0; k < p->n_stages; k++)
        bill_stage(&b, a, k);
    return b;
}

/* Returns the time of stage k with units first .. end-1; *excess grows by the fraction
 * of the memory that it lacks. */
static double stage_time(const struct bill *b, const struct relax_answer *a, int k,
                         int first, int end, double *excess) {
    const struct relax_problem *p = b->p;
    const struct relax_costs *c = p->costs[k];
    const double *time = b->time + k * (p->n_units + 1),
                 *bytes = b->bytes + k * (p->n_units + 1);
    double needed = bytes[end] - bytes[first] + c->once_bytes[a->option[k]];
    *excess += fmax(0, needed / p->memory - 1);
    return time[end] - time[first] + c->once_time[a->option[k]] +
           (first ? p->cut_in[first] : 0) + (end < p->n_units ? p->cut_out[end] : 0);
}

static void evaluate(const struct bill *b, struct relax_answer *a) {
    double longest = 0, sum = 0;
    a->excess = 0;
    for (int k = 0; k < b->p->n_stages; k++) {
        double us = stage_time(b, a, k, a->first[k], a->first[k + 1], &a->excess);
        longest = fmax(longest, us);
        sum += us;
    }
    a->value = sum + (b->p->micro_batches - 1) * longest;
}

/* Puts the cut in front of stage k where the longer of its two stages is shortest.
 * Returns false if it stands there already. */
static bool move_cut(const struct bill *b, struct relax_answer *a, int k) {
    double least = INFINITY, least_excess = INFINITY;
    int now = a->first[k], best = now;
    for (int i = 0; i < a->first[k + 1] - a->first[k - 1] - 1; i++) {
        /* The present place comes first: others must be better. */
        int at = i ? a->first[k - 1] + i + (a->first[k - 1] + i >= now) : now;
        double excess = 0;
        double us = stage_time(b, a, k - 1, a->first[k - 1], at, &excess);
        us = fmax(us, stage_time(b, a, k, at, a->first[k + 1], &excess));
        if (excess < least_excess * (1 - 1e-9) ||
            (excess <= least_excess && us < least * (1 - 1e-9))) {
            least = us;
            least_excess = excess;
            best = at;
        }
    }
    a->first[k] = best;
    return best != now;
}

static double now_time(const struct bill *b, const struct relax_answer *a, int k,
                       double *excess) {
    *excess = 0;
    return stage_time(b, a, k, a->first[k], a->first[k + 1], excess);
}

/* Gives one of stage k's choices the value that is best for the stage. Returns false if
 * it has that already. */
static bool change(struct bill *b, struct relax_answer *a, int k, int *choice, int n) {
    double least_excess, least = now_time(b, a, k, &least_excess);
    int best = *choice, before = best;
    for (*choice = 0; *choice < n; ++*choice) {
        double excess, us;
        bill_stage(b, a, k);
        us = now_time(b, a, k, &excess);
        if (excess < least_excess * (1 - 1e-9) ||
            (excess <= least_excess && us < least * (1 - 1e-9))) {
            least = us;
            least_excess = excess;
            best = *choice;
        }
    }
    *choice = best;
    bill_stage(b, a, k);
    return best != before;
}

static bool out_of_time(double deadline_s) {
    return interrupted() || now_s() > deadline_s;
}

static bool change_stage(struct bill *b, struct relax_answer *a, int k) {
    const struct relax_problem *p = b->p;
    const struct relax_costs *c = p->costs[k];
    bool changed = false;
    if (c->n_options > 1)
        changed |= change(b, a, k, &a->option[k], c->n_options);
    for (int v = 0; v < p->n_nodes && !out_of_time(b->deadline_s); v++)
        if (c->first[v + 1] - c->first[v] > 1)
            changed |= change(b, a, k, &a->choice[k * p->n_nodes + v],
                              c->first[v + 1] - c->first[v]);
    return changed;
}

static void polish(struct bill *b, struct relax_answer *a) {
    bool moved = true;
    for (int sweep = 0; moved && sweep < MOST_SWEEPS && !out_of_time(b->deadline_s);
         sweep++) {
        moved = false;
        for (int k = 1; k < b->p->n_stages; k++)
            moved |= move_cut(b, a, k);
        for (int k = 0; k < b->p->n_stages; k++)
            moved |= change_stage(b, a, k);
    }
}

static bool is_better(const struct relax_answer *a, const struct relax_answer *b) {
    if (a->excess != b->excess)
        return a->excess < b->excess;
    return a->value < b->value;
}

/* ---- the race ---------------------------------------------------------------------------- */

struct racer {
    struct relax_run *run;
    struct relax_answer now, best; /* the last one rounded; the best so far */
    int number;
};

struct race {
    struct racer *racers; /* those still under way first */
    int n, from, until;   /* steps of this rung */
    atomic_int next;
    double deadline_s;
};

static struct relax_answer answer_make(const struct relax_problem *p) {
    size_t stages = (size_t)p->n_stages;
    return (struct relax_answer){
        .problem = p,
        .first = mem_array(stages + 1, sizeof(int)),
        .option = mem_array(stages, sizeof(int)),
        .choice = mem_array(stages * (size_t)p->n_nodes + 1, sizeof(int)),
        .value = INFINITY,
        .excess = INFINITY};
}

void relax_answer_release(struct relax_answer *a) {
    free(a->first);
    free(a->option);
    free(a->choice);
    *a = (struct relax_answer){0};
}

/* Rounds and polishes the present state, and keeps it if it is the best so far. */
static void round_off(struct racer *r, double deadline_s) {
    relax_run_round(r->run, &r->now);
    struct bill b = bill_of(r->now.problem, &r->now, deadline_s);
    for (int polished = 0; polished < 2; polished++) {
        if (polished)
            polish(&b, &r->now);
        evaluate(&b, &r->now);
        if (is_better(&r->now, &r->best)) {
            const struct relax_problem *p = r->now.problem;
            size_t stages = (size_t)p->n_stages;
            memcpy(r->best.first, r->now.first, (stages + 1) * sizeof(int));
            memcpy(r->best.option, r->now.option, stages * sizeof(int));
            memcpy(r->best.choice, r->now.choice,
                   stages * (size_t)p->n_nodes * sizeof(int));
            r->best.value = r->now.value;
            r->best.excess = r->now.excess;
        }
    }
    free(b.time);
}

static void *run_rung(void *arg) {
    struct race *race = arg;
    for (int i; (i = atomic_fetch_add(&race->next, 1)) < race->n;) {
        struct racer *r = &race->racers[i];
        for (int step = race->from; step < race->until; step++) {
            if (out_of_time(race->deadline_s))
                break;
            relax_run_step(r->run, (double)step / STEPS);
        }
        round_off(r, race->deadline_s);
    }
    return NULL;
}

static void run_threads(struct race *race, int threads) {
    enum { MOST = 64 };
    pthread_t others[MOST];
    int n = 0;
    race->next = 0;
    threads = threads < race->n ? threads : race->n;
    while (n < threads - 1 && n < MOST && !pthread_create(&others[n], NULL, run_rung, race))
        n++;
    run_rung(race);
    while (n > 0)
        pthread_join(others[--n], NULL);
}

static int by_best(const void *a, const void *b) {
    const struct racer *x = a, *y = b;
    if (is_better(&x->best, &y->best))
        return -1;
    return is_better(&y->best, &x->best) ? 1 : x->number - y->number;
}

static int cores(const struct solve_limits *limits) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return limits->threads > 0 ? limits->threads : n < 1 ? 1 : (int)n;
}

static void run_race(struct race *race, const struct solve_limits *limits) {
    int all = race->n;
    for (int rung = 1; rung <= RUNGS; rung++) {
        race->until = STEPS >> (RUNGS - rung);
        run_threads(race, cores(limits));
        qsort(race->racers, (size_t)race->n, sizeof *race->racers, by_best);
        race->from = race->until;
        race->n = (race->n + 1) / 2;
    }
    qsort(race->racers, (size_t)all, sizeof *race->racers, by_best);
}

int relax_race(const struct relax_problem *const *starts, int n,
               const struct solve_limits *limits, struct relax_answer *best, int most) {
    struct race race = {.racers = mem_array((size_t)n, sizeof *race.racers), .n = n};
    double budget_s = limits->time_budget_s;
    race.deadline_s = budget_s > 0 ? now_s() + budget_s : INFINITY;
    for (int i = 0; i < n; i++)
        race.racers[i] = (struct racer){
            .run = relax_run_make(starts[i], rng_mix(limits->seed) + (uint64_t)i),
            .now = answer_make(starts[i]),
            .best = answer_make(starts[i]),
            .number = i};
    run_race(&race, limits);
    for (int i = 0; i < n; i++) {
        struct racer *r = &race.racers[i];
        relax_run_free(r->run);
        relax_answer_release(&r->now);
        if (i < most)
            best[i] = r->best;
        else
            relax_answer_release(&r->best);
    }
    free(race.racers);
    return n < most ? n : most;
}
