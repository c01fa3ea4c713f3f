/* The hash table over an array of the caller's. */
#include "common/hashtable.h"
#include "common/mem.h"
#include "common/rng.h"
#include "tap.h"

#include <stdlib.h>

struct numbers {
    ARR(int64_t) list;
    int64_t compared;
};

static bool same(const void *entries, int64_t i, const void *key) {
    struct numbers *n = (struct numbers *)entries;
    n->compared++;
    return n->list.p[i] == *(const int64_t *)key;
}

static int64_t put(struct hashtable *t, uint64_t hash, struct numbers *n, int64_t v) {
    int64_t i = hashtable_put(t, hash, same, n, &v);
    if (i == n->list.n)
        arr_push(&n->list, v);
    return i;
}

static uint64_t hash_of(int64_t v) {
    return hash_bytes(&v, sizeof v, 0);
}

static void test_many(void) {
    enum { N = 100000 };
    struct hashtable t = {0};
    struct numbers n = {0};
    int64_t wrong = 0, key = 7;
    ok(hashtable_find(&t, hash_of(key), same, &n, &key) < 0,
       "nothing is in an empty table");
    for (int64_t i = 0; i < N; i++)
        wrong += put(&t, hash_of(3 * i), &n, 3 * i) != i;
    ok(!wrong && t.n == N, "new keys are numbered one after the other");
    for (int64_t i = 0; i < N; i++)
        wrong += put(&t, hash_of(3 * i), &n, 3 * i) != i;
    ok(!wrong && t.n == N, "known keys keep their numbers while the table grows");
    for (int64_t v = 0; v < 3 * N; v++)
        wrong += hashtable_find(&t, hash_of(v), same, &n, &v) != (v % 3 ? -1 : v / 3);
    ok(!wrong && t.n == N, "what was put is found, and nothing else");
    ok(t.cap >= 2 * t.n && !(t.cap & (t.cap - 1)), "at most half full: %lld of %lld",
       (long long)t.n, (long long)t.cap);
    ok(n.compared < 3 * N, "keys with another hash are not compared (%lld times)",
       (long long)n.compared);
    hashtable_release(&t);
    arr_release(&n.list);
}

static void test_collisions(void) {
    struct hashtable t = {0};
    struct numbers n = {0};
    int64_t wrong = 0, key = 1000;
    for (int64_t i = 0; i < 300; i++) /* one hash for all: the end of the slots wraps */
        wrong += put(&t, UINT64_MAX, &n, i) != i;
    for (int64_t i = 0; i < 300; i++)
        wrong += hashtable_find(&t, UINT64_MAX, same, &n, &i) != i;
    ok(!wrong, "keys with one hash are told apart by comparing");
    ok(hashtable_find(&t, UINT64_MAX, same, &n, &key) < 0,
       "and the absent one is not found");
    hashtable_clear(&t);
    n.list.n = 0;
    key = 5;
    ok(hashtable_find(&t, UINT64_MAX, same, &n, &key) < 0 &&
           put(&t, UINT64_MAX, &n, key) == 0,
       "a cleared table numbers from 0 again");
    hashtable_release(&t);
    ok(!t.slots && !t.n, "a released table is an empty one");
    arr_release(&n.list);
}

int main(void) {
    test_many();
    test_collisions();
    return done_testing();
}
