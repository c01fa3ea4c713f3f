/* blocks.h - which parts of a model repeat, found once: its structure, and the
 * deduplicated model, which has at most three instances of each repeated layer
 * (structure.h).
 *
 * An op of the deduplicated model has a *node*; the instances of a layer share their
 * nodes. Everything that the search computes, it computes for nodes.
 *
 *     struct blocks b;
 *     blocks_init(&b, model, NULL);
 *     int node = b.x.node_of[b.x.of[op]];
 *     blocks_release(&b);
 */
#ifndef WEFT_BLOCKS_H
#define WEFT_BLOCKS_H

#include "plan/pin.h"
#include "search/graph/structure.h"

struct blocks {
    const struct model *whole; /* borrowed */
    const struct pins *pins;   /* borrowed, or NULL */
    struct structure s;        /* of the whole model */
    struct dedup x;            /* the deduplicated model */
    struct structure xs;       /* its structure, mainly its edges */
    int offload;               /* set of OFFLOADS of all ops that pins leave free */
};

/* Ops that pins treat differently do not count as equal. */
void blocks_init(struct blocks *b, const struct model *m, const struct pins *pins);
void blocks_release(struct blocks *b);

/* What holds for an op of the deduplicated model: the level of ZeRO and the choice of
 * regathering in a stage that has these, and the set of OFFLOADS that it keeps on hosts.
 * Pins take precedence. */
int blocks_zero(const struct blocks *b, int op, int zero);
bool blocks_regather(const struct blocks *b, int op, bool regather);
int blocks_offload(const struct blocks *b, int op);

/* The edge of the deduplicated model for an edge of the whole one. */
const struct edge *blocks_small_edge(const struct blocks *b, const struct edge *e);

#endif
