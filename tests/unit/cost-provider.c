/* Links of groups and messages, datasheets against published measurements, and what stands
 * behind what.
 *
 *     cost-provider --published collectives.csv     how far datasheets are off: NCCL on V100 as
 *                                                   exported from the profile of Alpa's artifact
 */
#include "common/mem.h"
#include "common/rng.h"
#include "cost/op_memo.h"
#include "cost/provider.h"
#include "cost/streams.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fmax(fabs(a), 1);
}

static struct cluster cluster_of(const char *text) {
    struct cluster c = {0};
    struct err err = {0};
    json_t *doc = json_parse(text, strlen(text), "cluster", &err);
    if (!doc || cluster_from_json(&c, doc, &err) < 0)
        printf("Bail out! %s\n", err.msg);
    json_decref(doc);
    return c;
}

static struct link_class link_of(const struct cluster *c, const char *grid, unsigned axes) {
    struct mesh mesh;
    struct err err = {0};
    if (mesh_parse(grid, 1 << 20, &mesh, &err) < 0)
        printf("Bail out! %s\n", err.msg);
    return links_of_group(c, &mesh, 0, axes);
}

/* ---- links --------------------------------------------------------------------------- */

/* Four nodes of eight; what leaves a node shares its one link. */
static void test_shared(void) {
    struct cluster c;
    cluster_read(&c, "v100-4x8", NULL);
    struct link_class l = link_of(&c, "dp:4 tp:8", 2);
    ok(!strcmp(l.level, "node") && !l.cross && l.flows == 1 && near(l.bandwidth, 150e9),
       "eight on a node: its link, alone");
    l = link_of(&c, "dp:4 tp:8", 1);
    ok(!strcmp(l.level, "between") && l.cross && l.flows == 8 &&
           near(l.bandwidth, 3.125e9 / 8),
       "one on each node, eight such groups: an eighth of the network");
    l = link_of(&c, "dp:4 tp:8", 3);
    ok(l.cross && l.flows == 1 && near(l.bandwidth, 3.125e9),
       "all of four nodes: one hop out of each");
    l = link_of(&c, "dp:16 tp:2", 1);
    ok(l.flows == 2 && near(l.bandwidth, 3.125e9 / 2), "two groups of four a node");
    l = link_of(&c, "dp:16 tp:2", 2);
    ok(near(l.bandwidth, 25e9), "two of eight: one of six lanes");
    l = link_of(&c, "dp:8 tp:4", 2);
    ok(near(l.bandwidth, 75e9), "four of eight: a lane to each other");
    l = link_of(&c, "dp:8 tp:2 s:2", 3);
    ok(l.nodes == 4, "groups on four nodes");
    cluster_read(&c, "v100:4x8", NULL);
    l = link_of(&c, "dp:8 tp:4", 2);
    ok(near(l.bandwidth, 100e9) && l.nodes == 1,
       "a quad of the cube: two rings, both ways round");
    l = link_of(&c, "dp:4 x:4 s:2", 2);
    ok(near(l.bandwidth, 50e9), "two devices of either quad: one ring");
    ok(near(l.pairs, 8e9 * 3), "and to one of three others by way of the host");
    l = link_of(&c, "dp:4 tp:8", 2);
    ok(near(l.pairs, 8e9 * 7 / 3), "all eight: to three of seven");
    ok(!link_of(&c, "dp:1", 1).level, "one rank alone: no link");
}

