/* axes.h - which dims of which tensors are one: union-find over the axes of a graph.
 *
 * An axis of a tensor is an ordered list of atoms: a view that merges two axes lists both, one that
 * splits an axis splits its atom for every tensor that has it. Ops say which axes are one (axes_unify);
 * atoms that one op loops over side by side must stay apart (axes_apart), so a union that would make
 * two axes of one tensor the same is refused, and the caller renames instead.
 *
 *     struct axes x = {0};
 *     struct axis a = axis_of(axes_new(&x, 96)), b;       // [heads kv]
 *     axes_split(&x, &a, 6);                              // a is now two atoms, of 6 and of 16
 *     axes_release(&x);
 */
#ifndef WEFT_AXES_H
#define WEFT_AXES_H

#include "common/mem.h"

#include <stdbool.h>
#include <stdint.h>

enum { AXIS_MOST = 12, AXES_APART_MOST = 16 };

/* Of size 1 where it is empty. */
struct axis {
    int n;
    int atom[AXIS_MOST]; /* outermost first */
};

struct atom {
    int parent; /* itself: a class of its own */
    int64_t size;
    int outer, inner; /* of a class that was split, else -1 */
    ARR(int) apart;   /* the sets it is in */
};

struct apart {
    int n;
    int atom[AXES_APART_MOST];
};

struct axes {
    ARR(struct atom) atoms;
    ARR(struct apart) sets;
};

void axes_release(struct axes *x);
int axes_new(struct axes *x, int64_t size);
static inline struct axis axis_of(int atom) {
    return (struct axis){1, {atom}};
}
/* The class of an atom; what it is after splits is said by axes_settle alone. */
int axes_class(const struct axes *x, int atom);
/* Puts classes, and the parts of those that were split, in place of atoms. -1: too many. */
int axes_settle(const struct axes *x, struct axis *a);
/* Elements along it. */
int64_t axes_size(const struct axes *x, const struct axis *a);
bool axes_same(const struct axes *x, const struct axis *a, const struct axis *b);
/* Splits so that the first atoms of a have `size` elements; returns how many they are, or -1 where
 * none do. */
int axes_split(struct axes *x, struct axis *a, int64_t size);
enum axes_answer { AXES_ONE, AXES_DIFFER, AXES_CONFLICT };
/* Makes two axes one, splitting where either has several atoms. AXES_DIFFER: their sizes do not
 * match. AXES_CONFLICT: some atoms must stay apart; all others are one by then. */
enum axes_answer axes_unify(struct axes *x, struct axis *a, struct axis *b);
/* These classes must never be one. */
void axes_apart(struct axes *x, const int *atom, int n);

#endif
