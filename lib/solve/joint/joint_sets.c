/* joint_sets.c - sets of nodes closed under successors: all, or those of one order.
 *
 * All of them are found by adding one node at a time to sets already known, each set once
 * thanks to a hash table of bit sets.
 *
 * A node is free when it has successors and costs nothing at any degree: no time, no
 * memory, no parameters, no bytes over its edges. Such a node may stand in the stage of its
 * first successor: there all its predecessors come no later, and nothing is paid. So only
 * those sets are needed that hold a free node as soon as they hold all its successors.
 * Graphs taken from a trace have many such nodes (constants, handles), and each would
 * double the number of sets.
 */
#include "solve/joint/joint.h"

#include "common/hashtable.h"
#include "common/rng.h"

#include <stdlib.h>
#include <string.h>

struct maker {
    const struct joint_problem *p;
    struct joint_sets *x;
    struct hashtable table;
    int64_t cap;
    bool *free;
    uint64_t *set; /* the one that is being made */
};

static bool same_set(const void *sets, int64_t i, const void *set) {
    const struct joint_sets *x = sets;
    return !memcmp(x->bits + i * x->words, set, (size_t)x->words * sizeof *x->bits);
}

/* Stores m->set unless it is there already. */
static void keep(struct maker *m) {
    struct joint_sets *x = m->x;
    size_t bytes = (size_t)x->words * sizeof *x->bits;
    uint64_t hash = hash_bytes(m->set, bytes, 0);
    if (x->n == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 256;
        x->bits = mem_grow(x->bits, (size_t)m->cap, bytes);
    }
    int64_t at = hashtable_put(&m->table, hash, same_set, x, m->set);
    if (at == x->n)
        memcpy(x->bits + x->n++ * (int64_t)x->words, m->set, bytes);
}

static void load(struct maker *m, const uint64_t *set) {
    memcpy(m->set, set, (size_t)m->x->words * sizeof *set);
}

static void flip(uint64_t *set, int v) {
    set[v >> 6] ^= UINT64_C(1) << (v & 63);
}

/* Returns whether v may join s: all its successors must be in s. */
static bool may_join(const struct joint_problem *p, const uint64_t *s, int v) {
    if (joint_has(s, v))
        return false;
    for (int i = 0; i < p->node[v].num_out; i++)
        if (!joint_has(s, p->node[v].out[i].node))
            return false;
    return true;
}

/* ---- free nodes ------------------------------------------------------------------ */

static bool zero_bytes(const struct joint_edge *e, const double *sync, int n) {
    for (int i = 0; i < n; i++)
        if (e[i].bytes > 0 || sync[i] > 0)
            return false;
    return true;
}

static bool zero_choice(const struct joint_node *n, const struct joint_choice *c) {
    return c->p == 0 && c->w == 0 && c->a == 0 && c->b == 0 &&
           zero_bytes(n->in, c->fw, n->num_in) && zero_bytes(n->out, c->bw, n->num_out);
}

/* Returns whether u, too, pays nothing for its edge with v. */
static bool zero_end(const struct joint_problem *p, int u, int v) {
    const struct joint_node *n = &p->node[u];
    for (int c = n->first[0]; c < n->first[p->num_degrees]; c++) {
        for (int i = 0; i < n->num_in; i++)
            if (n->in[i].node == v && n->choices[c].fw[i] > 0)
                return false;
        for (int i = 0; i < n->num_out; i++)
            if (n->out[i].node == v && n->choices[c].bw[i] > 0)
                return false;
    }
    return true;
}

static bool is_free(const struct joint_problem *p, int v) {
    const struct joint_node *n = &p->node[v];
    if (!n->num_out)
        return false;
    for (int g = 0; g < p->num_degrees; g++) {
        bool some = false;
        for (int c = n->first[g]; c < n->first[g + 1] && !some; c++)
            some = zero_choice(n, &n->choices[c]);
        if (!some)
            return false;
    }
    for (int i = 0; i < n->num_in; i++)
        if (!zero_end(p, n->in[i].node, v))
            return false;
    for (int i = 0; i < n->num_out; i++)
        if (!zero_end(p, n->out[i].node, v))
            return false;
    return true;
}

/* Adds v, and the free nodes that may then join. */
static void join(struct maker *m, int v) {
    const struct joint_node *n = &m->p->node[v];
    flip(m->set, v);
    for (int i = 0; i < n->num_in; i++) {
        int u = n->in[i].node;
        if (m->free[u] && may_join(m->p, m->set, u))
            join(m, u);
    }
}

/* ---- the two families -------------------------------------------------------------- */

static void maker_init(struct maker *m, struct joint_sets *x,
                       const struct joint_problem *p) {
    *x = (struct joint_sets){.words = (p->nodes + 63) / 64};
    *m = (struct maker){.p = p, .x = x};
    m->free = mem_array((size_t)p->nodes, sizeof *m->free);
    m->set = mem_array((size_t)x->words, sizeof *m->set);
    keep(m);
}

static void maker_release(struct maker *m) {
    hashtable_release(&m->table);
    free(m->free);
    free(m->set);
}

int joint_sets_all(struct joint_sets *x, const struct joint_problem *p, int64_t most) {
    struct maker m;
    bool bad = false;
    maker_init(&m, x, p);
    for (int v = 0; v < p->nodes; v++)
        m.free[v] = is_free(p, v);
    for (int64_t i = 0; i < x->n && !bad; i++) {
        for (int v = 0; v < p->nodes; v++)
            if (!m.free[v] && may_join(p, x->bits + i * x->words, v)) {
                load(&m, x->bits + i * x->words);
                join(&m, v);
                keep(&m);
            }
        bad = x->n > most || (i % 1024 == 0 && joint_stopped(p));
    }
    maker_release(&m);
    if (bad)
        joint_sets_release(x);
    return bad;
}

void joint_sets_line(struct joint_sets *x, const struct joint_problem *p) {
    struct maker m;
    maker_init(&m, x, p);
    for (int taken = -1; taken;) {
        taken = 0;
        for (int v = p->nodes - 1; v >= 0; v--)
            if (may_join(p, m.set, v)) {
                flip(m.set, v);
                keep(&m);
                taken++;
            }
    }
    maker_release(&m);
}

void joint_sets_release(struct joint_sets *x) {
    free(x->bits);
    *x = (struct joint_sets){0};
}
