/* Which hosts are found bad: by their speeds, and by links, whatever pairs bad ones stand in. */
#include "common/rng.h"
#include "keep/check.h"
#include "keep/measure.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 9 };

/* Bad hosts' links fail, or are slow. */
static void run_rounds(struct check *c, unsigned bad, double slow) {
    struct check_link pairs[2 * MOST + 1];
    for (int round = 1; round <= CHECK_ROUNDS; round++) {
        const int n = check_pairs(c, round, pairs);
        for (int i = 0; i < n; i++) {
            const bool fails = bad >> pairs[i].a & 1 || bad >> pairs[i].b & 1;
            pairs[i].bytes_per_s = (fails ? slow : 1) * (1e9 + 1e7 * pairs[i].a);
            check_add(c, &pairs[i]);
        }
    }
}

static void make_alike(struct check *c, struct check_host *hosts, int n) {
    *c = (struct check){.n = n, .hosts = hosts};
    memset(hosts, 0, (size_t)n * sizeof *hosts);
    for (int i = 0; i < n; i++) {
        hosts[i].result = 7;
        for (int s = 0; s < CHECK_SPEED_COUNT; s++)
            hosts[i].speed[s] = 100 + i;
    }
}

/* Are just these found, and the others good? */
static bool finds(int n, unsigned bad, double slow) {
    struct check c;
    struct check_host hosts[MOST];
    bool right = true;
    make_alike(&c, hosts, n);
    run_rounds(&c, bad, slow);
    check_judge(&c);
    for (int i = 0; i < n; i++)
        right &= hosts[i].state == (bad >> i & 1 ? CHECK_BAD : CHECK_GOOD);
    check_release(&c);
    return right;
}

static void test_links(void) {
    for (int n = 3; n <= MOST; n++) {
        bool none = finds(n, 0, 0), one = true;
        for (int i = 0; i < n; i++)
            one &= finds(n, 1u << i, 0) && finds(n, 1u << i, 0.1);
        ok(none && one,
           "%d hosts: a bad one is found wherever it stands, and none where none is", n);
    }
    for (int n = 4; n <= MOST; n++) {
        bool two = true;
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++)
                two &= finds(n, 1u << i | 1u << j, 0);
        ok(two, "%d hosts: two bad ones are found, and blame no good one", n);
    }
    bool three = true;
    for (unsigned set = 0; set < 1u << 8; set++)
        if (__builtin_popcount(set) == 3)
            three &= finds(8, set, 0);
    ok(three, "8 hosts: any three");
    struct check c;
    struct check_host hosts[2];
    make_alike(&c, hosts, 2);
    run_rounds(&c, 1, 0);
    ok(check_judge(&c) == 0 && hosts[0].state == CHECK_UNCLEAR &&
           hosts[1].state == CHECK_UNCLEAR,
       "of two hosts with a dead link between them neither is blamed: %s", hosts[0].why);
    check_release(&c);
}

static void test_speeds(void) {
    struct check c;
    struct check_host hosts[3];
    make_alike(&c, hosts, 3);
    hosts[1].speed[CHECK_MEMORY] = 40;
    ok(check_judge(&c) == 1 && hosts[1].state == CHECK_BAD &&
           strstr(hosts[1].why, "memory"),
       "slow memory: %s", hosts[1].why);
    make_alike(&c, hosts, 3);
    hosts[2].speed[CHECK_DISK] = 0;
    strcpy(hosts[2].failed, "disk: full");
    ok(check_judge(&c) == 1 && !strcmp(hosts[2].why, "disk: full"), "a disk that fails: %s",
       hosts[2].why);
    make_alike(&c, hosts, 3);
    hosts[0].result = 8;
    ok(check_judge(&c) == 1 && hosts[0].state == CHECK_BAD, "wrong products: %s",
       hosts[0].why);
    make_alike(&c, hosts, 2);
    hosts[0].result = 8;
    ok(check_judge(&c) == 0 && hosts[0].state == CHECK_UNCLEAR &&
           hosts[1].state == CHECK_UNCLEAR,
       "of two nobody knows whose are wrong: %s", hosts[1].why);
    make_alike(&c, hosts, 1);
    ok(check_judge(&c) == 0 && hosts[0].state == CHECK_GOOD, "one alone is beside nobody");
}

/* ---- what is measured is noisy ----------------------------------------------------------------- */

