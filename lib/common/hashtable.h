/* hashtable.h - a hash table over an array of the caller's: from a key to the entry's position.
 *
 * The table holds positions and 32 bits of each key's hash, never keys: entries lie in the
 * caller's array, numbered in the order in which they were first put, and the caller compares
 * them. Open addressing, at most half full. Zero-initialized is empty and ready.
 *
 *     int64_t i = hashtable_put(&t, hash_bytes(name, strlen(name), 0), same_name, names.p, name);
 *     if (i == names.n)
 *         arr_push(&names, name);
 */
#ifndef WEFT_HASHTABLE_H
#define WEFT_HASHTABLE_H

#include <stdbool.h>
#include <stdint.h>

struct hash_slot {
    uint32_t hash;
    uint32_t entry; /* position + 1; 0 = free */
};
struct hashtable {
    struct hash_slot *slots;
    int64_t n, cap; /* entries; slots: a power of two, or 0 */
};

/* Is entries[i] the one with this key? Called when their hashes agree. */
typedef bool hashtable_same(const void *entries, int64_t i, const void *key);

/* The position of the key's entry, or -1. Hashes must be well mixed in their low 32 bits. */
int64_t hashtable_find(const struct hashtable *t, uint64_t hash, hashtable_same *same,
                       const void *entries, const void *key);
/* The same; a key without an entry gets the next position, which is t->n before the call, and
 * the caller puts its entry there before the next one. At most 2^31 entries. */
int64_t hashtable_put(struct hashtable *t, uint64_t hash, hashtable_same *same,
                      const void *entries, const void *key);
/* Forgets all entries, keeps the room. */
void hashtable_clear(struct hashtable *t);
void hashtable_release(struct hashtable *t);

#endif
