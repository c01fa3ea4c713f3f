/* enumerate.h - every instruction that a plan can make the devices run: what to measure.
 *
 * For a model, a list of micro-batches and a number of devices, the local shapes of every
 * op under every way to split its dims. The shapes are read off compiled programs, never
 * worked out here, so that the profile and the programs cannot disagree.
 *
 * A dim is split by factors that the axes of a mesh can have: a split of an op has a total
 * that is a power of two or a divisor of the number of devices.
 *
 *     struct enumeration e;
 *     enumerate_keys(m, (int64_t[]){1, 2, 4}, 3, 8, &e);
 *     for (int64_t i = 0; i < e.n; i++) measure(e.p[i].code, e.p[i].n);
 *     enumeration_release(&e);
 */
#ifndef WEFT_ENUMERATE_H
#define WEFT_ENUMERATE_H

#include "program/program.h"

struct enum_key {
    enum opcode code;
    int64_t n[INSTR_MAX_SHAPE];
};

struct enumeration {
    int64_t n;
    struct enum_key *p;         /* sorted by opcode, then by shape; no two alike */
    int64_t largest_comm_elems; /* of a collective: the largest tensor, or all gradients */
};

/* Instructions that are keyed by shape, exactly; those that are keyed by a curve at powers
 * of two of elements (and powers of four of `inner`) from the smallest to the largest use.
 */
void enumerate_keys(const struct model *m, const int64_t *micro_batches,
                    int n_micro_batches, int64_t max_devices, struct enumeration *out);
void enumeration_release(struct enumeration *e);

/* Can a profile with a row for each key tell the time of this instruction? */
bool enumeration_covers(const struct enumeration *e, enum opcode code, const int64_t *n);

/* May a mesh of a job of max_devices have this many devices: a power of two or a divisor?
 */
bool enumerate_factor(int64_t factor, int64_t max_devices);

#endif
