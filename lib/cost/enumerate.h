/* enumerate.h - the instructions that plans make the devices run: what to measure.
 *
 * Everything is read off compiled programs, never worked out here, so that the profile and
 * the programs cannot disagree. For one plan it is what its program holds. For a model, and
 * all plans with some micro-batches and devices, it is what programs of single ops hold
 * under every split of their dims, over a number of devices that is a power of two or a
 * divisor.
 *
 *     struct enumeration e;
 *     enumerate_model(m, (int64_t[]){1, 2, 4}, 3, 8, DTYPE_f32, &e);
 *     for (int64_t i = 0; i < e.n; i++) measure(&e.p[i]);
 *     enumeration_release(&e);
 */
#ifndef WEFT_ENUMERATE_H
#define WEFT_ENUMERATE_H

#include "cost/cost.h"

struct enumeration {
    int64_t n;
    struct instr_key *p; /* sorted by opcode, then by shape; no two alike */
    /* Of a plan, all its instructions in order. Of a model, those whose key leaves out what
     * libraries are told too: how matrices lie, and whether a rank adds the bias. */
    int64_t n_forms;
    struct instr *forms;
    int64_t n_comm;
    struct comm_key *comm;      /* of a plan: its collectives and messages */
    int64_t largest_comm_bytes; /* of a collective: the largest tensor, or all gradients */
};

/* Lists instructions keyed by shape exactly, and those keyed by a curve at powers of two of
 * elements (and powers of four of `inner`) from the smallest use to the largest.
 */
void enumerate_model(const struct model *m, const int64_t *micro_batches,
                     int n_micro_batches, int64_t max_devices, enum dtype dtype,
                     struct enumeration *out);
/* Lists what an empty provider lacks for this program on this cluster, curves from small
 * sizes on, so that a profile with a row for each lets cost_check pass. */
void enumerate_program(const struct program *g, const struct cluster *cluster,
                       struct enumeration *out);
void enumeration_release(struct enumeration *e);

/* Adds to uses[i] how often a step of this program uses row i, over all stages. An
 * instruction that is keyed by a curve uses the two sizes around its own, each by its
 * share. (enumerate_uses.c) */
void enumerate_uses(const struct program *g, const struct enumeration *e, double *uses);
/* Adds what `from` has, and releases `from`. */
void enumeration_merge(struct enumeration *into, struct enumeration *from);

/* Whether a split may use `factor` of max_devices: a power of two or a divisor.
 */
bool enumerate_factor(int64_t factor, int64_t max_devices);

#endif
