/* Whether an epilogue is taken that weft can do without.
 *
 * The library may lack it for a type, or do it in a second pass of its own; then weft's pass is as good or
 * better. Which it is only a clock can say: the product with the epilogue, in the fastest way that the
 * library has for it, competes with the product and passes behind it, on the same operands. */
#include "cuda/cuda_product_impl.h"

#include "cuda/cuda_fastest.h"

#include <string.h>

enum { APART, FUSED, RIVALS };

static bool run_rival(void *arg, int way) {
    const struct cuda_rivals *r = arg;
    return r->run(r->arg, way == FUSED);
}

/* The one that comes second must be the faster by more than noise. */
static int compete(struct cuda_call *c, struct product_entry *e,
                   const struct cuda_rivals *rivals) {
    const struct cuda_products *p = c->dev->products;
    struct cuda_rivals both = *rivals;
    const struct cuda_contest contest = {RIVALS, run_rival, &both, c->stream};
    int best;
    if (cuda_fastest(&contest, &best, &e->us, c->err) < 0)
        return -1;
    e->known = best == FUSED;
    e->none = best == APART;
    return product_found(p, e, c->err) < 0 ? -1 : best;
}

/* A way that was asked for. */
static int obey(struct cuda_call *c, struct product_entry *e, const struct cuda_operands *o,
                void *workspace, int64_t workspace_bytes) {
    if (e->none || !strcmp(c->dev->epilogues, "apart"))
        return 0;
    const int rc = product_choose(c->dev->products, e, o, workspace, workspace_bytes,
                                  c->stream, c->err);
    return rc < 0 ? -1 : rc == 0;
}

int cuda_product_fuses(struct cuda_call *c, const struct cuda_product *q,
                       const struct cuda_operands *o, void *workspace,
                       int64_t workspace_bytes, const struct cuda_rivals *rivals) {
    struct cuda_products *p = c->dev->products;
    struct product_entry *e = product_entry(p, q, o, c->err);
    if (!e)
        return -1;
    if (e->known)
        return 1;
    if (c->dev->epilogues)
        return obey(c, e, o, workspace, workspace_bytes);
    if (e->none || product_known(p, e, o, workspace_bytes))
        return e->known;
    if (!p->tunes) {
        e->none = true;
        return 0;
    }
    const int rc = product_choose(p, e, o, workspace, workspace_bytes, c->stream, c->err);
    return rc < 0 ? -1 : rc > 0 ? 0 : compete(c, e, rivals);
}
