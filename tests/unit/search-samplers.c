/* mcmc and gradient against the list of all plans, on random small spaces: models, devices,
 * links, batches and limits of memory are drawn. Both leave something to chance and end where
 * they converge, so it is their mean distance from the best of the list that is bounded; what
 * comes out is always legal and within the memory, and the same for the same seed. */
#include "search/algorithms/algorithms.h"
#include "search/state.h"

#include "common/rng.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPACES = 16 };

struct space_case {
    char set[128], about[256];
    int64_t micro[2];
    struct search_problem p;
};

/* A cluster of one or two nodes. Devices are slow enough for toys to have something to compute. */
static bool draw_cluster(struct rng *r, struct space_case *sp, const char *path) {
    static const double flops[] = {1e11, 1e12, 1e13}, rates[] = {1e9, 1e10, 1e11};
    int nodes = 1 + (int)rng_below(r, 2),
        devices = nodes == 2 ? 1 + (int)rng_below(r, 2) : 0;
    devices = devices ? devices : 2 + (int)rng_below(r, 3);
    double work = flops[rng_below(r, 3)], inside = rates[rng_below(r, 3)],
           between = rates[rng_below(r, 3)];
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fprintf(f,
            "{\"format\": \"weft-cluster/1\", \"nodes\": %d, \"devices_per_node\": %d, "
            "\"device\": \"toy\", \"flops\": {\"f32\": %g}, \"bandwidth\": 1e11, "
            "\"latency_us\": 2, \"links\": [{\"level\": \"node\", \"bandwidth\": %g, "
            "\"latency_us\": 3}%s",
            nodes, devices, work, inside, nodes > 1 ? ", " : "]}\n");
    if (nodes > 1)
        fprintf(f, "{\"level\": \"cross\", \"bandwidth\": %g, \"latency_us\": 10}]}\n",
                between);
    fclose(f);
    sp->p.devices = nodes * devices;
    snprintf(sp->about + strlen(sp->about), sizeof sp->about - strlen(sp->about),
             ", %d x %d devices of %g, links %g and %g", nodes, devices, work, inside,
             between);
    struct err err = {0};
    return cluster_read(&sp->p.cluster, path, &err) == 0 || ok(false, "%s", err.msg);
}

/* Of the memory that some plan of the list needs at least, or none. */
static void draw_memory(struct rng *r, struct space_case *sp) {
    static const double rooms[] = {0, 1.05, 1.3, 2};
    double room = rooms[rng_below(r, 4)];
    struct search_result out;
    if (room <= 0)
        return;
    sp->p.memory_bytes = 1;
    search_run(&sp->p, search_presets, &out, NULL);
    sp->p.memory_bytes = (int64_t)(room * (double)(out.overflow + 1));
    search_result_release(&out);
    snprintf(sp->about + strlen(sp->about), sizeof sp->about - strlen(sp->about),
             ", %.2f of the memory", room);
}

static bool draw_space(struct rng *r, struct space_case *sp, const char *path) {
    static const int widths[] = {48, 96, 192};
    bool gpt = rng_below(r, 2), good = false;
    int width = widths[rng_below(r, 3)];
    *sp =
        (struct space_case){.p = {.max_stages = 2,
                                  .max_zero = ZERO_PARAMETERS,
                                  .schedules = 1u << SCHEDULE_gpipe | 1u << SCHEDULE_1f1b |
                                               1u << SCHEDULE_zero_bubble,
                                  .top = 1,
                                  .seed = 1}};
    if (gpt)
        snprintf(sp->set, sizeof sp->set, "layers=2,hidden=%d,heads=4,seq=32,vocab=%d",
                 width, width * (1 + (int)rng_below(r, 8)));
    else
        snprintf(sp->set, sizeof sp->set,
                 "pixels=%d,hidden=%d,inner=%d,classes=16,layers=%d", width, width,
                 2 * width, 1 + (int)rng_below(r, 3));
    snprintf(sp->about, sizeof sp->about, "%s %s", gpt ? "gpt" : "mlp", sp->set);
    struct err err = {0};
    if (draw_cluster(r, sp, path)) {
        sp->micro[0] = 4;
        sp->micro[1] = 12;
        sp->p.batch = 12 * (1 + rng_below(r, 4));
        sp->p.micro = sp->micro;
        sp->p.n_micro = 2;
        sp->p.provider = provider_open(NULL, NULL, &sp->p.cluster, true, &err);
        sp->p.model = sp->p.provider
                          ? model_load(gpt ? "gpt:nano" : "mlp:mnist", sp->set, &err)
                          : NULL;
        good = sp->p.model != NULL;
    }
    if (good)
        draw_memory(r, sp);
    return good || ok(false, "%s: %s", sp->about, err.msg);
}

