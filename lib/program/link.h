/* link.h - inside the compiler: what is left to do once every stage is compiled. */
#ifndef WEFT_LINK_H
#define WEFT_LINK_H

#include "program/program.h"

/* The stages of a device group share one arena: each gets its place there. */
void arenas_place(struct program *g);
/* Both ends of every transfer: its pieces, then its staging, behind all else in either arena. */
void transfers_place(struct program *g);

/* How many messages of each transfer may be under way at once (depth.c). */
void transfers_depth(struct program *g);
/* The largest sizes of a transfer, over the ranks of both ends (transfer.c). */
void transfer_link(struct program *g, struct transfer *t);

#endif
