/* space.h - candidates: what algorithms move, score and compare.
 *
 *     struct candidate c = candidate_make(s);
 *     if (search_even(s, 4, micro_batch, style, &c) && search_legal(s, &c))
 *         use(search_score(s, &c));        // remembered if it is good
 *     candidate_release(&c);
 */
#ifndef WEFT_SPACE_H
#define WEFT_SPACE_H

#include "search/graph/graph.h"
#include "search/search.h"

/* One stage of a candidate. */
struct search_stage {
    int first, end; /* ops first .. end-1 */
    int devices;
    int place;     /* of its group: those on lower ranks have a lower one (devices.h) */
    int zero;      /* 0 to search_zero_levels() - 1 */
    bool regather; /* what it gathers forward it gathers again backward; it keeps shards */
    int again_level;              /* which ops are recomputed, below */
    int again_blocks;             /* in so many instances of blocks from the first op on */
    const struct layout *layouts; /* by node; kept by search_layouts */
    const struct mesh *mesh;      /* its own, or NULL; set with the layouts */
};

struct candidate {
    int n_stages;
    int n_groups; /* of devices, stage k is on group k % n_groups; fewer only where interleaved */
    int64_t micro_batch;
    enum schedule schedule;
    struct search_stage *stages; /* room for search_room */
};

struct candidate candidate_make(const struct search *s);
void candidate_release(struct candidate *c);
void candidate_copy(struct candidate *to, const struct candidate *from);
uint64_t candidate_hash(const struct candidate *c);

struct score {
    double time_us;
    int64_t overflow;     /* bytes beyond the memory on the fullest device, 0 = fits */
    int slowest, fullest; /* stages that bound time and memory */
    bool unknown;         /* the profile lacks shapes of it */
};
/* Known; fits better; or is faster. */
bool score_better(const struct score *a, const struct score *b);

const struct search_problem *search_problem_of(const struct search *s);
/* Groups of devices at most, and stages. */
int search_max_groups(const struct search *s);
int search_room(const struct search *s);
/* May groups be in another order than the pipeline's: are there devices or links of several
 * kinds? */
bool search_has_places(const struct search *s);
bool search_has_schedule(const struct search *s, enum schedule schedule);
/* Of those to consider, one with a single stage on each group, to begin with. */
enum schedule search_plain_schedule(const struct search *s);
/* Time is up, or the user interrupted. */
bool search_stopped(struct search *s);
void search_mark_complete(struct search *s, double space);

/* Can the candidate be compiled: every op's layout splits evenly? */
bool search_legal(struct search *s, const struct candidate *c);
/* Scores a legal candidate, and remembers it if it is one of the best; the best one is
 * compiled and simulated every now and then. Only stages not met before are worked out. */
struct score search_score(struct search *s, const struct candidate *c);
/* Keeps a candidate of another kind than the best. It is judged at the end if the finalists
 * turn out slower than its estimate, since the estimates of the best kind may be too low. Only
 * the first few are kept. */
void search_keep_rival(struct search *s, const struct candidate *c,
                       const struct score *score);

/* ---- layouts --------------------------------------------------------------------------- */

/* How a stage is laid out: of its mesh axes the inner `model_axes` split inner dims (heads,
 * ffn, vocab: those that no tensor between blocks has), the outer ones the batch. */
struct style {
    int model_axes;
    unsigned inner; /* which of the model's inner dims may be split, bit i = inner dim i */
    bool sequence;  /* ops without an inner dim split the sequence there, else nothing */
    bool outer; /* the model axes are the outermost, those for the batch the innermost */
    bool ascending; /* the mesh has its smallest factor outermost (graph_mesh_ascending) */
    /* Next to the model axes: axes that split the sequence, or images into strips, instead of
     * the batch; then axes that split experts where an op has them. */
    int context_axes, expert_axes;
};
/* The i-th of all styles of a stage; false where there are no more. */
bool search_style(const struct search *s, const struct search_stage *st, int i,
                  struct style *out);
