/* link_fit.h - a profile's collectives and messages as curves, for sizes, groups and links
 * that were not measured.
 *
 * Each collective gets a curve (link_curve.h) for groups inside a node and one for groups
 * beyond, each fitted to all its rows at once, whatever the group; the speeds that the
 * links promise come from the cluster. Between two rows of one group a time lies on the
 * line through both, a latency and a bandwidth. Beyond them, what the rows are off the
 * curve is taken for a Gaussian process over the logarithm of bytes, which returns to the
 * curve far from them (Rasmussen and Williams 2006, chapter 2): libraries change their
 * algorithm at sizes that no smooth curve predicts, and mostly keep it at the next.
 *
 *     struct link_fit *f = link_fit_create(times, &cluster, model->links);
 *     struct link_time t = link_fit_time(f, I_all_reduce, 8, 1, 3 << 20, &link);
 *     if (t.us >= 0) ... t.us ...
 *     link_fit_destroy(f);
 */
#ifndef WEFT_LINK_FIT_H
#define WEFT_LINK_FIT_H

#include "cost/link_curve.h"
#include "cost/profile.h"

struct link_fit;
struct link_time {
    double us; /* negative: the profile has no row of this collective over such a link */
    /* what four of five rows keep to that the curve was not fitted to, as a fraction */
    double within;
    double overlap; /* from the profile: the fraction that overlaps computation */
};

/* prior: the curves to begin with, inside a node and beyond; NULL: guesses. Rows of groups
 * that the cluster has no room for are left out: their links are not known. The rows are
 * copied. */
struct link_fit *link_fit_create(const struct profile_times *times, const struct cluster *c,
                                 const struct link_curve *prior);
void link_fit_destroy(struct link_fit *f); /* NULL is fine */

/* code == I_send: one message, for which size and stride do not matter. */
struct link_time link_fit_time(const struct link_fit *f, enum opcode code, int64_t size,
                               int64_t stride, int64_t bytes,
                               const struct link_class *link);

/* The link of a group of `size` ranks `stride` apart, from rank 0 on, beside `stride` - 1
 * like it; for I_send, that of neighbours or, if `cross` is set, of nodes. Its level is
 * NULL where the cluster has no room. */
struct link_class link_fit_class(const struct cluster *c, enum opcode code, int64_t size,
                                 int64_t stride, bool cross);

#endif
