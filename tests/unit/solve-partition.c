/* The partition solver against brute force: every assignment of colour classes to ordered
 * stages, by the definition with no tables. Also bad input, broken answers, stopped
 * searches (a true bound after any number of steps) and exhaustive runs on wider graphs
 * against a plain dynamic program. */
#include "solve/partition/partition.h"

#include "common/mem.h"
#include "common/rng.h"
#include "solve-text.h"
#include "solve/partition/partition_core.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 12, MAX_STAGES = 4 };

/* ---- random documents -------------------------------------------------------------- */

static int64_t draw(struct rng *r, int64_t lo, int64_t hi) {
    return lo + rng_below(r, hi - lo + 1);
}

/* A node; latencies are quarters, so that sums are exact. */
static json_t *random_node(struct rng *r, int id, bool backward, int color, int kind) {
    json_t *o = json_object();
    int64_t accel = draw(r, 0, kind & 1 ? 3 : 20);
    json_object_set_new(o, "id", json_integer(100 - 7 * id));
    json_object_set_new(o, "supportedOnFpga", json_integer(draw(r, 0, 9) || !(kind & 2)));
    json_object_set_new(o, "isBackwardNode", json_boolean(backward));
    json_object_set_new(o, "fpgaLatency", json_real((double)accel / 4));
    json_object_set_new(o, "cpuLatency",
                        json_real((double)(kind & 4 ? 3 * accel : draw(r, 0, 30)) / 4));
    if (kind & 8 && draw(r, 0, 2) == 0) { /* an idle leaf, maybe */
        json_object_set_new(o, "fpgaLatency", json_real(0));
        json_object_set_new(o, "cpuLatency", json_real(0));
    }
    json_object_set_new(o, "size", json_integer(draw(r, 0, 8)));
    if (kind & 16)
        json_object_set_new(o, "activation", json_integer(draw(r, 0, 8)));
    if (color >= 0)
        json_object_set_new(o, "colorClass", json_integer(1000 - color));
    return o;
}

static void random_edges(struct rng *r, json_t *list, const int *node, int n, bool turned,
                         int density, const int64_t *cost) {
    for (int u = 0; u < n; u++)
        for (int v = u + 1; v < n; v++) {
            if (draw(r, 0, 99) >= density)
                continue;
            int from = node[turned ? v : u], to = node[turned ? u : v];
            json_array_append_new(list, json_pack("{s:i, s:i, s:f}", "sourceId",
                                                  100 - 7 * from, "destId", 100 - 7 * to,
                                                  "cost", (double)cost[from] / 4));
        }
}

/* A document with n nodes; with `training`, part of them are backward nodes whose edges
 * mirror the direction, some coloured as a forward node and some orphans. */
static json_t *random_problem(struct rng *r, int n, bool training) {
    int kind = (int)draw(r, 0, 31), forward = training ? (n + 1) / 2 : n;
    int fw[MAX_NODES], bw[MAX_NODES], density = (int)draw(r, 5, 70);
    int64_t cost[MAX_NODES], devices = draw(r, 1, n < 6 ? 4 : 3);
    int64_t cpus = draw(r, 0, 2) ? 0 : draw(r, 1, devices < 2 ? 1 : 2);
    json_t *nodes = json_array(), *edges = json_array();
    bool colored = draw(r, 0, 1);
    for (int i = 0; i < n; i++) {
        bool backward = i >= forward;
        int color = -1;
        if (backward)
            color = draw(r, 0, 4) ? (int)draw(r, 0, forward - 1) : -1;
        else if (training || (colored && draw(r, 0, 1)))
            color = training ? i : (int)draw(r, 0, n - 1);
        cost[i] = draw(r, 0, 12) * (draw(r, 0, 3) > 0);
        *(backward ? &bw[i - forward] : &fw[i]) = i;
        json_array_append_new(nodes, random_node(r, i, backward, color, kind));
    }
    random_edges(r, edges, fw, forward, false, density, cost);
    random_edges(r, edges, bw, n - forward, true, density, cost);
    for (int i = 0; i < forward; i++) /* activations read by the backward pass */
        for (int j = 0; j < n - forward; j++)
            if (draw(r, 0, 99) < 25)
                random_edges(r, edges, (int[]){i, bw[j]}, 2, false, 100, cost);
    json_t *o = json_pack("{s:i, s:i, s:i, s:o, s:o}", "maxFPGAs", (int)(devices - cpus),
                          "maxCPUs", (int)cpus, "maxSizePerFPGA",
                          (int)(draw(r, 0, 1) ? 1000 : draw(r, 4, 10 * n)), "nodes", nodes,
                          "edges", edges);
    if (kind & 16)
        json_object_set_new(o, "microBatches", json_integer(draw(r, 1, 4)));
    return o;
}

