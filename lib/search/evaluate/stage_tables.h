/* stage_tables.h - what a stage costs, as tables over the layouts of its ops: a
 * problem for lib/solve/critical/critical.h.
 *
 * A variable is a node of the strategy graph in the stage; a value is one of its
 * layouts. Tables have microseconds over a step and bytes on a device: of nodes, and
 * of edges over all the nodes that they connect, exactly as prefix sums add them up.
 * Gradients that are reduced in one collective are charged by the element, at the
 * lowest time per element that any number of them has. Temporaries and the effects of
 * recompute are left out. So the sum never exceeds what the stage takes, unless an
 * edge has more combinations of layouts than a table may have entries. Then `exact` is
 * false, and the ops of that edge are considered in pairs while the others keep their
 * layouts.
 *
 * An op is critical if no tensor bypasses it. Tensors that several instances of a repeat
 * read do not count as bypassing; the ops that make them are critical too.
 *
 *     struct stage_tables t;
 *     if (stage_tables_make(ev, &setting, &stage, &in_flight, true, &t) &&
 *         critical_solve(&t.p, &options, &answer) == 0)
 *         use(t.node[v], t.layouts[v][answer.choice[v]]);
 *     stage_tables_release(&t);
 */
#ifndef WEFT_STAGE_TABLES_H
#define WEFT_STAGE_TABLES_H

#include "search/evaluate/evaluate.h"
#include "solve/critical/critical.h"

struct stage_tables {
    struct critical_problem p; /* without a limit */
    int *node;                 /* [variables] node of the strategy graph */
    struct layout **layouts;   /* [variables][values] */
    bool exact;
    uint64_t hash; /* of all tables */
    struct arena arena;
    ARR(struct critical_factor) factors;
};

/* all: every legal layout is a value; otherwise value 0 is the layout that the stage has,
 * and the others are near it. Returns false if an op has no layout, or too many to list:
 * then there are no tables, but `out` has to be released all the same. */
bool stage_tables_make(struct evaluate *ev, const struct setting *setting,
                       const struct search_stage *st, const struct in_flight *in_flight,
                       bool all, struct stage_tables *out);
void stage_tables_release(struct stage_tables *t);

/* Sums the microseconds and bytes of a choice. */
void stage_tables_sum(const struct stage_tables *t, const int *choice, double *us,
                      double *bytes);

#endif
