/* Whether a product takes an epilogue that weft could do in a pass of its own.
 *
 * The library may lack the epilogue for a type, or do it in a second pass itself; then weft's pass is as good or
 * better. Only a clock can tell: the product with the epilogue, by its fastest algorithm, competes with the
 * product and the pass after it, on the same operands. */
#include "cuda/cuda_product_impl.h"

#include "cuda/cuda_fastest.h"

#include <string.h>

enum { APART, FUSED, RIVALS };

/* The product, and both ways. */
struct ways {
    const struct cuda_product *p;
    const struct cuda_operands *o;
    void *workspace;
    int64_t workspace_bytes;
    const struct cuda_rivals *rivals;
};

/* 1 where the library has no such product. */
static int give_fused(struct cuda_call *c, const struct ways *w) {
    const int rc = cuda_product(c, w->p, w->o, w->workspace, w->workspace_bytes);
    return rc || !w->rivals->behind ? rc : w->rivals->behind(c, w->rivals->arg);
}

/* A way that fails is not the fastest, and no more is said of it. */
struct trial {
    struct cuda_call c;
    const struct ways *ways;
};

static bool run_rival(void *arg, int way) {
    struct trial *t = arg;
    const struct cuda_rivals *r = t->ways->rivals;
    return (way == FUSED ? give_fused(&t->c, t->ways) : r->apart(&t->c, r->arg)) == 0;
}

/* The one that comes second must be the faster by more than noise. */
static int compete(struct cuda_call *c, struct product_entry *e, const struct ways *ways) {
    struct err ignored = {0};
    struct trial trial = {*c, ways};
    trial.c.err = &ignored;
    const struct cuda_contest contest = {RIVALS, run_rival, &trial, c->stream};
    int best;
    if (cuda_fastest(&contest, &best, &e->us, c->err) < 0)
        return -1;
    e->known = best == FUSED;
    e->none = best == APART;
    return product_found(c->dev->products, e, c->err) < 0 ? -1 : best;
}

/* A way that was asked for. */
static int obey(struct cuda_call *c, struct product_entry *e, const struct ways *w) {
    if (e->none || !strcmp(c->dev->epilogues, "apart"))
        return 0;
    const int rc = product_choose(c->dev->products, e, w->o, w->workspace,
                                  w->workspace_bytes, c->stream, c->err);
    return rc < 0 ? -1 : rc == 0;
}

/* Is fused the way to take? 1, 0 or -1. */
static int settle(struct cuda_call *c, const struct ways *w) {
    struct cuda_products *p = c->dev->products;
    struct product_entry *e = product_entry(p, w->p, w->o, c->err);
    if (!e)
        return -1;
    if (e->known)
        return 1;
    if (c->dev->epilogues)
        return obey(c, e, w);
    if (e->none || product_known(p, e, w->o, w->workspace_bytes))
        return e->known;
    if (!p->tunes) {
        e->none = true;
        return 0;
    }
    const int rc =
        product_choose(p, e, w->o, w->workspace, w->workspace_bytes, c->stream, c->err);
    return rc < 0 ? -1 : rc > 0 ? 0 : compete(c, e, w);
}

int cuda_product_either(struct cuda_call *c, const struct cuda_product *p,
                        const struct cuda_operands *o, void *workspace,
                        int64_t workspace_bytes, const struct cuda_rivals *rivals) {
    const struct ways ways = {p, o, workspace, workspace_bytes, rivals};
    int rc = settle(c, &ways);
    if (rc > 0 && (rc = give_fused(c, &ways)) <= 0)
        return rc < 0 ? -1 : 1;
    return rc < 0 ? -1 : rivals->apart(c, rivals->arg);
}
