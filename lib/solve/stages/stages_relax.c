/* stages_relax.c - stages by gradient descent on the relaxed problem (relax.h), to be compared with the
 * exact search.
 *
 * Sub-meshes are of one size, so the number of stages is known and stage k stands on devices that are
 * known; an option of a stage is a configuration there. Every layer is a class of its own without
 * nodes: options hold all that it costs. Memory counts as a share of the option's capacity. */
#include "common/mem.h"
#include "solve/relax/relax.h"
#include "solve/stages/stages.h"
#include "solve/stages/stages_dp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STARTS = 16 };

struct relaxing {
    const struct stages_problem *p;
    int n_stages, size;
    struct arena arena;
    int **choice_of; /* [stages] of each option */
    struct relax_problem relaxed;
};

/* The least times of all layers, shared by all stages, and the longest of them. */
static double even_bound(const struct stages_problem *p, int n_stages) {
    double all = 0, longest = 0;
    for (int l = 0; l < p->layers; l++) {
        double least = INFINITY;
        for (int c = 0; c < p->num_configs; c++)
            least = fmin(least, p->configs[c].time[l]);
        all += least;
        longest = fmax(longest, least);
    }
    return all + (p->micro_batches - 1) * fmax(longest, all / n_stages);
}

/* What stage k costs under each choice that may stand there. */
static struct relax_costs *stage_costs(struct relaxing *r, int k) {
    const struct stages_problem *p = r->p;
    struct relax_costs *costs = arena_alloc(&r->arena, sizeof *costs);
    size_t most = (size_t)p->num_choices, cells = most * (size_t)p->layers;
    double *time = arena_array(&r->arena, 3 * cells + 2 * most, sizeof *time);
    double *fixed = time + cells, *slot = fixed + cells, *once = slot + cells;
    int d = p->devices - k * r->size;
    r->choice_of[k] = arena_array(&r->arena, most, sizeof(int));
    for (int j = 0; j < p->num_choices; j++) {
        const struct stages_config *c = &p->configs[p->choices[j].config];
        if (d < p->choices[j].lo || d > p->choices[j].hi)
            continue;
        int o = costs->n_options++;
        double share = isfinite(c->capacity) ? 1 / fmax(c->capacity, 1e-300) : 0;
        r->choice_of[k][o] = j;
        once[o] = c->fixed_time;
        once[most + (size_t)o] = c->workspace * share;
        for (int l = 0; l < p->layers; l++) {
            int at = o * p->layers + l;
            time[at] = c->time[l];
            fixed[at] = c->state[l] * share;
            slot[at] = c->activation[l] * share;
        }
    }
    costs->first = arena_array(&r->arena, 1, sizeof(int));
    costs->more_time = time;
    costs->more_fixed = fixed;
    costs->more_slot = slot;
    costs->once_time = once;
    costs->once_bytes = once + most;
    return costs;
}

/* The link's time counts as the sender's: what comes out is priced as the document says. */
static void fill_cuts(struct relaxing *r) {
    const struct stages_problem *p = r->p;
    size_t n = (size_t)p->layers + 1;
    double *in = arena_array(&r->arena, 2 * n, sizeof *in), *out = in + n;
    bool receiver = p->charge == STAGES_CHARGE_RECEIVER,
         both = p->charge == STAGES_CHARGE_BOTH;
    for (size_t l = 0; p->cut && l < n; l++) {
        in[l] = receiver || both ? p->cut[l] : 0;
        out[l] = receiver ? 0 : p->cut[l];
    }
    r->relaxed.cut_in = in;
    r->relaxed.cut_out = out;
}

