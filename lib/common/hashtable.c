/* Slots carry their hash, so that growing needs no keys and few comparisons are in vain. */
#include "common/hashtable.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 64 };

/* The key's slot, or the free one where it belongs. The table has slots. */
static struct hash_slot *slot_of(const struct hashtable *t, uint32_t hash,
                                 hashtable_same *same, const void *entries,
                                 const void *key) {
    uint64_t mask = (uint64_t)t->cap - 1, i = hash & mask;
    for (;; i = (i + 1) & mask) {
        struct hash_slot *s = &t->slots[i];
        if (!s->entry || (s->hash == hash && same(entries, (int64_t)s->entry - 1, key)))
            return s;
    }
}

/* Entries keep their hashes, so nothing is compared or hashed anew. */
static void grow(struct hashtable *t) {
    struct hash_slot *old = t->slots;
    int64_t n = t->cap;
    t->cap = n ? 2 * n : FIRST_CAP;
    t->slots = mem_array((size_t)t->cap, sizeof *t->slots);
    uint64_t mask = (uint64_t)t->cap - 1;
    for (int64_t k = 0; k < n; k++) {
        uint64_t i = old[k].hash & mask;
        if (!old[k].entry)
            continue;
        while (t->slots[i].entry)
            i = (i + 1) & mask;
        t->slots[i] = old[k];
    }
    free(old);
}

int64_t hashtable_find(const struct hashtable *t, uint64_t hash, hashtable_same *same,
                       const void *entries, const void *key) {
    if (!t->n)
        return -1;
    return (int64_t)slot_of(t, (uint32_t)hash, same, entries, key)->entry - 1;
}

int64_t hashtable_put(struct hashtable *t, uint64_t hash, hashtable_same *same,
                      const void *entries, const void *key) {
    if (2 * t->n >= t->cap)
        grow(t);
    struct hash_slot *s = slot_of(t, (uint32_t)hash, same, entries, key);
    if (!s->entry)
        *s = (struct hash_slot){(uint32_t)hash, (uint32_t)++t->n};
    return (int64_t)s->entry - 1;
}

void hashtable_clear(struct hashtable *t) {
    t->n = 0;
    if (t->slots)
        memset(t->slots, 0, (size_t)t->cap * sizeof *t->slots);
}

void hashtable_release(struct hashtable *t) {
    free(t->slots);
    *t = (struct hashtable){0};
}
