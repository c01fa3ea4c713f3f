/* Clusters: who stands where, in how many units, behind which links; and round trips. */
#include "common/mem.h"
#include "common/rng.h"
#include "plan/cluster.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool round_trip(const struct cluster *c);

static int parse(struct cluster *c, const char *text, struct err *err) {
    json_t *doc = json_parse(text, strlen(text), "cluster", err);
    int rc = doc ? cluster_from_json(c, doc, err) : -1;
    json_decref(doc);
    return rc;
}

/* Two nodes of eight devices, three of two. */
static const char unlike[] =
    "{\"format\":\"weft-cluster/1\",\"groups\":["
    "{\"nodes\":2,\"devices\":8,\"device\":\"big\",\"memory\":\"32G\","
    "\"flops\":{\"f32\":15e12,\"f16\":120e12},\"bandwidth\":9e11,\"links\":["
    "{\"level\":\"switch\",\"devices\":4,\"bandwidth\":5e10},"
    "{\"level\":\"node\",\"bandwidth\":2e10}]},"
    "{\"nodes\":3,\"devices\":2,\"device\":\"small\",\"memory\":1000,\"flops\":1e12,"
    "\"bandwidth\":1e11}],"
    "\"links\":[{\"level\":\"node\",\"bandwidth\":1e9},"
    "{\"level\":\"rack\",\"nodes\":2,\"bandwidth\":3e10,\"lanes\":4},"
    "{\"level\":\"between\",\"bandwidth\":1e10,\"latency_us\":7}]}";

static void test_unlike(void) {
    struct err err = {0};
    struct cluster c;
    if (!ok(parse(&c, unlike, &err) == 0, "nodes of two kinds are read %s", err.msg))
        return;
    ok(cluster_devices(&c) == 22 && cluster_nodes(&c) == 5, "22 devices on 5 nodes");
    static const int nodes[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,
                                1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4};
    bool good = true;
    for (int r = 0; r < 22; r++)
        good &= cluster_node_of(&c, r) == nodes[r] &&
                !strcmp(cluster_group_of(&c, r)->device, r < 16 ? "big" : "small");
    ok(good, "every rank stands on its node, on a device of its kind");
    ok(cluster_memory(&c, 0, 16) == (int64_t)32 << 30 && cluster_memory(&c, 15, 2) == 1000,
       "the least memory counts");
    ok(cluster_flops(&c, DTYPE_f32, 15, 2) == 16e12 &&
           cluster_flops(&c, DTYPE_f16, 0, 1) == 120e12 &&
           cluster_flops(&c, DTYPE_f16, 15, 2) == 0,
       "peaks add up, unless one is not said");
}

/* One node of eight devices of a kind, with more members. */
static int parse_node(struct cluster *c, const char *more, struct err *err) {
    char text[512];
    snprintf(text, sizeof text,
             "{\"format\":\"weft-cluster/1\",\"nodes\":1,\"devices_per_node\":8,%s}", more);
    *err = (struct err){0};
    return parse(c, text, err);
}

/* What no plan may have is taken off the memory, of GPUs without being said. */
static void test_reserve(void) {
    struct err err;
    struct cluster c;
    const int64_t gib = (int64_t)1 << 30;
    const struct reserve usual = reserve_of_kind("h100-80gb");
    ok(reserve_fixed(&usual) > gib && usual.bytes[RESERVE_collectives] > 0,
       "a GPU reserves more than a gibibyte, and some for each communicator");
    ok(parse_node(&c, "\"device\":\"h100-80gb\",\"memory\":\"79G\"", &err) == 0 &&
           cluster_memory(&c, 0, 8) == 79 * gib - reserve_fixed(&usual) &&
           cluster_most_memory(&c, 0, 8) == cluster_memory(&c, 0, 8) && round_trip(&c),
       "what is left is a plan's %s", err.msg);
    ok(parse_node(&c, "\"device\":\"cpu-1t\",\"memory\":\"79G\"", &err) == 0 &&
           cluster_memory(&c, 0, 8) == 79 * gib,
       "a CPU reserves nothing");
    ok(parse_node(&c, "\"device\":\"h100-80gb\",\"memory\":\"79G\",\"reserve\":{}", &err) ==
               0 &&
           cluster_memory(&c, 0, 8) == 79 * gib && round_trip(&c),
       "nor does a GPU of which a file says so %s", err.msg);
    ok(parse_node(&c,
                  "\"memory\":\"4G\",\"reserve\":{\"context\":\"1G\",\"headroom\":7,"
                  "\"messages\":9}",
                  &err) == 0 &&
           cluster_memory(&c, 0, 8) == 3 * gib - 7 &&
           c.groups[0].reserve.bytes[RESERVE_messages] == 9 && round_trip(&c),
       "a file names the parts %s", err.msg);
    ok(parse_node(&c, "\"reserve\":{}", &err) < 0 && strstr(err.msg, "memory"),
       "of no memory: %s", err.msg);
    ok(parse_node(&c, "\"memory\":100,\"reserve\":{\"context\":100}", &err) < 0 &&
           strstr(err.msg, "nothing is left"),
       "of all memory: %s", err.msg);
    ok(parse_node(&c, "\"memory\":100,\"reserve\":{\"nccl\":1}", &err) < 0 &&
           strstr(err.msg, "reserve") && strstr(err.msg, "nccl"),
       "an unknown part: %s", err.msg);
}

