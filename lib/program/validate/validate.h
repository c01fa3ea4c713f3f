/* validate.h - inside the validator: its two replays. */
#ifndef WEFT_VALIDATE_H
#define WEFT_VALIDATE_H

#include "program/program.h"

/* One rank of the group goes through a step: every read finds what its writer left, and what
 * outlives the step is whole at its end. */
int validate_memory(const struct program *g, int group, struct err *err);
/* All groups advance together: nobody waits for ever, what one end sends the other takes, in the
 * same order. */
int validate_messages(const struct program *g, struct err *err);

#endif
