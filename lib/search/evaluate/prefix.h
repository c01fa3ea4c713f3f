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

/* Elements of an edge's tensor that one device has for an op. want: of what the op receives
 * (a reader the value, the origin the gradient); held: of what it sends (a reader the
 * gradient, the origin the value). 0: not known yet. */
struct shard_size {
    double want, held;
    /* how many parts each axis of the tensor is split into */
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
    } * brief;                   /* of each entry of `until`, then of `instance` */
    int64_t *temp, *update_temp; /* [ops of the deduplicated model] */
    uint64_t *groups;            /* [ops of the deduplicated model] see struct load */
    /* of every TEMP_SPAN ops: the largest temporaries, and all groups */
    int64_t *temp_of_span, *update_temp_of_span;
    uint64_t *groups_of_span;
    struct shard_size *taken, *given; /* [readers], [edges] of the deduplicated model */
    int *illegal; /* [ops + 1] how many ops in front have an illegal layout */
};

/* The ops that one entry of temp_of_span and the like stands for. */
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
/* The prefix of stage k of a candidate; first_rank: that of the stage. */
const struct prefix *candidate_prefix(struct evaluate *ev, const struct candidate *c, int k,
                                      int first_rank);
/* Computes the sums of a prefix whose setting and layouts are set (prefix_fill.c). */
void prefix_fill(struct evaluate *ev, struct prefix *t);
void prefix_forget_filling(struct evaluate *ev);
/* Frees prefix sums and sums of stages if there are many; called between candidates. */
void eval_trim(struct evaluate *ev);
void eval_forget_prefixes(struct evaluate *ev);

/* Returns whether an op of the deduplicated model has a legal layout: it splits evenly, and
 * pins allow it. */
bool prefix_op_is_legal(const struct prefix *t, int op);
/* The same for ops first .. end-1 of the whole model. */
bool prefix_legal(const struct space *sp, const struct prefix *t, int first, int end);
/* The load of an edge with all ops that it connects in one stage; NULL if one of them has
 * an illegal layout. */
const struct load *prefix_edge(struct evaluate *ev, const struct prefix *t,
                               const struct edge *e);
/* The load, the time and the brief of everything in front of an op of the whole model;
 * the brief of a load. */
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
/* The shard of an edge's tensor that the origin or a reader has; all are of the
 * deduplicated model. */
struct shard_size prefix_shard_of(const struct space *sp, const struct prefix *t,
                                  const struct edge *e, int op);
/* The same, looked up for the i-th reader of an edge of the whole model or, if i < 0, its
 * origin. */
struct shard_size prefix_shard(const struct space *sp, const struct prefix *t,
                               const struct edge *e, int i);
/* The elements that a device with the shard `to` has to stage when it receives them from
 * devices with shards `from`: those that do not come as one run of its memory. */
double prefix_staged(const struct space *sp, const struct prefix *t, const struct edge *e,
                     const struct shard_size *from, const struct shard_size *to);
/* The elements of the edge's whole tensor. */
double prefix_all(const struct space *sp, const struct prefix *t, const struct edge *e);

#endif
