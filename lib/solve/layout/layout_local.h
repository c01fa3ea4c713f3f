/* layout_local.h - choices within the memory rows: building one, improving it.
 *
 * A state holds a value for every variable of the core, its cost and the slack of the rows.
 */
#ifndef WEFT_SOLVE_LAYOUT_LOCAL_H
#define WEFT_SOLVE_LAYOUT_LOCAL_H

#include "solve/layout/layout_dual.h"
#include "solve/layout/layout_rows.h"

struct layout_state {
    struct layout_core *c;
    int *x;        /* (n_vars) value of each variable, 0 for those that are gone */
    int64_t value; /* scaled cost of x */
    struct layout_rows rows;
    int64_t *sum;      /* (most values) work space */
    int *order;        /* (most values) work space */
    int *weight;       /* (n_vars) how often building a choice failed at the variable */
    double deadline_s; /* now_s() at which building and descent stop; 0 = never */
};

void layout_state_init(struct layout_state *s, struct layout_core *c);
void layout_state_release(struct layout_state *s);

/* Sets x; returns whether it is allowed (no forbidden entry, all rows kept). */
bool layout_state_set(struct layout_state *s, const int *x);

/* Builds x along the messages of the dual (layout_dive.c), with at most `tries` attempts.
 * True if a full choice came out. */
bool layout_state_decode(struct layout_state *s, struct layout_dual *d, int tries);

/* Moves single variables as long as that makes the state cheaper. */
void layout_state_descend(struct layout_state *s);

/* Puts the values of s->sum[0..k-1] in rising order into s->order. */
void layout_state_sort(struct layout_state *s, int k);

#endif
