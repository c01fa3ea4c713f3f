/* aceso_lists.h - the lists of Aceso's configuration files (Liu et al., Aceso, EuroSys 2024), which name
 * the ops of a chain by their places in it.
 *
 *     aceso_put_lists(doc, &(struct aceso_lists){n, stage, tp, dp, algorithm, marks});
 */
#ifndef WEFT_ACESO_LISTS_H
#define WEFT_ACESO_LISTS_H

#include "common/json.h"

#include <stdbool.h>

/* What a configuration says of each op of the chain. All borrowed. */
struct aceso_lists {
    int n;
    const int *stage; /* 0, ascending by one at most */
    const int *tp, *dp, *algorithm;
    const bool *marks; /* recompute_ops */
};

/* Puts the lists, one for each stage, into a document, and what follows from them: stages, their
 * devices and ops, whether they recompute or convert layouts. */
void aceso_put_lists(json_t *doc, const struct aceso_lists *lists);

#endif
