/* joint_ideals.c - down-sets of the DAG, closed under successors, and what lies between
 * two.
 *
 * They are found by adding one node at a time to sets already known, each set once thanks
 * to a hash table of bit sets, and numbered by rising size. Pairs (small, large) are the
 * possible stages; they are listed by walking upwards from each set, and a walk ends where
 * no tensor degree can hold the nodes between even with one micro-batch in flight and one
 * replica, because more nodes only take more memory.
 */
#include "solve/joint.h"

#include "common/hashtable.h"
#include "common/progress.h"
#include "common/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_IDEALS 200000
#define MAX_SUMS   8000000

enum { TOO_MANY = 1 }; /* beside 0 and -1 */

static bool has(const uint64_t *s, int v) {
    return s[v >> 6] >> (v & 63) & 1;
}

static bool same_set(const void *ideals, int64_t i, const void *set) {
    const struct joint_ideals *x = ideals;
    return !memcmp(x->bits + i * x->words, set, (size_t)x->words * sizeof *x->bits);
}

/* The number of a set; x->n when it is new. */
static int find(const struct joint_ideals *x, struct hashtable *t, const uint64_t *s) {
    uint64_t hash = hash_bytes(s, (size_t)x->words * sizeof *s, 0);
    return (int)hashtable_put(t, hash, same_set, x, s);
}

/* v may join s when all its successors are in. */
static bool may_join(const struct joint_problem *p, const uint64_t *s, int v) {
    if (has(s, v))
        return false;
    for (int i = 0; i < p->node[v].num_out; i++)
        if (!has(s, p->node[v].out[i].node))
            return false;
    return true;
}

struct step {
    int to, node;
};

struct steps {
    int64_t *start;
    ARR(struct step) list; /* immediate larger sets of each set */
};

/* Breadth first, so sets come by rising size. */
static int list_sets(struct joint_ideals *x, const struct joint_problem *p,
                     struct steps *up, struct hashtable *t, double deadline_s,
                     struct err *err) {
    uint64_t *s = mem_array((size_t)x->words, sizeof *s);
    x->n = find(x, t, s) + 1;
    for (int i = 0; i < x->n; i++) {
        up->start[i] = up->list.n;
        for (int v = 0; v < p->nodes; v++) {
            const uint64_t *from = x->bits + (int64_t)i * x->words;
            if (!may_join(p, from, v))
                continue;
            memcpy(s, from, (size_t)x->words * sizeof *s);
            s[v >> 6] |= UINT64_C(1) << (v & 63);
            int to = find(x, t, s);
            if (to == x->n) {
                memcpy(x->bits + (int64_t)to * x->words, s, (size_t)x->words * sizeof *s);
                x->size[to] = x->size[i] + 1;
                x->n++;
            }
            arr_push(&up->list, (struct step){to, v});
        }
        if (x->n + p->nodes > MAX_IDEALS || now_s() >= deadline_s || interrupted()) {
            free(s);
            return x->n + p->nodes > MAX_IDEALS
                       ? TOO_MANY
                       : err_no(
                             err,
                             "no answer was found within the time budget; there may be one (ended while listing down-sets)");
        }
    }
    up->start[x->n] = up->list.n;
    free(s);
    return 0;
}

/* Suffixes of one order: nodes whose successors are all in, the latest enabled first, which
 * follows chains to their beginning before it turns to others. */
static void list_line(struct joint_ideals *x, const struct joint_problem *p,
                      struct steps *up) {
    int *open = mem_array((size_t)p->nodes, sizeof *open);
    int *ready = mem_array((size_t)p->nodes, sizeof *ready), n = 0;
    for (int v = 0; v < p->nodes; v++)
        if (!(open[v] = p->node[v].num_out))
            ready[n++] = v;
    memset(x->bits, 0, (size_t)x->words * sizeof *x->bits);
    up->list.n = 0;
    for (x->n = 1; n > 0; x->n++) {
        int v = ready[--n];
        uint64_t *s = x->bits + (int64_t)x->n * x->words;
        memcpy(s, s - x->words, (size_t)x->words * sizeof *s);
        s[v >> 6] |= UINT64_C(1) << (v & 63);
        x->size[x->n] = x->n;
        up->start[x->n - 1] = up->list.n;
        arr_push(&up->list, (struct step){x->n, v});
        for (int i = 0; i < p->node[v].num_in; i++)
            if (!--open[p->node[v].in[i].node])
                ready[n++] = p->node[v].in[i].node;
    }
    up->start[x->n - 1] = up->start[x->n] = up->list.n;
    x->line = true;
    free(open);
    free(ready);
}

/* ---- sums of a stage ------------------------------------------------------------- */

/* Time of the edges of v that leave the stage large \ small, for one choice. */
static double edge_time(const struct joint_problem *p, const struct joint_node *v,
                        const struct joint_choice *c, const uint64_t *small,
                        const uint64_t *large) {
    double bytes = 0;
    for (int i = 0; i < v->num_in; i++)
        if (!has(large, v->in[i].node) || has(small, v->in[i].node))
            bytes += v->in[i].bytes + c->fw[i];
    for (int i = 0; i < v->num_out; i++)
        if (!has(large, v->out[i].node) || has(small, v->out[i].node))
            bytes += v->out[i].bytes + c->bw[i];
    return 2 * bytes / p->bandwidth;
}

