/* The streams of one rank: see streams.h. */
#include "cost/streams.h"

#include "common/mem.h"

#include <stdlib.h>

void streams_init(struct streams *s, const struct stage_program *sp) {
    size_t n = (size_t)sp->n_buffers + 1;
    *s = (struct streams){.ready = mem_array(n, sizeof *s->ready),
                          .epoch = mem_array(n, sizeof *s->epoch),
                          .whole = mem_array(n, sizeof *s->whole),
                          .now = 1};
    for (int b = 0; b < sp->n_buffers; b++)
        s->whole[b] = sp->buffers ? buffer_whole(sp->buffers, b) : b;
}

void streams_release(struct streams *s) {
    free(s->ready);
    free(s->epoch);
    free(s->whole);
}

void streams_reset(struct streams *s) {
    s->compute_us = s->comm_us = s->host_us = s->issued_us = 0;
    s->now++;
}

static double operands_ready(const struct streams *s, const struct instr *i) {
    double t = 0;
    int b[INSTR_MAX_BUFFERS], n = instr_buffers(i, b);
    for (int k = 0; k < n; k++) {
        const int whole = s->whole[b[k]];
        if (s->epoch[whole] == s->now && s->ready[whole] > t)
            t = s->ready[whole];
    }
    return t;
}

/* What a collective writes is not there until it ends; what it reads others may read meanwhile. */
static void hold_results(struct streams *s, const struct instr *i, double until) {
    for (int k = 0; k < INSTR_MAX_OUT; k++) {
        if (i->out.v[k] < 0)
            continue;
        const int b = s->whole[i->out.v[k]];
        s->ready[b] = until;
        s->epoch[b] = s->now;
    }
}

/* Where the instruction goes on beside computation; NULL if it is computation. */
static double *stream_of(struct streams *s, const struct instr *i) {
    if (opcode_key(i->code) == KEY_COMM)
        return &s->comm_us;
    return opcode_is_move(i->code) && i->work >= 0 ? &s->host_us : NULL;
}

void streams_issue(struct streams *s, double us) {
    s->issued_us += us;
}

void streams_wait(struct streams *s) {
    s->issued_us = streams_end(s);
}

double streams_add(struct streams *s, const struct instr *i, double us, double overlap) {
    double ready = operands_ready(s, i), *stream = stream_of(s, i);
    double start = s->compute_us > ready ? s->compute_us : ready;
    if (s->issued_us > start)
        start = s->issued_us;
    if (!stream) {
        s->compute_us = start + us;
        return start;
    }
    if (*stream > start)
        start = *stream;
    *stream = start + us;
    /* The compute stream stops for the part that does not overlap. */
    if (*stream > s->compute_us)
        s->compute_us += (1 - overlap) * (*stream - s->compute_us);
    if (overlap > 0)
        hold_results(s, i, *stream);
    return start;
}

double streams_end(const struct streams *s) {
    double end = s->compute_us > s->comm_us ? s->compute_us : s->comm_us;
    return end > s->host_us ? end : s->host_us;
}
