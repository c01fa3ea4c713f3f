/* The merges of one word: a heap of the pairs that can be merged, the least rank first and of equal
 * ones the leftmost. Pairs that are gone stay in the heap until they come up. */
#include "text/tokenizer_impl.h"

#include "common/rng.h"

static int64_t slot_of(const struct pairs *m, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    int64_t i = (int64_t)(rng_mix(key) & (uint64_t)(m->cap - 1));
    while (m->slot[i].left >= 0 && (m->slot[i].left != left || m->slot[i].right != right))
        i = (i + 1) & (m->cap - 1);
    return i;
}

struct pair *pairs_find(const struct pairs *m, int32_t left, int32_t right) {
    struct pair *found = &m->slot[slot_of(m, left, right)];
    return found->left < 0 ? NULL : found;
}

void pairs_init(struct pairs *m, int64_t n) {
    m->cap = 2;
    while (m->cap < 2 * n + 2)
        m->cap *= 2;
    m->slot = mem_array((size_t)m->cap, sizeof *m->slot);
    for (int64_t i = 0; i < m->cap; i++)
        m->slot[i].left = -1;
}

void pairs_put(struct pairs *m, struct pair pair) {
    m->slot[slot_of(m, pair.left, pair.right)] = pair;
}

/* ---- the heap ------------------------------------------------------------------------- */

static bool sooner(struct candidate a, struct candidate b) {
    return a.rank < b.rank || (a.rank == b.rank && a.at < b.at);
}

static void push(struct merging *w, struct candidate c) {
    arr_push(&w->heap, c);
    int64_t i = w->heap.n - 1;
    for (int64_t up; i && sooner(c, w->heap.p[up = (i - 1) / 2]); i = up)
        w->heap.p[i] = w->heap.p[up];
    w->heap.p[i] = c;
}

static struct candidate pop(struct merging *w) {
    struct candidate *h = w->heap.p, top = h[0], last = h[--w->heap.n];
    int64_t i = 0, n = w->heap.n;
    for (int64_t down; (down = 2 * i + 1) < n; i = down) {
        down += down + 1 < n && sooner(h[down + 1], h[down]);
        if (!sooner(h[down], last))
            break;
        h[i] = h[down];
    }
    h[i] = last;
    return top;
}

/* ---- a word --------------------------------------------------------------------------- */

static void offer(const struct pairs *m, struct merging *w, int32_t at) {
    const struct symbol *s = &w->symbols.p[at];
    if (at < 0 || s->behind < 0)
        return;
    const struct pair *found = pairs_find(m, s->id, w->symbols.p[s->behind].id);
    if (found)
        push(w, (struct candidate){found->rank, at, found->id});
}

/* Is the pair that was offered still there? One of the same place and rank is the same pair. */
static bool still(const struct pairs *m, const struct merging *w, struct candidate c) {
    const struct symbol *s = &w->symbols.p[c.at];
    if (s->id < 0 || s->behind < 0)
        return false;
    const struct pair *found = pairs_find(m, s->id, w->symbols.p[s->behind].id);
    return found && found->rank == c.rank;
}

static void join(struct merging *w, struct candidate c) {
    struct symbol *s = &w->symbols.p[c.at], *right = &w->symbols.p[s->behind];
    s->id = c.id;
    s->behind = right->behind;
    right->id = -1;
    if (s->behind >= 0)
        w->symbols.p[s->behind].before = c.at;
}

int64_t merge_word(const struct pairs *m, struct merging *room, int32_t *ids, int64_t n) {
    room->symbols.n = room->heap.n = 0;
    for (int32_t i = 0; i < n; i++)
        arr_push(&room->symbols, (struct symbol){ids[i], i - 1, i + 1 < n ? i + 1 : -1});
    for (int32_t i = 0; i < n; i++)
        offer(m, room, i);
    while (room->heap.n) {
        struct candidate c = pop(room);
        if (!still(m, room, c))
            continue;
        join(room, c);
        if (room->symbols.p[c.at].before >= 0)
            offer(m, room, room->symbols.p[c.at].before);
        offer(m, room, c.at);
    }
    int64_t left = 0;
    for (int64_t i = 0; i < n; i++)
        if (room->symbols.p[i].id >= 0)
            ids[left++] = room->symbols.p[i].id;
    return left;
}
