/* Costs of whole programs: clusters, groups over nodes, missing keys, the parts of a step,
 * and the scale that is promised.
 *
 *     cost-program --profile PLAN DB     makes a profile with invented times for a plan
 */
#include "cost/estimate.h"
#include "cost/simulate.h"

#include "../unit/tap.h"
#include "common/progress.h"
#include "common/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), 1);
}

/* ---- invented profiles ------------------------------------------------------------- */

static double invented_us(const struct cost_key *k) {
    double bytes = (double)k->comm.bytes / (k->comm.cross ? 1e3 : 1e4);
    if (cost_key_is_comm(k))
        return (k->instr.code == I_send ? 5 : 10) + bytes;
    struct instr_work w;
    instr_work(k->instr.code, &k->instr.n, &w);
    return 1 + fmax(instr_bytes(&w, DTYPE_f32) / 4, w.flops / 100) / 1e5;
}

static int put_key(struct profile *p, const struct cost_key *k, struct err *err) {
    if (cost_key_is_comm(k)) {
        struct profile_comm row = {
            .device = "test",
            .collective = k->instr.code == I_send ? "p2p" : opcode_name(k->instr.code),
            .group_size = k->comm.size,
            .stride = k->comm.stride,
            .groups = 1,
            .link = k->comm.cross ? "cross" : "node",
            .bytes = k->comm.bytes,
            .median_us = invented_us(k),
            .repeats = 1,
            .source = "roofline"};
        return profile_put_comm(p, &row, err);
    }
    char shape[128];
    struct profile_op row = {
        .device = "test",
        .instr = opcode_name(k->instr.code),
        .shape = instr_shape_format(k->instr.code, &k->instr.n, shape, sizeof shape),
        .dtype = "f32",
        .median_us = invented_us(k),
        .repeats = 1,
        .source = "roofline"};
    return profile_put_op(p, &row, err);
}

static int put_first_row(struct profile *p, struct err *err) {
    struct cost_key k = {.instr = {I_add, DTYPE_f32, {.add = {.elems = 1}}}};
    return put_key(p, &k, err);
}

/* Asks for every cost of a program and writes what is missing, until nothing is. */
static int invent_profile(const char *path, const struct program *g,
                          const struct cluster *cl, struct err *err) {
    struct profile *p = profile_open(path, true, err);
    if (!p || put_first_row(p, err) < 0)
        return -1;
    int64_t missing;
    do {
        struct profile_times *t = profile_load(p, "test", err);
        struct cost c;
        struct simulation sim;
        if (!t)
            return -1;
        struct cost_provider *provider = provider_profile(&t, 1);
        cost_init(&c, provider, cl);
        estimate_program_us(g, &c);
        if (simulate_program(g, &c, NULL, &sim, err) < 0)
            return -1;
        simulation_release(&sim);
        profile_begin(p, err);
        for (int64_t i = 0; i < c.n_missing; i++)
            put_key(p, &c.missing[i], err);
        profile_commit(p, err);
        missing = c.n_missing;
        cost_release(&c);
        provider_destroy(provider);
    } while (missing);
    profile_close(p);
    return 0;
}

static struct cost_provider *load_times(const char *path, struct err *err) {
    struct profile *p = profile_open(path, false, err);
    struct profile_times *t = p ? profile_load(p, "test", err) : NULL;
    profile_close(p);
    return t ? provider_profile(&t, 1) : NULL;
}

/* ---- whole programs ---------------------------------------------------------------- */

static struct plan *plan_of(const char *text, struct err *err) {
    json_t *doc = json_parse(text, strlen(text), "plan", err);
    struct plan *p = doc ? plan_from_json(doc, err) : NULL;
    json_decref(doc);
    return p;
}

static const char two_stages[] =
    "{\"format\":\"weft-plan/1\",\"model\":\"gpt:nano\",\"batch\":16,\"micro_batch\":4,"
    "\"stages\":[{\"ops\":[\"wte\",\"wpe\",\"layer.0-2\"],\"mesh\":\"dp:2\","
    "\"layout\":{\"dp\":\"batch\"}},"
    "{\"mesh\":\"tp:2\",\"layout\":{\"tp\":[\"heads\",\"ffn\",\"vocab\"]}}]}";

