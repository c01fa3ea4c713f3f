/* search_tool.h - what the files of weft-search share. */
#ifndef WEFT_SEARCH_TOOL_H
#define WEFT_SEARCH_TOOL_H

#include "search/search.h"

/* --verify: judges a plan file and prints what was found out; `p` has the cluster, the provider and
 * what limits the space. EXIT_NO where the plan is not what it says. */
int verify_plan(struct search_problem *p, struct plan *plan, struct err *err);

#endif
