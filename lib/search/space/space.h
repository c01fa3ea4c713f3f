/* space.h - what plans may be: the problem, what a survey of its model found, and candidates.
 *
 * A space is constant once it was surveyed; only the store of layouts grows, as a table of interned
 * strings does. What candidates cost is evaluate.h's, which of them are remembered pool.h's.
 *
 *     struct space sp;
 *     space_survey(&sp, &problem);
 *     struct candidate c = candidate_make(&sp);
 *     if (space_even(&sp, 4, micro_batch, preset, &c))
 *         use(space_plan_of(&sp, &c));
 *     candidate_release(&c);
 *     space_release(&sp);
 */
#ifndef WEFT_SPACE_H
#define WEFT_SPACE_H

#include "search/graph/memo.h"
#include "search/graph/segments.h"
#include "search/graph/stage_mesh.h"
#include "search/search.h"
#include "search/space/candidate.h"

/* Recompute: 0 none, 1 what is cheap to compute again, 2 all but what leaves the block. */
enum { RECOMPUTE_LEVELS = 3 };

/* Stages of a group at most, where the schedule is interleaved. */
enum { MOST_CHUNKS = 4 };

/* The tensors and parameters that pass a cut of the list of ops. */
struct crossing {
    int n;
    const int *edges; /* of the whole model */
};

/* What pins leave of the space (pins.c). */
struct pinned {
    int n_stages;   /* 0: any number */
    int last_stage; /* the highest that an op is to be in */
    /* [n_ops + 1] the op begins a stage; is in that of the op before. NULL: no pins. */
    bool *cut, *whole;
    int *until; /* [n_ops + 1] where a stage that begins with this op has to end */
    /* [n_ops + 1] stage k begins at least and at most there: of ops whose stage is pinned */
    int *least, *most;
    /* [n_ops + 1] the first op from it on that has a pinned mesh, or n_ops; NULL: none has */
    int *meshed;
    bool recompute; /* some op is always recomputed */
};

/* Layouts, meshes and presets that were met, each kept once. */
struct layout_store {
    struct memo layouts, presets, made_in, meshes;
};

struct space {
    struct search_problem p;
    struct blocks blocks;
    int max_groups, max_stages;
    double *flops;       /* [n_ops + 1] of all ops before one */
    int *inner, n_inner; /* dims that no tensor between blocks has: heads, ffn, vocab */
    int *sequences, n_sequences;
    int *images, n_images; /* dims along which windows slide: heights, then widths */
    int *experts, n_experts;
    int n_blocks,
        *block_first; /* [n_blocks + 1] as a person counts them; their first ops */
    struct recompute_segments segments; /* what is recomputed together */
    bool *recompute[RECOMPUTE_LEVELS];  /* [nodes] */
    struct crossing *crossings;         /* [n_ops + 1], in front of an op */
    int *crossing_edges;
    struct pinned pinned;
    struct layout_store *store;
    bool tight;       /* it is not known that all of the model fits on every device */
    unsigned further; /* schedules that searches leave out until they simulate (ahead.c) */
    bool hides;       /* collectives may hide behind computation (space_may_hide) */
    bool has_long_lived; /* there are tensors that many ops read (long_lived.h) */
};

/* Looks at the problem, which is copied; what it points to is borrowed. space_check_pins comes next. */
void space_survey(struct space *sp, const struct search_problem *p);
void space_release(struct space *sp);

/* ---- the problem ----------------------------------------------------------------------- */

const struct search_problem *space_problem_of(const struct space *sp);
/* Groups of devices at most, and stages. */
int space_max_groups(const struct space *sp);
int space_stage_limit(const struct space *sp);
/* May groups be in another order than the pipeline's: are there devices or links of several
 * kinds? */
bool space_has_places(const struct space *sp);
bool space_has_schedule(const struct space *sp, enum schedule schedule);
/* Is a schedule among those to consider that deals several stages to each group? One that makes weight
 * gradients apart? */
bool space_goes_round(const struct space *sp);
bool space_may_split(const struct space *sp);
/* Of those to consider, one with a single stage on each group, to begin with. */
enum schedule space_plain_schedule(const struct space *sp);
/* How many finalists are evaluated beyond the number that is wanted: as many as take little time. */
int64_t space_spare(const struct space *sp);

