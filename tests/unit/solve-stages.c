/* Stages against brute force: random dense and additive problems, tight and loose memory,
 * infeasible ones, ties, forbidden pairs of 10^18, choices bound to a part of the devices. */
#include "common/mem.h"
#include "common/progress.h"
#include "common/rng.h"
#include "solve-text.h"
#include "solve/solve.h"
#include "solve/stages/stages.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { L_MAX = 6, D_MAX = 8, N_MAX = 4, C_MAX = 3 };

/* A dense problem in plain arrays, and what the brute force has found. */
struct small {
    int layers, devices, submeshes, configs, max_stages;
    double batches;
    bool use_all, classes;
    int size[N_MAX], class[N_MAX];
    int split; /* devices before it are class 0, the others class 1 */
    double t[L_MAX][L_MAX][N_MAX][C_MAX];
    int succ[L_MAX][L_MAX][N_MAX][C_MAX];
    double best;
};

static double random_time(struct rng *r, int kind) {
    switch (kind) {
    case 0: return (double)(1 + rng_below(r, 3)); /* ties */
    case 1: return rng_below(r, 4) ? rng_real(r) : INFINITY;
    case 2: return rng_below(r, 5) ? rng_real(r) * 100 : 1e18;
    default: return 0.1 + rng_real(r);
    }
}

static struct small draw(struct rng *r) {
    struct small s = {.layers = 1 + (int)rng_below(r, L_MAX),
                      .devices = 1 + (int)rng_below(r, D_MAX),
                      .submeshes = 1 + (int)rng_below(r, N_MAX),
                      .configs = 1 + (int)rng_below(r, C_MAX),
                      .max_stages = rng_below(r, 4) ? 99 : 1 + (int)rng_below(r, 3),
                      .use_all = rng_below(r, 2),
                      .classes = rng_below(r, 3) == 0};
    static const double counts[] = {1, 2, 4, 16, 512};
    int kind = (int)rng_below(r, 4), tight = (int)rng_below(r, 3);
    s.batches = counts[rng_below(r, 5)];
    s.split = (int)rng_below(r, s.devices + 1);
    for (int n = 0; n < s.submeshes; n++) {
        s.size[n] = 1 + (int)rng_below(r, n + 1);
        s.class[n] = (int)rng_below(r, 2);
    }
    for (int l = 0; l < s.layers; l++)
        for (int k = l; k < s.layers; k++)
            for (int n = 0; n < s.submeshes; n++)
                for (int c = 0; c < s.configs; c++) {
                    s.t[l][k][n][c] = random_time(r, kind) * (k - l + 1);
                    s.succ[l][k][n][c] = tight == 0   ? 99
                                         : tight == 1 ? (int)rng_below(r, 6) - 1
                                                      : (int)rng_below(r, 3);
                }
    return s;
}

/* All ways to go on with layers l.. on devices dev..; room = least successors still allowed
 * by the stages so far, counted down. */
static void brute(struct small *s, int l, int dev, int stages, int room, double sum,
                  double max) {
    if (l == s->layers) {
        if (!s->use_all || dev == s->devices)
            s->best = fmin(s->best, sum + (s->batches - 1) * max);
        return;
    }
    if (dev >= s->devices || stages == s->max_stages || room < 1)
        return;
    if (!s->use_all)
        brute(s, l, dev + 1, stages, room, sum, max);
    for (int k = l; k < s->layers; k++)
        for (int n = 0; n < s->submeshes; n++)
            for (int c = 0; c < s->configs; c++) {
                int end = dev + s->size[n], succ = s->succ[l][k][n][c];
                double t = s->t[l][k][n][c];
                bool in = !s->classes || (s->class[n] ? dev >= s->split : end <= s->split);
                if (end > s->devices || succ < 0 || isinf(t) || !in)
                    continue;
                brute(s, k + 1, end, stages + 1, room - 1 < succ ? room - 1 : succ, sum + t,
                      fmax(max, t));
            }
}

