/* partition_core.c - from nodes and edges to items and tensors.
 *
 * Three merges lose nothing: nodes of one colour class; classes on a common cycle of the
 * order (their pieces would have a cyclic quotient otherwise); and an idle class (no
 * latency at all, allowed everywhere) with only one neighbour, which can always follow that
 * neighbour: no stage gains load and every tensor between the two disappears. The last one
 * may cost memory, so it counts as exact only where the leaf has no size or memory can
 * never bind.
 */
#include "solve/partition/partition_core.h"

#include "common/mem.h"
#include "common/progress.h"
#include "common/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pair {
    int32_t a, b;
};

/* Sorts v into `out` by b (`first` false) or by a; equal ones keep their order. */
static void sort_by(const struct pair *v, int32_t count, int32_t n, bool first,
                    struct pair *out) {
    int32_t *at = mem_array((size_t)n + 1, sizeof *at);
    for (int32_t i = 0; i < count; i++)
        at[(first ? v[i].a : v[i].b) + 1]++;
    for (int32_t i = 0; i < n; i++)
        at[i + 1] += at[i];
    for (int32_t i = 0; i < count; i++)
        out[at[first ? v[i].a : v[i].b]++] = v[i];
    free(at);
}

/* Sorts pairs of numbers below n. */
static void pairs_sort(struct pair *v, int32_t count, int32_t n) {
    struct pair *other = mem_array((size_t)count + 1, sizeof *other);
    sort_by(v, count, n, false, other);
    sort_by(other, count, n, true, v);
    free(other);
}

/* Sorts, and drops duplicates and pairs of equal numbers. Returns how many are left. */
static int32_t pairs_clean(struct pair *v, int32_t count, int32_t n) {
    int32_t kept = 0;
    pairs_sort(v, count, n);
    for (int32_t i = 0; i < count; i++)
        if (v[i].a != v[i].b &&
            (!kept || v[i].a != v[kept - 1].a || v[i].b != v[kept - 1].b))
            v[kept++] = v[i];
    return kept;
}

/* Makes the lists a -> b of sorted pairs, or b -> a. */
static struct partition_lists lists_of(const struct pair *v, int32_t count, int32_t n,
                                       bool turned) {
    struct partition_lists l = {mem_array((size_t)n + 2, sizeof *l.at),
                                mem_array((size_t)count + 1, sizeof *l.v)};
    for (int32_t i = 0; i < count; i++)
        l.at[(turned ? v[i].b : v[i].a) + 2]++;
    for (int32_t i = 0; i < n; i++)
        l.at[i + 2] += l.at[i + 1];
    for (int32_t i = 0; i < count; i++)
        l.v[l.at[(turned ? v[i].b : v[i].a) + 1]++] = turned ? v[i].a : v[i].b;
    return l;
}

static void lists_release(struct partition_lists *l) {
    free(l->at), free(l->v);
}

static int32_t find(int32_t *parent, int32_t i) {
    while (parent[i] != i)
        i = parent[i] = parent[parent[i]];
    return i;
}

/* Numbers the roots from 0 on into out[i], for every i. Returns their count. */
static int32_t number_roots(int32_t *parent, int32_t n, int32_t *out) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        out[i] = find(parent, i) == i ? count++ : -1;
    for (int32_t i = 0; i < n; i++)
        if (out[i] < 0)
            out[i] = out[find(parent, i)];
    return count;
}

/* Collects the order between classes: a pair (a, b) where a's stage may not come after
 * b's. */
static int32_t order_pairs(const struct partition_problem *p, const int32_t *group,
                           int32_t n, struct pair *out) {
    bool *forward = mem_array((size_t)p->colors + 1, sizeof *forward);
    int32_t count = 0;
    for (int32_t i = 0; i < p->n; i++)
        if (!p->nodes[i].backward)
            forward[p->nodes[i].color] = true;
    for (int32_t i = 0; i < p->m; i++) {
        const struct partition_node *u = &p->nodes[p->edges[i].from];
        const struct partition_node *v = &p->nodes[p->edges[i].to];
        if (!u->backward && !v->backward)
            out[count++] = (struct pair){group[u->color], group[v->color]};
        else if (u->backward && v->backward && (!forward[u->color] || !forward[v->color]))
            out[count++] = (struct pair){group[v->color], group[u->color]};
    }
    free(forward);
    return pairs_clean(out, count, n);
}

/* Tarjan's search for strongly connected components, with a stack of its own. */
struct tarjan {
    const struct partition_lists *next;
    int32_t *index, *low, *stack, *path, *edge, *parent;
    int32_t count, top;
    bool *open;
};

