/* front.h - lists of what nothing else beats (Pareto fronts).
 *
 *     struct strategy { double us; int64_t bytes; } way;
 *     bool no_worse(const struct strategy *a, const struct strategy *b); // neither slower nor larger
 *     ARR(struct strategy) ways = {0};
 *     front_add(&ways, &way, no_worse);
 */
#ifndef WEFT_FRONT_H
#define WEFT_FRONT_H

#include "common/mem.h"

/* Copies *v to the end of the list, unless one that is there is no worse; those that *v is no worse
 * than are dropped, the others stay in their order. no_worse(a, b): whether *a is so good in all
 * that counts that nobody needs *b beside it. */
#define front_add(list, v, no_worse)                                                       \
    do {                                                                                   \
        int64_t front_i = 0, front_n = 0;                                                  \
        while (front_i < (list)->n && !no_worse(&(list)->p[front_i], (v)))                 \
            front_i++;                                                                     \
        if (front_i < (list)->n)                                                           \
            break;                                                                         \
        for (front_i = 0; front_i < (list)->n; front_i++)                                  \
            if (!no_worse((v), &(list)->p[front_i]))                                       \
                (list)->p[front_n++] = (list)->p[front_i];                                 \
        (list)->n = front_n;                                                               \
        arr_push(list, *(v));                                                              \
    } while (0)

#endif
