/* comm-collectives.c - every collective against a dense computation, on every rank.
 *
 * Each rank fills its buffers from (rank, index) alone, so any rank can work out what any
 * other sent. All ranks check everything; rank 0 prints one TAP line per case, "not ok" if
 * any rank saw a wrong value. The values are fractions whose sum depends on the order of
 * addition, so bit-equality with the rank-order sum shows that the order is kept.
 *
 * usage: mpirun -n N comm-collectives [LARGEST COUNT]
 */
#include "common/half.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tap_ranks.h"
#include "waited.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *arena, *heap;
static int64_t room; /* floats in each */

/* What rank r of the job has at index i. */
static float value(int r, int64_t i) {
    return rng_uniform(7, (uint64_t)r, (uint64_t)i) - 0.4f;
}

static float sum(const int *ranks, int n, int64_t i) {
    float s = value(ranks[0], i);
    for (int p = 1; p < n; p++)
        s += value(ranks[p], i);
    return s;
}

/* A group as the tests see it, and where its buffers are. */
struct where {
    struct comm_group *g;
    int *ranks, n, me;
    float *a, *b; /* two buffers of at least n * count floats */
};

static void fill(float *p, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        p[i] = value(comm_rank(comm), i);
}

/* Big buffers are checked at a stride that meets every chunk, the ends always. */
static int64_t stride(int64_t n) {
    return n > 100000 ? 97 : 1;
}

static int check_all_reduce(const struct where *w, int64_t count) {
    struct err err = {0};
    int good = 1;
    for (int repeat = 0; repeat < 2; repeat++) { /* a repeat must give the same bits */
        fill(w->a, count);
        w->a[count] = 123;
        must(waited_all_reduce(w->g, w->a, count, DTYPE_f32, &err), &err);
        for (int64_t i = 0; i < count; i += stride(count))
            good &= w->a[i] == sum(w->ranks, w->n, i);
        good &= w->a[count - 1] == sum(w->ranks, w->n, count - 1) && w->a[count] == 123;
    }
    return good;
}

static int check_all_gather(const struct where *w, int64_t count, int in_place) {
    struct err err = {0};
    int good = 1;
    float *in = in_place ? w->b + w->me * count : w->a;
    memset(w->b, 0, (size_t)(w->n * count) * sizeof *w->b);
    fill(in, count);
    must(comm_all_gather(w->g, in, w->b, count, DTYPE_f32, &err), &err);
    for (int p = 0; p < w->n; p++)
        for (int64_t i = 0; i < count; i += stride(count))
            good &= w->b[p * count + i] == value(w->ranks[p], i);
    return good;
}

static int check_reduce_scatter(const struct where *w, int64_t count, int in_place) {
    struct err err = {0};
    int good = 1;
    float *out = in_place ? w->a + w->me * count : w->b;
    fill(w->a, w->n * count);
    must(waited_reduce_scatter(w->g, w->a, out, count, DTYPE_f32, &err), &err);
    for (int64_t i = 0; i < count; i += stride(count))
        good &= out[i] == sum(w->ranks, w->n, w->me * count + i);
    return good & (out[count - 1] == sum(w->ranks, w->n, w->me * count + count - 1));
}

/* ---- numbers of 16 bits: widened, added as f32 in the order of the ranks, and rounded once ------ */

static uint16_t narrow(enum dtype dtype, float x) {
    return dtype == DTYPE_bf16 ? bf16_narrow(x) : f16_narrow(x);
}

static float rounded(enum dtype dtype, int r, int64_t i) {
    uint16_t h = narrow(dtype, value(r, i));
    return dtype == DTYPE_bf16 ? bf16_widen(h) : f16_widen(h);
}

static uint16_t half_sum(enum dtype dtype, const int *ranks, int n, int64_t i) {
    float s = rounded(dtype, ranks[0], i);
    for (int p = 1; p < n; p++)
        s += rounded(dtype, ranks[p], i);
    return narrow(dtype, s);
}

