/* joint_items.c - the alternatives of the nodes of one stage, and sums over them. */
#include "solve/joint/joint.h"

#include <math.h>
#include <stdlib.h>

/* Returns the seconds over the edges of v that leave the stage large \ small, for one
 * choice. */
static double edge_time(const struct joint_problem *p, const struct joint_node *v,
                        const struct joint_choice *c, const uint64_t *small,
                        const uint64_t *large) {
    double bytes = 0;
    for (int i = 0; i < v->num_in; i++)
        if (!joint_has(large, v->in[i].node))
            bytes += v->in[i].bytes + c->fw[i];
    for (int i = 0; i < v->num_out; i++)
        if (joint_has(small, v->out[i].node))
            bytes += v->out[i].bytes + c->bw[i];
    return 2 * bytes / p->bandwidth;
}

static void add_node(struct joint_items *it, const struct joint_problem *p, int v,
                     const uint64_t *small, const uint64_t *large, int degree) {
    const struct joint_node *n = &p->node[v];
    arr_push(&it->group, (int)it->items.n);
    for (int c = n->first[degree]; c < n->first[degree + 1]; c++) {
        const struct joint_choice *k = &n->choices[c];
        double base = k->p + edge_time(p, n, k, small, large);
        arr_push(&it->items, (struct joint_item){v, c, base, k->w, k->a, k->b});
    }
}

void joint_items_make(struct joint_items *it, const struct joint_problem *p,
                      const uint64_t *small, const uint64_t *large, int degree) {
    it->items.n = it->group.n = 0;
    for (int i = 0; i < (p->nodes + 63) / 64; i++)
        for (uint64_t left = large[i] & ~small[i]; left; left &= left - 1)
            add_node(it, p, 64 * i + __builtin_ctzll(left), small, large, degree);
    arr_push(&it->group, (int)it->items.n);
}

void joint_items_release(struct joint_items *it) {
    arr_release(&it->items);
    arr_release(&it->group);
}

bool joint_items_sum(const struct joint_items *it, struct joint_sums *s) {
    *s = (struct joint_sums){.plain = true};
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
