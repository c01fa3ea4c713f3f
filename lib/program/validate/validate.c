/* Replays a step of all ranks without hardware.
 *
 * Ranks of a group differ only in coordinates, so one stands for all: its memory is
 * replayed alone (validate_memory.c), its messages with those of the other groups
 * (validate_messages.c). Long schedules are cut to what comes before they repeat. */
#include "program/validate/validate.h"

int program_validate(const struct program *g, struct err *err) {
    for (int k = 0; k < g->plan->n_groups; k++)
        if (validate_memory(g, k, err) < 0)
            return -1;
    return validate_messages(g, err);
}