static int read_tree(const json_t *doc, struct partition_problem *p, struct err *err) {
    struct json_stream s;
    char *text = json_dumps(doc, 0);
    json_stream_text(&s, text, strlen(text), "t");
    int status = partition_read(&s, p, err);
    json_stream_close(&s);
    free(text);
    return status;
}

/* ---- brute force ------------------------------------------------------------------- */

/* Stages may be empty here; an empty one neither counts as a device nor for what follows.
 */
static bool allowed(const struct partition_problem *p, const int *stage, const bool *cpu,
                    int stages) {
    int used[MAX_STAGES] = {0}, kinds[2] = {0};
    for (int i = 0; i < p->n; i++) {
        used[stage[i]] = 1;
        if (!cpu[stage[i]] && !p->nodes[i].supported)
            return false;
    }
    for (int s = 0; s < stages; s++)
        kinds[cpu[s]] += used[s];
    if (kinds[0] > p->accels || kinds[1] > p->cpus)
        return false;
    for (int e = 0; e < p->m; e++) {
        const struct partition_node *u = &p->nodes[p->edges[e].from];
        const struct partition_node *v = &p->nodes[p->edges[e].to];
        int su = stage[p->edges[e].from], sv = stage[p->edges[e].to];
        bool lone = true, other = true; /* no forward node in u's, v's class */
        for (int i = 0; i < p->n; i++) {
            lone = lone && (p->nodes[i].backward || p->nodes[i].color != u->color);
            other = other && (p->nodes[i].backward || p->nodes[i].color != v->color);
        }
        if (!u->backward && !v->backward && su > sv)
            return false;
        if (u->backward && v->backward && (lone || other) && su < sv)
            return false;
    }
    return true;
}

static double price(const struct partition_problem *p, const int *stage, const bool *cpu,
                    int stages) {
    double worst = 0;
    int behind = 0;
    for (int s = stages - 1; s >= 0; s--) {
        double compute = 0, comm = 0, memory = 0;
        int used = 0;
        for (int i = 0; i < p->n; i++) {
            bool inside = stage[i] == s, reads_in = false, reads_out = false;
            used += inside;
            for (int e = 0; e < p->m; e++)
                if (p->edges[e].from == i)
                    *(stage[p->edges[e].to] == s ? &reads_in : &reads_out) = true;
            if (inside) {
                compute += cpu[s] ? p->nodes[i].cpu_s : p->nodes[i].accel_s;
                memory += p->nodes[i].size + fmin(behind + 1, (double)p->micro_batches) *
                                                 p->nodes[i].activation;
            }
            if (inside ? reads_out : reads_in)
                comm += p->nodes[i].send_s;
        }
        behind += used > 0;
        double load = cpu[s] ? compute : compute + comm;
        if (!cpu[s] && memory > p->max_size)
            return INFINITY;
        worst = fmax(worst, load);
    }
    return worst;
}

static double brute_force(const struct partition_problem *p) {
    int stages = p->accels + p->cpus, of_color[MAX_NODES] = {0}, stage[MAX_NODES];
    double best = INFINITY;
    for (bool more = true; more;) {
        for (int i = 0; i < p->n; i++)
            stage[i] = of_color[p->nodes[i].color];
        for (int kinds = 0; kinds < 1 << stages; kinds++) {
            bool cpu[MAX_STAGES];
            for (int s = 0; s < stages; s++)
                cpu[s] = kinds >> s & 1;
            if (allowed(p, stage, cpu, stages))
                best = fmin(best, price(p, stage, cpu, stages));
        }
        int i = 0;
        while (i < p->colors && ++of_color[i] == stages)
            of_color[i++] = 0;
        more = i < p->colors;
    }
    return best;
}

/* ---- what is tested ---------------------------------------------------------------- */

static bool complain(const json_t *doc, const char *what, double got, double want) {
    printf("# %s: got %.17g, expected %.17g\n# ", what, got, want);
    json_write_line(doc, stdout);
    return false;
}

