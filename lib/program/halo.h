/* halo.h - which rows of whose block a window needs.
 *
 * A dim of rows is cut into even blocks, one for each rank of a group. What windows that
 * slide over it make is cut evenly too, so for its part rank i of the group needs the rows
 * from i * step - lead on: its own, those of neighbours at any distance, and padding where
 * there is no row. Everything that the ranks send each other follows from this.
 *
 *     struct halo h = {.rows = 4, .window = 6, .step = 4, .lead = 1, .parts = 2};
 *     struct halo_run r = halo_run(&h, 0, 1); // row 3 of block 0 is row 0 of window 1: {3, 0, 1}
 */
#ifndef WEFT_HALO_H
#define WEFT_HALO_H

#include "program/instr.h"

/* Rows that a block and a window have in common; n = 0: none. */
struct halo_run {
    int64_t in_block, in_window, n;
};
struct halo_run halo_run(const struct halo *h, int owner, int reader);

/* What member `me` has to send to `peer`, as rows of what it holds: of its block, or,
 * backward, of its window. n = 0 for itself. */
struct halo_piece {
    int64_t first, n;
};
struct halo_piece halo_sent(const struct halo *h, int me, int peer);
/* What it gets from a peer: rows of its window, or, backward, of its block. */
struct halo_piece halo_got(const struct halo *h, int me, int peer);

/* The most rows that any member sends, and gets, in all. */
void halo_most(const struct halo *h, int64_t *sent, int64_t *got);

#endif
