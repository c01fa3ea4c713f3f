/* Open addressing, at most half full. */
#include "search/memo.h"

#include "common/mem.h"

#include <stdlib.h>
#include <string.h>

static struct memo_entry *find(struct memo_entry *entries, int64_t cap, uint64_t key) {
    uint64_t mask = (uint64_t)cap - 1, i = key & mask;
    while (entries[i].key && entries[i].key != key)
        i = (i + 1) & mask;
    return &entries[i];
}

static void grow(struct memo *m) {
    int64_t cap = m->cap ? 2 * m->cap : 1024;
    struct memo_entry *entries = mem_array((size_t)cap, sizeof *entries);
    for (int64_t i = 0; i < m->cap; i++)
        if (m->entries[i].key)
            *find(entries, cap, m->entries[i].key) = m->entries[i];
    free(m->entries);
    m->entries = entries;
    m->cap = cap;
}

void **memo_slot(struct memo *m, uint64_t key) {
    key = key ? key : 1;
    if (2 * m->n >= m->cap)
        grow(m);
    struct memo_entry *e = find(m->entries, m->cap, key);
    m->n += !e->key;
    e->key = key;
    return &e->value;
}

void memo_clear(struct memo *m) {
    m->n = 0;
    if (m->entries)
        memset(m->entries, 0, sizeof *m->entries * (size_t)m->cap);
}

void memo_release(struct memo *m, void (*free_value)(void *)) {
    for (int64_t i = 0; free_value && i < m->cap; i++)
        free_value(m->entries[i].value);
    free(m->entries);
    *m = (struct memo){0};
}
