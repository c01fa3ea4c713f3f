/* blocks.h - what in a model repeats, once and for all: its structure, and the deduplicated model in
 * which each repeated layer stands at most three times (structure.h).
 *
 * Ops of the deduplicated model are its *nodes* where instances of a layer count once. Everything that
 * the search works out, it works out for these.
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
    struct structure xs;       /* its structure: its edges */
    int offload;               /* sets of OFFLOADS of all ops, unless pinned */
};

/* Ops that pins treat differently are not alike. */
void blocks_init(struct blocks *b, const struct model *m, const struct pins *pins);
void blocks_release(struct blocks *b);

/* What an op of the deduplicated model has in a stage with this level of ZeRO, or this choice to gather
 * again; and which sets of OFFLOADS it keeps on hosts: pins decide first. */
int blocks_zero(const struct blocks *b, int op, int zero);
bool blocks_regather(const struct blocks *b, int op, bool regather);
int blocks_offload(const struct blocks *b, int op);

/* The edge of the deduplicated model for an edge of the whole one. */
const struct edge *blocks_small_edge(const struct blocks *b, const struct edge *e);

#endif
