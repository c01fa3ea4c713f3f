/* trained.h - what a short training gives: marks on the way, and what it leaves in memory. Tests of devices
 * compare it with the CPU's, bit for bit.
 */
#ifndef WEFT_TEST_TRAINED_H
#define WEFT_TEST_TRAINED_H

#include "common/mem.h"
#include "exec/exec_impl.h"

#include <string.h>

enum { STEPS = 3, MARKS = 2 * STEPS + 1 };

struct result {
    double mark[MARKS]; /* losses, norms, validation loss */
    char *
        params; /* and what follows them in the arena, and what is on the host; the caller's to free */
    int64_t bytes;
};

/* Waits for the device; 0 or -1. */
static int read_back(struct exec *x, struct result *out, struct err *err) {
    const int64_t *bytes = x->chunks->sp->bytes, host = x->chunks->sp->host_bytes;
    const int64_t device =
        bytes[MEM_parameters] + bytes[MEM_gradients] + bytes[MEM_optimizer];
    out->bytes = device + host;
    out->params = mem_alloc((size_t)out->bytes + 1);
    if (device_download(x->streams[STREAM_compute], out->params, x->arena, device, err) < 0)
        return -1;
    if (host)
        memcpy(out->params + device, x->host_arena, (size_t)host);
    return 0;
}

static bool equal(const struct result *a, const struct result *b) {
    return !memcmp(a->mark, b->mark, sizeof a->mark) && a->bytes == b->bytes &&
           !memcmp(a->params, b->params, (size_t)a->bytes);
}

/* A validation is never interrupted. */
static int go_on(void *ctx, struct err *err) {
    (void)ctx, (void)err;
    return 0;
}

#endif