/* Any level may be the slow one. */
static void test_order(void) {
    struct cluster c = cluster_of(
        "{\"format\":\"weft-cluster/1\",\"nodes\":2,\"devices_per_node\":8,\"links\":["
        "{\"level\":\"switch\",\"devices\":4,\"bandwidth\":4e9,\"latency_us\":1},"
        "{\"level\":\"node\",\"bandwidth\":2e9,\"latency_us\":2},"
        "{\"level\":\"between\",\"bandwidth\":50e9,\"latency_us\":3}]}");
    struct link_class l = link_of(&c, "a:2 b:2 c:4", 4);
    ok(!strcmp(l.level, "switch") && near(l.bandwidth, 4e9), "below one switch");
    l = link_of(&c, "a:2 b:2 c:4", 6);
    ok(!strcmp(l.level, "node") && l.flows == 1 && near(l.bandwidth, 2e9),
       "two switches: the slow link between them");
    l = link_of(&c, "a:2 b:2 c:4", 2);
    ok(!strcmp(l.level, "node") && l.flows == 4 && near(l.bandwidth, 5e8),
       "which four groups share");
    l = link_of(&c, "a:2 b:2 c:4", 1);
    ok(!strcmp(l.level, "between") && l.flows == 8 && near(l.bandwidth, 50e9 / 8),
       "between the nodes, eight at once");
    l = link_of(&c, "a:2 b:2 c:4", 7);
    ok(!strcmp(l.level, "node") && l.cross && near(l.latency_us, 3),
       "all: the slowest is inside the nodes though the ring leaves them");
    l = links_of_message(&c, 0, 8, 1);
    ok(!strcmp(l.level, "between") && l.cross && near(l.bandwidth, 50e9), "a message");
    l = links_of_message(&c, 0, 8, 4);
    ok(l.flows == 4 && near(l.bandwidth, 50e9 / 4), "four at once");
    l = links_of_message(&c, 2, 3, 1);
    ok(!strcmp(l.level, "switch") && !l.cross, "a neighbour");
}

/* All-to-all: whatever leaves the fullest unit bounds it. 2 nodes of 2, each rank keeps a
 * quarter, sends a quarter to its neighbour and two to the other node. */
static void test_pairs(void) {
    struct cluster c = cluster_of(
        "{\"format\":\"weft-cluster/1\",\"nodes\":2,\"devices_per_node\":2,\"links\":["
        "{\"level\":\"node\",\"bandwidth\":8e9},{\"level\":\"between\",\"bandwidth\":1e9}]}");
    struct link_class l = link_of(&c, "a:4", 1);
    ok(near(l.pairs, 1e9 * 3 / 4), "2 of 4 quarters of 2 ranks leave a node");
    l = link_of(&c, "a:2 b:2", 2);
    ok(near(l.pairs, 8e9), "inside a node");
}

/* Without speeds the outermost level that a ring crosses counts. */
static void test_unsaid(void) {
    struct cluster c;
    cluster_read(&c, "node:2 gpu:4", NULL);
    struct link_class l = link_of(&c, "dp:2 tp:4", 1);
    ok(l.cross && !strcmp(l.level, "between") && l.bandwidth == 0, "dp crosses");
    l = link_of(&c, "dp:2 tp:4", 2);
    ok(!l.cross && !strcmp(l.level, "node"), "tp does not");
    ok(link_of(&c, "dp:2 tp:4", 3).cross, "both do");
}

/* ---- datasheets ---------------------------------------------------------------------- */

static double collective_us(const struct cost_provider *p, const struct cluster *c,
                            enum opcode code, const char *grid, unsigned axes,
                            int64_t bytes) {
    struct mesh mesh;
    mesh_parse(grid, 1 << 20, &mesh, NULL);
    struct comm_question q = {.code = code,
                              .size = mesh_group_size(&mesh, axes),
                              .bytes = bytes,
                              .link = links_of_group(c, &mesh, 0, axes)};
    return p->kind->collective(p, &q).us;
}

/* Times measured with NCCL on p3.16xlarge, from the profile published with Alpa (OSDI 2022);
 * what a datasheet alone can say lies within a third of them where bytes count. */