static void check_sums(const struct simulation *sim) {
    bool good = true;
    for (int k = 0; k < sim->n_stages; k++) {
        const struct sim_stage *s = &sim->stages[k];
        good &=
            near(s->compute_us + s->collective_us + s->p2p_us + s->update_us + s->bubble_us,
                 sim->time_us);
    }
    ok(good && sim->time_us > 0, "the parts of every stage add up to the step's %g us",
       sim->time_us);
}

static void test_program(const char *db) {
    struct err err = {0};
    struct plan *plan = plan_of(two_stages, &err);
    struct program *g = plan ? program_compile(plan, &err) : NULL;
    struct cluster cl = cluster_single_node(4), split;
    if (!ok(g != NULL, "a plan of two stages compiles %s", err.msg))
        return;
    ok(invent_profile(db, g, &cl, &err) == 0, "a profile is invented for it %s", err.msg);
    struct cost_provider *t = load_times(db, &err);
    struct cost c;
    struct simulation sim;
    cost_init(&c, t, &cl);
    ok(simulate_program(g, &c, NULL, &sim, &err) == 0 &&
           cost_check(&c, db, "plan.json", plan, &err) == 0,
       "it is simulated %s", err.msg);
    check_sums(&sim);
    ok(sim.actions == 2 * (2 * 4 + 3), "%lld actions", (long long)sim.actions);
    double e = estimate_program_us(g, &c) / sim.time_us - 1;
    ok(fabs(e) < 0.03, "the estimate is off by %.3f %%", 100 * e);
    simulation_release(&sim);
    cost_release(&c);
    cluster_read(&split, "node:2 gpu:2", &err);
    cost_init(&c, t, &split);
    ok(simulate_program(g, &c, NULL, &sim, &err) == 0, "the same on two nodes");
    ok(cost_check(&c, "x.db", "plan.json", plan, &err) < 0 && err.status == EXIT_NO &&
           strstr(err.msg, "p2p size=2 stride=2 cross"),
       "what is missing is named: %s", err.msg);
    ok(strstr(err.hint, "mpirun -n 4 weft-profile-comm -p x.db") != NULL,
       "and the remedy: %s", err.hint);
    ok(cost_check(&c, NULL, NULL, plan, &err) < 0 && strstr(err.msg, "datasheets lack "),
       "no profile: %s", err.msg);
    cost_forget(&c);
    ok(cost_check(&c, "x.db", "plan.json", plan, NULL) == 0, "and can be forgotten");
    simulation_release(&sim);
    cost_release(&c);
    provider_destroy(t);
    program_destroy(g);
    plan_destroy(plan);
}

/* Which commands a hint names, and for which ranks. */
static void test_hint_commands(void) {
    static const struct cluster any;
    struct cost_provider two = {.device = "cpu-2t-over2"}, one = {.device = "cpu-1t"};
    struct cost_key comm = {.instr.code = I_all_reduce, .comm = {3, 1, 0, 100 << 20}};
    struct cost_key op = {.instr.code = I_linear};
    struct err err = {0};
    struct plan *plan = plan_of(two_stages, &err);
    struct cost c;
    cost_init(&c, &two, &any);
    cost_note_missing(&c, &comm);
    cost_check(&c, "x.db", "plan.json", plan, &err);
    ok(!strcmp(err.hint, "measure with: mpirun -n 4 weft-profile-comm -p x.db --threads 2 "
                         "--device cpu-2t-over2 --all-sizes --max-bytes 128M"),
       "of a group of 3 in a job of 4: %s", err.hint);
    cost_note_missing(&c, &op);
    cost_check(&c, "x.db", "plan.json", plan, &err);
    ok(strstr(err.hint, "weft-profile-op --plan plan.json -p x.db --threads 2 --over 2; "
                        "mpirun -n 4 weft-profile-comm -p x.db --threads 2 "
                        "--device cpu-2t-over2 --all-sizes") != NULL,
       "of computation and communication: %s", err.hint);
    cost_release(&c);
    cost_init(&c, &one, &any);
    comm.comm = (struct comm_key){2, 1, 0, 4096};
    cost_note_missing(&c, &comm);
    cost_check(&c, "x.db", "plan.json", plan, &err);
    ok(!strcmp(err.hint, "measure with: mpirun -n 4 weft-profile-comm -p x.db --threads 1 "
                         "--device cpu-1t"),
       "one thread is named too: another machine would take more: %s", err.hint);
    cost_release(&c);
    plan_destroy(plan);
}

