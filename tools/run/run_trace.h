/* run_trace.h - the real timeline of a run, gathered from all ranks in Chrome trace format. */
#ifndef WEFT_RUN_TRACE_H
#define WEFT_RUN_TRACE_H

#include "exec/exec.h"

struct run_trace;

/* Hooks itself into the options. */
struct run_trace *run_trace_create(const struct program *g, int rank, struct exec_options *e);
void run_trace_destroy(struct run_trace *t);

/* Called by all ranks; rank 0 writes the file. */
int run_trace_write(struct run_trace *t, struct comm *comm, const char *path, struct err *err);

#endif
