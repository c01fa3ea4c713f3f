/* transfers.h - inside the compiler: what crosses from stage to stage, listed before any stage is
 * compiled. The stages at both ends fill in the placements.
 */
#ifndef WEFT_TRANSFERS_H
#define WEFT_TRANSFERS_H

#include "program/emit/emit.h"

/* Every transfer of a plan: tensors, gradients, tied parameters. Those from one stage to another
 * stand in the order in which both ends go through them. */
struct transfer_list {
    ARR(struct transfer) all;
};
void transfers_list(const struct plan *plan, struct transfer_list *out);
/* The transfer of a tensor or of a parameter (the other is -1), or of its gradient, between this
 * stage and another; -1 if there is none. */
int transfer_find(const struct emit *e, int tensor, int param, bool gradient, int from,
                  int to);
/* Sends a tensor or its gradient, which is in the buffer under this placement. */
void transfer_send(struct emit *e, int transfer, struct placement place, int buffer);

#endif