/* One device feeds a stage where every device holds all: it sends its result as often. */
static double send_us(const char *mesh, double *pack_us) {
    char text[512];
    struct err err = {0};
    snprintf(text, sizeof text,
             "{\"format\":\"weft-plan/1\",\"model\":\"gpt:nano\",\"batch\":8,\"stages\":["
             "{\"ops\":[\"wte\",\"wpe\"]},{\"mesh\":\"%s\",\"layout\":{\"tp\":\"ffn\"}}]}",
             mesh);
    struct plan *plan = plan_of(text, &err);
    struct program *g = plan ? program_compile(plan, &err) : NULL;
    struct cluster cl;
    cluster_read(&cl, "v100-4x8", &err);
    struct cost_provider *p = provider_analytic(&cl, &err);
    struct cost c;
    double us = -1;
    cost_init(&c, p, &cl);
    for (int t = 0; g && t < g->n_transfers; t++)
        if (g->transfers[t].from == 0 && g->transfers[t].tensor >= 0) {
            struct transfer_cost x = cost_transfer(&c, g, &g->transfers[t]);
            us = x.move_us;
            *pack_us = x.pack_us;
        }
    cost_release(&c);
    provider_destroy(p);
    program_destroy(g);
    plan_destroy(plan);
    return us;
}

static void test_replicated(void) {
    double pack[3], one = send_us("tp:1", &pack[0]), two = send_us("tp:2", &pack[1]),
                    four = send_us("tp:4", &pack[2]);
    double latency = 30; /* of a message on v100-4x8 */
    ok(near(two - latency, 2 * (one - latency)) &&
           near(four - latency, 4 * (one - latency)),
       "a send to 1, 2, 4 that all want everything: %g, %g, %g us", one, two, four);
    ok(pack[0] < pack[1] && pack[1] < pack[2], "and packing for each: %g, %g, %g us",
       pack[0], pack[1], pack[2]);
}

/* Three receivers want each half, which two devices hold: nobody sends it to all three. */
static void test_replicas_share(void) {
    struct err err = {0};
    struct plan *plan = plan_of(
        "{\"format\":\"weft-plan/1\",\"model\":\"gpt:nano\",\"batch\":8,\"stages\":["
        "{\"ops\":[\"wte\",\"wpe\"],\"mesh\":\"b:2 r:2\",\"layout\":{\"b\":\"batch\"}},"
        "{\"mesh\":\"r:3 b:2\",\"layout\":{\"b\":\"batch\"}}]}",
        &err);
    struct program *g = plan ? program_compile(plan, &err) : NULL;
    const struct transfer *x = g ? &g->transfers[0] : NULL;
    ok(x && !x->gradient && x->max_send == 2 * x->max_recv,
       "3 receivers share 2 replicas: %lld elements sent, %lld received %s",
       x ? (long long)x->max_send : 0, x ? (long long)x->max_recv : 0, err.msg);
    program_destroy(g);
    plan_destroy(plan);
}

static void test_cluster(void) {
    struct cluster c;
    struct err err = {0};
    ok(cluster_read(&c, "node:4 gpu:8", &err) == 0 && cluster_devices(&c) == 32 &&
           cluster_node_of(&c, 8) == 1 && cluster_node_of(&c, 7) == 0,
       "node:4 gpu:8");
    ok(cluster_read(&c, "cpu:2", &err) == 0 && cluster_nodes(&c) == 1 &&
           cluster_devices(&c) == 2,
       "cpu:2");
    ok(cluster_read(&c, "v100-4x8", &err) == 0 &&
           cluster_memory(&c, 0, 32) == 34080000000 - reserve_fixed(&c.groups[0].reserve) &&
           reserve_fixed(&c.groups[0].reserve) > 0,
       "a shipped cluster, less what is reserved");
    static const char *const bad[] = {
        "node:4", "gpu:0",        "node:4 rack:2", "gpu:8 node:4",
        "",       "node:4 gpu:x", "nowhere",       "node:99999999999 gpu:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct err){0};
        ok(cluster_read(&c, bad[i], &err) < 0 && err.status == EXIT_INPUT, "refused: %s",
           err.msg);
    }
}

