/* aggregate [all|cost|pieces] - ten replicas, one of which computes wrong gradients: under every rule the model
 * becomes nearly as good as without it, and the replica is named; the mean of them shows that the fault is
 * one. Rank 0 prints TAP.
 *
 * pieces: gradients that go in several. cost: what the rules cost beside an all-reduce of the same gradients, as a table. */
#include "common/progress.h"
#include "common/rng.h"
#include "common/stats.h"
#include "data/synthetic.h"
#include "exec/exec_impl.h"
#include "tap_ranks.h"
#include "two-layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAD = 3, STEPS = 100, VALID = 10000, SEED = 7 };

#define FAULTS(X) X(none) X(flipped) X(noise) X(nan) X(huge)
enum fault {
#define X(id) FAULT_##id,
    FAULTS(X)
#undef X
        FAULT_COUNT
};
static const char *const fault_names[] = {
#define X(id) #id,
    FAULTS(X)
#undef X
};

/* Replicas on every rank; `set` NULL: the small model, else an mlp of these sizes. */
static struct plan *plan_of(enum aggregate rule, int zero, const char *set) {
    struct err err = {0};
    char stage[128];
    const int n = comm_size(comm);
    snprintf(stage, sizeof stage,
             "{'mesh': 'dp:%d', 'layout': {'dp': 'batch'}, 'zero': %d}", n, zero);
    json_t *doc = json_pack("{s:s, s:o, s:i, s:s, s:[o]}", "format", "weft-plan/1", "model",
                            set ? json_string("mlp") : json_of(TWO_LAYERS("24")), "batch",
                            set ? n : 32 * n, "aggregate", aggregate_name(rule), "stages",
                            json_of(stage));
    if (set)
        json_object_set_new(doc, "set", json_string(set));
    struct plan *plan = plan_from_json(doc, &err);
    json_decref(doc);
    must(plan ? 0 : -1, &err);
    return plan;
}

static float *arena; /* of all runs */
static int64_t arena_bytes;

struct run {
    struct exec *x;
    enum fault fault;
    double seconds; /* of this step in what sums the gradients up */
};

/* Of what stands in a gradient, what a broken machine makes. */
static float spoilt(enum fault fault, float g, int64_t step, int64_t i) {
    return fault == FAULT_flipped ? -10 * g
           : fault == FAULT_noise ? rng_normal(SEED, (uint64_t)step, (uint64_t)i)
           : fault == FAULT_nan   ? NAN
                                  : 1e30f;
}

/* Behind the last instruction of the backward pass the gradients of one rank go bad. */
static void on_instr(void *ctx, const struct instr *ins, struct action a, double start_s,
                     double end_s) {
    struct run *r = ctx;
    const struct stage_program *sp = r->x->chunks->sp;
    const struct span now = program_segment(sp, a.segment);
    if (a.segment == SEG_REDUCE && ins->code != I_sum_squares)
        r->seconds += end_s - start_s;
    if (a.segment != SEG_LAST_BACKWARD || ins != &sp->instrs[now.end - 1] || !r->fault ||
        r->x->rank != BAD)
        return;
    float *g = (float *)(void *)(r->x->arena + sp->bytes[MEM_parameters]);
    for (int64_t i = 0; i < sp->bytes[MEM_gradients] / (int64_t)sizeof *g; i++)
        g[i] = spoilt(r->fault, g[i], r->x->step, i);
}

static const float *param(const struct exec *x, const char *name) {
    const struct stage_program *sp = x->chunks->sp;
    const struct model *m = x->g->plan->model;
    for (int i = 0; i < sp->n_params; i++)
        if (!strcmp(m->params[sp->params[i].param].name, name))
            return (const float *)(const void *)(x->arena +
                                                 sp->buffers[sp->params[i].buffer].offset);
    return NULL;
}

/* y[n] = x[k] w[k, n] + b[n] */
static void product(int k, int n, const float *x, const float *w, const float *b,
                    float *y) {
    for (int j = 0; j < n; j++) {
        y[j] = b[j];
        for (int i = 0; i < k; i++)
            y[j] += x[i] * w[i * n + j];
    }
}