/* Of a speed that is 1 undisturbed: one in five measurements is anything down to a tenth. */
static double noisy(struct rng *rng) {
    return rng_real(rng) < 0.2 ? 0.1 + 0.9 * rng_real(rng) : 1;
}

static struct check_host measured(struct rng *rng, bool bad) {
    struct check_host h = {.result = 7};
    for (int s = 0; s < CHECK_SPEED_COUNT; s++)
        h.speed[s] = noisy(rng) * (bad && s == CHECK_DISK ? 0.3 : 1);
    return h;
}

/* As weft-keep does, with these hosts bad, alone or by their links. */
static void judge_noisy(struct rng *rng, struct check *c, unsigned bad, unsigned bad_link) {
    struct check_link pairs[2 * MOST + 1];
    for (int t = 0; t < CHECK_TIMES; t++)
        for (int i = 0; i < c->n; i++)
            if (!t || check_doubts_host(c, i)) {
                struct check_host m = measured(rng, bad >> i & 1);
                check_take(&c->hosts[i], &m);
            }
    for (int round = 1; round <= CHECK_ROUNDS; round++) {
        int n = check_pairs(c, round, pairs);
        for (int t = 0; t < CHECK_TIMES && n; t++) {
            for (int i = 0; i < n; i++) {
                const bool slow = bad_link >> pairs[i].a & 1 || bad_link >> pairs[i].b & 1;
                pairs[i].bytes_per_s = noisy(rng) * (slow ? 0.2 : 1);
                check_add(c, &pairs[i]);
            }
            n = check_pairs_again(c, round, pairs);
        }
    }
    check_judge(c);
}

static void test_noise(void) {
    enum { TRIALS = 2000 };
    for (int n = 3; n <= MOST; n += 3) {
        struct rng rng = {1, 0};
        int blamed = 0, missed = 0, bad = 0, once = 0;
        for (int trial = 0; trial < TRIALS; trial++) {
            struct check_host hosts[MOST] = {0}, single[MOST] = {0};
            struct check c = {.n = n, .hosts = hosts}, s = {.n = n, .hosts = single};
            const int victim = trial % 3 ? trial % n : -1;
            const unsigned set = victim < 0 ? 0 : 1u << victim;
            judge_noisy(&rng, &c, trial % 3 == 1 ? set : 0, trial % 3 == 2 ? set : 0);
            for (int i = 0; i < n; i++) {
                blamed += i != victim && hosts[i].state != CHECK_GOOD;
                missed += i == victim && hosts[i].state == CHECK_GOOD;
                single[i] = measured(&rng, false);
            }
            bad += victim >= 0;
            for (int i = 0; i < n; i++)
                once += check_doubts_host(&s, i);
            check_release(&c);
        }
        ok(blamed <= 0.002 * n * TRIALS && missed <= 0.06 * bad && once > 0.1 * n * TRIALS,
           "%d hosts, where one measurement of five is anything: %d good ones of %d are blamed "
           "(%d by single measurements), %d bad ones of %d missed",
           n, blamed, n * TRIALS, once, missed, bad);
    }
}

static void test_again(void) {
    struct check_host h = {0}, m = {.result = 7, .speed = {5, 5, 5}};
    check_take(&h, &m);
    m.speed[1] = 9;
    m.speed[2] = 1;
    check_take(&h, &m);
    ok(h.times == 2 && h.speed[1] == 9 && h.speed[2] == 5 && !*h.failed,
       "the best of what was measured counts");
    m.result = 8;
    check_take(&h, &m);
    ok(*h.failed, "but not of its results: %s", h.failed);
}

static void test_measure(void) {
    struct check_host a = {0}, b = {0}, none = {0};
    measure_host("/tmp", &a);
    measure_host("/tmp", &b);
    measure_host("/proc/nowhere", &none);
    ok(a.speed[CHECK_PRODUCTS] > 1e6 && a.speed[CHECK_MEMORY] > 1e6 &&
           a.speed[CHECK_DISK] > 0 && !*a.failed && a.result == b.result,
       "this host: %.3g flops/s, %.3g and %.3g bytes/s, and twice the same products",
       a.speed[0], a.speed[1], a.speed[2]);
    ok(none.speed[CHECK_DISK] == 0 && *none.failed, "no disk: %s", none.failed);
}

int main(void) {
    test_links();
    test_speeds();
    test_again();
    test_noise();
    test_measure();
    return done_testing();
}