static void test_units(void) {
    struct cluster c;
    struct err err = {0};
    static const struct {
        int rank, k, first, end;
        const char *level;
    } units[] = {{5, 0, 4, 8, "switch"},   {5, 1, 0, 8, "node"},    {5, 2, 0, 16, "rack"},
                 {5, 3, 0, 22, "between"}, {17, 0, 16, 18, "node"}, {17, 1, 16, 20, "rack"},
                 {21, 1, 20, 22, "rack"}};
    parse(&c, unlike, &err);
    bool good = true;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        struct cluster_unit u;
        good &= cluster_unit(&c, units[i].rank, units[i].k, &u) &&
                u.first == units[i].first && u.end == units[i].end &&
                !strcmp(u.link->level, units[i].level) &&
                u.cross == (strcmp(u.link->level, "rack") == 0 ||
                            strcmp(u.link->level, "between") == 0);
    }
    struct cluster_unit u;
    ok(good, "the units around a rank, innermost first");
    ok(!cluster_unit(&c, 5, 4, &u) && !cluster_unit(&c, 17, 3, &u), "and no more of them");
}

/* Ranks from `alias` on stand as those from `first`: the same units, moved. */
static bool stand_alike(const struct cluster *c, int64_t first, int64_t n) {
    int64_t alias = cluster_alias(c, first, n), by = first - alias;
    for (int64_t r = first; r < first + n; r++) {
        struct cluster_unit a, b;
        for (int k = 0; cluster_unit(c, r, k, &a); k++) {
            if (!cluster_unit(c, r - by, k, &b) || a.link != b.link)
                return false;
            bool holds = a.first <= first && a.end >= first + n;
            if (holds != (b.first <= alias && b.end >= alias + n))
                return false;
            if (holds)
                break;
            if (a.first - by != b.first || a.end - by != b.end)
                return false;
        }
    }
    return true;
}

static void test_alias(void) {
    static const char *const refs[] = {"node:4 gpu:8", "rack:3 node:2 switch:2 gpu:3",
                                       NULL};
    struct cluster c;
    int bad = 0, moved = 0;
    for (int i = 0; i < 3; i++) {
        struct err err = {0};
        int rc = refs[i] ? cluster_read(&c, refs[i], &err) : parse(&c, unlike, &err);
        int64_t d = cluster_devices(&c);
        for (int64_t first = 0; rc == 0 && first < d; first++)
            for (int64_t n = 1; first + n <= d; n++) {
                bad += !stand_alike(&c, first, n);
                moved += cluster_alias(&c, first, n) != first;
            }
    }
    ok(!bad && moved > 100, "an alias stands behind the same links (%d moved)", moved);
    cluster_read(&c, "node:4 gpu:8", NULL);
    ok(cluster_alias(&c, 20, 2) == 0 && cluster_alias(&c, 12, 8) == 4,
       "inside a node all places are one; across nodes it is the place in the node");
}

static void test_synthetic(void) {
    struct cluster c;
    struct cluster_unit u;
    ok(cluster_read(&c, "rack:2 node:4 switch:2 gpu:4", NULL) == 0 &&
           cluster_devices(&c) == 64 && cluster_nodes(&c) == 8,
       "racks and switches in a synthetic string");
    ok(cluster_unit(&c, 9, 0, &u) && u.first == 8 && u.end == 12 &&
           cluster_unit(&c, 9, 2, &u) && u.first == 0 && u.end == 32,
       "with their units");
    static const char *const bad[] = {"gpu:8 switch:2",
                                      "node:2 rack:2 gpu:1",
                                      "switch:2",
                                      "node:2 node:2 gpu:1",
                                      "-",
                                      "node:1048577 gpu:1",
                                      "rack:1048576 node:2 gpu:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err err = {0};
        json_t *doc = json_string(bad[i]);
        ok(cluster_from_json(&c, doc, &err) < 0 && err.status == EXIT_INPUT, "refused: %s",
           err.msg);
        json_decref(doc);
    }
}