static json_t *problem(const struct small *s) {
    json_t *cost = json_array(), *succ = json_array(), *mesh = json_array();
    for (int l = 0; l < s->layers; l++) {
        json_t *cl = json_array(), *sl = json_array();
        for (int k = 0; k < s->layers; k++) {
            json_t *ck = json_array(), *sk = json_array();
            for (int n = 0; n < s->submeshes; n++) {
                json_t *cn = json_array(), *sn = json_array();
                for (int c = 0; c < s->configs; c++) {
                    double t = k < l ? INFINITY : s->t[l][k][n][c];
                    json_array_append_new(cn, isinf(t) ? json_null() : json_real(t));
                    json_array_append_new(sn, json_integer(s->succ[l][k][n][c]));
                }
                json_array_append_new(ck, cn);
                json_array_append_new(sk, sn);
            }
            json_array_append_new(cl, ck);
            json_array_append_new(sl, sk);
        }
        json_array_append_new(cost, cl);
        json_array_append_new(succ, sl);
    }
    for (int n = 0; n < s->submeshes; n++)
        json_array_append_new(mesh, json_pack("[i]", s->size[n]));
    json_t *p = json_pack("{s:s, s:s, s:i, s:f, s:b, s:i, s:o, s:o, s:o}", "format",
                          "weft-problem/1", "problem", "stages", "num_layers", s->layers,
                          "num_micro_batches", s->batches, "use_all_devices", s->use_all,
                          "max_stages", s->max_stages, "submeshes", mesh, "compute_cost",
                          cost, "max_n_succ_stages", succ);
    json_object_set_new(p, "num_micro_batches", json_integer((json_int_t)s->batches));
    json_object_set_new(p, "num_devices", json_integer(s->devices));
    return p;
}

/* Binds each choice to the devices of its submesh's class, as a caller of the solver does. */
static void bind_classes(const struct small *s, struct stages_problem *p) {
    for (int i = 0; i < p->num_choices; i++) {
        struct stages_choice *c = &p->choices[i];
        bool last = s->class[p->configs[c->config].submesh] == 1;
        int first = last ? s->split : 0, end = last ? s->devices : s->split;
        c->lo = s->devices - end + c->size;
        c->hi = s->devices - first;
    }
}

/* Solves a document with choices that are bound so. Returns an answer of value and bound alone. */
static json_t *solve_bound(const struct small *s, const json_t *doc,
                           const struct solve_limits *limits, struct err *err) {
    struct stages_problem p;
    struct stages_doc d;
    struct stages_answer a;
    struct json_stream stream;
    json_t *answer = NULL;
    char *text = json_dumps(doc, 0);
    json_stream_text(&stream, text, strlen(text), "t");
    if (stages_read(&p, &d, &stream, err) == 0) {
        bind_classes(s, &p);
        if (stages_solve(&p, limits, &a, err) == 0) {
            answer = json_pack("{s:f, s:f}", "value", a.plan.value, "bound", a.bound);
            stages_answer_release(&a);
        }
        stages_release(&p);
        stages_doc_release(&d);
    }
    json_stream_close(&stream);
    free(text);
    return answer;
}

static double number(const json_t *a, const char *key) {
    return json_number_value(json_object_get(a, key));
}

static void test_dense(void) {
    struct rng r = {.seed = 11};
    int wrong = 0, bounds = 0, infeasible = 0, cases = 0, silent = 0, gaps = 0;
    while (cases < 6000) {
        struct small s = draw(&r);
        cases++;
        s.best = INFINITY;
        brute(&s, 0, 0, 0, 999, 0, 0);
        json_t *p = problem(&s);
        struct err err = {0};
        struct solve_limits limits = {.gap = rng_below(&r, 4) ? 0 : 0.2};
        json_t *a = s.classes ? solve_bound(&s, p, &limits, &err)
                              : solve_tree(&solve_stages, p, &limits, &err);
        double tol = 1e-9 * fmax(1e-30, fabs(s.best));
        infeasible += isinf(s.best);
        if (!a) {
            wrong += isfinite(s.best) || err.status != EXIT_NO;
            silent += !strstr(err.msg, "layer") && !strstr(err.msg, "devices");
        } else if (limits.gap > 0) {
            gaps += isinf(s.best) || number(a, "value") > s.best * 1.2 + tol ||
                    number(a, "value") < s.best - tol;
            bounds += number(a, "bound") > s.best + tol;
        } else {
            wrong += fabs(number(a, "value") - s.best) > tol;
            bounds += number(a, "bound") > s.best + tol;
        }
        if (wrong == 1 && (a ? fabs(number(a, "value") - s.best) > tol : 1)) {
            printf("# first wrong: %g, brute force %g: %s\n", a ? number(a, "value") : NAN,
                   s.best, err.msg);
            wrong++;
        }
        json_decref(a);
        json_decref(p);
    }
    ok(!wrong, "%d dense problems (%d infeasible) against brute force: %d wrong", cases,
       infeasible, wrong);
    ok(!bounds, "no bound exceeds the optimum: %d do", bounds);
    ok(!gaps, "with --gap 0.2 the value is within 20 %% of it: %d are not", gaps);
    ok(!silent, "every \"infeasible\" names layers or devices: %d do not", silent);
}