/* Do collectives hide behind computation in plans of this space? Is it a choice that they do? Copies
 * to hosts and back go on beside computation as well. */
bool space_may_hide(const struct space *sp);
bool space_may_overlap(const struct space *sp);
/* How much of reductions of gradients can hide behind a backward pass at most. */
double space_hidden_us(const struct space *sp, double reduce_us, double backward_us);

/* ---- presets: layouts of a whole stage --------------------------------------------------- */

/* How all ops of a stage are laid out: of its mesh axes the inner `model_axes` split inner dims
 * (Megatron's tensor parallelism), the outer ones the batch. */
struct preset {
    int model_axes;
    unsigned inner; /* which of the model's inner dims may be split, bit i = inner dim i */
    bool sequence;  /* ops without an inner dim split the sequence there, else nothing */
    bool outer; /* the model axes are the outermost, those for the batch the innermost */
    bool ascending; /* the mesh has its smallest factor outermost (stage_mesh_ascending) */
    /* Next to the model axes: axes that split the sequence, or images into strips, instead of
     * the batch; then axes that split experts where an op has them. */
    int context_axes, expert_axes;
};
/* The i-th of all presets of a stage; false where there are no more. */
bool space_preset(const struct space *sp, const struct search_stage *st, int i,
                  struct preset *out);
int space_inner_dims(const struct space *sp); /* how many */
bool space_has_sequence(const struct space *sp);
bool space_has_experts(const struct space *sp);
/* Are there dims that context axes split: a sequence, or the height and width of images? */
bool space_has_context(const struct space *sp);
/* Can it help to change how many context axes a stage with this preset has? Images are split where
 * a micro-batch has too few samples for all devices, or cannot be smaller. */
bool space_wants_context(const struct space *sp, const struct search_stage *st,
                         int64_t micro_batch, struct preset preset);
/* Of the mesh that the stage has, or is to have when it is laid out. */
int space_mesh_axes(const struct space *sp, const struct search_stage *st);
/* Does the order of factors change the mesh of so many devices? */
bool search_mesh_has_orders(int devices);
/* Lays the stage out; what does not divide stays whole. */
void space_apply_preset(const struct space *sp, struct search_stage *st,
                        int64_t micro_batch, struct preset preset);
/* Does the micro-batch divide on all axes that the preset leaves to it? */
bool search_splits_batch(int devices, int64_t micro_batch, struct preset preset);
/* The preset that a stage seems to have; good enough to lay it out again on other devices. */
struct preset space_preset_of(const struct space *sp, const struct search_stage *st);
/* A lasting copy of layouts by node, the same for the same layouts. */
const struct layout *space_layouts(const struct space *sp, const struct layout *layouts);
/* The mesh that a stage has in another space of the same problem; the stage's ops and devices
 * are set. */
const struct mesh *space_mesh_from(const struct space *sp, const struct space *other,
                                   const struct search_stage *st);

/* ---- choices of a stage ------------------------------------------------------------------ */

/* Levels of ZeRO to choose from: gradients and parameters are sharded where memory is short. */
int space_zero_levels(const struct space *sp);
/* May stages gather again what they gathered? Where memory is short. */
bool space_may_regather(const struct space *sp);
/* The first op of the block that the op is in, or of the one before it; 0 where there is none. */
int space_block_begin(const struct space *sp, int op);
/* Blocks that a stage touches, as recompute counts them (segments.h). */
int space_stage_blocks(const struct space *sp, const struct search_stage *st);
/* The next op of a stage from `first` on that may have another layout than those before it in the
 * stage: instances of a repeated layer have the same, so one period of it is enough. */
int space_next_distinct(const struct space *sp, int first, int op);

/* ---- pins ------------------------------------------------------------------------------ */

/* What is pinned of the plan as a whole, or PIN_FREE. */
int64_t space_pinned(const struct space *sp, enum pin_field field);
/* Checks before the search whether the pins can be obeyed at all; -1 with a message if not. */
int space_check_pins(struct space *sp, struct err *err);
void space_forget_pins(struct space *sp);
/* May an op of the deduplicated model have this layout in a stage with this mesh, pinned or not? */
bool space_pins_allow(const struct space *sp, int op, const struct mesh *pinned,
                      const struct mesh *mesh, const struct layout *l);