/* A slow host among others of its kind. */
static void test_speed(void) {
    static const char text[] =
        "{\"format\":\"weft-cluster/1\",\"groups\":["
        "{\"nodes\":1,\"devices\":2,\"flops\":1e12,\"bandwidth\":1e11},"
        "{\"nodes\":1,\"devices\":2,\"flops\":1e12,\"bandwidth\":1e11,\"speed\":0.45}],"
        "\"links\":[{\"level\":\"node\",\"bandwidth\":1e9},"
        "{\"level\":\"between\",\"bandwidth\":1e9}]}";
    struct err err = {0};
    struct cluster c;
    ok(parse(&c, text, &err) == 0 && c.groups[0].speed == 0 && c.groups[1].speed == 0.45 &&
           round_trip(&c),
       "a speed is read, and written again %s", err.msg);
}

static void test_refused(void) {
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"{\"format\":\"weft-cluster/1\"}", "nodes"},
        {"{\"format\":\"weft-cluster/1\",\"groups\":[]}", "groups"},
        {"{\"format\":\"weft-cluster/1\",\"groups\":[{\"nodes\":1,\"devices\":1,\"speed\":2}]}",
         "groups[0].speed: 2"},
        {"{\"format\":\"weft-cluster/1\",\"groups\":[{\"nodes\":1}]}", "groups[0].devices"},
        {"{\"format\":\"weft-cluster/1\",\"nodes\":1,\"groups\":[{\"nodes\":1,\"devices\":1}]}",
         "nodes: unknown key"},
        {"{\"format\":\"weft-cluster/1\",\"nodes\":1,\"devices_per_node\":8,\"links\":["
         "{\"level\":\"switch\",\"devices\":3},{\"level\":\"node\"}]}",
         "links[0].devices: 3"},
        {"{\"format\":\"weft-cluster/1\",\"nodes\":1,\"devices_per_node\":8,\"links\":["
         "{\"level\":\"node\",\"devices\":8}]}",
         "links[0].devices"},
        {"{\"format\":\"weft-cluster/1\",\"nodes\":1,\"devices_per_node\":8,\"links\":["
         "{\"level\":\"switch\"},{\"level\":\"node\"}]}",
         "links[0].devices"},
        {"{\"format\":\"weft-cluster/1\",\"nodes\":4,\"devices_per_node\":8,\"links\":["
         "{\"level\":\"rack\"},{\"level\":\"between\"}]}",
         "links[0].nodes"},
        {"{\"format\":\"weft-cluster/1\",\"nodes\":1,\"devices_per_node\":1,\"flops\":"
         "{\"f64\":1}}",
         "flops.f64"},
        {"{\"format\":\"weft-cluster/1\",\"nodes\":1,\"devices_per_node\":1,\"links\":"
         "[{\"bandwidth\":1}]}",
         "links[0].level"},
        {"[]", "expected an object"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cluster c;
        struct err err = {0};
        ok(parse(&c, bad[i].text, &err) < 0 && err.status == EXIT_INPUT &&
               strstr(err.msg, bad[i].says),
           "refused: %s", err.msg);
    }
}

static bool round_trip(const struct cluster *c) {
    struct cluster again;
    struct err err = {0};
    json_t *doc = cluster_to_json(c);
    int rc = cluster_from_json(&again, doc, &err);
    json_t *twice = rc == 0 ? cluster_to_json(&again) : NULL;
    bool same = rc == 0 && json_equal(doc, twice) && !memcmp(c, &again, sizeof again);
    if (!same)
        printf("# %s\n", err.msg);
    json_decref(doc);
    json_decref(twice);
    return same;
}

static void test_round_trip(void) {
    static const char *const refs[] = {
        "gpu:4",    "node:2 cpu:3", "rack:2 node:2 switch:2 gpu:2",
        "v100-4x8", "a100-2x8",     "h100-2x8",
        "h200-8",   "a100-8",       "h100-8",
        "cpu-2"};
    struct cluster c;
    struct err err = {0};
    for (size_t i = 0; i < sizeof refs / sizeof *refs; i++) {
        err = (struct err){0};
        ok(cluster_read(&c, refs[i], &err) == 0 && round_trip(&c), "%s comes back %s",
           refs[i], err.msg);
    }
    ok(parse(&c, unlike, &err) == 0 && round_trip(&c), "unlike nodes come back");
}

int main(void) {
    test_unlike();
    test_reserve();
    test_units();
    test_alias();
    test_synthetic();
    test_speed();
    test_refused();
    test_round_trip();
    return done_testing();
}