static int check_halves(const struct where *w, enum dtype dtype, int64_t count,
                        bool scatter) {
    struct err err = {0};
    int64_t all = scatter ? w->n * count : count, first = scatter ? w->me * count : 0;
    uint16_t *a = (uint16_t *)(void *)w->a, *out = scatter ? (uint16_t *)(void *)w->b : a;
    int good = 1;
    for (int64_t i = 0; i < all; i++)
        a[i] = narrow(dtype, value(comm_rank(comm), i));
    must((scatter ? waited_reduce_scatter(w->g, a, out, count, dtype, &err)
                  : waited_all_reduce(w->g, a, count, dtype, &err)),
         &err);
    for (int64_t i = 0; i < count; i += stride(count))
        good &= out[i] == half_sum(dtype, w->ranks, w->n, first + i);
    return good & (out[count - 1] == half_sum(dtype, w->ranks, w->n, first + count - 1));
}

static int check_all_to_all(const struct where *w, int64_t count) {
    struct err err = {0};
    int good = 1;
    fill(w->a, w->n * count);
    must(waited_all_to_all(w->g, w->a, w->b, count, DTYPE_f32, &err), &err);
    for (int p = 0; p < w->n; p++)
        for (int64_t i = 0; i < count; i += stride(count))
            good &= w->b[p * count + i] == value(w->ranks[p], w->me * count + i);
    return good;
}

static int check_small(const struct where *w) {
    struct err err = {0};
    double s[3], m[2], want_s = 0, want_m = -1e300;
    int root = w->n - 1, good = 1;
    for (int p = 0; p < w->n; p++) {
        want_s += value(w->ranks[p], 1);
        want_m = value(w->ranks[p], 2) > want_m ? value(w->ranks[p], 2) : want_m;
    }
    s[0] = s[2] = value(comm_rank(comm), 1);
    s[1] = 1;
    m[0] = m[1] = value(comm_rank(comm), 2);
    must(comm_sum_double(w->g, s, 3, &err) < 0 || comm_max_double(w->g, m, 2, &err), &err);
    good &= s[0] == want_s && s[1] == w->n && s[2] == want_s && m[0] == want_m &&
            m[1] == want_m;
    for (int64_t n = 3; n < 100000; n *= 31) {
        fill(w->a, n);
        must(comm_broadcast(w->g, w->a, n * 4, root, &err), &err);
        for (int64_t i = 0; i < n; i++)
            good &= w->a[i] == value(w->ranks[root], i);
    }
    must(comm_barrier(w->g, &err), &err);
    return good;
}

static int64_t largest = 1 << 22;

/* All collectives over all counts for one way to lay out the buffers. */
static void check_counts(struct where *w, const char *name) {
    const int64_t counts[] = {1, 3, 17, 1021, 2048, 2049, 4099, 65537, 300007, largest};
    int good[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        int64_t c = counts[k], each = c < room / 8 / w->n ? c : room / 8 / w->n;
        good[0] &= check_all_reduce(w, c < room / 2 ? c : room / 2 - 1);
        good[1] &= check_all_gather(w, each, 0);
        good[2] &= check_all_gather(w, each, 1);
        good[3] &= check_reduce_scatter(w, each, 0);
        good[4] &= check_reduce_scatter(w, each, 1);
        good[5] &= check_all_to_all(w, each);
        for (int scatter = 0; scatter < 2; scatter++) {
            good[6] &= check_halves(w, DTYPE_bf16, each, scatter);
            good[7] &= check_halves(w, DTYPE_f16, each, scatter);
        }
    }
    const char *what[] = {"all_reduce",
                          "all_gather",
                          "all_gather in place",
                          "reduce_scatter",
                          "reduce_scatter in place",
                          "all_to_all",
                          "sums in bf16",
                          "sums in f16"};
    char line[200];
    for (int k = 0; k < 8; k++) {
        snprintf(line, sizeof line, "%s, %s", what[k], name);
        ok_all(good[k], "%s", line);
    }
    snprintf(line, sizeof line, "sum_double, max_double, broadcast, barrier, %s", name);
    ok_all(check_small(w), "%s", line);
}

