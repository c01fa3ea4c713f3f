/* search_tool.h - what the files of weft-search share. */
#ifndef WEFT_SEARCH_TOOL_H
#define WEFT_SEARCH_TOOL_H

#include "common/mem.h"
#include "search/algorithms/algorithms.h"
#include "words.h"

/* The pins of the model, of --pin, and of one more document, or NULL. weft-search.c has it. */
struct pins *search_read_pins(const struct model *m, const json_t *more, struct err *err);

/* The micro-batches to consider: those of --micro-batch, else what is pinned, else the usual ones. The
 * list is the caller's. */
struct micro_batches {
    ARR(int64_t) list;
};
int search_micro_batches(const struct search_problem *p, struct micro_batches *out,
                         struct err *err);

/* What answers for this cluster and type, as the options say; owned by the caller. */
struct cost_provider *search_open_provider(const struct cluster *c, enum dtype dtype,
                                           struct err *err);

/* --pareto (search_pareto.c): searches again and again with less memory than the plan before needs,
 * and writes the plans of which none is both faster and smaller, a line of JSON each, the fastest
 * first; `target` as in search_for_run. EXIT_NO where no plan fits at all. */
int search_pareto(const char *target, const struct search_problem *p,
                  search_algorithm *algorithm, FILE *f, struct err *err);

/* --explain (search_explain.c): why the plan is what it is, for people: what bounds it, what it would
 * cost to decide otherwise, what more memory or devices would give. Searches once for each line.
 * `from`: what runs now, or NULL; with a target, what of it to change for that trainer. */
int search_explain(const char *target, const struct search_problem *p,
                   search_algorithm *algorithm, const struct plan *from,
                   const struct search_result *r, FILE *f, struct err *err);

/* --verify (pool_evaluate_best.c): judges a plan and writes what was found out; `p` has the cluster, the
 * provider and what limits the space. EXIT_NO where the plan is not what it says. */
int search_print_verdict(struct search_problem *p, struct plan *plan, FILE *f,
                         struct err *err);

/* --for TARGET (search_for.c): limits the space to what another trainer's options can say, and forgets a
 * plan to start from that they cannot. */
int search_for_limit(struct search_problem *p, const char *target, struct err *err);
/* search_run, of whose plans those are kept of which the options say all; any plan where target is
 * NULL. EXIT_NO where none is. */
int search_for_run(const char *target, const struct search_problem *p,
                   search_algorithm *algorithm, struct search_result *out, struct err *err);
/* Which lines of the trainer's form go (-) and which come (+) from one plan to the other. */
int search_for_changes(const char *target, const struct plan *from, const struct plan *to,
                       FILE *f, struct err *err);

/* --cost aceso:FOLDER (search_aceso.c): the search over Aceso's tables, which has a space, a cost model
 * and plans of its own, and so its own list of the options that mean something there. */
int search_aceso(int argc, char **argv, struct err *err);

#endif
