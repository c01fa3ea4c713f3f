/* validate.h - inside the validator: its two replays. */
#ifndef WEFT_VALIDATE_H
#define WEFT_VALIDATE_H

#include "program/program.h"

/* Takes one rank of the group through a step: every read must find what its writer left,
 * and what outlives the step must be whole at its end. */
int validate_memory(const struct program *g, int group, struct err *err);
/* Advances all groups together: none may wait for ever, and what one end sends the other
 * must take, in the same order. */
int validate_messages(const struct program *g, struct err *err);

#endif