/* Additive problems: the same costs as a dense table must give the same value. */
static json_t *additive(struct rng *r, json_t **dense) {
    int n = 2 + (int)rng_below(r, 8), d = 1 + (int)rng_below(r, 8), sizes = 1 + d / 2;
    double time[16], state[16], act[16], cap = 3 + 10 * rng_real(r);
    json_t *jt = json_array(), *js = json_array(), *ja = json_array(), *mesh = json_array();
    json_t *configs = json_array(), *cost = json_array(), *succ = json_array();
    for (int l = 0; l < n; l++) {
        time[l] = (double)(1 + rng_below(r, 9));
        state[l] = (double)(1 + rng_below(r, 3));
        act[l] = (double)rng_below(r, 3) * 0.5;
        json_array_append_new(jt, json_real(time[l]));
        json_array_append_new(js, json_real(state[l]));
        json_array_append_new(ja, json_real(act[l]));
    }
    for (int m = 0; m < sizes; m++) {
        json_array_append_new(mesh, json_pack("[i, i]", 1, m + 1));
        json_array_append_new(configs, json_pack("{s:i, s:f, s:f, s:f}", "submesh", m,
                                                 "time_scale", 1.0 / (m + 1), "fixed_time",
                                                 0.25, "capacity", cap * (m + 1)));
    }
    for (int l = 0; l < n; l++) {
        json_t *cl = json_array(), *sl = json_array();
        for (int k = 0; k < n; k++) {
            json_t *ck = json_array(), *sk = json_array();
            for (int m = 0; m < sizes; m++) {
                double t = 0.25, st = 0, ac = 0;
                for (int i = l; i <= k; i++)
                    t += time[i] * (1.0 / (m + 1)), st += state[i], ac += act[i];
                double room = cap * (m + 1) - st;
                int fit = room < ac ? -1 : ac > 0 ? (int)floor(room / ac) - 1 : 1000;
                json_array_append_new(ck, json_pack("[f]", t));
                json_array_append_new(sk, json_pack("[i]", fit));
            }
            json_array_append_new(cl, ck);
            json_array_append_new(sl, sk);
        }
        json_array_append_new(cost, cl);
        json_array_append_new(succ, sl);
    }
    *dense = json_pack("{s:i, s:i, s:i, s:O, s:o, s:o}", "num_layers", n, "num_devices", d,
                       "num_micro_batches", 8, "submesh_shapes", mesh, "compute_cost", cost,
                       "max_n_succ_stages", succ);
    return json_pack("{s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:{s:o, s:o, s:o}}", "format",
                     "weft-problem/1", "problem", "stages", "num_layers", n, "num_devices",
                     d, "num_micro_batches", 8, "submeshes", mesh, "configs", configs,
                     "layers", "time", jt, "state", js, "activation", ja);
}

/* Stopped at any share of the time that it takes to the end, the bound stays below the
 * optimum. */
