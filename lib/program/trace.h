/* trace.h - timelines in Chrome trace format, written as they come (Perfetto opens them).
 *
 * The predictor writes simulated and the executor measured events in the same form, so that
 * the two can be laid side by side: one process per rank, one complete event ("ph":"X") per
 * instruction, times in microseconds from the beginning of the step. The file appears by
 * rename when it is whole.
 *
 *     struct trace *t = trace_open("out.json", &err);
 *     trace_rank(t, program, 0);
 *     trace_event(t, &(struct trace_event){.name = "linear", .subject = "layer.0.qkv",
 *                     .category = TRACE_COMPUTE, .pid = 0, .ts_us = 0, .dur_us = 12.5,
 *                     .index = 0, .segment = SEG_FORWARD});
 *     if (trace_close(t, &err) < 0) ...
 */
#ifndef WEFT_TRACE_H
#define WEFT_TRACE_H

#include "program/program.h"

enum trace_category { TRACE_COMPUTE, TRACE_COMM, TRACE_P2P, TRACE_UPDATE };

struct trace_event {
    const char *name;    /* opcode */
    const char *subject; /* what it is about: an op or parameter; "" or NULL = nothing */
    enum trace_category category;
    int pid; /* rank */
    int tid; /* 0; 1 for a communication stream of its own */
    double ts_us, dur_us;
    int64_t index; /* of the micro-batch; -1 in the update */
    int64_t step;  /* of a run, counted from 1; 0: left out */
    enum segment segment;
    const struct instr *instr; /* if it computes, flops and bytes are written; NULL: not */
    /* of what was measured: how many instructions were launched as one, if more than 1;
     * whether in a captured region; whether its time is divided as in another
     * micro-batch */
    int together;
    bool captured, divided;
};

struct trace;

/* "-" is stdout. NULL on failure. */
struct trace *trace_open(const char *path, struct err *err);
/* Names a rank: "rank 0, stage 0". */
void trace_rank(struct trace *t, const struct program *g, int rank);
void trace_event(struct trace *t, const struct trace_event *e);
/* Ends the document and puts it in its place; frees t. */
int trace_close(struct trace *t, struct err *err);
/* Drops what was written; frees t. NULL is allowed. */
void trace_abort(struct trace *t);

/* The category under which an instruction of this segment appears. */
enum trace_category trace_category_of(enum opcode code, enum segment segment);
/* The model's name for what an instruction is about, "" for nothing. */
const char *trace_subject(const struct program *g, const struct instr *i);

#endif