/* One answer against the true optimum. */
static bool right_answer(const json_t *doc, const struct partition_problem *p, double best,
                         const struct solve_limits *limits) {
    struct partition_answer a;
    struct err err = {0};
    bool limited = limits->time_budget_s > 0;
    if (partition_solve(p, limits, &a, &err) < 0) {
        if (err.status == EXIT_NO && (isinf(best) || limited))
            return true;
        printf("# %s\n", err.msg);
        return complain(doc, "no answer", INFINITY, best);
    }
    double value, tolerance = 1e-9 * (1 + best);
    bool good = true;
    if (isinf(best) || a.value < best - tolerance)
        good = complain(doc, "value too good", a.value, best);
    else if (a.bound > best + tolerance)
        good = complain(doc, "wrong bound", a.bound, best);
    else if (a.bound > a.value || (a.optimal && a.value > best + tolerance))
        good = complain(doc, "not optimal", a.value, best);
    else if (!limited && a.value > a.bound * (1 + limits->gap) + tolerance)
        good = complain(doc, "gap", a.value, a.bound);
    else if (partition_check(p, a.stage_of, a.is_cpu, a.stages, NULL, &value, &err) < 0 ||
             fabs(value - a.value) > tolerance)
        good = complain(doc, err.msg, value, a.value);
    partition_answer_release(&a);
    return good;
}

/* The bare search, stopped after any number of steps, never claims too much. */
static bool true_when_stopped(const json_t *doc, const struct partition_problem *p,
                              double best, struct rng *r) {
    struct partition_core c;
    struct partition_chain ch;
    struct partition_watch w = {.end_s = INFINITY, .max_steps = draw(r, 1, 60)};
    partition_core_create(p, &w, &c);
    partition_chain_init(&ch, c.n);
    double cut = draw(r, 0, 1) ? INFINITY : (double)draw(r, 0, 200) / 8;
    double bound = partition_ideal(&c, 0, cut, &w, &ch);
    bool good = bound <= best + 1e-9 || (bound <= cut && best >= cut - 1e-9);
    if (!good || ch.value < best - 1e-9)
        complain(doc, "stopped search", bound, best);
    good = good && ch.value >= best - 1e-9;
    partition_chain_release(&ch);
    partition_core_release(&c);
    return good;
}

static void test_random(int count, int lo, int hi, bool training, const char *what) {
    int wrong = 0, feasible = 0;
    struct rng r = {.seed = 20240 + (uint64_t)training + (uint64_t)hi};
    for (int i = 0; i < count && wrong < 3; i++) {
        json_t *doc = random_problem(&r, (int)draw(&r, lo, hi), training);
        struct partition_problem p;
        struct err err = {0};
        if (read_tree(doc, &p, &err) < 0) {
            printf("# %s\n", err.msg);
            wrong++;
            json_decref(doc);
            continue;
        }
        double best = brute_force(&p);
        struct solve_limits exact = {.seed = (uint64_t)i}, near = {.gap = 0.1};
        struct solve_limits hurry = {.time_budget_s = 1e-6 * (double)draw(&r, 1, 40)};
        feasible += isfinite(best);
        wrong += !right_answer(doc, &p, best, &exact);
        wrong += i % 4 == 0 && !right_answer(doc, &p, best, &near);
        wrong += i % 4 == 1 && !right_answer(doc, &p, best, &hurry);
        wrong += !true_when_stopped(doc, &p, best, &r);
        partition_release(&p);
        json_decref(doc);
    }
    ok(!wrong, "%d random %s: optimum or a true no, true bounds (%d feasible)", count, what,
       feasible);
}

/* ---- wider graphs against a plain dynamic program ---------------------------------- */