void joint_items_make(struct joint_items *it, const struct joint_problem *p,
                      const uint64_t *small, const uint64_t *large, int degree) {
    it->items.n = it->group.n = 0;
    for (int v = 0; v < p->nodes; v++) {
        const struct joint_node *n = &p->node[v];
        if (!has(large, v) || has(small, v))
            continue;
        arr_push(&it->group, (int)it->items.n);
        for (int c = n->first[degree]; c < n->first[degree + 1]; c++) {
            const struct joint_choice *k = &n->choices[c];
            arr_push(&it->items,
                     (struct joint_item){v, c, k->p + edge_time(p, n, k, small, large),
                                         k->w, k->a, k->b});
        }
    }
    arr_push(&it->group, (int)it->items.n);
}

void joint_items_release(struct joint_items *it) {
    arr_release(&it->items);
    arr_release(&it->group);
}

/* Sums over the items; false when some node cannot run at this degree. */
static bool sum_up(const struct joint_items *it, struct joint_sums *s) {
    s->plain = true;
    for (int64_t g = 0; g + 1 < it->group.n; g++) {
        if (it->group.p[g] == it->group.p[g + 1])
            return false;
        const struct joint_item *i = it->items.p + it->group.p[g];
        const struct joint_item *end = it->items.p + it->group.p[g + 1], *fast = i;
        double w = i->w, a = i->a, b = i->b;
        for (; i < end; i++) {
            s->plain &= i->w == fast->w;
            if (i->base < fast->base)
                fast = i;
            w = fmin(w, i->w);
            a = fmin(a, i->a);
            b = fmin(b, i->b);
        }
        s->base += fast->base;
        s->w += w;
        s->a += a;
        s->b += b;
        s->fast_a += fast->a;
        s->fast_b += fast->b;
    }
    return true;
}

/* Adds the pair if some degree can hold it; returns whether larger ones may be held. */
static bool add_pair(struct joint_ideals *x, const struct joint_problem *p, int small,
                     int large, struct joint_items *it) {
    struct joint_pair pair = {.to = large, .first = x->sums.n};
    bool grow = false;
    for (int g = 0; g < p->num_degrees; g++) {
        struct joint_sums s = {.degree = g};
        joint_items_make(it, p, x->bits + (int64_t)small * x->words,
                         x->bits + (int64_t)large * x->words, g);
        if (!sum_up(it, &s) || s.a + s.b > p->capacity)
            continue;
        grow = true;
        arr_push(&x->sums, s);
        pair.count++;
    }
    if (grow)
        arr_push(&x->pairs, pair);
    return grow;
}

static int list_pairs(struct joint_ideals *x, const struct joint_problem *p,
                      const struct steps *up, double deadline_s, struct err *err) {
    x->pairs.n = x->sums.n = 0;
    int *seen = mem_array((size_t)x->n, sizeof *seen);
    int *queue = mem_array((size_t)x->n, sizeof *queue);
    struct joint_items it = {0};
    int bad = 0;
    for (int i = 0; i < x->n && !bad; i++) {
        int head = 0, n = 0;
        x->start[i] = x->pairs.n;
        queue[n++] = i;
        seen[i] = i + 1;
        while (head < n) {
            int at = queue[head++];
            if (at != i && !add_pair(x, p, i, at, &it))
                continue;
            for (int64_t e = up->start[at]; e < up->start[at + 1]; e++) {
                int to = up->list.p[e].to;
                if (seen[to] != i + 1) {
                    seen[to] = i + 1;
                    queue[n++] = to;
                }
            }
        }
        if (x->sums.n > MAX_SUMS && !x->line)
            bad = TOO_MANY;
        else if (now_s() >= deadline_s || interrupted())
            bad = err_no(
                err,
                "no answer was found within the time budget; there may be one (ended while listing possible stages)");
    }
    x->start[x->n] = x->pairs.n;
    joint_items_release(&it);
    free(seen);
    free(queue);
    return bad;
}

int joint_ideals_make(struct joint_ideals *x, const struct joint_problem *p,
                      double deadline_s, struct err *err) {
    *x = (struct joint_ideals){.words = (p->nodes + 63) / 64};
    x->bits = mem_array((size_t)MAX_IDEALS * (size_t)x->words, sizeof *x->bits);
    x->size = mem_array(MAX_IDEALS, sizeof *x->size);
    x->start = mem_array(MAX_IDEALS + 1, sizeof *x->start);
    struct hashtable t = {0};
    struct steps up = {.start = mem_array(MAX_IDEALS + 1, sizeof *up.start)};
    int bad = list_sets(x, p, &up, &t, deadline_s, err);
    if (!bad)
        bad = list_pairs(x, p, &up, deadline_s, err);
    if (bad == TOO_MANY) {
        list_line(x, p, &up);
        bad = list_pairs(x, p, &up, deadline_s, err);
    }
    hashtable_release(&t);
    free(up.start);
    arr_release(&up.list);
    if (bad)
        joint_ideals_release(x);
    return bad ? -1 : 0;
}

void joint_ideals_release(struct joint_ideals *x) {
    free(x->bits);
    free(x->size);
    free(x->start);
    arr_release(&x->pairs);
    arr_release(&x->sums);
    *x = (struct joint_ideals){0};
}
