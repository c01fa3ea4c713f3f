/* Providers of modelled times: device models that a cluster names, curves through a profile's rows, other
 * people's code; and clusters by kind and size. */
#include "common/mem.h"
#include "cost/runtime.h"
#include "cost/simulate.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct cluster cluster_named(const char *ref) {
    struct cluster c;
    struct err err = {0};
    if (cluster_read(&c, ref, &err) < 0)
        printf("Bail out! %s\n", err.msg);
    return c;
}

static struct cost_time linear(const struct cost_provider *p, int64_t m) {
    struct instr_key k = instr_key(
        I_linear, DTYPE_bf16, &(union instr_n){.linear = {.m = m, .n = 4096, .k = 1024}});
    return p->kind->op(p, &(struct op_question){.key = &k});
}

/* ---- clusters by kind ------------------------------------------------------------------ */

static void refused(const char *ref, const char *text) {
    struct cluster c;
    struct err err = {0};
    ok(cluster_read(&c, ref, &err) < 0 && err.status == EXIT_INPUT && strstr(err.msg, text),
       "%s: %s", ref, err.msg);
}

static void test_kinds(void) {
    struct cluster c = cluster_named("h100:16x8");
    ok(cluster_nodes(&c) == 16 && cluster_devices(&c) == 128 &&
           !strcmp(c.groups[0].model, "h100") && c.groups[0].flops[DTYPE_bf16] == 989e12 &&
           c.n_links == 1 && c.links[0].bandwidth == 400e9,
       "16 nodes of eight H100, with eight adapters of 400 Gb/s");
    c = cluster_named("h100:8");
    ok(cluster_nodes(&c) == 1 && c.n_links == 0, "one node needs no network");
    c = cluster_named("h100:2x8 net:100G");
    ok(c.links[0].bandwidth == 100e9 && c.links[0].lanes == 8,
       "eight adapters of 100 Gb/s instead");
    json_t *doc = cluster_to_json(&c);
    struct cluster again;
    ok(cluster_from_json(&again, doc, NULL) == 0 && !strcmp(again.groups[0].model, "h100"),
       "a plan carries the name of the model");
    json_decref(doc);
    refused("h101:8", "no such kind");
    refused("h100:8x", "expected KIND:NODESxDEVICES");
    refused("h100:0x8", "expected KIND:NODESxDEVICES");
    refused("h100:2x8 net:fast", "bits per second");
    refused("h100:2x8 net:400", "bits per second");
    refused("h100:1048576x1048576", "more than");
}

/* What the file of a cluster says of a device, its kind says too: memory as CUDA gives it. */
static void test_memory(void) {
    static const char *const pairs[][2] = {
        {"h100-8", "h100:8"},      {"h100-2x8", "h100:2x8"},      {"h200-8", "h200:8"},
        {"a100-8", "a100-80gb:8"}, {"a100-2x8", "a100-80gb:2x8"}, {"v100-4x8", "v100:4x8"}};
    for (int i = 0; i < (int)(sizeof pairs / sizeof *pairs); i++) {
        const struct cluster file = cluster_named(pairs[i][0]),
                             kind = cluster_named(pairs[i][1]);
        const struct cluster_group *f = file.groups, *k = kind.groups;
        ok(f->memory_bytes == k->memory_bytes && !strcmp(f->device, k->device) &&
               cluster_devices(&file) == cluster_devices(&kind),
           "%s and %s: %d devices of kind %s with %lld and %lld bytes", pairs[i][0],
           pairs[i][1], (int)cluster_devices(&file), f->device, (long long)f->memory_bytes,
           (long long)k->memory_bytes);
    }
}

/* ---- the device model ------------------------------------------------------------------- */

