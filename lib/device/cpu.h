/* cpu.h - inside the CPU device: one function per instruction that computes.
 *
 * `cpu_ID` runs instruction ID; what it gets is named as in instr.def. Each stands beside its kernel
 * or, where it only calls one, in cpu.c. There is one for each type of elements (kernel_type.h);
 * cpu_exec finds it by type and opcode.
 */
#ifndef WEFT_CPU_H
#define WEFT_CPU_H

#include "device/device.h"
#include "device/kernel_type.h"

#define CPU_FUNCTION(id)                                                                   \
    void TYPED(cpu_##id)(const struct id##_n *n, const struct id##_src *in,                \
                         const struct id##_dst *out, const struct device_args *a)

/* Declares those that are keyed by what they compute; the others are the executor's. */
#define CPU_DECLARE_SHAPE(id) CPU_FUNCTION(id);
#define CPU_DECLARE_CURVE(id) CPU_FUNCTION(id);
#define CPU_DECLARE_PARTS(id) CPU_FUNCTION(id);
#define CPU_DECLARE_FREE(id)
#define CPU_DECLARE_COMM(id)
#define CPU_DECLARE_P2P(id)
#define OPCODE(id, key, about) CPU_DECLARE_##key(id)
#include "program/instr.def"

/* What device_launch does on the CPU, at once. */
void cpu_exec(enum opcode code, const union instr_n *n, const union instr_src *in,
              const union instr_dst *out, const struct device_args *a);

/* The same for the instructions of one type. */
#define CPU_EXEC(name)                                                                     \
    void name(enum opcode code, const union instr_n *n, const union instr_src *in,         \
              const union instr_dst *out, const struct device_args *a)
CPU_EXEC(cpu_exec_f32);
CPU_EXEC(cpu_exec_bf16);
CPU_EXEC(cpu_exec_f16);

#endif