/* best[set][a][b] over all down-sets of a graph without colours and activations. */
static double plain_program(const struct partition_problem *p) {
    int sets = 1 << p->n, layers = (p->accels + 1) * (p->cpus + 1);
    double *best = mem_array((size_t)(sets * layers), sizeof *best);
    int need[MAX_NODES] = {0};
    for (int e = 0; e < p->m; e++)
        need[p->edges[e].to] |= 1 << p->edges[e].from;
    for (int i = 0; i < sets * layers; i++)
        best[i] = i < layers ? 0 : INFINITY;
    for (int to = 1; to < sets; to++) {
        bool closed = true;
        for (int v = 0; v < p->n; v++)
            closed = closed && (!(to >> v & 1) || (need[v] & ~to) == 0);
        for (int from = (to - 1) & to; closed; from = (from - 1) & to) {
            double cost[2] = {0}, size = 0;
            int stage[MAX_NODES];
            for (int v = 0; v < p->n; v++)
                stage[v] = from >> v & 1 ? 0 : to >> v & 1 ? 1 : 2;
            for (int v = 0; v < p->n; v++) {
                bool touch[3] = {false};
                touch[stage[v]] = true;
                for (int e = 0; e < p->m; e++)
                    if (p->edges[e].from == v)
                        touch[stage[p->edges[e].to]] = true;
                if (touch[1] && (touch[0] || touch[2]))
                    cost[0] += p->nodes[v].send_s;
                if (stage[v] != 1)
                    continue;
                cost[0] += p->nodes[v].supported ? p->nodes[v].accel_s : INFINITY;
                cost[1] += p->nodes[v].cpu_s;
                size += p->nodes[v].size;
            }
            if (size > p->max_size)
                cost[0] = INFINITY;
            for (int a = 0; a <= p->accels; a++)
                for (int b = 0; b <= p->cpus; b++) {
                    double *x = &best[to * layers + a * (p->cpus + 1) + b];
                    const double *y = &best[from * layers + a * (p->cpus + 1) + b];
                    if (a)
                        *x = fmin(*x, fmax(y[-(p->cpus + 1)], cost[0]));
                    if (b)
                        *x = fmin(*x, fmax(y[-1], cost[1]));
                }
            if (!from)
                break;
        }
    }
    double value = best[sets * layers - 1];
    free(best);
    return value;
}

static void test_wide(int count, bool edges, const char *what) {
    int wrong = 0;
    struct rng r = {.seed = 77};
    for (int i = 0; i < count; i++) {
        json_t *doc = random_problem(&r, (int)draw(&r, 9, 10), false), *node;
        size_t at;
        if (!edges)
            json_object_set_new(doc, "edges", json_array());
        json_object_del(doc, "microBatches");
        json_object_set_new(doc, "maxFPGAs", json_integer(draw(&r, 1, 5)));
        json_object_set_new(doc, "maxCPUs", json_integer(draw(&r, 0, 2)));
        json_array_foreach(json_object_get(doc, "nodes"), at, node) {
            json_object_del(node, "colorClass");
            json_object_del(node, "activation");
        }
        struct partition_problem p;
        struct solve_limits exact = {0};
        if (read_tree(doc, &p, NULL) < 0) {
            wrong++;
        } else {
            double best = plain_program(&p);
            wrong += !right_answer(doc, &p, best, &exact);
            wrong += !true_when_stopped(doc, &p, best, &r);
            partition_release(&p);
        }
        json_decref(doc);
    }
    ok(!wrong, "%d %s of 9 and 10 nodes on up to 7 devices: as the plain program", count,
       what);
}

/* A grid is wide enough for the search to go by rising cuts; one pass must agree with it.
 */
static void test_rising_cuts(void) {
    struct rng r = {.seed = 5};
    json_t *nodes = json_array(), *edges = json_array();
    for (int i = 0; i < 80; i++) {
        double lat = (double)draw(&r, 1, 40) / 8, cost = (double)draw(&r, 1, 8) / 16;
        json_array_append_new(nodes, json_pack("{s:i, s:b, s:b, s:f, s:f}", "id", i,
                                               "supportedOnFpga", 1, "isBackwardNode", 0,
                                               "fpgaLatency", lat, "cpuLatency", 8 * lat));
        for (int to = i + 1; to <= i + 16; to += 15)
            if (to < 80 && (to != i + 1 || to % 16))
                json_array_append_new(edges, json_pack("{s:i, s:i, s:f}", "sourceId", i,
                                                       "destId", to, "cost", cost));
    }
    json_t *doc = json_pack("{s:i, s:i, s:i, s:o, s:o}", "maxFPGAs", 5, "maxCPUs", 1,
                            "maxSizePerFPGA", 0, "nodes", nodes, "edges", edges);
    struct partition_problem p;
    struct partition_answer a, b;
    struct solve_limits exact = {0}, near = {.gap = 0.01};
    struct partition_core c;
    struct partition_chain ch;
    struct partition_watch w = {.end_s = INFINITY, .max_steps = INT64_MAX};
    int status = read_tree(doc, &p, NULL);
    status |= status ? 0 : partition_solve(&p, &exact, &a, NULL);
    ok(!status && a.optimal, "a grid of 5 x 16 is solved to the end: %g in %lld steps",
       a.value, (long long)a.steps);
    partition_core_create(&p, &w, &c);
    partition_chain_init(&ch, c.n);
    double bound = partition_ideal(&c, 0, a.value * (1 + 1e-9), &w, &ch);
    ok(fabs(bound - a.value) < 1e-6 && fabs(ch.value - a.value) < 1e-9,
       "one pass over everything agrees: %g >= %g", ch.value, bound);
    status = partition_solve(&p, &near, &b, NULL);
    ok(!status && b.value <= 1.01 * b.bound && b.bound <= a.value && b.value >= a.value,
       "within 1 %% in %lld steps: %g >= %g", (long long)b.steps, b.value, b.bound);
    partition_answer_release(&a), partition_answer_release(&b);
    partition_chain_release(&ch), partition_core_release(&c), partition_release(&p);
    json_decref(doc);
}

