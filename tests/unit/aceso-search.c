/* The search over Aceso's tables against all configurations of random chains of five ops, on four devices
 * in two nodes: stages, their devices, layouts and marks of every op, priced by the formulas as
 * they are printed (aceso_cost.h). Also lower bounds of stages, and lookups with their oddities. */
#include "aceso/aceso_search.h"

#include "common/rng.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OPS = 5, DEVICES = 4, PER_NODE = 2, BATCH = 8, MOST_LAYOUTS = 6 };

static const char *const names[OPS] = {"conv1", "bn1", "block-0-0-conv1", "block-0-0-relu",
                                       "fc"};
static const int sizes[] = {1, 2, 4};

static double draw(struct rng *r, double least, double most) {
    return least + (most - least) * (double)rng_below(r, 1 << 20) / (1 << 20);
}

/* ---- random tables -------------------------------------------------------------------------- */

static FILE *begin_file(const char *dir, const char *name, const char *header) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (f)
        fprintf(f, "%s\n", header);
    return f;
}

/* Both algorithms of an op hold the same, as in Aceso's tables. */
static void write_ops(const char *dir, struct rng *r, int mbs, int tp) {
    double holds[OPS][6];
    for (int i = 0; i < OPS; i++) {
        double size = (double)(int)draw(r, 1, 40) * mbs;
        double all[] = {
            size,           size,          draw(r, 1, 30) / tp, draw(r, 20, 60) * mbs,
            draw(r, 0, 20), draw(r, 0, 20)};
        memcpy(holds[i], all, sizeof all);
    }
    for (int a = 0; a < 2; a++) {
        char name[64];
        snprintf(name, sizeof name, "resnet_tiny_mbs%d_tp%d_algo%d.csv", mbs, tp, a);
        FILE *f = begin_file(dir, name, "op_name,f,b,i,o,w,a,fr,br");
        for (int i = 0; i < OPS; i++) {
            double us = draw(r, 300, 1000) * (mbs + 0.3) / (0.5 + 0.5 * tp);
            fprintf(f, "%s,%.3f,%.3f", names[i], us, 2 * us * draw(r, 0.8, 1.2));
            for (int k = 0; k < 6; k++)
                fprintf(f, ",%.3f", holds[i][k]);
            fputc('\n', f);
        }
        fclose(f);
    }
}

static void write_tables(const char *dir, struct rng *r) {
    static const char *const collectives[] = {"all_gather", "all_to_all"};
    for (size_t m = 0; m < 3; m++)
        for (int tp = 1; tp <= DEVICES; tp *= 2)
            write_ops(dir, r, sizes[m], tp);
    for (int c = 0; c < 2; c++)
        for (int n = 2; n <= DEVICES; n *= 2) {
            char name[64];
            snprintf(name, sizeof name, "prim_resnet_tiny_%s_%dgpus.csv", collectives[c],
                     n);
            FILE *f = begin_file(dir, name, "size,ms");
            for (int i = 0; i < 200; i++)
                fprintf(f, "%d,%.3f\n", i, 0.05 * n + 0.02 * i);
            fclose(f);
        }
    fclose(begin_file(dir, "p2p_intra_node.csv", "1,2,4,8,16\n7,8,9,10,11"));
    fclose(begin_file(dir, "p2p_inter_node.csv", "1,2,4,8,16\n2,2.5,3,3.5,4"));
}

static struct aceso_model *make_model(struct rng *r) {
    char dir[] = "aceso-XXXXXX";
    struct err err = {0};
    if (!mkdtemp(dir))
        return NULL;
    write_tables(dir, r);
    struct aceso_model *m = aceso_model_open(dir, "resnet:tiny", NULL, &err);
    if (!m)
        printf("# %s\n", err.msg);
    return m;
}

/* ---- all configurations --------------------------------------------------------------------- */

/* Stage s of a configuration is gone through, from op i on. */
struct all {
    const struct aceso_problem *p;
    struct aceso_config *c;
    int s;
    double best_us;
};

static void try_ops(struct all *x, int i) {
    struct aceso_stage_cost cost;
    int n = x->c->devices[x->s];
    if (i == x->c->first[x->s + 1]) {
        if (aceso_cost_stage(x->p->model, x->c, x->s, &cost) &&
            cost.mib <= x->p->limits.mib)
            x->best_us = fmin(x->best_us, cost.us);
        return;
    }
    for (int tp = 1; tp <= n; tp *= 2)
        for (int k = 0; k < 4; k++) {
            /* The result of conv1 is never dropped. */
            bool drops = k / 2 && i && i > x->c->first[x->s] && x->c->recompute[i - 1];
            if (k % 2 && !x->p->model->ops[i].two_algorithms)
                continue;
            if (drops && x->p->model->ops[i - 1].stays)
                continue;
            x->c->layout[i] = (struct aceso_layout){tp, n / tp, k % 2};
            x->c->recompute[i] = k / 2;
            try_ops(x, i + 1);
        }
}

/* The best step of the stages from s on, which begin at c->first[s]: all strategies to go on are tried, and the
 * best of each stage by itself is the best of all, for none depends on another. */