static void tarjan_from(struct tarjan *t, int32_t root) {
    int32_t depth = 0;
    t->path[0] = root;
    while (depth >= 0) {
        int32_t v = t->path[depth];
        if (!t->index[v]) {
            t->index[v] = t->low[v] = ++t->count;
            t->stack[t->top++] = v;
            t->open[v] = true;
            t->edge[v] = t->next->at[v];
        }
        if (t->edge[v] < t->next->at[v + 1]) {
            int32_t w = t->next->v[t->edge[v]++];
            if (!t->index[w])
                t->path[++depth] = w;
            else if (t->open[w] && t->index[w] < t->low[v])
                t->low[v] = t->index[w];
            continue;
        }
        if (t->low[v] == t->index[v])
            for (int32_t w = -1; w != v;) {
                w = t->stack[--t->top];
                t->open[w] = false;
                t->parent[find(t->parent, w)] = find(t->parent, v);
            }
        if (--depth >= 0 && t->low[v] < t->low[t->path[depth]])
            t->low[t->path[depth]] = t->low[v];
    }
}

/* Joins the classes on a common cycle, in the union-find `parent`. */
static void join_cycles(const struct pair *pairs, int32_t count, int32_t n,
                        int32_t *parent) {
    struct partition_lists next = lists_of(pairs, count, n, false);
    size_t size = (size_t)n + 1;
    struct tarjan t = {.next = &next, .parent = parent};
    t.index = mem_array(size, sizeof *t.index), t.low = mem_array(size, sizeof *t.low);
    t.stack = mem_array(size, sizeof *t.stack), t.path = mem_array(size, sizeof *t.path);
    t.edge = mem_array(size, sizeof *t.edge), t.open = mem_array(size, sizeof *t.open);
    for (int32_t v = 0; v < n; v++)
        if (!t.index[v])
            tarjan_from(&t, v);
    free(t.index), free(t.low), free(t.stack), free(t.path), free(t.edge), free(t.open);
    lists_release(&next);
}

/* What a group of classes takes while leaves are merged. */
struct group {
    double work, memory;
    bool supported;
};

static struct group *groups_of(const struct partition_problem *p, const int32_t *group,
                               int32_t n, double *memory) {
    struct group *g = mem_array((size_t)n + 1, sizeof *g);
    for (int32_t i = 0; i < n; i++)
        g[i].supported = true;
    *memory = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const struct partition_node *node = &p->nodes[i];
        double bytes = node->size + node->activation * (double)p->micro_batches;
        struct group *x = &g[group[node->color]];
        x->work += node->accel_s + node->cpu_s;
        x->memory += bytes;
        x->supported = x->supported && node->supported;
        *memory += bytes;
    }
    return g;
}

/* Merges idle groups with their only neighbour until none is left; where memory may bind,
 * only groups without memory. Neighbours are counted over all edges, backward ones
 * included. */
static void join_leaves(const struct partition_problem *p, const int32_t *group, int32_t n,
                        int32_t *parent, struct partition_watch *w) {
    double memory;
    struct group *g = groups_of(p, group, n, &memory);
    bool binds = memory > p->max_size;
    struct pair *pairs = mem_array(2 * (size_t)p->m + 1, sizeof *pairs);
    int32_t count = 0;
    for (int32_t i = 0; i < p->m; i++) {
        int32_t a = group[p->nodes[p->edges[i].from].color];
        int32_t b = group[p->nodes[p->edges[i].to].color];
        pairs[count++] = (struct pair){a, b};
        pairs[count++] = (struct pair){b, a};
    }
    count = pairs_clean(pairs, count, n);
    bool changed = true;
    /* A long idle chain takes as many rounds as it has links, so rounds are limited. */
    for (int round = 0; changed && round < 200 && !partition_watch_stop_now(w); round++) {
        changed = false;
        for (int32_t i = 0; i < count; i++) {
            pairs[i].a = find(parent, pairs[i].a);
            pairs[i].b = find(parent, pairs[i].b);
        }
        count = pairs_clean(pairs, count, n);
        for (int32_t i = 0; i < count; i++) {
            int32_t a = pairs[i].a, b = pairs[i].b;
            bool alone =
                (!i || pairs[i - 1].a != a) && (i + 1 == count || pairs[i + 1].a != a);
            /* If another merge of this round took either end, this one waits for the next
             * round. */
            if (!alone || g[a].work > 0 || !g[a].supported || parent[a] != a ||
                parent[b] != b || (binds && g[a].memory > 0))
                continue;
            parent[a] = b;
            changed = true;
            g[b].memory += g[a].memory;
        }
    }
    free(g), free(pairs);
}

/* Numbers items from the end of the pipeline. Among the items that are free the one
 * freed last comes first, so that a branch is followed before the next begins. */
