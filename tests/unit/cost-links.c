/* Curves of collectives: what made the rows is found, rows stay as they are, and what far from all
 * rows is told has wider bounds. Links of groups that are remembered are those that are worked out. */
#include "common/rng.h"
#include "cost/link_fit.h"
#include "cost/link_memo.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct link_curve truth = {
    .curve = {.form = CURVE_LINK, .p = {40, 20, 60, 5, 4, 0.7}}, .message = 0.6};
static struct cluster cluster;

static double told(enum opcode code, int64_t size, int64_t stride, bool cross,
                   int64_t bytes) {
    struct link_class l = link_fit_class(&cluster, code, size, stride, cross);
    return link_curve_us(&truth, code, size, (double)bytes, &l);
}

/* Where libraries take another algorithm: 1.5 times as long from 1 MiB on. */
static double jump(int64_t bytes) {
    return bytes < 1 << 20 ? 1 : 1.5;
}

static void put(struct profile *db, const char *name, enum opcode code, int64_t size,
                int64_t stride, bool cross, bool jumps) {
    for (int64_t bytes = 1 << 10; bytes <= 1 << 24; bytes *= 4) {
        struct profile_comm row = {.device = "x",
                                   .collective = name,
                                   .group_size = size,
                                   .stride = stride,
                                   .groups = stride,
                                   .link = cross ? "cross" : "node",
                                   .bytes = bytes,
                                   .median_us = told(code, size, stride, cross, bytes) *
                                                (jumps ? jump(bytes) : 1),
                                   .repeats = 9,
                                   .source = "measured"};
        profile_put_comm(db, &row, NULL);
    }
}

static struct link_fit *fit(const char *path) {
    struct err err = {0};
    struct profile *db = profile_open(path, true, &err);
    put(db, "all_gather", I_all_gather, 2, 1, false, false);
    put(db, "all_gather", I_all_gather, 8, 1, false, false);
    put(db, "all_gather", I_all_gather, 4, 4, true, false);
    put(db, "all_reduce", I_all_reduce, 8, 1, false, true);
    struct profile_times *t = profile_load(db, NULL, &err);
    profile_close(db);
    struct link_fit *f = link_fit_create(t, &cluster, NULL);
    profile_times_destroy(t);
    return f;
}

static struct link_time ask(const struct link_fit *f, enum opcode code, int64_t size,
                            int64_t stride, bool cross, int64_t bytes) {
    struct link_class l = link_fit_class(&cluster, code, size, stride, cross);
    return link_fit_time(f, code, size, stride, bytes, &l);
}

static double off(struct link_time t, double us) {
    return 100 * (t.us / us - 1);
}

static void test_fit(struct link_fit *f) {
    struct link_time t = ask(f, I_all_gather, 8, 1, false, 1 << 16);
    double x = off(t, told(I_all_gather, 8, 1, false, 1 << 16));
    ok(fabs(x) < 1, "a row: %+.2f %%", x);
    t = ask(f, I_all_gather, 8, 1, false, 3 << 18);
    x = off(t, told(I_all_gather, 8, 1, false, 3 << 18));
    ok(fabs(x) < 3, "between two: %+.2f %%", x);
    t = ask(f, I_all_gather, 4, 1, false, 1 << 22);
    x = off(t, told(I_all_gather, 4, 1, false, 1 << 22));
    ok(fabs(x) < 10, "a group that was not measured: %+.2f %%", x);
    struct link_time far = ask(f, I_all_gather, 8, 1, false, 1LL << 34);
    ok(far.within > 2 * ask(f, I_all_gather, 8, 1, false, 1 << 16).within,
       "far from all rows bounds are wide: %.2f", far.within);
    struct link_time low = ask(f, I_all_reduce, 8, 1, false, 1 << 16),
                     high = ask(f, I_all_reduce, 8, 1, false, 1 << 22);
    ok(fabs(off(low, told(I_all_reduce, 8, 1, false, 1 << 16))) < 1 &&
           fabs(off(high, 1.5 * told(I_all_reduce, 8, 1, false, 1 << 22))) < 1,
       "another algorithm from a size on");
    ok(ask(f, I_reduce_scatter, 8, 1, false, 1 << 16).us < 0 &&
           ask(f, I_all_reduce, 4, 8, true, 1 << 16).us < 0,
       "nothing is said of what has no rows");
}

/* More bytes never take less on a curve. */
static void test_never_falls(void) {
    struct link_class l = link_fit_class(&cluster, I_all_reduce, 16, 1, true);
    int falls = 0;
    double before = 0;
    for (double bytes = 1; bytes < 1e11; bytes *= 1.3) {
        double us = link_curve_us(&truth, I_all_reduce, 16, bytes, &l);
        falls += us < before;
        before = us;
    }
    ok(!falls && before > 1e6 && l.nodes == 2,
       "from a byte to 100 GB on two nodes: %.0f us", before);
}

static bool same_links(const struct link_class *a, const struct link_class *b) {
    return a->level == b->level && a->cross == b->cross && a->nodes == b->nodes &&
           a->flows == b->flows && a->bandwidth == b->bandwidth && a->pairs == b->pairs &&
           a->partners == b->partners && a->latency_us == b->latency_us;
}

/* Meshes whose neighbouring axes are both along a group, or both across it, share an answer. */
static void test_memo(void) {
    enum { QUESTIONS = 20000 };
    struct link_memo m = {0};
    struct rng r = {42, 0};
    int wrong = 0, asked = 0;
    for (int i = 0; i < QUESTIONS; i++) {
        struct mesh mesh = {.n_axes = (int)rng_below(&r, MESH_MAX_AXES + 1)};
        for (int a = 0; a < mesh.n_axes; a++)
            mesh.size[a] = 1 + (int)rng_below(&r, 3);
        const unsigned axes = (unsigned)rng_below(&r, 1 << mesh.n_axes);
        const int n = mesh_devices(&mesh);
        if (n > 32)
            continue;
        const int first = (int)rng_below(&r, 32 - n + 1);
        struct link_class got = link_memo_group(&m, &cluster, &mesh, first, axes);
        struct link_class want = links_of_group(&cluster, &mesh, first, axes);
        wrong += !same_links(&got, &want);
        asked++;
    }
    ok(!wrong && m.groups.n < asked / 4, "%d groups stand for %d questions, %d wrong",
       (int)m.groups.n, asked, wrong);
    link_memo_release(&m);
}

int main(void) {
    char path[] = "/tmp/weft-links-XXXXXX";
    close(mkstemp(path));
    unlink(path);
    cluster_read(&cluster, "v100-4x8", NULL);
    struct link_fit *f = fit(path);
    test_fit(f);
    link_fit_destroy(f);
    test_never_falls();
    test_memo();
    unlink(path);
    return done_testing();
}
