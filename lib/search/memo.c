#include "search/memo.h"

#include <stdlib.h>

static bool same_key(const void *entries, int64_t i, const void *key) {
    return ((const struct memo_entry *)entries)[i].key == *(const uint64_t *)key;
}

void **memo_slot(struct memo *m, uint64_t key) {
    int64_t i = hashtable_put(&m->table, key, same_key, m->entries.p, &key);
    if (i == m->entries.n)
        arr_push(&m->entries, (struct memo_entry){.key = key});
    return &m->entries.p[i].value;
}

void memo_clear(struct memo *m) {
    hashtable_clear(&m->table);
    m->entries.n = 0;
}

void memo_release(struct memo *m, void (*free_value)(void *)) {
    for (int64_t i = 0; free_value && i < m->entries.n; i++)
        free_value(m->entries.p[i].value);
    arr_release(&m->entries);
    hashtable_release(&m->table);
}