static void test_published(void) {
    static const struct {
        enum opcode code;
        const char *grid;
        unsigned axes;
        double gigabytes, seconds;
    } measured[] = {
        {I_all_reduce, "a:1 b:8", 2, 4.294967296, 0.05702},
        {I_all_reduce, "a:2 b:4", 2, 1.073741824, 0.019624},
        {I_all_gather, "a:1 b:8", 2, 4.294967296, 0.02896},
        {I_reduce_scatter, "a:1 b:8", 2, 4.294967296, 0.03049},
        {I_all_reduce, "a:4 b:8", 3, 4.294967296, 2.8422},
        {I_all_gather, "a:4 b:8", 3, 2.147483648, 0.7552},
    };
    struct cluster c;
    struct err err = {0};
    cluster_read(&c, "v100-4x8", &err);
    struct cost_provider *p = provider_analytic(&c, &err);
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        double us = collective_us(p, &c, measured[i].code, measured[i].grid,
                                  measured[i].axes, (int64_t)(1e9 * measured[i].gigabytes));
        double off = us / (1e6 * measured[i].seconds) - 1;
        ok(off > -1.0 / 3 && off < 0.1, "%s of %s: %+.0f %% of what was measured",
           opcode_name(measured[i].code), measured[i].grid, 100 * off);
    }
    union instr_n n = {.linear = {.m = 4096, .n = 4096, .k = 4096}};
    struct cost_time t = p->kind->op(
        p, &(struct op_question){.key = &(struct instr_key){I_linear, DTYPE_f32, n}});
    double off = t.us / (1e6 * 2.0 * pow(4096, 3) / 15.2e12) - 1;
    ok(fabs(off) < 0.05 && t.low_us <= t.us && t.us <= t.high_us &&
           t.from == COST_DATASHEET,
       "a product of 4,096: %+.1f %%", 100 * off);
    provider_destroy(p);
}

/* Of two groups of the same kind, one slower: its instructions take longer, whatever they rest on; links do not. */
static void test_speed(void) {
    struct cluster c;
    cluster_read(&c, "v100-4x8", NULL);
    c.n_groups = 2;
    c.groups[1] = c.groups[0];
    c.groups[1].speed = 0.5;
    struct cost_provider *p = provider_open(NULL, NULL, &c, true, NULL);
    union instr_n n = {.matmul = {.outer = 1, .inner = 1, .m = 512, .n = 512, .k = 512}};
    struct instr_key k = instr_key(I_matmul, DTYPE_f32, &n);
    struct cost_time fast = p->kind->op(p, &(struct op_question){0, &k});
    struct cost_time slow = p->kind->op(p, &(struct op_question){1, &k});
    ok(fast.us > 0 && fabs(slow.us / fast.us - 2) < 1e-9 &&
           fabs(slow.high_us / fast.high_us - 2) < 1e-9 && slow.from == fast.from,
       "half as fast: %.1f us in place of %.1f", slow.us, fast.us);
    provider_destroy(p);
    c.groups[1].speed = 0;
    p = provider_open(NULL, NULL, &c, true, NULL);
    slow = p->kind->op(p, &(struct op_question){1, &k});
    ok(slow.us == fast.us, "where none is said it is as fast");
    provider_destroy(p);
}

static void test_silent(void) {
    struct cluster c;
    struct err err = {0};
    cluster_read(&c, "node:2 gpu:4", &err);
    ok(!provider_analytic(&c, &err) && err.status == EXIT_USAGE,
       "a cluster without datasheets: %s", err.msg);
    err = (struct err){0};
    ok(!provider_open(NULL, NULL, &c, true, &err) && *err.hint, "and the remedy: %s",
       err.hint);
}

/* ---- one behind the other ------------------------------------------------------------ */

static struct cost_provider *table_of(const char *path) {
    struct err err = {0};
    struct profile *db = profile_open(path, true, &err);
    struct profile_op row = {"x", "gelu", "1024", "f32", 5, 0.1, 9, "measured"};
    struct profile_op computed = {"x", "relu", "1024", "f32",
                                  7,   0,      0,      "roofline 1T:2T:3us"};
    profile_put_op(db, &row, &err);
    profile_put_op(db, &computed, &err);
    struct profile_times *t = profile_load(db, NULL, &err);
    profile_close(db);
    return provider_profile(&t, 1);
}

