/* side.h - one of the sides that a test on a GPU compares: a device with options of its own, and the tensors
 * of one shape on it. */
#ifndef WEFT_TESTS_SIDE_H
#define WEFT_TESTS_SIDE_H

#include "cuda/cuda.h"

#include <stdio.h>

enum { SIDE_TENSORS = 16 /* at most */ };

struct side {
    struct cuda_backend cuda;
    struct device *dev;
    struct device_stream *stream;
    struct device_args args;
    union instr_n n;
    void *at[SIDE_TENSORS]; /* those that there are, else NULL */
};

/* NULL where there is no GPU: the test is skipped, and that is said. */
static struct cuda_timer *side_timer(struct err *err) {
    const int gpus = cuda_count(err);
    struct cuda_timer *timer = gpus > 0 ? cuda_timer_create(err) : NULL;
    if (!timer)
        printf("1..0 # SKIP no GPU: %s\n", gpus ? err->msg : "none is to be seen");
    return timer;
}

/* Makes the device of s->cuda and a stream. Returns 0 or -1; side_close(s) in either case. */
static int side_open(struct side *s, struct err *err) {
    s->dev = device_create(&s->cuda.backend, 0, 1, err);
    s->stream = s->dev ? device_stream_create(s->dev, err) : NULL;
    return s->stream ? 0 : -1;
}

static void side_close(struct side *s) {
    for (int i = 0; i < SIDE_TENSORS; i++)
        device_free(s->dev, s->at[i]);
    device_stream_destroy(s->stream);
    device_destroy(s->dev);
}

#endif