int search_inner_dims(const struct search *s); /* how many */
bool search_has_sequence(const struct search *s);
bool search_has_experts(const struct search *s);
/* Are there dims that context axes split: a sequence, or the height and width of images? */
bool search_has_context(const struct search *s);
/* Can it help to change how many context axes a stage in this style has? Images are split where
 * a micro-batch has too few samples for all devices, or cannot be smaller. */
bool search_wants_context(const struct search *s, const struct search_stage *st,
                          int64_t micro_batch, struct style style);
/* Of the mesh that the stage has, or is to have when it is laid out. */
int search_mesh_axes(const struct search *s, const struct search_stage *st);
/* Does the order of factors change the mesh of so many devices? */
bool search_mesh_has_orders(int devices);
/* Lays the stage out; what does not divide stays whole. */
void search_apply_style(struct search *s, struct search_stage *st, int64_t micro_batch,
                        struct style style);
/* Does the micro-batch divide on all axes that the style leaves to it? */
bool search_splits_batch(int devices, int64_t micro_batch, struct style style);
/* The style that a stage seems to have; good enough to lay it out again on other devices. */
struct style search_style_of(struct search *s, const struct search_stage *st);
/* A lasting copy of layouts by node, the same for the same layouts. */
const struct layout *search_layouts(struct search *s, const struct layout *layouts);

/* Lays stage k out anew, all ops at once, so that it is as fast as it can be within the memory
 * (lib/solve/layout/layout.h); false where nothing changed. */
bool search_relayout(struct search *s, struct candidate *c, int k);

/* Recompute: 0 none, 1 what is cheap to make again, 2 all but what leaves the block. */
enum { AGAIN_LEVELS = 3 };

/* Levels of ZeRO to choose from: gradients and parameters are sharded where memory is short. */
int search_zero_levels(const struct search *s);
/* May stages gather again what they gathered? Where memory is short. */
bool search_may_regather(const struct search *s);
/* Instances of blocks that a stage touches. */
int search_stage_blocks(const struct search *s, const struct search_stage *st);

/* ---- pins ------------------------------------------------------------------------------ */

/* The schedule to begin with. */
enum schedule search_first_schedule(const struct search *s);
/* Those that the candidate's stages and groups may have, bit i = enum schedule i; a single stage has
 * none to choose. */
unsigned search_schedules_of(const struct search *s, const struct candidate *c);
/* May a pipeline have so many stages? */
bool search_may_have_stages(const struct search *s, int n_stages);
/* May stage k of n_stages begin with this op, if the stage before it begins with `before`? */
bool search_may_cut(const struct search *s, int n_stages, int k, int before, int op);
/* The mesh pinned for one of these ops, or NULL. */
const struct mesh *search_pinned_mesh(const struct search *s, int first, int end);

/* Stages of a group at most, where the schedule is interleaved. */
enum { MOST_CHUNKS = 4 };

/* ---- whole candidates ------------------------------------------------------------------ */

/* The candidate's devices with so many stages on each group, laid out as its first was; false where
 * there is no room, or where something is pinned. */
bool search_chunk(struct search *s, const struct candidate *c, int chunks,
                  struct candidate *out);
/* Ops and devices as even as possible. */
bool search_even(struct search *s, int n_stages, int64_t micro_batch, struct style style,
                 struct candidate *out);
/* The best pipeline with this micro-batch of uniform stages cut between blocks
 * (lib/solve/stages/stages.h); false when none fits. shard: with ZeRO's highest level; else with the
 * optimizer's state sharded or nothing. */
bool search_slice(struct search *s, int64_t micro_batch, bool shard, struct candidate *out);
/* Cuts the ops anew so that the slowest stage is as fast as it can be within the memory, with
 * as few blocks recomputed as possible; devices and layouts stay. False when nothing fits. */
bool search_balance(struct search *s, struct candidate *c);

#endif
