/* Stands in for what lib/cuda/cuda_conv_pick.c calls of kernels: weft's own convolutions are the CPU's, and
 * what turns weights are loops; each when its turn comes on the stream. A test that is linked with the
 * emulated kernels has those instead. */
#include "cuda/cuda_convolution.h"
#include "device/cpu.h"
#include "fake/cudart.h"

#include "common/half.h"

#include <string.h>

struct own {
    struct convolution v;
    enum dtype dtype;
};

static void run_own(void *args) {
    static const enum opcode codes[] = {[KERNEL_FORWARD] = I_conv2d,
                                        [KERNEL_DATA] = I_conv2d_dx,
                                        [KERNEL_WEIGHTS] = I_conv2d_dw};
    const struct own *own = args;
    const struct kernel_conv *s = &own->v.s;
    const struct device_args device = {.dtype = own->dtype};
    const union instr_n n = {.v = {s->batch, s->ih, s->iw, s->cin, s->oh, s->ow, s->cout,
                                   s->kh, s->kw, s->stride, s->ph, s->pw}};
    const union instr_src src = {
        .v = {(void *)(uintptr_t)own->v.from[0], (void *)(uintptr_t)own->v.from[1]}};
    const union instr_dst dst = {.v = {own->v.to}};
    cpu_exec(codes[own->v.pass], &n, &src, &dst, &device);
}

__attribute__((weak)) int cuda_convolution_own(struct cuda_call *c,
                                               const struct convolution *v) {
    const struct own own = {*v, c->args->dtype};
    fake_cuda_load("convolution");
    fake_cuda_launch(c->stream, run_own, &own, sizeof own);
    return 0;
}

struct turn {
    int64_t rows, columns;
    int64_t taps;     /* whose order is turned; else 0 */
    int bytes;        /* of an element that is moved; 0: added to floats */
    enum dtype dtype; /* of what is added */
    const char *x;
    char *y;
};

static float widen(const struct turn *t, int64_t i) {
    switch (t->dtype) {
    case DTYPE_bf16: return bf16_widen(((const uint16_t *)(const void *)t->x)[i]);
    case DTYPE_f16: return f16_widen(((const uint16_t *)(const void *)t->x)[i]);
    default: return ((const float *)(const void *)t->x)[i];
    }
}

static void run_turn(void *args) {
    const struct turn *t = args;
    for (int64_t i = 0; i < t->rows * t->columns; i++) {
        const int64_t line = i / t->columns, each = t->taps ? t->rows / t->taps : 1;
        const int64_t to =
            t->taps ? (line % each * t->taps + t->taps - 1 - line / each) * t->columns +
                          i % t->columns
                    : i % t->columns * t->rows + line;
        if (t->bytes)
            memcpy(t->y + to * t->bytes, t->x + i * t->bytes, (size_t)t->bytes);
        else
            ((float *)(void *)t->y)[to] += widen(t, i);
    }
}

__attribute__((weak)) void cuda_turn(struct cuda_call *c, int64_t rows, int64_t columns,
                                     int bytes, const void *x, void *y) {
    const struct turn t = {
        .rows = rows, .columns = columns, .bytes = bytes, .x = x, .y = y};
    fake_cuda_load("turn");
    fake_cuda_launch(c->stream, run_turn, &t, sizeof t);
}

__attribute__((weak)) void cuda_turn_add(struct cuda_call *c, int64_t rows, int64_t columns,
                                         enum dtype dtype, const void *x, float *y) {
    const struct turn t = {
        .rows = rows, .columns = columns, .dtype = dtype, .x = x, .y = (char *)y};
    fake_cuda_load("turn_add");
    fake_cuda_launch(c->stream, run_turn, &t, sizeof t);
}

__attribute__((weak)) void cuda_turn_taps(struct cuda_call *c, int64_t taps, int64_t rows,
                                          int64_t columns, const float *x, float *y) {
    const struct turn t = {.rows = taps * rows,
                           .columns = columns,
                           .taps = taps,
                           .bytes = sizeof *x,
                           .x = (const char *)x,
                           .y = (char *)y};
    fake_cuda_load("turn_taps");
    fake_cuda_launch(c->stream, run_turn, &t, sizeof t);
}