/* ---- documents: good, broken, impossible ------------------------------------------- */

#define HEAD "\"maxSizePerFPGA\": 10, \"maxFPGAs\": 2, \"maxCPUs\": 0, "
#define NODE(id, rest)                                                                     \
    "{\"id\": " #id ", \"supportedOnFpga\": 1, \"cpuLatency\": 2, \"fpgaLatency\": 1, "    \
    "\"isBackwardNode\": 0" rest "}"
#define EDGE(u, v, c)     "{\"sourceId\": " #u ", \"destId\": " #v ", \"cost\": " #c "}"
#define DOC(nodes, edges) "{" HEAD "\"nodes\": [" nodes "], \"edges\": [" edges "]}"

/* Solves text; the message must hold `want` and the status must be as given (0 = an answer,
 * then `want` is its value). */
static void expect(const char *what, const char *text, int status, const char *want) {
    struct err err = {0};
    struct solve_limits limits = {0};
    json_t *answer = solve_text(&solve_partition, text, &limits, &err);
    if (!status) {
        char value[32] = "none";
        if (answer)
            json_format_real(json_number_value(json_object_get(answer, "value")), value);
        ok(!strcmp(value, want), "%s: value %s %s", what, value, err.msg);
    } else {
        ok(!answer && err.status == status && strstr(err.msg, want), "%s: %s", what,
           err.msg);
    }
    json_decref(answer);
}

/* clang-format off */
static const struct {
    const char *what, *text;
    int status;
    const char *want;
} documents[] = {
    {"two nodes", DOC(NODE(1, "") "," NODE(2, ""), EDGE(1, 2, 0.25)), 0, "1.25"},
    {"no nodes", DOC("", ""), 0, "0.0"},
    {"together", DOC(NODE(1, ",\"colorClass\":4") "," NODE(2, ",\"colorClass\":4"), ""),
     0, "2.0"},
    {"a class across another node is one piece with it",
     DOC(NODE(1, ",\"colorClass\":4") "," NODE(2, "") "," NODE(3, ",\"colorClass\":4"),
         EDGE(1, 2, 1) "," EDGE(2, 3, 1)), 0, "3.0"},
    {"truncated", "{\"maxFPGAs\": 2, \"nodes\": [", EXIT_INPUT, "t:1"},
    {"not an object", "[]", EXIT_INPUT, "expected an object"},
    {"no nodes key", "{" HEAD "\"edges\": []}", EXIT_INPUT, "nodes: missing"},
    {"unknown id", DOC(NODE(1, ""), EDGE(1, 9, 1)), EXIT_INPUT, "edges[0].destId"},
    {"double id", DOC(NODE(1, "") "," NODE(1, ""), ""), EXIT_INPUT, "nodes[1].id"},
    {"cycle", DOC(NODE(1, "") "," NODE(2, ""), EDGE(1, 2, 1) "," EDGE(2, 1, 1)), EXIT_INPUT,
     "cycle"},
    {"edges before nodes",
     "{\"edges\": [" EDGE(1, 2, 0.25) "], \"nodes\": [" NODE(1, "") "," NODE(2, "") "], "
     HEAD "\"name\": {}}", 0, "1.25"},
    {"a bad edge before nodes",
     "{\"edges\": [" EDGE(1, 2, 1) "," EDGE(1, 3, 1) "], \"nodes\": [" NODE(1, "") ","
     NODE(2, "") "], " HEAD "\"name\": {}}", EXIT_INPUT, "t: edges[1].destId: no node"},
    {"a word for a node", DOC("4", ""), EXIT_INPUT, "t: nodes[0]: expected an object"},
    {"self-loop", DOC(NODE(1, ""), EDGE(1, 1, 1)), EXIT_INPUT, "edges[0].destId"},
    {"negative cost", DOC(NODE(1, "") "," NODE(2, ""), EDGE(1, 2, -1)), EXIT_INPUT,
     "edges[0].cost"},
    {"huge cost", DOC(NODE(1, "") "," NODE(2, ""), EDGE(1, 2, 1e301)), EXIT_INPUT,
     "edges[0].cost"},
    {"two costs of one source",
     DOC(NODE(1, "") "," NODE(2, "") "," NODE(3, ""), EDGE(1, 2, 1) "," EDGE(1, 3, 2)),
     EXIT_INPUT, "edges[1].cost"},
    {"negative size", DOC(NODE(1, ", \"size\": -4"), ""), EXIT_INPUT, "nodes[0].size"},
    {"a word for a number", DOC(NODE(1, ", \"colorClass\": \"x\""), ""), EXIT_INPUT,
     "nodes[0].colorClass"},
    {"one node too large", DOC(NODE(7, ", \"size\": 11"), ""), EXIT_NO,
     "maxSizePerFPGA: node 7"},
    {"all too large",
     DOC(NODE(1, ", \"size\": 9") "," NODE(2, ", \"size\": 9") "," NODE(3, ", \"size\": 9"),
         ""), EXIT_NO, "in all"},
    {"not in two pieces",
     DOC(NODE(1, ", \"size\": 6") "," NODE(2, ", \"size\": 6") "," NODE(3, ", \"size\": 6"),
         ""), EXIT_NO, "maxSizePerFPGA"},
    {"nowhere to stand",
     "{" HEAD "\"edges\": [], \"nodes\": [{\"id\": 5, \"supportedOnFpga\": 0, "
     "\"cpuLatency\": 1, \"isBackwardNode\": 0}]}", EXIT_NO, "node 5 is not supported"},
};