static int fill(struct relaxing *r, struct err *err) {
    const struct stages_problem *p = r->p;
    size_t n = (size_t)p->layers, stages = (size_t)r->n_stages;
    int *rising = arena_array(&r->arena, n + 1, sizeof *rising);
    struct relax_count *counts = arena_array(&r->arena, n, sizeof *counts);
    double *in_flight = arena_array(&r->arena, stages, sizeof *in_flight);
    const struct relax_costs **costs = arena_array(&r->arena, stages, sizeof(void *));
    r->choice_of = arena_array(&r->arena, stages, sizeof *r->choice_of);
    for (int l = 0; l < p->layers; l++) {
        rising[l + 1] = l + 1;
        counts[l] = (struct relax_count){l, 1};
    }
    for (int k = 0; k < r->n_stages; k++) {
        const struct relax_costs *c = costs[k] = stage_costs(r, k);
        in_flight[k] = r->n_stages - k;
        if (!c->n_options)
            return err_no(err, "no submesh of %d may stand on devices %d to %d", r->size,
                          k * r->size, (k + 1) * r->size - 1);
    }
    r->relaxed =
        (struct relax_problem){.n_units = p->layers,
                               .n_classes = p->layers,
                               .n_stages = r->n_stages,
                               .counts_of = rising,
                               .counts = counts,
                               .nodes_of = arena_array(&r->arena, n + 1, sizeof(int)),
                               .costs = costs,
                               .micro_batches = p->micro_batches,
                               .memory = 1,
                               .in_flight = in_flight};
    fill_cuts(r);
    return 0;
}

/* The answer as a plan, priced by the exact search's own rules; false where it does not fit. */
static bool take_answer(const struct relaxing *r, const struct relax_answer *best,
                        struct stages_plan *plan) {
    const struct stages_problem *p = r->p;
    double *t = mem_array((size_t)p->layers, sizeof *t);
    int *succ = mem_array((size_t)p->layers, sizeof *succ);
    bool fits = true;
    for (int k = 0; k < r->n_stages; k++) {
        int first = best->first[k], last = best->first[k + 1] - 1;
        struct stages_stage *st = &plan->stages[plan->n++];
        *st = (struct stages_stage){.first = first,
                                    .last = last,
                                    .choice = r->choice_of[k][best->option[k]],
                                    .device = k * r->size};
        int end = stages_row(p, first, p->choices[st->choice].config, INFINITY, t, succ);
        fits &= last < end && succ[last] >= r->n_stages - 1 - k;
        stages_charge(p, first, last, fits ? t[last] : INFINITY, &st->w, &st->m);
    }
    stages_plan_finish(plan, p);
    free(t);
    free(succ);
    return fits;
}

static int check_form(const struct stages_problem *p, struct err *err) {
    if (p->dense_time)
        return err_input(err, "relaxed: expected the additive form, found compute_cost");
    for (int j = 1; j < p->num_choices; j++)
        if (p->choices[j].size != p->choices[0].size)
            return err_input(err,
                             "relaxed: expected submeshes of one size, found %d and %d",
                             p->choices[0].size, p->choices[j].size);
    int size = p->choices[0].size, n = p->devices / size;
    if (n > p->layers || n > p->max_stages || n < 1 || (p->use_all && p->devices % size))
        return err_no(err, "devices: no stages of %d devices on %d, one for each",
                      p->choices[0].size, p->devices);
    return 0;
}

int stages_relax(const struct stages_problem *p, const struct solve_limits *limits,
                 struct stages_answer *a, struct err *err) {
    *a = (struct stages_answer){.relaxed = true};
    if (check_form(p, err) < 0)
        return -1;
    struct relaxing r = {.p = p, .size = p->choices[0].size};
    r.n_stages = p->devices / r.size;
    int rc = fill(&r, err);
    if (rc == 0) {
        const struct relax_problem *starts[STARTS];
        struct relax_answer best;
        for (int i = 0; i < STARTS; i++)
            starts[i] = &r.relaxed;
        relax_race(starts, STARTS, limits, &best, 1);
        stages_plan_init(&a->plan, p);
        a->bound = even_bound(p, r.n_stages);
        if (!take_answer(&r, &best, &a->plan))
            rc = err_no(err,
                        "memory: the descent found no stages that fit; there may be some");
        relax_answer_release(&best);
    }
    arena_release(&r.arena);
    if (rc < 0)
        stages_answer_release(a);
    return rc;
}
