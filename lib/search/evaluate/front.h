/* front.h - lists of what nothing else beats (Pareto fronts).
 *
 *     struct strategy { double us; int64_t bytes; } new;
 *     bool no_worse(const struct strategy *a, const struct strategy *b); // neither slower nor larger
 *     ARR(struct strategy) list = {0};
 *     front_add(&list, &new, no_worse);
 */
#ifndef WEFT_FRONT_H
#define WEFT_FRONT_H

#include "common/mem.h"

/* Appends a copy of *v, unless an entry is no worse. Entries that *v is no worse than
 * are removed; the others keep their order. no_worse(a, b): whether *a is at least as
 * good as *b in everything that counts. */
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