static const char three_nodes[] =
    "{\"maxSizePerFPGA\": 10, \"maxFPGAs\": 2, \"maxCPUs\": 1, \"nodes\": ["
    NODE(1, ", \"size\": 6, \"colorClass\": 1") "," NODE(2, ", \"size\": 6") ","
    NODE(3, ", \"size\": 4, \"colorClass\": 1") "], \"edges\": ["
    EDGE(1, 2, 0.5) "," EDGE(3, 2, 1) "]}";
/* clang-format on */

static void test_documents(void) {
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++)
        expect(documents[i].what, documents[i].text, documents[i].status,
               documents[i].want);
}

/* The evaluator must refuse what breaks a rule. */
static void test_evaluator(void) {
    json_t *doc = json_parse(three_nodes, strlen(three_nodes), "t", NULL);
    struct partition_problem p;
    struct err err = {0};
    double value = 0;
    bool cpu[] = {false, false, true}, late[] = {true, false};
    ok(!read_tree(doc, &p, NULL), "the document reads");
    int status = partition_check(&p, (int32_t[]){0, 1, 0}, cpu, 2, NULL, &value, &err);
    ok(!status && value == 3.5, "a good answer: %g", value);
    status = partition_check(&p, (int32_t[]){0, 1, 0}, late, 2, NULL, &value, &err);
    ok(!status && value == 4, "a CPU pays for no communication: %g", value);
    status = partition_check(&p, (int32_t[]){1, 0, 1}, cpu, 2, NULL, &value, &err);
    ok(status < 0, "refused: %s", err.msg);
    status = partition_check(&p, (int32_t[]){0, 1, 1}, cpu, 2, NULL, &value, &err);
    ok(status < 0, "refused: %s", err.msg);
    status = partition_check(&p, (int32_t[]){0, 0, 0}, cpu, 1, NULL, &value, &err);
    ok(status < 0, "refused: %s", err.msg);
    status = partition_check(&p, (int32_t[]){0, 2, 0}, cpu, 3, NULL, &value, &err);
    ok(status < 0, "refused: %s", err.msg);
    partition_release(&p);
    json_decref(doc);
}

int main(void) {
    test_documents();
    test_evaluator();
    test_random(4000, 1, 6, false, "inference graphs");
    test_random(3000, 2, 8, true, "training graphs");
    test_wide(60, true, "graphs");
    test_wide(60, false, "lists of nodes");
    test_rising_cuts();
    return done_testing();
}
