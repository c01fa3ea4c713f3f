/* prefix.h - what a stretch of the model costs, as the difference of two prefix sums.
 *
 * A prefix has the loads of all ops under one setting and one set of layouts, summed from the front. It
 * is worked out for the deduplicated model; instances that this leaves out are multiples of one. So
 * the load of any stretch of a thousand layers is two look-ups.
 *
 *     const struct prefix *t = eval_prefix(ev, &stage, micro_batch, first_rank, false);
 *     struct load l = prefix_until(sp, t, end), before = prefix_until(sp, t, first);
 *     load_add(&l, &before, -1);
 */
#ifndef WEFT_PREFIX_H
#define WEFT_PREFIX_H

#include "search/graph/graph.h"
#include "search/space/space.h"

struct evaluate;

/* Of an edge's tensor on one device, as an op asks for it (a reader for its value, the
 * origin for its gradient), and as it holds what it sends (the other way round): elements.
 * 0: not known yet. */
struct shard_size {
    double want, held;
};

struct prefix {
    struct setting st;
    const struct layout *layouts;
    struct mesh mesh;
    struct load *until; /* [ops of the deduplicated model + 1] of everything before an op */
    struct load *instance; /* [repeats] of one instance, the second */
    struct brief {
        double time_us; /* of a micro-batch, with its share of the update */
        double forward_us, backward_us;
        double fixed, slot[POOL_COUNT], across;
    } * brief;                   /* of `until`, [+ 1]; and of `instance` behind it */
    int64_t *temp, *update_temp; /* [ops of the deduplicated model] */
    int64_t *temp_of_span, *update_temp_of_span; /* the largest of every few of them */
    struct shard_size *taken, *given; /* [readers of the small edges], [small edges] */
    int *illegal;                     /* [+ 1] ops before whose layout splits unevenly */
};

enum { TEMP_SPAN = 8 }; /* ops of which a prefix knows the largest temporaries */

/* apart: weight gradients are made apart. Valid until eval_trim. */
const struct prefix *eval_prefix(struct evaluate *ev, const struct search_stage *st,
                                 int64_t micro_batch, int first_rank, bool apart);
/* Of stage k of a candidate, whose first rank is known. */
const struct prefix *candidate_prefix(struct evaluate *ev, const struct candidate *c, int k,
                                      int first_rank);
/* Works out the sums of a prefix whose setting and layouts are known (prefix_fill.c). */
void prefix_fill(struct evaluate *ev, struct prefix *t);
void prefix_forget_filling(struct evaluate *ev);
/* Frees prefix sums when there are many; between candidates only. */
void eval_trim(struct evaluate *ev);
void eval_forget_prefixes(struct evaluate *ev);

/* Does the layout of this op of the deduplicated model split evenly? */
bool prefix_op_is_legal(const struct prefix *t, int op);
/* Can ops first .. end-1 be laid out so? */
bool prefix_legal(const struct space *sp, const struct prefix *t, int first, int end);
/* An edge with all that it connects in one stage; NULL where a layout of them splits
 * unevenly. */
const struct load *prefix_edge(struct evaluate *ev, const struct prefix *t,
                               const struct edge *e);
/* The load of everything before op i of the whole model; its time; its brief. */
struct load prefix_until(const struct space *sp, const struct prefix *t, int op);
double prefix_time_us(const struct space *sp, const struct prefix *t, int op);
struct brief prefix_brief(const struct space *sp, const struct prefix *t, int op);
struct brief prefix_brief_of(const struct space *sp, const struct prefix *t,
                             const struct load *l);
/* Bytes of the largest temporaries of a stretch, and of its update. */
int64_t prefix_temp(const struct space *sp, const struct prefix *t, int first, int end,
                    int64_t *update_temp);
/* How an op of the deduplicated model, origin or reader, sees the edge's tensor. */
struct shard_size prefix_shard_of(const struct space *sp, const struct prefix *t,
                                  const struct edge *e, int op);
/* Of an edge's i-th reader, or (i < 0) of its origin. */
struct shard_size prefix_shard(const struct space *sp, const struct prefix *t,
                               const struct edge *e, int i);
/* Its elements on all devices together. */
double prefix_all(const struct space *sp, const struct prefix *t, const struct edge *e);

#endif
