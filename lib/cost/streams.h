/* streams.h - instructions of one rank on its streams (computation, communication, copies from and
 * to its host), for as long as nothing comes from or goes to another stage.
 *
 * An instruction starts when its stream is free and its operands are written. The part of a
 * collective that the backend overlaps goes on beside computation; the rest stops the
 * compute stream as well, with overlap 0 (the CPU) until the collective is done.
 * Collectives run one after the other, so one that overlaps nothing also waits for those
 * before it. Copies between device and host that are only started run one after the other
 * too. Where a host issues every kernel, none begins before it was issued.
 *
 *     struct streams s;
 *     streams_init(&s, sp);
 *     double start = streams_add(&s, instr, us, overlap);
 *     double end = streams_end(&s);                         // until when both are busy
 *     streams_release(&s);
 */
#ifndef WEFT_STREAMS_H
#define WEFT_STREAMS_H

#include "program/program.h"

struct streams {
    double compute_us, comm_us, host_us; /* until when each is busy */
    double issued_us;                    /* until when the host issues what was added */
    double *ready;                       /* [n_buffers] when a buffer was last written */
    int64_t *epoch; /* [n_buffers] ready counts only when this equals now */
    int *whole;     /* [n_buffers] the buffer that each is a part of, or itself */
    int64_t now;
};
void streams_init(struct streams *s, const struct stage_program *sp);
void streams_release(struct streams *s);
/* Begins again at time 0. */
void streams_reset(struct streams *s);
/* The host takes this long to issue the next instruction, which begins no earlier. */
void streams_issue(struct streams *s, double us);
/* The host waits until all that it has issued is done. */
void streams_wait(struct streams *s);
/* Adds an instruction; returns its start. */
double streams_add(struct streams *s, const struct instr *i, double us, double overlap);
/* Until when any stream is busy. */
double streams_end(const struct streams *s);

#endif