/* Of images that no step has seen. */
static double accuracy(const struct exec *x, const struct synthetic *syn) {
    enum { PIXELS = 12, HIDDEN = 24, CLASSES = 10 };
    float image[PIXELS], h[HIDDEN], y[CLASSES];
    int right = 0;
    for (int i = 0; i < VALID; i++) {
        int32_t label, best = 0;
        synthetic_image(syn, 2 * (uint64_t)i + 1, CLASSES, 0, PIXELS, image, &label);
        product(PIXELS, HIDDEN, image, param(x, "in.weight"), param(x, "in.bias"), h);
        for (int j = 0; j < HIDDEN; j++)
            h[j] = h[j] > 0 ? h[j] : 0;
        product(HIDDEN, CLASSES, h, param(x, "out.weight"), param(x, "out.bias"), y);
        for (int j = 1; j < CLASSES; j++)
            best = y[j] > y[best] ? j : best;
        right += best == label;
    }
    return (double)right / VALID;
}

static struct data *data_of(int64_t pixels) {
    struct err err = {0};
    struct data_spec spec = {.source = "synthetic",
                             .kind = DATA_IMAGES,
                             .pixels = pixels,
                             .classes = 10,
                             .seed = SEED};
    struct data *data = NULL;
    must(data_open(&data, &spec, &err), &err);
    return data;
}

struct outcome {
    double accuracy, seconds; /* the second the median of the steps */
    double bad, others;       /* suspicion of the bad rank; the largest of another */
};

static struct exec_options run_options(struct run *run, int steps) {
    struct exec_options o = exec_defaults();
    o.lr = 0.03;
    o.min_lr = 0.001;
    o.warmup = 0;
    o.decay_steps = steps;
    o.arena = arena;
    o.arena_bytes = arena_bytes;
    o.on_instr = on_instr;
    o.on_instr_ctx = run;
    return o;
}

static struct outcome train(const struct plan *plan, enum fault fault, int64_t pixels,
                            int steps) {
    struct err err = {0};
    struct run run = {.fault = fault};
    struct exec_options o = run_options(&run, steps);
    struct exec_metrics m;
    struct data *data = data_of(pixels);
    struct program *g = program_compile(plan, &err);
    double *times = malloc((size_t)steps * sizeof *times);
    must(g ? 0 : -1, &err);
    run.x = exec_create(g, comm, data, &o, &err);
    must(run.x ? exec_init(run.x, &err) : -1, &err);
    struct outcome out = {.accuracy = NAN};
    for (int s = 0; s < steps; s++) {
        run.seconds = 0;
        must(exec_step(run.x, &m, &err), &err);
        must(comm_max_double(comm_world(comm), &run.seconds, 1, &err), &err);
        times[s] = run.seconds;
    }
    for (int r = 0; m.suspicion && r < plan->devices; r++)
        if (r == BAD)
            out.bad = m.suspicion[r];
        else
            out.others = fmax(out.others, m.suspicion[r]);
    struct synthetic syn;
    synthetic_init(&syn, SEED, 1);
    if (pixels == 12 && plan->stages[0].zero[0] < ZERO_PARAMETERS)
        out.accuracy = accuracy(run.x, &syn);
    out.seconds = stats_quantile(times, steps, 0.5);
    exec_destroy(run.x);
    program_destroy(g);
    data_close(data);
    free(times);
    return out;
}

static struct outcome try_rule(enum aggregate rule, int zero, enum fault fault) {
    struct plan *p = plan_of(rule, zero, NULL);
    struct outcome out = train(p, fault, 12, STEPS);
    if (job_rank == 0)
        printf("#| %-8s zero %d %-8s accuracy %.4f, suspicion %.2f, of others %.2f\n",
               aggregate_name(rule), zero, fault_names[fault], out.accuracy, out.bad,
               out.others);
    plan_destroy(p);
    return out;
}

/* Rows as wholes lose nothing by a bad one. Rules of coordinates do: where one row is far above, what they
 * take of the others is above their middle, the more so the more these differ. */
static double lost_at_most(enum aggregate rule) {
    return rule == AGGREGATE_fair ? 0.01 : 0.03;
}

