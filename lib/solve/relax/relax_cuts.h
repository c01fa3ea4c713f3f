/* relax_cuts.h - probabilities of where a row is cut: a set of cuts in rising order has the
 * exponential of the sum of its logits as its weight, so cuts never cross.
 *
 *     struct relax_cuts c;
 *     relax_cuts_init(&c, 3, 24);                       // 24 units in 4 parts
 *     relax_cuts_find(&c, logits, temperature);
 *     use(c.mass[1 * c.width + 7]);                     // cut 1 in front of unit 7
 *     relax_cuts_release(&c);
 */
#ifndef WEFT_SOLVE_RELAX_CUTS_H
#define WEFT_SOLVE_RELAX_CUTS_H

/* Arrays of rows of `width` numbers: one row per cut, one number per unit in front of which
 * the cut may stand. */
struct relax_cuts {
    int n, width; /* cuts, units */
    double *weight, *front, *back;
    double *mass; /* probabilities */
    double *ahead, *behind;
};

/* There must be fewer cuts than units. */
void relax_cuts_init(struct relax_cuts *c, int cuts, int units);
void relax_cuts_release(struct relax_cuts *c);

/* Computes the probabilities from the logits. */
void relax_cuts_find(struct relax_cuts *c, const double *logits, double temperature);

/* Turns the gradient of a loss with respect to the probabilities into that with respect to
 * the logits, in place. */
void relax_cuts_gradient(struct relax_cuts *c, double temperature, double *row);

/* Finds the most probable cuts. */
void relax_cuts_best(struct relax_cuts *c, const double *logits, int *cut);

#endif
