/* Keys of the search's caches: numbers that are small on both sides make different keys. */
#include "search/graph/memo.h"

#include "tap.h"

#include <stdbool.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_keys(void) {
    enum { FIRST = 16, SECOND = 4096 };
    static uint64_t keys[FIRST * SECOND];
    int64_t n = 0, same = 0;
    for (uint64_t h = 0; h < FIRST; h++)
        for (uint64_t v = 0; v < SECOND; v++)
            keys[n++] = memo_mix(h, v);
    qsort(keys, (size_t)n, sizeof *keys, compare);
    for (int64_t i = 1; i < n; i++)
        same += keys[i] == keys[i - 1];
    ok(same == 0, "of %lld keys of two small numbers %lld are there before", (long long)n,
       (long long)same);
}

static void test_slots(void) {
    enum { KEYS = 1024 };
    struct memo m = {0};
    bool found = true;
    for (uint64_t k = 0; k < KEYS; k++)
        *memo_slot(&m, memo_mix(k, k)) = mem_alloc(1 + k);
    int64_t cap = m.cap;
    for (uint64_t k = 0; k < KEYS; k++)
        found &= *memo_slot(&m, memo_mix(k, k)) != NULL;
    ok(found && m.n == KEYS, "what was kept is found after growing");
    ok(m.cap == cap, "looking up what is there does not grow it");
    memo_release(&m, free);
}

int main(void) {
    test_keys();
    test_slots();
    return done_testing();
}
