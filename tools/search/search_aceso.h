/* search_aceso.h - what the files of weft-search --cost aceso:FOLDER share. */
#ifndef WEFT_SEARCH_ACESO_H
#define WEFT_SEARCH_ACESO_H

#include "aceso/aceso_search.h"
#include "words.h"

#include <stdio.h>

/* A configuration in one line: "pp 2, dp 1..2, tp 1, 33 ops marked for recomputation,
 * micro-batch 4"; buf of n bytes, which is returned. */
const char *search_aceso_words(const struct aceso_config *c, char *buf, size_t n);

/* --explain: what bounds the best configuration, and what others would take. */
int search_aceso_explain(const struct aceso_problem *p, const struct aceso_plan *best,
                         FILE *f, struct err *err);

#endif