static double try_stages(const struct aceso_problem *p, struct aceso_config *c, int s,
                         int left, double longest, double sum) {
    double best = INFINITY, n = (double)(p->batch / c->micro_batch);
    int at = (p->devices - left) % p->per_node, stages = c->n_stages - s;
    if (!stages)
        return left ? INFINITY : (n - 1) * longest + sum;
    for (int d = 1; d <= left; d *= 2)
        for (int end = c->first[s] + 1; end <= OPS; end++) {
            if ((stages == 1) != (end == OPS) ||
                (at + d > p->per_node && (at || d % p->per_node)))
                continue;
            c->devices[s] = d;
            c->first[s + 1] = end;
            struct all x = {p, c, s, INFINITY};
            try_ops(&x, c->first[s]);
            if (isfinite(x.best_us))
                best = fmin(best, try_stages(p, c, s + 1, left - d,
                                             fmax(longest, x.best_us), sum + x.best_us));
        }
    return best;
}

static double best_of_all(const struct aceso_problem *p) {
    double best = INFINITY;
    for (int m = 0; m < p->n_micro; m++)
        for (int stages = 1; stages <= DEVICES; stages++) {
            struct aceso_config *c = aceso_config_create(OPS, stages);
            c->batch = p->batch;
            c->micro_batch = p->micro[m];
            c->per_node = p->per_node;
            best = fmin(best, try_stages(p, c, 0, p->devices, 0, 0));
            aceso_config_destroy(c);
        }
    return best;
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_search(struct rng *r, int seed) {
    static const int64_t micro[] = {2, 4};
    struct aceso_model *m = make_model(r);
    struct aceso_problem p = {.model = m,
                              .batch = BATCH,
                              .micro = micro,
                              .n_micro = 2,
                              .devices = DEVICES,
                              .per_node = PER_NODE,
                              .limits.mib = draw(r, 120, 700),
                              .top = 1};
    struct aceso_result found;
    double best = best_of_all(&p);
    bool any = aceso_search(&p, &found, NULL) == 0;
    double us = any ? found.plans[0].cost.us : INFINITY;
    ok(any == isfinite(best) && (!any || fabs(us - best) < 1e-6 * best),
       "chain %d in %.0f MiB: %.3f ms, the best of all has %.3f ms", seed, p.limits.mib,
       us / 1e3, best / 1e3);
    ok(!any ||
           (found.bound_us <= best * (1 + 1e-9) && found.plans[0].cost.mib <= p.limits.mib),
       "... and the bound is not above it: %.3f ms", any ? found.bound_us / 1e3 : 0);
    if (any)
        aceso_result_release(&found);
    aceso_model_close(m);
}

/* Every stage that begins at an op, with whatever is behind it. */
static void test_bounds(struct rng *r, int seed) {
    struct aceso_model *m = make_model(r);
    struct aceso_limits limits = {.mib = draw(r, 120, 500)};
    int wrong = 0, stages = 0;
    for (int behind = 0; behind < 3; behind++) {
        struct aceso_stages *st = aceso_stages_create(m, &limits, 2, 2);
        struct aceso_ask ask = {.least = OPS,
                                .most = OPS,
                                .behind = behind,
                                .most_us = INFINITY,
                                .most_strategies = 1000};
        for (ask.first = 0; ask.first < OPS; ask.first++) {
            double bound[OPS + 1];
            struct aceso_solved solved;
            aceso_stage_bound(st, &ask, bound);
            aceso_stage_solve(st, &ask, false, &solved);
            for (int n = 1; n <= OPS - ask.first; n++) {
                stages += isfinite(solved.us[0][n]);
                wrong += bound[n] > solved.us[0][n] * (1 + 1e-9);
            }
            aceso_solved_release(&solved);
        }
        aceso_stages_destroy(st);
    }
    ok(!wrong && stages, "chain %d: none of %d stages is faster than its bound", seed,
       stages);
    aceso_model_close(m);
}

static void test_lookups(struct rng *r) {
    struct aceso_model *m = make_model(r);
    const struct aceso_tables *t = &m->tables;
    ok(aceso_message_us(t, 0, false) == 0, "nothing is sent in no time");
    ok(aceso_message_us(t, 5, false) == 5 / (8 * 0.001),
       "5 MiB go at the bandwidth of 2, the power of two below 4");
    ok(aceso_message_us(t, 1e6, true) == 1e6 / (4 * 0.001), "very large ones at the last");
    ok(aceso_message_us(t, 0.3, false) == 0.3 / (11 * 0.001),
       "below half a MiB an index of -1 is the last");
    ok(aceso_collective_us(t, ACESO_all_gather, 2, 10.4) == 300,
       "a collective of 10.4 MiB is one of 10");
    ok(aceso_collective_us(t, ACESO_all_gather, 2, 200) == 1000 * (0.1 + 0.02 * 199),
       "one of 200, which was not measured, is one of 199");
    ok(aceso_collective_us(t, ACESO_all_reduce, 2, 10) == 1e8, "none was measured: 100 s");
    ok(!aceso_cell_find(t, 0, 3, 1, 0) && !aceso_cell_find(t, 0, 1, 8, 0),
       "no cell of other micro-batches or degrees");
    aceso_model_close(m);
}

int main(void) {
    char dir[] = "/tmp/aceso-search-XXXXXX";
    if (!mkdtemp(dir) || chdir(dir) != 0)
        return 1;
    for (int seed = 0; seed < 10; seed++) {
        struct rng r = {rng_mix((uint64_t)seed), 0};
        test_search(&r, seed);
        test_bounds(&r, seed);
    }
    test_lookups(&(struct rng){7, 0});
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) != 0 || done_testing();
}
