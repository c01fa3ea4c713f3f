/* layout_rows.h - slacks of the memory rows under changes to ranges, in logarithmic
 * time. */
#ifndef WEFT_SOLVE_LAYOUT_ROWS_H
#define WEFT_SOLVE_LAYOUT_ROWS_H

#include "solve/layout/layout_core.h"

struct layout_rows {
    int n, size;    /* rows; leaves of the tree */
    int64_t *least; /* (2 * size) least of the node's rows, without additions above it */
    int64_t *add;   /* (2 * size) added to all rows of the node */
};

void layout_rows_init(struct layout_rows *t, const int64_t *cap, int n);
void layout_rows_reset(struct layout_rows *t, const int64_t *cap);
void layout_rows_release(struct layout_rows *t);
/* Adds x to the slack of rows lo..hi-1. */
void layout_rows_add(struct layout_rows *t, int lo, int hi, int64_t x);
/* Returns the least slack of rows lo..hi-1, LAYOUT_INF if there are none. */
int64_t layout_rows_least(const struct layout_rows *t, int lo, int hi);
/* Returns the least slack of all rows, 0 if there are none. */
int64_t layout_rows_worst(const struct layout_rows *t);
/* Returns the first row with the least slack of all. There must be rows. */
int layout_rows_worst_row(const struct layout_rows *t);

#endif