/* Makes the layout legal and obey the pins, by changes on as few mesh axes as possible. */
void space_obey(const struct space *sp, int op, const struct mesh *pinned,
                const struct mesh *mesh, int64_t micro_batch, struct layout *l);
/* Do the pins of cuts allow ops first .. end-1 as a stage? */
bool space_may_be_stage(const struct space *sp, int first, int end);
/* Does the candidate obey all pins but those of layouts? */
bool space_obeys(const struct space *sp, const struct candidate *c);
/* Moves cuts as little as possible, and gives the stages devices; false where pins cannot be
 * obeyed. */
bool space_place_stages(const struct space *sp, struct candidate *c);
/* The end of stage k that begins at `first`: one that pins allow, at most `wanted` if there is
 * one. */
int space_allowed_end(const struct space *sp, int n_stages, int k, int first, int wanted);
/* The schedule to begin with. */
enum schedule space_first_schedule(const struct space *sp);
/* Those that the candidate's stages and groups may have, bit i = enum schedule i; a single stage has
 * none to choose. */
unsigned space_schedules_of(const struct space *sp, const struct candidate *c);
/* May a pipeline have so many stages? */
bool space_may_have_stages(const struct space *sp, int n_stages);
/* May stage k of n_stages begin with this op, if the stage before it begins with `before`? */
bool space_may_cut(const struct space *sp, int n_stages, int k, int before, int op);
/* The mesh pinned for one of these ops, or NULL. */
const struct mesh *space_pinned_mesh(const struct space *sp, int first, int end);
/* Puts into the plan what is pinned and no algorithm chooses: overlap, the type in which
 * gradients are reduced. */
void space_put_pins(const struct space *sp, struct plan *plan);

/* ---- whole candidates, and plans ---------------------------------------------------------- */

/* Ops and devices as even as possible. */
bool space_even(const struct space *sp, int n_stages, int64_t micro_batch,
                struct preset preset, struct candidate *out);
/* The candidate's devices with so many stages on each group, laid out as its first was; false where
 * there is no room, or where something is pinned. */
bool space_chunk(const struct space *sp, const struct candidate *c, int chunks,
                 struct candidate *out);
/* The plan that a candidate stands for; the caller destroys it. It need not be legal. */
struct plan *space_plan_of(const struct space *sp, const struct candidate *c);
/* Merges neighbouring mesh axes on which all ops of a stage do the same; false where there are none
 * (merge.c). */
bool search_merge_meshes(struct plan *plan);
/* Names axes by what they are used for; pinned meshes stay. */
void space_name_axes(const struct space *sp, struct plan *plan);
/* Equal for candidates that a person would call the same plan: those with the same stages on the
 * same numbers of devices, micro-batch and schedule, of which most devices have the same level of ZeRO
 * and of recompute, and split most of their work inside alike (different.c). By the layouts alone,
 * so it is the same for a plan that was read back. */
uint64_t space_class(const struct space *sp, const struct candidate *c);

/* How many words it takes to say what the candidate does (simplicity.c): the fewer, the simpler. */
int space_words(const struct space *sp, const struct candidate *c);
/* The preset that the fewest ops of a stage differ from; how many do. */
struct preset space_nearest_preset(const struct space *sp, const struct search_stage *st,
                                   int64_t micro_batch, int *differ);
/* Do the options and pins of the search allow this plan, whether or not it can be a candidate? */
bool space_admits(const struct space *sp, const struct plan *plan);
/* A plan as a candidate (from.c), which need not be legal; `lost` says what of it the space does not
 * have, "" = nothing. EXIT_INPUT where it is for another number of devices or another model, or cannot
 * be a candidate. */
int space_take_plan(const struct space *sp, const struct plan *plan, struct candidate *out,
                    char *lost, size_t size, struct err *err);

/* Is the dim one of these? */
static inline bool search_has_dim(const int *dims, int n, int dim) {
    for (int k = 0; k < n; k++)
        if (dims[k] == dim)
            return true;
    return false;
}

#endif
