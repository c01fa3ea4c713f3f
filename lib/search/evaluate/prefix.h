/* prefix.h - what a range of the model costs, as the difference of two prefix sums.
 *
 * A prefix has the loads of all ops under one setting and one set of layouts, summed
 * from the front. It is computed for the deduplicated model; instances that this
 * leaves out are multiples of one instance. So the load of any range of a thousand
 * layers takes two look-ups.
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

/* Elements of an edge's tensor on one device: `want`, as an op asks for it (a reader
 * for the value, the origin for the gradient), and `held`, as it holds what it sends
 * (a reader the gradient, the origin the value). 0: not known yet. */
struct shard_size {
    double want, held;
    /* into how many parts either splits each axis of the tensor */
    uint16_t want_parts[TENSOR_MAX_RANK], held_parts[TENSOR_MAX_RANK];
};

struct prefix {
    struct setting st;
    const struct layout *layouts;
    struct mesh mesh;
    /* [ops of the deduplicated model + 1] everything in front of an op */
    struct load *until;
    struct load *instance; /* [repeats] one instance, the second */
    struct brief {
        double time_us; /* of a micro-batch, with its share of the update */
        double forward_us, backward_us;
        double fixed, slot[POOL_COUNT], across;
    } * brief;                   /* [+ 1] of `until`, followed by those of `instance` */
    int64_t *temp, *update_temp; /* [ops of the deduplicated model] */
    uint64_t *groups;            /* [ops of the deduplicated model] see struct load */
    /* of every TEMP_SPAN of them: the largest, and all groups */
    int64_t *temp_of_span, *update_temp_of_span;
    uint64_t *groups_of_span;
    struct shard_size *taken, *given; /* [readers of the small edges], [small edges] */
    int *illegal; /* [+ 1] how many ops in front have a layout that splits unevenly */
};

/* Finding the largest temporaries of a range looks at one number for this many ops; its groups too. */
enum { TEMP_SPAN = 8 };

/* apart: weight gradients are computed separately. The result is valid until
 * eval_trim. */
const struct prefix *eval_prefix(struct evaluate *ev, const struct search_stage *st,
                                 int64_t micro_batch, int first_rank, bool apart);
/* Returns equal numbers for prefixes of equal settings and layouts, with v mixed in. */
static inline uint64_t prefix_hash(const struct prefix *t, uint64_t v) {
    return memo_mix(graph_setting_hash(&t->st, memo_mix(11, v)),
                    (uint64_t)(uintptr_t)t->layouts);
}
/* The prefix of stage k of a candidate, whose first rank is given. */
const struct prefix *candidate_prefix(struct evaluate *ev, const struct candidate *c, int k,
                                      int first_rank);
/* Computes the sums of a prefix whose setting and layouts are set (prefix_fill.c). */
void prefix_fill(struct evaluate *ev, struct prefix *t);
void prefix_forget_filling(struct evaluate *ev);
/* Frees prefix sums, and sums of stages, when there are many; only called between candidates. */
void eval_trim(struct evaluate *ev);
void eval_forget_prefixes(struct evaluate *ev);

/* Does the layout of this op of the deduplicated model split evenly? */
bool prefix_op_is_legal(const struct prefix *t, int op);
/* Do the layouts of ops first .. end-1 split evenly? */
bool prefix_legal(const struct space *sp, const struct prefix *t, int first, int end);
/* The load of an edge with everything that it connects in one stage; NULL if one of
 * their layouts splits unevenly. */
const struct load *prefix_edge(struct evaluate *ev, const struct prefix *t,
                               const struct edge *e);
/* The load of everything in front of op i of the whole model; its time; its brief. */
struct load prefix_until(const struct space *sp, const struct prefix *t, int op);
double prefix_time_us(const struct space *sp, const struct prefix *t, int op);
struct brief prefix_brief(const struct space *sp, const struct prefix *t, int op);
struct brief prefix_brief_of(const struct space *sp, const struct prefix *t,
                             const struct load *l);
/* Bytes of the largest temporaries of a range, and of its update. */
int64_t prefix_temp(const struct space *sp, const struct prefix *t, int first, int end,
                    int64_t *update_temp);
/* The groups of a range's collectives. */
uint64_t prefix_groups(const struct space *sp, const struct prefix *t, int first, int end);
/* The shard of the edge's tensor that an op of the deduplicated model, the origin or a
 * reader, has. */
struct shard_size prefix_shard_of(const struct space *sp, const struct prefix *t,
                                  const struct edge *e, int op);
/* The same for an edge's i-th reader or, if i < 0, its origin. */
struct shard_size prefix_shard(const struct space *sp, const struct prefix *t,
                               const struct edge *e, int i);
/* Of what a device receives as it wants it, from devices that hold it as `from` does: the elements that
 * do not come as one run of its memory, and so are staged. */
double prefix_staged(const struct space *sp, const struct prefix *t, const struct edge *e,
                     const struct shard_size *from, const struct shard_size *to);
/* The elements of the edge's tensor on all devices together. */
double prefix_all(const struct space *sp, const struct prefix *t, const struct edge *e);

#endif