static void test_hurry(void) {
    struct rng r = {.seed = 21};
    int wrong = 0, open = 0;
    for (int i = 0; i < 300; i++) {
        json_t *dense, *p = additive(&r, &dense);
        json_decref(dense);
        struct err err = {0};
        double start_s = now_s();
        json_t *a = solve_tree(&solve_stages, p, &(struct solve_limits){0}, &err);
        double whole_s = now_s() - start_s;
        for (int turn = 0; a && turn < 8; turn++) {
            struct solve_limits hurry = {.time_budget_s = whole_s * rng_real(&r)};
            json_t *b = solve_tree(&solve_stages, p, &hurry, &err);
            wrong += b && (number(b, "bound") > number(a, "value") + 1e-9 ||
                           number(b, "value") < number(a, "value") - 1e-9);
            open += b && number(b, "bound") < number(b, "value");
            json_decref(b);
        }
        json_decref(a);
        json_decref(p);
    }
    ok(!wrong && open, "stopped early, no bound is above the optimum (%d left a gap)",
       open);
}

static void test_additive(void) {
    struct rng r = {.seed = 12};
    int wrong = 0, infeasible = 0;
    for (int i = 0; i < 1000; i++) {
        json_t *dense, *p = additive(&r, &dense);
        struct err e1 = {0}, e2 = {0};
        json_t *a = solve_tree(&solve_stages, p, &(struct solve_limits){0}, &e1);
        json_t *b = solve_tree(&solve_stages, dense, &(struct solve_limits){0}, &e2);
        infeasible += !a;
        wrong += !a != !b || e1.status != e2.status ||
                 (a && fabs(number(a, "value") - number(b, "value")) > 1e-9);
        json_decref(a);
        json_decref(b);
        json_decref(p);
        json_decref(dense);
    }
    ok(!wrong, "1000 additive problems (%d infeasible) agree with their tables: %d do not",
       infeasible, wrong);
}

static void input(const char *text, const char *want) {
    struct err err = {0};
    json_t *a = solve_text(&solve_stages, text, &(struct solve_limits){0}, &err);
    ok(!a && err.status == EXIT_INPUT && strstr(err.msg, want), "bad input: %s", err.msg);
    json_decref(a);
}

static void test_input(void) {
    input("[]", "expected an object");
    input("{\"num_layers\": 0}", "num_layers");
    input("{\"num_layers\": 1, \"num_micro_batches\": 1, \"num_devices\": 1, "
          "\"submesh_shapes\": [[1, 0]]}",
          "submesh_shapes[0][1]");
    input("{\"num_layers\": 1, \"num_micro_batches\": 1, \"num_devices\": 1, "
          "\"submesh_shapes\": [[1, 1]], \"compute_cost\": [[[[-1]]]]}",
          "compute_cost[0][0][0][0]");
    input("{\"num_layers\": 2, \"num_micro_batches\": 1, \"num_devices\": 1, "
          "\"submesh_shapes\": [[1, 1]], \"compute_cost\": [[[[1]], [[1, 2]]], []]}",
          "compute_cost[0][1][0]");
    input("{\"num_layers\": 1, \"num_micro_batches\": 1000, \"num_devices\": 1, "
          "\"submesh_shapes\": [[1, 1]], \"compute_cost\": [[[[1e299]]]]}",
          "overflows");
    input("{\"max_n_succ_stages\": [[[[1], [1]]]], \"compute_cost\": [[[[1]]]], "
          "\"num_layers\": 1, \"num_micro_batches\": 1, \"num_devices\": 1, "
          "\"submesh_shapes\": [[1, 1]]}",
          "max_n_succ_stages[0][0]: expected 1 entries, got 2");
    input("{\"compute_cost\": [[[[1]], [[1]]], [[], [[1, 2]]]]}",
          "compute_cost[1][1][0]: expected 1 entries, got 2");
    input("{\"compute_cost\": [[[[1]], 7]]}", "compute_cost[0][1]: expected an array");
    input("{\"problem\": \"joint\"}", "t: problem: this is a joint problem");
    input("{\"layers\": {\"a\": 1, \"a\": 2}}", "t:1:25: duplicate key \"a\"");
    input("{\"num_layers\": 1, \"num_layers\": 1}", "num_layers: this key stands here a");
}

int main(void) {
    test_dense();
    test_additive();
    test_hurry();
    test_input();
    return done_testing();
}
