/* layout_doc.h - a layout document as it stands: its arrays, packed, before they are put
 * together. */
#ifndef WEFT_SOLVE_LAYOUT_DOC_H
#define WEFT_SOLVE_LAYOUT_DOC_H

#include "solve/layout/layout_table.h"

struct layout_doc {
    struct layout_table costs, more_costs, usages, ends, matrices, alias, excluded;
    struct layout_table intervals;          /* the contest's */
    struct layout_table live, lens, follow; /* Alpa's */
    json_t *name, *test, *limit, *budget;   /* NULL: not there */
};

/* Reads the whole stream into d. Release it even on failure. */
int layout_doc_read(struct layout_doc *d, struct json_stream *s, struct err *err);
void layout_doc_release(struct layout_doc *d);

#endif
