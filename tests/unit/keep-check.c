/* Which hosts are found bad: by their speeds, and by links, whatever pairs bad ones stand in. */
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
    test_measure();
    return done_testing();
}
