/* check.h - which of several hosts is bad, by what each does alone and by links between pairs of them.
 *
 * A link that fails has two ends, so it blames nobody: a host is bad by its links when it has no good one and one of its
 * partners has. Pairs are those of DLRover's node check: in the first round neighbours, in the second the fastest with the
 * slowest, so that two bad hosts that met each other meet others. Whoever has no good link then meets, in two more, two
 * that have one, or as many as there are: a single slow link may be chance. For the same reason a speed that would condemn is
 * measured again, up to CHECK_TIMES times, and the best of them counts: what else goes on takes speed away and never adds any.
 *
 *     struct check c = {.n = 4, .hosts = hosts};             // with what each has measured alone
 *     for (int round = 1; round <= CHECK_ROUNDS; round++)
 *         for (int i = check_pairs(&c, round, pairs); i-- > 0;)
 *             check_add(&c, &pairs[i]);                        // once it is measured
 *     check_judge(&c);                                       // hosts[i].state, hosts[i].why
 *     check_release(&c);
 */
#ifndef WEFT_CHECK_H
#define WEFT_CHECK_H

#include "common/mem.h"

#include <stdbool.h>
#include <stdint.h>

/* What a host measures alone: id, key, what it is */
#define CHECK_SPEEDS(X)                                                                    \
    X(PRODUCTS, "products_flops_per_s", "products")                                        \
    X(MEMORY, "memory_bytes_per_s", "memory")                                              \
    X(DISK, "disk_bytes_per_s", "disk")

enum check_speed {
#define X(id, key, text) CHECK_##id,
    CHECK_SPEEDS(X)
#undef X
        CHECK_SPEED_COUNT
};

enum check_state { CHECK_GOOD, CHECK_UNCLEAR, CHECK_BAD };

/* A speed that is less than this share of the others' median is bad. */
#define CHECK_SHARE 0.5

struct check_host {
    int times;                       /* that it was measured */
    double speed[CHECK_SPEED_COUNT]; /* per second, the best; 0 = it failed */
    uint64_t result;                 /* of the products: a hash, alike on all hosts */
    char failed[200];                /* why it could not be measured; "" */
    enum check_state state;
    char why[240]; /* of one that is not good */
};

struct check_link {
    int a, b, round;
    double bytes_per_s, round_s; /* of the slower direction; 0 bytes: it failed */
    char failed[200];
    bool good;
};

struct check {
    int n;
    struct check_host *hosts; /* [n], borrowed */
    ARR(struct check_link) links;
};

enum { CHECK_ROUNDS = 4, CHECK_TIMES = 5 };

/* Takes in one more measurement of a host. */
void check_take(struct check_host *h, const struct check_host *measured);
/* Is one of its speeds so low that it has to be measured again before it is blamed? */
bool check_doubts_host(const struct check *c, int host);

/* The pairs of a round, from 1, in `pairs` (room for 2 n); all of it can be measured at once, but for a host that is in
 * two. Returns how many there are. */
int check_pairs(struct check *c, int round, struct check_link *pairs);
/* Those of the round that are slow beside the others, to be measured again. */
int check_pairs_again(const struct check *c, int round, struct check_link *pairs);
/* Takes in a link; of two measurements of a pair in one round the better. */
void check_add(struct check *c, const struct check_link *l);
/* Says which links are good, and of each host what it is and why. Returns how many are bad. */
int check_judge(struct check *c);
void check_release(struct check *c);

const char *check_speed_key(enum check_speed s);
const char *check_state_name(enum check_state s);

#endif
