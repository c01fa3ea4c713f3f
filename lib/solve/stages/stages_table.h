/* stages_table.h - dense tables of the stages problem, [first][last][submesh][config], from
 * a stream.
 *
 * A document may hold a gigabyte of them, half of it at last < first, where there is no
 * stage. Only entries at last >= first are kept, in the order of the document.
 */
#ifndef WEFT_SOLVE_STAGES_TABLE_H
#define WEFT_SOLVE_STAGES_TABLE_H

#include "common/mem.h"
#include "solve/solve.h"

#define STAGES_MAX_LAYERS 20000
#define STAGES_MAX_CELLS  200000000 /* entries of a table, and layers * devices */

struct stages_table {
    const char *name;               /* NULL: the document lacks it or has null */
    int layers, submeshes, configs; /* as the first arrays have them */
    ARR(double) time;               /* of a table of times: >= 0 or INFINITY */
    ARR(int16_t) succ; /* of a table of numbers: -1 = never, at most STAGES_MAX_LAYERS */
};

/* Read the next value of the stream into the struct stages_table `to`, as struct
 * solve_part asks. EXIT_INPUT with the place where the arrays differ in length, or a
 * number is wrong. */
int stages_table_times(void *to, struct json_stream *s, struct err *err);
int stages_table_successors(void *to, struct json_stream *s, struct err *err);
void stages_table_release(struct stages_table *t);

/* Returns the index of the cell [first][last], last >= first, which has submeshes * configs
 * entries. */
static inline int64_t stages_table_cell(int layers, int first, int last) {
    return (int64_t)first * (2 * (int64_t)layers - first + 1) / 2 + (last - first);
}

#endif