static void close_space(struct space_case *sp) {
    provider_destroy((struct cost_provider *)sp->p.provider);
    model_destroy(sp->p.model);
}

/* ---- what is claimed ----------------------------------------------------------------------- */

struct tally {
    double mean, worst;
    int missed, too_large, unlike, other_seeds;
};

static bool same_plan(const struct search_result *a, const struct search_result *b) {
    json_t *x = plan_to_json(a->plans[0].plan), *y = plan_to_json(b->plans[0].plan);
    bool same = json_equal(x, y) && a->scored == b->scored;
    json_decref(x);
    json_decref(y);
    return same;
}

/* The bytes of the plan as it is compiled anew. */
static bool fits(const struct search_problem *p, struct plan *plan) {
    struct program *g = plan_check(plan, NULL) == 0 ? program_compile(plan, NULL) : NULL;
    bool good = g != NULL;
    for (int k = 0; good && p->memory_bytes && k < g->n_stages; k++)
        good = g->stages[k].arena_bytes <= p->memory_bytes;
    program_destroy(g);
    return good;
}

/* Twice with one seed, and once with another. */
static void hold(const struct space_case *sp, const struct algorithm *a, double best_us,
                 struct tally *t) {
    struct search_result first, recompute, other;
    struct search_problem p = sp->p;
    if (search_run(&p, a->run, &first, NULL) < 0) {
        t->missed++;
        return;
    }
    double gap = first.plans[0].time_us / best_us - 1;
    t->mean += gap / SPACES;
    t->worst = fmax(t->worst, gap);
    t->too_large += !fits(&p, first.plans[0].plan) || !first.complete;
    if (gap > 0.05)
        printf("# %s is %.1f %% above %.1f us: %s\n", a->name, 100 * gap, best_us,
               sp->about);
    search_run(&p, a->run, &recompute, NULL);
    t->unlike += !same_plan(&first, &recompute);
    p.seed = 2;
    if (search_run(&p, a->run, &other, NULL) == 0)
        t->other_seeds += first.scored != other.scored;
    search_result_release(&first);
    search_result_release(&recompute);
    search_result_release(&other);
}

int main(void) {
    static const struct {
        const char *name;
        double mean;
    } claims[] = {{"mcmc", 0.03}, {"gradient", 0.05}};
    enum { CLAIMS = sizeof claims / sizeof *claims };
    struct tally t[CLAIMS] = {{0}};
    struct rng r = {.seed = 8};
    char path[] = "/tmp/weft-samplers-XXXXXX";
    int fd = mkstemp(path), listed = 0;
    close(fd);
    for (int i = 0; i < SPACES; i++) {
        struct space_case sp;
        struct search_result all;
        if (!draw_space(&r, &sp, path))
            continue;
        bool any = search_run(&sp.p, search_presets, &all, NULL) == 0;
        listed += any;
        for (int k = 0; any && k < CLAIMS; k++)
            hold(&sp, algorithm_find(claims[k].name), all.plans[0].time_us, &t[k]);
        search_result_release(&all);
        close_space(&sp);
    }
    unlink(path);
    ok(listed > SPACES * 3 / 4, "%d of %d random spaces have a plan", listed, SPACES);
    for (int k = 0; k < CLAIMS; k++) {
        ok(t[k].mean <= claims[k].mean && !t[k].missed,
           "%s: above the best of the list by %.2f %% on average, %.2f %% at most; %d times "
           "nothing",
           claims[k].name, 100 * t[k].mean, 100 * t[k].worst, t[k].missed);
        ok(!t[k].too_large && !t[k].unlike,
           "it fits, is complete, and the same for a seed");
        ok(t[k].other_seeds > 0, "another seed looks elsewhere in %d", t[k].other_seeds);
    }
    return done_testing();
}
