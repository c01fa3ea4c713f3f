#include "search/graph/memo.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 64 };

/* Returns the key's entry, or the free one where it belongs. There always is one. */
static struct memo_entry *find(const struct memo *m, uint64_t key) {
    uint64_t mask = (uint64_t)m->cap - 1, i = key & mask;
    while (m->entries[i].key != key && m->entries[i].key)
        i = (i + 1) & mask;
    return &m->entries[i];
}

static void grow(struct memo *m) {
    struct memo old = *m;
    m->cap = old.cap ? 2 * old.cap : FIRST_CAP;
    m->entries = mem_array((size_t)m->cap, sizeof *m->entries);
    for (int64_t i = 0; i < old.cap; i++)
        if (old.entries[i].key)
            *find(m, old.entries[i].key) = old.entries[i];
    free(old.entries);
}

void **memo_slot(struct memo *m, uint64_t key) {
    key = key ? key : 1;
    if (4 * m->n >= 3 * m->cap && !(m->cap && find(m, key)->key))
        grow(m);
    struct memo_entry *e = find(m, key);
    m->n += !e->key;
    e->key = key;
    return &e->value;
}

void memo_clear(struct memo *m) {
    m->n = 0;
    if (m->entries)
        memset(m->entries, 0, (size_t)m->cap * sizeof *m->entries);
}

void memo_release(struct memo *m, void (*free_value)(void *)) {
    for (int64_t i = 0; free_value && i < m->cap; i++)
        if (m->entries[i].value)
            free_value(m->entries[i].value);
    free(m->entries);
    *m = (struct memo){0};
}