/* All, or each fault under one of the coordinate rules and under the fair one. */
static void check_faults(bool all) {
    const double clean = try_rule(AGGREGATE_mean, 0, FAULT_none).accuracy;
    ok_all(clean > 0.8 && clean < 0.999, "the model learns, and not all");
    struct outcome spoilt = try_rule(AGGREGATE_mean, 0, FAULT_flipped);
    ok_all(spoilt.accuracy < clean - 0.2, "a bad replica spoils the mean");
    for (int rule = AGGREGATE_median; rule < AGGREGATE_COUNT; rule++)
        for (int fault = 0; fault < FAULT_COUNT; fault++) {
            const int zero = (rule + fault) % 2;
            if (!all && rule != AGGREGATE_fair && (fault + rule) % 2)
                continue;
            struct outcome o = try_rule((enum aggregate)rule, zero, (enum fault)fault);
            const double lost = lost_at_most((enum aggregate)rule);
            ok_all(o.accuracy > clean - lost,
                   "%s, %s: at most %g worse than the mean without",
                   aggregate_name((enum aggregate)rule), fault_names[fault], lost);
            ok_all(o.others < 0.3 && (fault ? o.bad > 0.9 : o.bad < 0.3),
                   "%s, %s: who is bad is known", aggregate_name((enum aggregate)rule),
                   fault_names[fault]);
        }
}

/* A long gradient goes in pieces. Of no faulty replica the trimmed mean is the mean. */
static void check_pieces(void) {
    struct err err = {0};
    float *first = NULL;
    for (int rule = 0; rule < 2; rule++) {
        struct plan *p =
            plan_of(rule ? AGGREGATE_trimmed : AGGREGATE_mean, 0, "layers=4,hidden=1000");
        p->faulty = 0;
        struct run run = {.fault = FAULT_none};
        struct exec_options o = run_options(&run, 3);
        struct exec_metrics m;
        struct data *data = data_of(784);
        struct program *g = program_compile(p, &err);
        must(g ? program_validate(g, &err) : -1, &err);
        run.x = exec_create(g, comm, data, &o, &err);
        must(run.x ? exec_init(run.x, &err) : -1, &err);
        for (int s = 0; s < 3; s++)
            must(exec_step(run.x, &m, &err), &err);
        const struct stage_program *sp = run.x->chunks->sp;
        const size_t bytes = (size_t)sp->bytes[MEM_parameters], n = bytes / sizeof *first;
        const float *now = (const float *)(const void *)run.x->arena;
        int pieces = 0, apart = 0;
        for (int i = 0; i < sp->n_instrs; i++)
            pieces += sp->instrs[i].code == I_trimmed;
        for (size_t i = 0; i < n && rule; i++)
            apart += !(fabsf(now[i] - first[i]) <= 1e-5f + 1e-3f * fabsf(first[i]));
        if (rule)
            ok_all(pieces > 1 && apart < (int)n / 1000,
                   "a gradient in %d pieces: %d of %zu parameters apart", pieces, apart, n);
        else
            first = memcpy(malloc(bytes), now, bytes);
        exec_destroy(run.x);
        program_destroy(g);
        plan_destroy(p);
        data_close(data);
    }
    free(first);
}

/* Rules take turns with the mean, so that whatever else the machine does meets all alike. */
static void table_of_costs(void) {
    enum { TURNS = 3, COST_STEPS = 7 };
    static const char *const sets[] = {"layers=1,hidden=512", "layers=2,hidden=1024"};
    for (size_t k = 0; k < sizeof sets / sizeof *sets; k++) {
        double ms[AGGREGATE_COUNT][TURNS];
        for (int t = 0; t < TURNS; t++)
            for (int rule = 0; rule < AGGREGATE_COUNT; rule++) {
                struct plan *p = plan_of((enum aggregate)rule, 0, sets[k]);
                ms[rule][t] = 1e3 * train(p, FAULT_none, 784, COST_STEPS).seconds;
                plan_destroy(p);
            }
        for (int rule = 0; rule < AGGREGATE_COUNT && job_rank == 0; rule++)
            printf("#| mlp %s, %d ranks: %-8s %8.2f ms, %.2f of the mean's\n", sets[k],
                   comm_size(comm), aggregate_name((enum aggregate)rule),
                   stats_quantile(ms[rule], TURNS, 0.5),
                   stats_quantile(ms[rule], TURNS, 0.5) /
                       stats_quantile(ms[0], TURNS, 0.5));
    }
}

int main(int argc, char **argv) {
    int status = begin_job("aggregate", &argc, &argv, NULL);
    if (status)
        return status;
    const char *what = argc > 1 ? argv[1] : "";
    struct err err = {0};
    arena_bytes = strcmp(what, "all") && *what ? 256 << 20 : 1 << 20;
    must((arena = comm_alloc(comm, arena_bytes, &err)) ? 0 : -1, &err);
    if (!strcmp(what, "cost"))
        table_of_costs();
    else if (!strcmp(what, "pieces"))
        check_pieces();
    else
        check_faults(!strcmp(what, "all"));
    return end_job();
}
