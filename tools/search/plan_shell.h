/* plan_shell.h - the flags of a launch line, or of a shell script that builds one.
 *
 * Of the shell's language what such scripts need is understood: comments, lines that go on, quotes,
 * NAME=VALUE, NAME=(WORDS), ${NAME}, ${NAME[@]}, ${NAME:-VALUE} and $((sums)). Nothing is executed:
 * what a command would print is nothing.
 *
 *     json_t *flags = plan_shell_flags("torchrun --nproc_per_node 8 x.py --num-layers 12", &err);
 *     // {"nproc-per-node": "8", "num-layers": "12"}
 */
#ifndef WEFT_PLAN_SHELL_H
#define WEFT_PLAN_SHELL_H

#include "common/json.h"

/* Each "--name value..." is a member: the words behind it joined by blanks, "" where there are none.
 * Underscores of names are hyphens. Variables stand under "$NAME". New reference; NULL where a quote
 * or bracket is not closed, or a flag is given twice with two values. */
json_t *plan_shell_flags(const char *text, struct err *err);

#endif
