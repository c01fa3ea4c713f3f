/* search_explain.h - what the files of weft-search --explain share: search_explain.c prints lines and
 * follows from them what binds; search_explain_source.c knows which decisions there are with --cost. */
#ifndef WEFT_SEARCH_EXPLAIN_H
#define WEFT_SEARCH_EXPLAIN_H

#include "search_tool.h"

struct explain {
    const struct search_problem *p;
    search_algorithm *algorithm;
    const struct search_plan *best;
    FILE *f;
    bool stopped;
    struct err *err;    /* of writing; */
    bool failed;        /* then nothing more is tried */
    double next;        /* the least ratio of another decision, */
    char next_name[64]; /* and which one; "" = none */
    double unlimited; /* ratio without a limit of memory; 0 = there is none, or not known */
    double unpinned;  /* and without pins */
};

/* ", collectives 12.1 %", where that is anything of the whole. */
void explain_share(FILE *f, const char *what, double us, double of);

/* Another decision: a search of the problem, and its line. */
void explain_other(struct explain *x, const char *what, const struct search_problem *p);

/* How many stages else to look at, n of them now; returns how many numbers there are. */
int explain_stages(const struct explain *x, int n, int out[3]);

/* ---- with --cost --------------------------------------------------------------------------- */

/* Where the time of the stage that sets the pace goes, and which one is fullest. */
void explain_source_bounds(const struct explain *x);

/* Stages, tensor parallelism and recomputation pinned otherwise, a search for each. */
void explain_source_decisions(struct explain *x);

#endif
