/* layout_table.h - rows of numbers of a document, packed: 8 bytes per number, equal rows
 * once.
 *
 * The matrices of a large problem are its largest part by far, and most of them are equal,
 * because layers repeat. So rows are compared as they are read.
 */
#ifndef WEFT_SOLVE_LAYOUT_TABLE_H
#define WEFT_SOLVE_LAYOUT_TABLE_H

#include "common/hashtable.h"
#include "common/json_stream.h"
#include "common/mem.h"

struct layout_row {
    int64_t begin, n; /* its numbers */
};

struct layout_table {
    const char *name; /* in the document, for messages; NULL: it was not there */
    ARR(struct layout_row) row;
    ARR(int64_t) number; /* whole numbers; where `real` says so, the bits of a double */
    ARR(bool) real;      /* (number.n), or shorter: the rest is whole */
    struct hashtable seen;
    ARR(struct layout_row) distinct; /* rows that `seen` holds */
};

enum layout_table_form {
    LAYOUT_TABLE_ROWS,  /* an array of arrays */
    LAYOUT_TABLE_COSTS, /* the same, of numbers from 0 to LAYOUT_MAX */
    LAYOUT_TABLE_FLAT,  /* an array of numbers: one row */
};

/* Reads the next value of the stream. Errors name the place, as in "nodes.costs[3][1]:
 * expected ...". */
int layout_table_read(struct layout_table *t, struct json_stream *s, const char *name,
                      enum layout_table_form form, struct err *err);
void layout_table_release(struct layout_table *t);

/* Returns number `at` of the table. */
double layout_table_value(const struct layout_table *t, int64_t at);
static inline bool layout_table_whole(const struct layout_table *t, int64_t at) {
    return at >= t->real.n || !t->real.p[at];
}

/* Reads number s of row r as a whole number in lo..hi; errors name the row. */
int layout_table_int(const struct layout_table *t, int64_t r, int64_t s, int64_t lo,
                     int64_t hi, int64_t *out, struct err *err);

/* Checks that the table was there and has n rows (n < 0: any). */
int layout_table_expect(const struct layout_table *t, const char *name, int64_t n,
                        struct err *err);

#endif