static void test_device(void) {
    struct cluster c = cluster_named("h100:2x8");
    struct err err = {0};
    struct cost_provider *p = provider_open(NULL, NULL, &c, true, &err);
    struct cost_provider *sheets = provider_analytic(&c, &err);
    struct cost_time t = linear(p, 8192), peak = linear(sheets, 8192);
    ok(t.from == COST_MODEL && t.us > peak.us && t.us < 2 * peak.us && t.low_us < t.us &&
           t.us < t.high_us,
       "a product comes from the model: %.1f us, at the peak %.1f", t.us, peak.us);
    struct comm_question q = {.code = I_all_reduce,
                              .size = 8,
                              .stride = 1,
                              .bytes = 1 << 30,
                              .link = links_of_ranks(&c, 0, 8)};
    double whole = p->kind->collective(p, &q).us;
    q.bytes = 8;
    double least = p->kind->collective(p, &q).us;
    ok(whole > 4000 && whole < 9000 && least > 30 && least < 200,
       "an all-reduce of 1 GiB among eight takes %.0f us, of 8 bytes %.0f", whole, least);
    q = (struct comm_question){
        .code = I_all_reduce, .size = 1024, .stride = 1, .bytes = 1024, .link = q.link};
    ok(p->kind->collective(p, &q).us < 500, "a small one of 1,024 ranks takes a tree");
    provider_destroy(p);
    provider_destroy(sheets);
    snprintf(c.groups[0].model, sizeof c.groups[0].model, "h101");
    ok(!provider_open(NULL, NULL, &c, true, &err) && strstr(err.msg, "device_model"),
       "a model that there is not: %s", err.msg);
}

/* ---- curves through the rows of a profile ----------------------------------------------- */

static void put(struct profile *p, int64_t m, double us) {
    char shape[64];
    snprintf(shape, sizeof shape, "%lld,4096,1024,0,0", (long long)m);
    profile_put_op(p,
                   &(struct profile_op){.device = "toy",
                                        .instr = "linear",
                                        .shape = shape,
                                        .dtype = "bf16",
                                        .median_us = us,
                                        .repeats = 3,
                                        .source = "measured"},
                   NULL);
}

static struct cost_provider *toy(const char *path, int rows) {
    struct err err = {0};
    struct cluster c = cluster_named("h100:8");
    unlink(path);
    struct profile *p = profile_open(path, true, &err);
    for (int i = 0; i < rows; i++)
        put(p, 1024 + 1024 * i, 40 + 40 * i); /* a tenth of an H100 */
    profile_close(p);
    *c.groups[0].device = *c.groups[0].model = '\0';
    struct cost_provider *out = provider_open(path, NULL, &c, true, &err);
    if (!out)
        printf("Bail out! %s\n", err.msg);
    return out;
}

static void test_fitted(const char *path) {
    struct cost_provider *p = toy(path, 12);
    struct cost_time t = linear(p, 2048);
    ok(t.from == COST_MEASURED && t.us == 80, "a row that is there is taken as it is");
    t = linear(p, 5632);
    ok(t.from == COST_FITTED && fabs(t.us / 220 - 1) < 0.15 && t.high_us > t.us,
       "between rows a curve: %.0f us, about 220", t.us);
    t = linear(p, 65536);
    ok(t.from == COST_FITTED && fabs(t.us / 2560 - 1) < 0.3,
       "and beyond them: %.0f us, about 2,560", t.us);
    provider_destroy(p);
    p = toy(path, 3);
    ok(linear(p, 5632).from == COST_DATASHEET,
       "three rows make no curve of six parameters");
    provider_destroy(p);
    unlink(path);
}

/* ---- runtimes ---------------------------------------------------------------------------- */

static double step_us(const char *text, const char *runtime, double *recomputed) {
    struct err err = {0};
    json_t *doc = json_parse(text, strlen(text), "plan", &err);
    struct plan *plan = doc ? plan_from_json(doc, &err) : NULL;
    struct program *g = plan ? program_compile(plan, &err) : NULL;
    struct cluster cl = cluster_named("a100-80gb:2");
    struct cost_provider *p = provider_open(NULL, NULL, &cl, true, &err);
    struct runtime *r = runtime ? runtime_read(runtime, &err) : NULL;
    struct cost c;
    struct simulation sim;
    if (!g || !p || (runtime && (!r || runtime_check(r, g, &err) < 0)))
        printf("Bail out! %s\n", err.msg);
    if (r)
        p = provider_runtime(r, p);
    cost_init(&c, p, &cl);
    if (simulate_program(g, &c, NULL, &sim, &err) < 0)
        printf("Bail out! %s\n", err.msg);
    double us = sim.time_us;
    simulation_release(&sim);
    c.whole_recompute = true;
    simulate_program(g, &c, NULL, &sim, &err);
    *recomputed = sim.time_us;
    simulation_release(&sim);
    cost_release(&c);
    provider_destroy(p);
    free(r);
    program_destroy(g);
    plan_destroy(plan);
    json_decref(doc);
    return us;
}