static void number_items(const struct pair *pairs, int32_t count, int32_t n,
                         int32_t *number) {
    struct partition_lists before =
        lists_of(pairs, count, n, true); /* b -> a: from the end backwards */
    int32_t *degree = mem_array((size_t)n + 1, sizeof *degree);
    int32_t *stack = mem_array((size_t)n + 1, sizeof *stack), top = 0, done = 0;
    for (int32_t i = 0; i < count; i++)
        degree[pairs[i].a]++;
    for (int32_t i = n - 1; i >= 0; i--)
        if (!degree[i])
            stack[top++] = i;
    while (top) {
        int32_t v = stack[--top];
        number[v] = done++;
        for (int32_t e = before.at[v]; e < before.at[v + 1]; e++)
            if (!--degree[before.v[e]])
                stack[top++] = before.v[e];
    }
    free(degree), free(stack);
    lists_release(&before);
}

static void build_order(struct partition_core *c, struct pair *pairs, int32_t count) {
    c->words = (c->n + 63) / 64;
    c->succ = lists_of(pairs, count, c->n, true);
    c->pred = lists_of(pairs, count, c->n, false);
    if (c->n > PARTITION_MAX_EXACT)
        return;
    c->desc = mem_array((size_t)c->n * (size_t)c->words + 1, sizeof *c->desc);
    for (int32_t i = c->n - 1; i >= 0; i--) {
        uint64_t *d = c->desc + (size_t)i * (size_t)c->words;
        partition_set_add(d, i);
        for (int32_t e = c->succ.at[i]; e < c->succ.at[i + 1]; e++) {
            const uint64_t *o = c->desc + (size_t)c->succ.v[e] * (size_t)c->words;
            for (int32_t w = 0; w < c->words; w++)
                d[w] |= o[w];
        }
    }
}

static void build_items(const struct partition_problem *p, struct partition_core *c) {
    size_t n = (size_t)c->n + 1;
    c->accel = mem_array(n, sizeof *c->accel), c->cpu = mem_array(n, sizeof *c->cpu);
    c->size = mem_array(n, sizeof *c->size), c->act = mem_array(n, sizeof *c->act);
    c->supported = mem_array(n, sizeof *c->supported);
    c->key = mem_array(n, sizeof *c->key);
    for (int32_t i = 0; i < c->n; i++) {
        c->supported[i] = true;
        c->key[i] = rng_mix((uint64_t)i + 1);
    }
    double act = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const struct partition_node *node = &p->nodes[i];
        int32_t x = c->item_of[i];
        c->accel[x] += node->accel_s;
        c->cpu[x] += node->cpu_s;
        c->size[x] += node->size;
        c->act[x] += node->activation;
        c->supported[x] = c->supported[x] && node->supported;
        act += node->activation;
    }
    for (int32_t i = 0; i < c->n; i++)
        if (!c->supported[i]) /* it may be anything, and must not spoil sums */
            c->accel[i] = 0;
    c->any_order = c->micro_batches == 1 || act == 0;
}

/* One tensor while equal ones are joined. */
struct tensor {
    int32_t *pins, n;
    double weight;
};

static int tensor_order(const void *x, const void *y) {
    const struct tensor *p = x, *q = y;
    if (p->n != q->n)
        return p->n < q->n ? -1 : 1;
    for (int32_t i = 0; i < p->n; i++)
        if (p->pins[i] != q->pins[i])
            return p->pins[i] < q->pins[i] ? -1 : 1;
    return 0;
}

/* Builds the tensors with at least two items and a weight; those with the same items are
 * added up. */
static void build_tensors(const struct partition_problem *p, struct partition_core *c) {
    struct pair *pairs = mem_array(2 * (size_t)p->m + 1, sizeof *pairs);
    int32_t count = 0, kept = 0;
    for (int32_t i = 0; i < p->m; i++) {
        int32_t u = p->edges[i].from;
        pairs[count++] = (struct pair){u, c->item_of[u]};
        pairs[count++] = (struct pair){u, c->item_of[p->edges[i].to]};
    }
    pairs_sort(pairs, count, p->n > c->n ? p->n : c->n);
    struct tensor *t = mem_array((size_t)p->n + 1, sizeof *t);
    int32_t *pins = mem_array((size_t)count + 1, sizeof *pins), used = 0, total = 0;
    for (int32_t i = 0; i < count;) {
        const struct partition_node *u = &p->nodes[pairs[i].a];
        struct tensor x = {pins + used, 0, u->send_s};
        int32_t from = pairs[i].a;
        for (; i < count && pairs[i].a == from; i++)
            if (!x.n || x.pins[x.n - 1] != pairs[i].b)
                x.pins[x.n++] = pairs[i].b;
        if (x.n > 1 && x.weight > 0) {
            t[kept++] = x;
            used += x.n;
        }
    }
    qsort(t, (size_t)kept, sizeof *t, tensor_order);
    for (int32_t i = 0; i < kept; i++) {
        if (c->tensors && !tensor_order(&t[i], &t[c->tensors - 1])) {
            t[c->tensors - 1].weight += t[i].weight;
            continue;
        }
        t[c->tensors++] = t[i];
        total += t[i].n;
    }
    c->weight = mem_array((size_t)c->tensors + 1, sizeof *c->weight);
    struct pair *flat = mem_array((size_t)total + 1, sizeof *flat);
    count = 0;
    for (int32_t h = 0; h < c->tensors; h++) {
        c->weight[h] = t[h].weight;
        for (int32_t i = 0; i < t[h].n; i++)
            flat[count++] = (struct pair){h, t[h].pins[i]};
    }
    c->pins = lists_of(flat, count, c->tensors, false);
    c->touch = lists_of(flat, count, c->n, true);
    free(pairs), free(t), free(pins), free(flat);
}