static void test_stack(const char *path) {
    struct cluster c;
    struct err err = {0};
    cluster_read(&c, "v100-4x8", &err);
    struct cost_provider *p = provider_stack(table_of(path), provider_analytic(&c, &err));
    union instr_n n = {.gelu.elems = 1024};
    struct cost_time t = p->kind->op(
        p, &(struct op_question){.key = &(struct instr_key){I_gelu, DTYPE_f32, n}});
    ok(t.from == COST_MEASURED && near(t.us, 5) && near(t.low_us, 4) && near(t.high_us, 6),
       "what was measured comes first, with twice its spread");
    t = p->kind->op(
        p, &(struct op_question){.key = &(struct instr_key){I_relu, DTYPE_f32, n}});
    ok(t.from == COST_DATASHEET && near(t.us, 7), "a computed row rests on a datasheet");
    t = p->kind->op(
        p, &(struct op_question){.key = &(struct instr_key){I_silu, DTYPE_f32, n}});
    ok(t.from == COST_DATASHEET && t.us > 17, "what is missing comes from the datasheet");
    ok(!strcmp(p->device, "x") && !strcmp(p->roofline, "1T:2T:3us"),
       "and the profile is spoken of");
    provider_destroy(p);
    p = table_of(path);
    t = p->kind->op(
        p, &(struct op_question){.key = &(struct instr_key){I_silu, DTYPE_f32, n}});
    ok(t.from == COST_UNKNOWN && t.us == 0, "the profile alone does not know");
    provider_destroy(p);
}

/* ---- streams ------------------------------------------------------------------------- */

/* A buffer goes to another rank while one comes from there. */
static void test_shift(void) {
    struct stage_program sp = {.n_buffers = 2};
    struct streams s;
    struct instr shift = instr_init(I_shift), reader = instr_init(I_gelu);
    shift.in.shift.x = 0;
    shift.out.shift.y = 1;
    streams_init(&s, &sp);
    streams_add(&s, &shift, 100, 1);
    reader.in.gelu.x = 0;
    ok(near(streams_add(&s, &reader, 30, 0), 0), "what goes is read meanwhile");
    reader.in.gelu.x = 1;
    ok(near(streams_add(&s, &reader, 5, 0), 100), "what comes is there at the end");
    streams_release(&s);
}

/* Buffers: 0 is gathered beside computation, 1 reduced by a collective that nothing hides. */
static void test_streams(void) {
    struct stage_program sp = {.n_buffers = 4};
    struct streams s;
    struct instr gather = instr_init(I_all_gather), reduce = instr_init(I_all_reduce);
    struct instr reader = instr_init(I_gelu);
    gather.out.all_gather.y = 0;
    reduce.in.all_reduce.x = reduce.out.all_reduce.y = 1;
    reader.in.gelu.x = 1;
    streams_init(&s, &sp);
    streams_add(&s, &gather, 100, 1);
    ok(near(streams_add(&s, &reduce, 10, 0), 100),
       "a collective waits for the one before it");
    ok(near(streams_add(&s, &reader, 5, 0), 110),
       "and one that hides nothing stops its reader");
    ok(near(streams_end(&s), 115), "the end");
    streams_reset(&s);
    streams_add(&s, &reduce, 10, 0.25);
    reader.in.gelu.x = 2;
    ok(near(streams_add(&s, &reader, 5, 0), 7.5),
       "a quarter of one goes on beside computation");
    streams_release(&s);
}

/* ---- all that was published ------------------------------------------------------------ */

