/* The cheapest ways through a chain whose ops are all told apart: each op in one of its layouts,
 * computed again or not, at a price of bytes. See source.h. */
#include "search/source/source.h"
#include "search/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYOUTS = 16 };

/* One op under each of its layouts; [2]: not marked, marked. */
struct choices {
    int n;
    struct layout layouts[MOST_LAYOUTS];
    struct source_op costs[MOST_LAYOUTS];
    double between[MOST_LAYOUTS][MOST_LAYOUTS]; /* from the op before, and its layout */
    double best[MOST_LAYOUTS][2];               /* up to here */
    int from[MOST_LAYOUTS][2];                  /* 2 * layout + mark of the op before */
};

struct trellis {
    const struct space *sp;
    int first;
    struct choices *ops; /* of ops first .. */
    struct layout *path; /* by node */
};

static void fill(struct trellis *t, const struct source_ask *ask, const struct mesh *mesh,
                 int op) {
    struct source *src = t->sp->p.source;
    const struct model *m = t->sp->p.model;
    struct choices *to = &t->ops[op - t->first], *before = op > t->first ? to - 1 : NULL;
    struct layout all[MOST_LAYOUTS];
    int n = source_layouts(&m->ops[op], mesh, m->batch, all, MOST_LAYOUTS);
    for (int k = 0; k < n; k++) {
        if (!src->op(src, ask, op, &all[k], &to->costs[to->n]))
            continue;
        to->layouts[to->n] = all[k];
        for (int b = 0; before && b < before->n; b++)
            to->between[b][to->n] =
                src->between(src, ask, op, &before->layouts[b], &all[k]);
        to->n++;
    }
}

struct trellis *trellis_make(const struct space *sp, const struct source_ask *ask) {
    struct trellis *t = mem_alloc(sizeof *t);
    struct mesh mesh;
    size_t nodes = (size_t)sp->blocks.x.n_nodes;
    *t = (struct trellis){.sp = sp, .first = ask->first};
    t->ops = mem_array((size_t)(ask->end - ask->first), sizeof *t->ops);
    t->path = mem_array(nodes, sizeof *t->path);
    memset(t->path, PLACE_NONE, nodes * sizeof *t->path);
    if (ask->layouts)
        memcpy(t->path, ask->layouts, nodes * sizeof *t->path);
    stage_mesh(ask->devices, ask->mesh, &mesh);
    for (int i = ask->first; i < ask->end; i++)
        fill(t, ask, &mesh, i);
    return t;
}

void trellis_free(struct trellis *t) {
    free(t->ops);
    free(t->path);
    free(t);
}

static void step(struct choices *c, const struct choices *before, int k, double price) {
    const struct source_op *o = &c->costs[k];
    for (int mark = 0; mark < 2; mark++) {
        double best = INFINITY;
        for (int b = 0; b < before->n; b++) {
            double between = c->between[b][k];
            double plain = before->best[b][0] + between;
            double marked = before->best[b][1] + between -
                            (mark ? price * before->costs[b].recompute_bytes : 0);
            double us = marked < plain ? marked : plain;
            if (us < best) {
                best = us;
                c->from[k][mark] = 2 * b + (marked < plain);
            }
        }
        c->best[k][mark] = best + o->us + price * o->bytes + (mark ? o->recompute_us : 0);
    }
}

double trellis_walk(struct trellis *t, int first, int end, double us_per_byte) {
    double least = INFINITY;
    for (int i = first; i < end; i++) {
        struct choices *c = &t->ops[i - t->first];
        least = INFINITY;
        for (int k = 0; k < c->n; k++) {
            if (i > first) {
                step(c, c - 1, k, us_per_byte);
            } else {
                c->best[k][0] = c->costs[k].us + us_per_byte * c->costs[k].bytes;
                c->best[k][1] = c->best[k][0] + c->costs[k].recompute_us;
            }
            least = fmin(least, fmin(c->best[k][0], c->best[k][1]));
        }
    }
    return least;
}

const struct layout *trellis_trace(struct trellis *t, int first, int end, double most_us) {
    const struct choices *c = &t->ops[end - 1 - t->first];
    int at = 0;
    for (int i = 1; i < 2 * c->n; i++)
        if (c->best[i / 2][i % 2] < c->best[at / 2][at % 2])
            at = i;
    if (!c->n || !isfinite(c->best[at / 2][at % 2]))
        return NULL;
    double us = 0;
    for (int i = end - 1; i >= first; i--) {
        c = &t->ops[i - t->first];
        int k = at / 2, mark = at % 2;
        us += c->costs[k].us + (mark ? c->costs[k].recompute_us : 0);
        t->path[t->sp->blocks.x.node_of[t->sp->blocks.x.of[i]]] = c->layouts[k];
        if (i > first) {
            us += c->between[c->from[k][mark] / 2][k];
            at = c->from[k][mark];
        }
    }
    return us < most_us ? space_layouts(t->sp, t->path) : NULL;
}
