/* run_trace.h - the real timeline of a run, gathered from all ranks in Chrome trace format.
 *
 * Each rank notes the start and end of every instruction; at the end rank 0 writes them all. Times
 * count from a common barrier, so ranks of one node line up exactly and those of different nodes as
 * well as the barrier does. Long runs keep their first events.
 */
#ifndef WEFT_RUN_TRACE_H
#define WEFT_RUN_TRACE_H

#include "exec/exec.h"

struct run_trace;

/* Called by all ranks; hooks itself into the options. NULL on failure. */
struct run_trace *run_trace_create(const struct program *g, struct comm *comm,
                                   struct exec_options *e, struct err *err);
void run_trace_destroy(struct run_trace *t);

/* Called by all ranks; rank 0 writes the file. */
int run_trace_write(struct run_trace *t, const char *path, struct err *err);

#endif