/* Texts that are nearly clusters: each is read or refused with a message. */
static void test_cluster_noise(uint64_t seed) {
    static const char *const words[] = {
        "node",   "gpu",  "cpu", "device", ":",
        " ",      "8",    "0",   "-1",     "99999999999999999999",
        "K",      "\t",   "x",   "::",     "4",
        "node:4", "gpu:8"};
    struct rng r = {seed, 0};
    int bad = 0, read = 0;
    for (int i = 0; i < 5000; i++) {
        char text[256] = "";
        struct cluster c;
        struct err err = {0};
        for (int64_t k = rng_below(&r, 8); k >= 0; k--)
            strcat(text, words[rng_below(&r, sizeof words / sizeof *words)]);
        int rc = cluster_read(&c, text, &err);
        read += rc == 0;
        bad += rc == 0 ? cluster_devices(&c) < 1 : err.status != EXIT_INPUT || !*err.msg;
    }
    ok(!bad, "5,000 random strings: %d are clusters (seed %llu)", read,
       (unsigned long long)seed);
}

/* ---- scale ------------------------------------------------------------------------- */

/* 1,024 layers on 64 stages of 16 devices. */
static char *large_plan(void) {
    static char text[16384];
    size_t n =
        (size_t)snprintf(text, sizeof text,
                         "{\"format\":\"weft-plan/1\",\"model\":\"gpt:1.3B\",\"set\":"
                         "\"layers=1024\",\"batch\":16384,\"micro_batch\":4,\"stages\":[");
    for (int s = 0; s < 64; s++)
        n += (size_t)snprintf(
            text + n, sizeof text - n,
            "%s{\"ops\":[%s\"layer.%d-%d\"%s],\"mesh\":\"dp:2 tp:8\",\"layout\":{\"dp\":"
            "\"batch\",\"tp\":[\"heads\",\"ffn\",\"vocab\"]}}",
            s ? "," : "", s ? "" : "\"wte\",\"wpe\",", 16 * s, 16 * s + 15,
            s < 63 ? "" : ",\"ln\",\"head\",\"loss\"");
    snprintf(text + n, sizeof text - n, "]}");
    return text;
}

static void test_scale(const char *db) {
    struct err err = {0};
    double t0 = now_s();
    struct plan *plan = plan_of(large_plan(), &err);
    double t1 = now_s();
    struct program *g = plan ? program_compile(plan, &err) : NULL;
    double t2 = now_s();
    struct cluster cl;
    cluster_read(&cl, "node:128 gpu:8", &err);
    if (!ok(g != NULL && invent_profile(db, g, &cl, &err) == 0,
            "the large plan compiles %s", err.msg))
        return;
    struct cost_provider *t = load_times(db, &err);
    struct cost c;
    struct simulation sim;
    double t3 = now_s();
    cost_init(&c, t, &cl);
    int rc = simulate_program(g, &c, NULL, &sim, &err);
    double t4 = now_s();
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("# read %.3f s, compile %.3f s, simulate %.3f s, %lld actions, peak %ld MiB\n",
           t1 - t0, t2 - t1, t4 - t3, (long long)sim.actions, use.ru_maxrss / 1024);
    ok(rc == 0 && !c.n_missing, "it is simulated");
    check_sums(&sim);
    double e = estimate_program_us(g, &c) / sim.time_us - 1;
    ok(fabs(e) < 0.03, "the estimate is off by %.3f %%", 100 * e);
    ok(t4 - t3 + t2 - t0 < 10, "in less than 10 s, with sanitizers too");
    simulation_release(&sim);
    cost_release(&c);
    provider_destroy(t);
    program_destroy(g);
    plan_destroy(plan);
}

static int make_profile(const char *path, const char *db) {
    struct err err = {0};
    struct plan *plan = plan_read(path, &err);
    struct program *g = plan ? program_compile(plan, &err) : NULL;
    struct cluster cl = cluster_single_node(1 << 20);
    int rc = g ? invent_profile(db, g, &cl, &err) : -1;
    program_destroy(g);
    plan_destroy(plan);
    return rc < 0 ? err_report(&err, "cost-program") : 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "--profile"))
        return make_profile(argv[2], argv[3]);
    char db[] = "/tmp/weft-cost-XXXXXX", db2[] = "/tmp/weft-cost-XXXXXX";
    close(mkstemp(db));
    close(mkstemp(db2));
    test_cluster();
    test_cluster_noise((uint64_t)getpid());
    test_hint_commands();
    test_replicated();
    test_replicas_share();
    test_program(db);
    test_scale(db2);
    unlink(db);
    unlink(db2);
    return done_testing();
}
