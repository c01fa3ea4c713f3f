/* memo.h - results that are computed once: pointers by 64-bit keys.
 *
 * Keys are 64-bit hashes. Two different things with the same key would be confused;
 * among a million keys the probability of that is about 1 in 40 million. So nothing but
 * the hashes is compared (common/hashtable.h is for things that have to be), and their
 * low bits are places in the table.
 *
 *     void **slot = memo_slot(&m, memo_mix(memo_mix(1, devices), layout));
 *     if (!*slot)
 *         *slot = expensive(devices, layout);
 */
#ifndef WEFT_MEMO_H
#define WEFT_MEMO_H

#include "common/mem.h"
#include "common/rng.h"

struct memo_entry {
    uint64_t key; /* 0 = free */
    void *value;
};
/* Open addressing, at most three quarters full. Zero-initialized is empty and ready. */
struct memo {
    struct memo_entry *entries; /* [cap] a power of two, or 0 */
    int64_t n, cap;             /* keys; entries */
};

/* Returns the place of a key's value, NULL at first; valid until another key is added. */
void **memo_slot(struct memo *m, uint64_t key);
/* Forgets the keys and keeps the memory; the values are the caller's. */
void memo_clear(struct memo *m);
/* Frees the table, and its values with `free_value` if that is not NULL. */
void memo_release(struct memo *m, void (*free_value)(void *));

/* Chains v into h, which is a small constant or a result of memo_mix. If they were only
 * added or xored, small numbers would cancel out: (1, 7) and (2, 4) would be one key. */
static inline uint64_t memo_mix(uint64_t h, uint64_t v) {
    return rng_mix(h * RNG_STEP + v);
}

#endif