static int ascending(const void *pa, const void *pb) {
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

/* Measured over told, of one line: below 0 when it is not a clean row. Columns: source, hosts,
 * devices of a host, op, dtype, group size, groups, stride, ..., bytes, seconds, noop, clamped. */
static double ratio_of(const struct cost_provider *p, const struct cluster *c,
                       const char *line, double *bytes) {
    int hosts, devices, size, groups, stride, spanned, each, noop, clamped;
    char op[32], dtype[8], time[32];
    long long elems, all;
    if (sscanf(line, "%*[^,],%d,%d,%31[^,],%7[^,],%d,%d,%d,%d,%d,%lld,%lld,%31[^,],%d,%d",
               &hosts, &devices, op, dtype, &size, &groups, &stride, &spanned, &each,
               &elems, &all, time, &noop, &clamped) != 14 ||
        noop || clamped || size < 2 || all < 1 || !strcmp(time, "inf"))
        return -1;
    char grid[64];
    snprintf(grid, sizeof grid, "a:%d g:%d s:%d", groups / stride, size, stride);
    *bytes = (double)(strcmp(op, "all_to_all") ? all : all / size);
    double us = collective_us(p, c, (enum opcode)opcode_find(op), grid, 2, (int64_t)*bytes);
    return 1e6 * strtod(time, NULL) / us;
}

static int published(const char *path) {
    struct cluster c;
    FILE *f = fopen(path, "r");
    cluster_read(&c, "v100-4x8", NULL);
    struct cost_provider *p = provider_analytic(&c, NULL);
    ARR(double) r = {0};
    ARR(double) large = {0};
    char line[512];
    int64_t near4 = 0;
    while (f && fgets(line, sizeof line, f)) {
        double bytes = 0, x = ratio_of(p, &c, line, &bytes);
        if (x < 0)
            continue;
        arr_push(&r, x);
        near4 += x > 0.5 && x < 4;
        if (bytes >= 1 << 20)
            arr_push(&large, x);
    }
    if (!r.n)
        return 1;
    qsort(r.p, (size_t)r.n, sizeof *r.p, ascending);
    qsort(large.p, (size_t)large.n, sizeof *large.p, ascending);
    printf(
        "%lld collectives: measured / told: median %.2f, 5 %% below %.2f, 5 %% above %.2f; "
        "%.1f %% between 0.5 and 4; from 1 MiB on: median %.2f, 5 %% below %.2f, above %.2f\n",
        (long long)r.n, r.p[r.n / 2], r.p[r.n / 20], r.p[r.n * 19 / 20],
        100.0 * (double)near4 / (double)r.n, large.p[large.n / 2], large.p[large.n / 20],
        large.p[large.n * 19 / 20]);
    provider_destroy(p);
    arr_release(&r);
    arr_release(&large);
    fclose(f);
    return 0;
}

/* ---- answers that are remembered ------------------------------------------------------ */

static int64_t asked;

/* What it says depends on all of the question; of odd shapes it knows nothing. */
static struct cost_time count_op(const struct cost_provider *p,
                                 const struct op_question *q) {
    (void)p;
    asked++;
    if (q->key->n.v[0] % 2)
        return (struct cost_time){0};
    double us = (double)q->key->n.v[0] + 0.25 * (double)q->key->dtype + 0.5 * q->group;
    return (struct cost_time){.us = us, .from = COST_MEASURED};
}

static void test_remembered(void) {
    static const struct provider_kind kind = {.op = count_op};
    const struct cost_provider counts = {.kind = &kind};
    struct op_memo m = {0};
    struct rng r = {3, 0};
    bool same = true;
    enum { ASKED = 200000, SHAPES = 500 };
    for (int i = 0; i < ASKED; i++) {
        union instr_n n = {.v = {rng_below(&r, SHAPES), 7}};
        struct instr_key k =
            instr_key(I_gelu, rng_below(&r, 2) ? DTYPE_f16 : DTYPE_f32, &n);
        struct op_question q = {(int)rng_below(&r, 2), &k};
        struct cost_time is = op_memo_ask(&m, &counts, &q);
        int64_t before = asked;
        struct cost_time should = count_op(&counts, &q);
        asked = before;
        same &= is.us == should.us && is.from == should.from;
    }
    ok(same, "what is remembered of an instruction is what the provider said");
    ok(asked >= 4 * SHAPES - 100 && asked < ASKED / 5,
       "%lld of %d questions went to it, of %d different ones", (long long)asked, ASKED,
       4 * SHAPES);
    op_memo_release(&m);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--published"))
        return published(argv[2]);
    char db[] = "/tmp/weft-provider-XXXXXX";
    close(mkstemp(db));
    unlink(db);
    test_shared();
    test_order();
    test_pairs();
    test_unsaid();
    test_published();
    test_silent();
    test_speed();
    test_stack(db);
    test_streams();
    test_shift();
    test_remembered();
    unlink(db);
    return done_testing();
}
