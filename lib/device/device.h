/* device.h - executes one compute instruction on the CPU.
 *
 * The executor and the profiler call the same function, so what is timed is what runs. Pointers
 * are resolved by the caller; shapes are those of the instruction (program.h).
 *
 *     union instr_n n = {.linear = {.m = 128, .n = 512, .k = 256, .bias = 1}};
 *     device_exec(I_linear, &n, &src, &dst, &(struct device_args){0});
 */
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H

#include "device/kernel.h"
#include "program/program.h"

/* What an instruction needs besides operands and shape; zero where it does not concern it. */
struct device_args {
    int64_t first;                   /* vocabulary index of the first local row or column */
    bool skip_bias;                  /* linear: another rank of the group adds the bias */
    float eps;                       /* layer norm */
    float scale;                     /* cross_entropy_dx: 1 / number of targets */
    struct kernel_box box;           /* dropout: the block in the whole tensor */
    float rate;                      /* dropout */
    uint64_t seed, stream;           /* dropout */
    const struct copy *copy;         /* copy */
    const struct matrices *matrices; /* matmul, matmul_dw */
    int64_t src_offset;              /* copy: floats, from the rank's coordinate */
    float grad_scale, lr, beta1, beta2, opt_eps, decay, momentum; /* adamw, sgd */
    int64_t step;                                                 /* adamw, from 1 */
};

/* Runs the instruction; addresses of absent operands are NULL. Returns what cross_entropy,
 * cross_entropy_finish and sum_squares add up, else 0. Only what is keyed by what it computes
 * (KEY_SHAPE, KEY_CURVE) is for the device: the rest is the executor's. */
double device_exec(enum opcode code, const union instr_n *n, const union instr_src *in,
                   const union instr_dst *out, const struct device_args *a);

#endif
