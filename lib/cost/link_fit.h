/* link_fit.h - collectives and messages of a profile as curves: for sizes, groups and links that were
 * not measured.
 *
 * Each collective gets a curve (link_curve.h) for groups inside a node and one for groups beyond, fitted
 * to all its rows at once, whatever the group; the speeds that the links promise come from the
 * cluster. Between two rows of one group a collective takes what the line through both says, a latency
 * and a bandwidth. Beyond them, what the rows are off the curve is taken for a Gaussian process of the
 * logarithm of bytes, which comes back to the curve far from them (Rasmussen and Williams 2006,
 * chapter 2): libraries change their algorithm at sizes that no smooth curve knows, and the next size
 * measured has mostly changed too.
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
    double within;  /* what four of five rows keep to that were not fitted to, as a part */
    double overlap; /* as the profile has it: part that goes on beside computation */
};

/* prior: of a node and beyond, that the curves begin with; NULL: guesses. Rows of groups that the
 * cluster has no room for are left out, for what links they had is not known. The rows are copied. */
struct link_fit *link_fit_create(const struct profile_times *times, const struct cluster *c,
                                 const struct link_curve *prior);
void link_fit_destroy(struct link_fit *f); /* NULL is fine */

/* code == I_send: one message, of which size and stride do not count. */
struct link_time link_fit_time(const struct link_fit *f, enum opcode code, int64_t size,
                               int64_t stride, int64_t bytes,
                               const struct link_class *link);

/* The link of a group of so many ranks so far apart, beside `stride` - 1 like it, from rank 0 on; of
 * messages between neighbours, or between nodes. Its level is NULL where the cluster has no room. */
struct link_class link_fit_class(const struct cluster *c, enum opcode code, int64_t size,
                                 int64_t stride, bool cross);

#endif
