/* fold.h - constants of an exported program: masks, positions, angles.
 *
 * A value is constant when nothing that it is made of is data or a parameter. Small ones are computed
 * when they are met; large ones, such as masks of positions by positions, only where they are asked.
 *
 *     struct fold f = {.p = &program};
 *     for (int i = 0; i < program.n_nodes; i++)
 *         fold_node(&f, i);
 *     double last = fold_at(&f, mask, (int64_t[]){0, 0, 31, 31});
 *     fold_release(&f);
 */
#ifndef WEFT_FOLD_H
#define WEFT_FOLD_H

#include "import/exported.h"
#include "import/point.h"

struct folded {
    bool constant;
    bool changed;              /* in place, and no more known */
    double *dense;             /* all elements, or NULL: computed where they are asked */
    double *imaginary;         /* of complex numbers, their other parts */
    int depth;                 /* of what is not dense under it */
    const struct point *point; /* what makes it, where it was looked up: else NULL */
    int maker;                 /* or -1 */
};

struct fold {
    const struct exported *p;
    struct arena arena;
    struct folded *values; /* of the program's values, as many as there were */
    int64_t room;
    double work; /* elements that were computed */
};

/* If all that a node reads is constant, and weft knows how, so are its results. */
bool fold_node(struct fold *f, int node);
/* Is the value constant? Buffers are, where their numbers are in the archive. */
bool fold_is(struct fold *f, int value);
/* A value that is changed in place is the other one from then on; -1: nothing is known of it. */
void fold_change(struct fold *f, int value, int other);
/* One element; NaN where the program reads outside of a tensor. `at` has its rank. */
double fold_at(const struct fold *f, int value, const int64_t *at);
/* The imaginary part of that. */
double fold_imaginary(const struct fold *f, int value, const int64_t *at);
/* The only element of a constant that has one. */
bool fold_scalar(struct fold *f, int value, double *out);
void fold_release(struct fold *f);

/* ---- fold_move.c: what moves elements and computes nothing, of constants and of data ---------------- */

bool fold_is_move(const char *target);
/* Where the element of a value comes from that such a node made: another value, and its place there. False
 * where that is not known. */
bool fold_moved(const struct exported *p, int result, const int64_t *at, int *value,
                int64_t *from);
/* The number of an element, row by row, and the place of the element that has it. */
int64_t fold_flat(const struct exported_value *v, const int64_t *at);
void fold_unflatten(const struct exported_value *v, int64_t n, int64_t *at);
/* The place in an operand that is stretched to the rank and sizes of the result. */
void fold_stretch(const struct exported_value *from, const struct exported_value *to,
                  const int64_t *at, int64_t *out);

#endif
