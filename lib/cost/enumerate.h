/* enumerate.h - the instructions that plans make the devices run: what to measure.
 *
 * Everything is read off compiled programs, never worked out here, so that the profile and the
 * programs cannot disagree. Of one plan it is what its program holds. Of a model, for all plans
 * with some micro-batches and devices, it is what programs of single ops hold under every split
 * of their dims; a split of an op has a total that is a power of two or divides the number of
 * devices.
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
    /* Of a plan all its instructions, in their order; of a model those of which libraries are asked more than
     * a key says: how matrices lie, and whether a rank adds the bias. */
    int64_t n_forms;
    struct instr *forms;
    int64_t n_comm;
    struct comm_key *comm;      /* of a plan: its collectives and messages */
    int64_t largest_comm_bytes; /* of a collective: the largest tensor, or all gradients */
};

/* Instructions that are keyed by shape, exactly; those that are keyed by a curve at powers
 * of two of elements (and powers of four of `inner`) from the smallest to the largest use.
 */
void enumerate_model(const struct model *m, const int64_t *micro_batches,
                     int n_micro_batches, int64_t max_devices, enum dtype dtype,
                     struct enumeration *out);
/* Whatever a provider that knows nothing lacks for this program on this cluster, curves from
 * small sizes on: so a profile with a row for each lets cost_check pass. */
void enumerate_program(const struct program *g, const struct cluster *cluster,
                       struct enumeration *out);
void enumeration_release(struct enumeration *e);

/* Adds to uses[i] how often a step of this program uses the i-th row, all stages together; of instructions
 * that are keyed by a curve the two sizes around count, each by its share. (enumerate_uses.c) */
void enumerate_uses(const struct program *g, const struct enumeration *e, double *uses);
/* Adds what `from` has, and releases that. */
void enumeration_merge(struct enumeration *into, struct enumeration *from);

/* May a mesh of a job of max_devices have this many devices: a power of two or a divisor?
 */
bool enumerate_factor(int64_t factor, int64_t max_devices);

#endif