static void make_groups(const struct comm_ranks *sets, int n, struct comm_group **out) {
    struct err err = {0};
    must(comm_groups_create(comm, sets, n, out, &err), &err);
}

/* The group of this rank among the disjoint groups of g ranks with stride s. */
static void check_groups(int g, int s) {
    int rank = comm_rank(comm), n = comm_size(comm) / g, ranks[64];
    struct comm_ranks sets[64];
    struct comm_group *groups[64];
    struct where w = {.n = g};
    for (int k = 0; k < n; k++) {
        sets[k] = (struct comm_ranks){ranks + k * g, g};
        for (int i = 0; i < g; i++)
            ranks[k * g + i] = k / s * g * s + k % s + i * s;
    }
    make_groups(sets, n, groups);
    for (int k = 0; k < n; k++)
        if (groups[k]) {
            w.g = groups[k];
            w.ranks = ranks + k * g;
        }
    w.me = comm_group_rank(w.g);
    char name[100];
    for (int place = 0; place < 3; place++) {
        const char *where[] = {"arena", "heap", "arena on even ranks only"};
        float *p = place == 1 || (place == 2 && rank % 2) ? heap : arena;
        w.a = p + 1; /* no buffer is ever aligned by luck */
        w.b = p + room / 2 + 1;
        snprintf(name, sizeof name, "groups of %d with stride %d, %s", g, s, where[place]);
        check_counts(&w, name);
    }
    comm_group_destroy(w.g);
}

/* Ranks in another order than the job's: sums are in the order of the group. */
static void check_reversed(void) {
    int n = comm_size(comm), ranks[64];
    for (int i = 0; i < n; i++)
        ranks[i] = n - 1 - i;
    struct where w = {.ranks = ranks, .n = n, .a = arena + 1, .b = arena + room / 2 + 1};
    make_groups(&(struct comm_ranks){ranks, n}, 1, &w.g);
    w.me = comm_group_rank(w.g);
    check_counts(&w, "all ranks in reverse order");
    comm_group_destroy(w.g);
}

/* More groups than there are lanes at one time, made and destroyed again and again. */
static void check_many_groups(void) {
    enum { MANY = 150 };
    struct comm_group *g[MANY];
    struct comm_ranks sets[MANY];
    int n = comm_size(comm), ranks[64], good = 1;
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < MANY; k++)
            sets[k] = (struct comm_ranks){ranks, n};
        make_groups(sets, MANY, g);
        for (int k = 0; k < MANY; k++) {
            struct where w = {
                .g = g[k], .ranks = ranks, .n = n, .a = arena, .b = arena + room / 2};
            good &= check_all_reduce(&w, 5) & check_all_reduce(&w, 5000);
        }
        for (int k = 0; k < MANY; k++)
            comm_group_destroy(g[k]);
    }
    ok_all(good, "many groups, made twice");
}

int main(int argc, char **argv) {
    struct err err = {0};
    int status = begin_job("comm-collectives", &argc, &argv, NULL);
    if (status)
        return status;
    if (argc > 1)
        largest = atoll(argv[1]);
    room = 4 * largest + 4000000;
    arena = comm_alloc(comm, room * 4, &err);
    must(arena ? 0 : -1, &err);
    heap = calloc((size_t)room, sizeof *heap);
    int n = comm_size(comm), zero = 1;
    for (int64_t i = 0; i < room; i += 511)
        zero &= arena[i] == 0;
    ok_all(zero && (uintptr_t)arena % 64 == 0, "the arena is zeroed and aligned");
    ok_all(comm_node_of(comm, comm_rank(comm)) == comm_node(comm) &&
               comm_node_rank(comm) < comm_node_size(comm) &&
               comm_node(comm) < comm_nodes(comm),
           "the nodes are numbered");
    for (int g = 1; g <= n; g++)
        for (int s = 1; s * g <= n; s++)
            if (n % (g * s) == 0)
                check_groups(g, s);
    check_reversed();
    check_many_groups();
    free(heap);
    return end_job();
}
