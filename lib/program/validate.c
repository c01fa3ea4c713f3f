/* Replaying a step of all ranks without hardware.
 *
 * Ranks of a stage differ in nothing but coordinates, so one of each stage stands for all: its
 * memory is replayed alone (validate_memory.c), its messages with those of the other stages
 * (validate_messages.c). Long schedules are cut to what comes before they repeat. */
#include "program/validate.h"

int program_validate(const struct program *g, struct err *err) {
    for (int s = 0; s < g->n_stages; s++)
        if (validate_memory(g, s, err) < 0)
            return err_prefix(err, "stages[%d]", s);
    return validate_messages(g, err);
}
