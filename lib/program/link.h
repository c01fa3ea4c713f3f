/* link.h - inside the compiler: what is left to do once every stage is compiled. */
#ifndef WEFT_LINK_H
#define WEFT_LINK_H

#include "program/program.h"

/* Gives each stage its place in the arena that the stages of its device group share. */
void arenas_place(struct program *g);
/* Finds the pieces of every transfer, and places its staging behind all else in both
 * arenas. */
void transfers_place(struct program *g);

/* Finds how many messages of each transfer may be under way at once (depth.c). */
void transfers_depth(struct program *g);
/* Finds the largest sizes of a transfer, over the ranks of both ends (transfer.c). */
void transfer_link(struct program *g, struct transfer *t);

#endif