static const char small[] =
    "{\"format\": \"weft-plan/1\", \"model\": \"gpt:350M\", \"set\": \"layers=4,seq=1024\", "
    "\"dtype\": \"fp16\", \"batch\": 8, \"micro_batch\": %d, "
    "\"stages\": [{\"mesh\": \"\", \"recompute\": \"all\"}]}";

static double step_of(int micro_batch, const char *runtime, double *recomputed) {
    char text[512];
    snprintf(text, sizeof text, small, micro_batch);
    return step_us(text, runtime, recomputed);
}

static void test_runtimes(void) {
    double whole, all, one = step_of(1, "megatron", &whole),
                       two = step_of(2, "megatron", &all);
    double weft = step_of(1, NULL, &all);
    ok(one > 1.5 * weft,
       "a small model waits for Megatron's host: %.1f ms, %.1f under weft", one / 1e3,
       weft / 1e3);
    ok(two < 0.7 * one, "twice the samples for the same launches: %.1f ms", two / 1e3);
    ok(all > 1.02 * weft && all < 1.2 * weft,
       "whole blocks recomputed: %.1f instead of %.1f ms", all / 1e3, weft / 1e3);
}

static void refused_runtime(const char *path, const char *text, const char *message) {
    struct err err = {0};
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
    struct runtime *r = runtime_read(path, &err);
    ok(!r && err.status == EXIT_INPUT && strstr(err.msg, message), "%s", err.msg);
    free(r);
    unlink(path);
}

static void test_runtime_files(const char *path) {
    struct err err = {0};
    ok(!runtime_read("megatorn", &err) && strstr(err.msg, "megatron"), "%s", err.msg);
    refused_runtime(path,
                    "{\"format\": \"weft-runtime/1\", \"name\": \"x\", \"host_us\": 5, "
                    "\"ops\": {\"linaer\": {}}}",
                    "linaer");
    refused_runtime(path,
                    "{\"format\": \"weft-runtime/1\", \"name\": \"x\", \"host_us\": -5, "
                    "\"ops\": {}}",
                    "host_us");
    refused_runtime(path,
                    "{\"format\": \"weft-runtime/1\", \"name\": \"x\", \"host_us\": 5, "
                    "\"attention\": \"flash\", \"ops\": {}}",
                    "attention: expected fused or unfused");
    char itself[256];
    snprintf(itself, sizeof itself,
             "{\"format\": \"weft-runtime/1\", \"name\": \"x\", \"like\": \"%s\"}", path);
    refused_runtime(path, itself, "more than 4 runtimes that are like each other");
    refused_runtime(path,
                    "{\"format\": \"weft-runtime/1\", \"name\": \"x\", \"like\": "
                    "\"megatorn\"}",
                    "like: runtime \"megatorn\"");
}

/* What a runtime does not say is as in the one that it is like, and what it says is not. */
static void test_runtime_like(const char *path) {
    struct err err = {0};
    FILE *f = fopen(path, "w");
    fputs("{\"format\": \"weft-runtime/1\", \"name\": \"mine\", \"like\": \"megatron\", "
          "\"host_us\": 3, \"attention\": \"fused\", \"ops\": {\"cross_entropy\": {}}}",
          f);
    fclose(f);
    struct runtime *mine = runtime_read(path, &err),
                   *megatron = runtime_read("megatron", &err);
    int other = 0;
    for (int i = 0; i < OPCODE_COUNT && mine && megatron; i++)
        other += memcmp(&mine->ops[i], &megatron->ops[i], sizeof mine->ops[i]) != 0;
    ok(mine && !strcmp(mine->name, "mine") && mine->host_us == 3 &&
           !mine->unfused_attention && mine->message_us == megatron->message_us &&
           mine->kept_masks == megatron->kept_masks &&
           mine->fixed_bytes == megatron->fixed_bytes,
       "a runtime like another: what it does not say is as there");
    const struct runtime_op *loss = mine ? &mine->ops[I_cross_entropy] : NULL;
    ok(other == 1 && loss && loss->known && loss->kernels == 1 && loss->passes == 0 &&
           !loss->waits,
       "of an instruction that it names nothing is kept, all others are as there");
    free(mine);
    free(megatron);
    unlink(path);
}

int main(void) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/cost-models-%d.json", (int)getpid());
    test_kinds();
    test_memory();
    test_device();
    test_fitted(path);
    test_runtimes();
    test_runtime_files(path);
    test_runtime_like(path);
    return done_testing();
}
