/* placement-text.h - placements as text, for the messages of tests: "[dp:batch tp:+ sp:=]", + for
 * Partial and = for Replicate.
 */
#ifndef WEFT_TEST_PLACEMENT_TEXT_H
#define WEFT_TEST_PLACEMENT_TEXT_H

#include "plan/placement.h"

#include <stdio.h>

static inline void placement_format(const struct model *m, const struct shape *s,
                                    const struct mesh *mesh, struct placement p, char *buf,
                                    size_t n) {
    size_t used = (size_t)snprintf(buf, n, "[");
    for (int a = 0; a < mesh->n_axes && used < n; a++)
        used +=
            (size_t)snprintf(buf + used, n - used, "%s%s:%s", a ? " " : "", mesh->name[a],
                             p.at[a] >= 0               ? m->dims[s->dim[p.at[a]]].name
                             : p.at[a] == PLACE_PARTIAL ? "+"
                                                        : "=");
    if (used < n)
        snprintf(buf + used, n - used, "]");
}

#endif