/* Finds the groups of classes that must stand together, as group[] of each class.
 * Returns how many there are. */
static int32_t group_classes(const struct partition_problem *p, struct partition_watch *w,
                             struct pair *pairs, int32_t *group) {
    int32_t *parent = mem_array((size_t)p->colors + 1, sizeof *parent);
    for (int32_t i = 0; i < p->colors; i++)
        parent[i] = group[i] = i;
    int32_t count =
        partition_watch_stop_now(w) ? 0 : order_pairs(p, group, p->colors, pairs);
    if (!partition_watch_stop_now(w))
        join_cycles(pairs, count, p->colors, parent);
    int32_t n = number_roots(parent, p->colors, group);
    free(parent);
    return n;
}

/* Joins idle leaves in group[] and gives every node its item. Returns the pairs of the
 * order between items. */
static int32_t number_nodes(const struct partition_problem *p, struct partition_watch *w,
                            int32_t *group, int32_t n, struct pair *pairs,
                            struct partition_core *c) {
    size_t size = (size_t)p->colors + 1;
    int32_t *parent = mem_array(size, sizeof *parent);
    int32_t *merged = mem_array(size, sizeof *merged);
    for (int32_t i = 0; i < n; i++)
        parent[i] = i;
    join_leaves(p, group, n, parent, w);
    c->n = number_roots(parent, n, merged);
    for (int32_t i = 0; i < p->colors; i++)
        group[i] = merged[group[i]];
    int32_t count = order_pairs(p, group, c->n, pairs);
    int32_t *number = mem_array((size_t)c->n + 1, sizeof *number);
    number_items(pairs, count, c->n, number);
    c->item_of = mem_array((size_t)p->n + 1, sizeof *c->item_of);
    for (int32_t i = 0; i < p->n; i++)
        c->item_of[i] = number[group[p->nodes[i].color]];
    for (int32_t i = 0; i < count; i++)
        pairs[i] = (struct pair){number[pairs[i].a], number[pairs[i].b]};
    free(parent), free(merged), free(number);
    return pairs_clean(pairs, count, c->n);
}

bool partition_core_create(const struct partition_problem *p, struct partition_watch *w,
                           struct partition_core *c) {
    *c = (struct partition_core){.accels = p->accels,
                                 .cpus = p->cpus,
                                 .max_size = p->max_size,
                                 .micro_batches = p->micro_batches};
    int32_t *group = mem_array((size_t)p->colors + 1, sizeof *group);
    struct pair *pairs = mem_array((size_t)p->m + 1, sizeof *pairs);
    int32_t n = group_classes(p, w, pairs, group);
    int32_t count =
        partition_watch_stop_now(w) ? 0 : number_nodes(p, w, group, n, pairs, c);
    if (!partition_watch_stop_now(w)) {
        build_order(c, pairs, count);
        build_items(p, c);
    }
    free(pairs);
    if (!partition_watch_stop_now(w))
        build_tensors(p, c);
    if (!partition_watch_stop_now(w))
        partition_rates_create(c);
    free(group);
    return !w->stopped;
}

void partition_core_release(struct partition_core *c) {
    free(c->item_of), free(c->accel), free(c->cpu), free(c->size), free(c->act);
    free(c->supported), free(c->desc), free(c->weight), free(c->key);
    lists_release(&c->pred), lists_release(&c->succ);
    lists_release(&c->pins), lists_release(&c->touch);
    partition_rates_release(c);
    *c = (struct partition_core){0};
}

void partition_chain_init(struct partition_chain *ch, int32_t n) {
    *ch = (struct partition_chain){.value = INFINITY};
    ch->stage_of = mem_array((size_t)n + 1, sizeof *ch->stage_of);
    ch->is_cpu = mem_array((size_t)n + 1, sizeof *ch->is_cpu);
}

void partition_chain_release(struct partition_chain *ch) {
    free(ch->stage_of);
    free(ch->is_cpu);
}
