/* memo.h - what was worked out once: pointers by 64-bit keys, in a hash table (hashtable.h).
 *
 * Keys are hashes already; two different things with one key are not told apart, which
 * among millions of keys happens about never.
 *
 *     void **slot = memo_slot(&m, memo_mix(memo_mix(1, devices), layout));
 *     if (!*slot)
 *         *slot = expensive(devices, layout);
 */
#ifndef WEFT_MEMO_H
#define WEFT_MEMO_H

#include "common/hashtable.h"
#include "common/mem.h"
#include "common/rng.h"

struct memo_entry {
    uint64_t key;
    void *value;
};
struct memo {
    struct hashtable table; /* over entries */
    ARR(struct memo_entry) entries;
};

/* The place of a key's value, NULL at first; good until the next call. */
void **memo_slot(struct memo *m, uint64_t key);
/* Forgets the keys; the values are the caller's. */
void memo_clear(struct memo *m);
/* Frees the table, and the values with `free_value` if that is not NULL. */
void memo_release(struct memo *m, void (*free_value)(void *));

/* Chains v into h, which is a small constant or what memo_mix returned: raw numbers on both sides
 * could cancel each other out. */
static inline uint64_t memo_mix(uint64_t h, uint64_t v) {
    return rng_mix(h ^ (v + 0x9e3779b97f4a7c15u));
}

#endif
