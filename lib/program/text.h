/* text.h - programs and schedules as text for people (weft-run --explain).
 *
 *     program_print(g, 0, &(struct program_view){.instrs = true}, stdout);
 *     schedule_print(g->plan, 0, false, stdout);
 */
#ifndef WEFT_TEXT_H
#define WEFT_TEXT_H

#include "program/program.h"

#include <stdio.h>

/* What is shown of a stage, from top to bottom. */
struct program_view {
    bool memory;       /* bytes by class, with the workspace */
    int64_t workspace; /* the most that a rank takes beside its arena (workspace.h) */
    bool buffers;      /* each buffer's place, one per line */
    bool instrs;       /* the schedule, then one instruction per line, segment by segment */
};
void program_print(const struct program *g, int stage, const struct program_view *view,
                   FILE *f);

/* Prints the order of a group's actions: "F0 F1 B0 ... L3 R N U". Long ones are cut in the
 * middle, unless `whole` is set. */
void schedule_print(const struct plan *p, int group, bool whole, FILE *f);

#endif
