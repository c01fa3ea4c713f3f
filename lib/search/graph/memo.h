/* memo.h - what was worked out once: pointers by 64-bit keys.
 *
 * Keys are 64-bit hashes. Two different things with the same key would be taken for one; among
 * a million keys the odds of that are about 1 in 40 million. So a key is its own place in the
 * table, and nothing else is looked at to find it (common/hashtable.h is for keys that have to be
 * compared).
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
/* Open addressing, at most half full. Zero-initialized is empty and ready. */
struct memo {
    struct memo_entry *entries; /* [cap] a power of two, or 0 */
    int64_t n, cap;             /* keys; entries */
};

/* The place of a key's value, NULL at first; good until the next call. */
void **memo_slot(struct memo *m, uint64_t key);
/* Forgets the keys, keeps the room; the values are the caller's. */
void memo_clear(struct memo *m);
/* Frees the table, and the values that are there with `free_value` if that is not NULL. */
void memo_release(struct memo *m, void (*free_value)(void *));

/* Chains v into h, which is a small constant or what memo_mix returned: raw numbers on both sides
 * could cancel each other out. */
static inline uint64_t memo_mix(uint64_t h, uint64_t v) {
    return rng_mix(h ^ (v + 0x9e3779b97f4a7c15u));
}

#endif
