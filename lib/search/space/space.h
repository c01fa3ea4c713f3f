/* space.h - what plans may be: the problem, what a survey of its model found, and
 * candidates.
 *
 * A space is constant once it is surveyed; only the store of layouts grows, like a
 * table of interned strings. evaluate.h says what candidates cost, and pool.h remembers
 * the good ones.
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

/* Levels of recompute: 0 nothing, 1 what is cheap to compute again, 2 everything
 * except what leaves the block. */
enum { RECOMPUTE_LEVELS = 3 };

/* The most stages on a group in interleaved schedules. */
enum { MOST_CHUNKS = 4 };

/* The tensors and parameters that pass a cut of the list of ops. */
struct crossing {
    int n;
    const int *edges; /* of the whole model */
};

/* What pins leave of the space (pins.c). */
struct pinned {
    int n_stages;   /* 0: any number */
    int last_stage; /* the highest stage that an op is pinned to */
    /* [n_ops + 1] whether the op has to begin a stage; whether it has to be in the stage of
     * the op before it. NULL: no pins. */
    bool *cut, *whole;
    int *until; /* [n_ops + 1] where a stage that begins with this op has to end */
    /* [n_ops + 1] the first and the last op with which stage k may begin, by the ops that
     * are pinned to stages */
    int *least, *most;
    /* [n_ops + 1] the first op at or behind this one with a pinned mesh, or n_ops;
     * NULL: there is none */
    int *meshed;
    bool recompute; /* some op is always recomputed */
};

/* Layouts, meshes and presets that were met, each stored once. */
struct layout_store {
    struct memo layouts, presets, made_in, meshes;
};

struct space {
    struct search_problem p;
    struct blocks blocks;
    int max_groups, max_stages;
    double *flops;       /* [n_ops + 1] of all ops in front */
    int *inner, n_inner; /* dims that no tensor between blocks has: heads, ffn, vocab */
    int *sequences, n_sequences;
    int *images, n_images; /* dims along which windows slide: heights, then widths */
    int *experts, n_experts;
    int n_blocks, *block_first; /* [n_blocks + 1] first ops, as a person counts blocks */
    struct recompute_segments segments; /* what is recomputed together */
    bool *recompute[RECOMPUTE_LEVELS];  /* [nodes] */
    struct crossing *crossings;         /* [n_ops + 1] in front of each op */
    int *crossing_edges;
    /* [n_cuts + 1] ops in front of which no more elements pass than elsewhere in their
     * block, ascending, from op 0 to the number of ops (cuts.c) */
    int *cuts, n_cuts;
    int *cut_before; /* [n_ops + 1] the index of the last cut at or in front of an op */
    struct pinned pinned;
    struct layout_store *store;
    bool tight; /* it is not certain that the whole model fits on every device */
    /* schedules that are left out until candidates are simulated (ahead.c) */
    unsigned further;
    bool hides;          /* collectives may hide behind computation (space_may_hide) */
    bool has_long_lived; /* there are tensors that many ops read (long_lived.h) */
};

/* Surveys the problem, which is copied; what it points to is borrowed.
 * space_check_pins has to follow. */
void space_survey(struct space *sp, const struct search_problem *p);
void space_release(struct space *sp);

/* ---- the problem ----------------------------------------------------------------------- */

const struct search_problem *space_problem_of(const struct space *sp);
/* The largest number of groups of devices, and of stages. */
int space_max_groups(const struct space *sp);
int space_stage_limit(const struct space *sp);
/* Returns whether groups may be in another order than the pipeline's, because devices or
 * links differ. */
bool space_has_places(const struct space *sp);
bool space_has_schedule(const struct space *sp, enum schedule schedule);
/* Return whether some schedule puts several stages on each group, and whether one computes
 * weight gradients separately. */
bool space_goes_round(const struct space *sp);
bool space_may_split(const struct space *sp);
/* The first schedule to consider that takes these stages on a group; the table's first
 * if there is none. */
enum schedule space_schedule_for(const struct space *sp, enum schedule_stages takes);
/* The first schedule to consider that has a single stage on each group. */
enum schedule space_plain_schedule(const struct space *sp);
/* How many finalists are evaluated beyond the number that is wanted: as many as take
 * little time. */
int64_t space_spare(const struct space *sp);

/* Return whether collectives hide behind computation in plans of this space, and whether
 * plans may choose overlap. Copies to and from hosts run beside computation as well. */
bool space_may_hide(const struct space *sp);
bool space_may_overlap(const struct space *sp);
/* How much of the time of reducing gradients can, at most, hide behind a backward pass. */
double space_hidden_us(const struct space *sp, double reduce_us, double backward_us);

/* ---- presets: layouts of a whole stage --------------------------------------------------- */

/* How all ops of a stage are laid out: the inner `model_axes` of its mesh split inner
 * dims (Megatron's tensor parallelism), the outer axes split the batch. */
struct preset {
    int model_axes;
    unsigned inner; /* which of the model's inner dims may be split, bit i = inner dim i */
    /* ops without an inner dim split the sequence on model axes; otherwise they split
     * nothing */
    bool sequence;
    /* the model axes are the outermost ones, those for the batch the innermost */
    bool outer;
    bool ascending; /* the mesh has its smallest factor outermost (stage_mesh_ascending) */
    /* Next to the model axes: axes that split the sequence, or images into strips,
     * instead of the batch; then axes that split experts in ops that have them. */
    int context_axes, expert_axes;
};
/* The i-th of all presets of a stage; false if there are no more. */
bool space_preset(const struct space *sp, const struct search_stage *st, int i,
                  struct preset *out);
int space_inner_dims(const struct space *sp); /* how many there are */
bool space_has_sequence(const struct space *sp);
bool space_has_experts(const struct space *sp);
/* Returns whether there are dims for context axes to split: a sequence, or the height and
 * width of images. */
bool space_has_context(const struct space *sp);
/* Returns whether another number of context axes can help a stage with this preset. Images
 * are split only if the micro-batch is smallest or has too few samples for all devices. */
bool space_wants_context(const struct space *sp, const struct search_stage *st,
                         int64_t micro_batch, struct preset preset);
/* The number of axes of the stage's mesh, which need not be laid out yet. */
int space_mesh_axes(const struct space *sp, const struct search_stage *st);
/* Returns whether the order of factors changes the mesh of this many devices. */
bool search_mesh_has_orders(int devices);
/* Lays the stage out in the preset; dims that do not divide stay whole. */
void space_apply_preset(const struct space *sp, struct search_stage *st,
                        int64_t micro_batch, struct preset preset);
/* Returns whether the micro-batch divides on all axes that the preset leaves to it. */
bool search_splits_batch(int devices, int64_t micro_batch, struct preset preset);
/* The preset that a stage seems to have; good enough to lay it out again on other
 * devices. */
struct preset space_preset_of(const struct space *sp, const struct search_stage *st);
/* Interns layouts by node: equal layouts have the same address, which stays valid. */
const struct layout *space_layouts(const struct space *sp, const struct layout *layouts);
/* The mesh that a stage has in another space for the same problem; the stage's ops and
 * devices are set. */
const struct mesh *space_mesh_from(const struct space *sp, const struct space *other,
                                   const struct search_stage *st);

/* ---- choices of a stage ------------------------------------------------------------------ */

/* Returns whether a device is sure to keep what its ops keep. It is not where hosts may
 * have room for it or logits are made in pieces. */
bool space_keeps_all(const struct space *sp);
/* The number of levels of ZeRO to choose from: gradients and parameters are sharded only
 * if memory is limited. */
int space_zero_levels(const struct space *sp);
/* Returns whether stages may regather: only if memory may be short, or some have to. */
bool space_may_regather(const struct space *sp);
/* The first op of the block that the op is in, or of the block before it; 0 if there
 * is none. */
int space_block_begin(const struct space *sp, int op);
/* The number of blocks that a stage touches, as recompute counts them (segments.h). */
int space_stage_blocks(const struct space *sp, const struct search_stage *st);
/* Returns whether the op is one of `cuts`. */
bool space_is_cut(const struct space *sp, int op);
void space_find_cuts(struct space *sp); /* for the survey, which has found crossings */
/* ---- pins ------------------------------------------------------------------------------ */

/* What is pinned for the plan as a whole, or PIN_FREE. */
int64_t space_pinned(const struct space *sp, enum pin_field field);
/* Checks before the search whether the pins can be obeyed at all; -1 with a message if
 * not. */
int space_check_pins(struct space *sp, struct err *err);
void space_forget_pins(struct space *sp);
/* Returns whether an op of the deduplicated model may have this layout in a stage with this
 * mesh. pinned: the stage's own mesh (search_stage.mesh), or NULL. */
bool space_pins_allow(const struct space *sp, int op, const struct mesh *pinned,
                      const struct mesh *mesh, const struct layout *l);
/* Makes the layout legal and obey the pins, by changes on as few mesh axes as
 * possible. */
void space_obey(const struct space *sp, int op, const struct mesh *pinned,
                const struct mesh *mesh, int64_t micro_batch, struct layout *l);
/* Returns whether the pins of cuts allow ops first .. end-1 as a stage. */
bool space_may_be_stage(const struct space *sp, int first, int end);
/* Returns whether the candidate obeys the pins of stages, cuts and the schedule. */
bool space_obeys(const struct space *sp, const struct candidate *c);
/* Moves cuts as little as possible, and gives the stages devices; false if the pins
 * cannot be obeyed. */
bool space_place_stages(const struct space *sp, struct candidate *c);
/* The end of stage k if it begins at `first`: one that pins allow, at most `wanted` if
 * possible. */
int space_allowed_end(const struct space *sp, int n_stages, int k, int first, int wanted);
/* The schedule that candidates begin with. */
enum schedule space_first_schedule(const struct space *sp);
/* The schedules that the candidate's stages and groups allow, bit i = enum schedule i;
 * a single stage has no choice. */
unsigned space_schedules_of(const struct space *sp, const struct candidate *c);
/* Returns whether a pipeline may have this many stages. */
bool space_may_have_stages(const struct space *sp, int n_stages);
/* Returns whether stage k of n_stages may begin with this op if the stage before it begins
 * with `before`. */
bool space_may_cut(const struct space *sp, int n_stages, int k, int before, int op);
/* The mesh pinned for one of these ops, or NULL. */
const struct mesh *space_pinned_mesh(const struct space *sp, int first, int end);
/* Copies into the plan what is pinned and no algorithm chooses: overlap, and the type
 * in which gradients are reduced. */
void space_put_pins(const struct space *sp, struct plan *plan);

/* ---- whole candidates, and plans ---------------------------------------------------------- */

/* Divides ops and devices as evenly as possible among the stages. */
bool space_even(const struct space *sp, int n_stages, int64_t micro_batch,
                struct preset preset, struct candidate *out);
/* Puts several stages on each group of the candidate, laid out like its first; false
 * if there are too many stages, or if something is pinned. */
bool space_chunk(const struct space *sp, const struct candidate *c, int chunks,
                 struct candidate *out);
/* The plan that a candidate stands for; the caller destroys it. It need not be legal. */
struct plan *space_plan_of(const struct space *sp, const struct candidate *c);
/* Names axes by what they are used for; pinned meshes keep their names. */
void space_name_axes(const struct space *sp, struct plan *plan);
/* Returns equal numbers for candidates that a person would call the same plan: the
 * same stages on the same numbers of devices, micro-batch and schedule; most devices
 * have the same level of ZeRO and of recompute, and split most of their work in the
 * same way (different.c). It depends on the layouts only, so it is the same for a plan
 * that was read back. */
uint64_t space_class(const struct space *sp, const struct candidate *c);

/* How many words describe the candidate (simplicity.c): the fewer, the simpler. */
int space_words(const struct space *sp, const struct candidate *c);
/* The preset from which the fewest ops of a stage differ, and how many do. */
struct preset space_nearest_preset(const struct space *sp, const struct search_stage *st,
                                   int64_t micro_batch, int *differ);
/* Returns whether the options and pins of the search allow this plan, even if it cannot be
 * a candidate. */
bool space_admits(const struct space *sp, const struct plan *plan);
/* Reads a plan as a candidate (from.c), which need not be legal. `lost` receives what
 * the space cannot express of it, "" = nothing. Fails with EXIT_INPUT if it is for
 * another number of devices or another model, or cannot be a candidate. */
int space_take_plan(const struct space *sp, const struct plan *plan, struct candidate *out,
                    char *lost, size_t size, struct err *err);

/* Returns whether the dim is one of these. */
static inline bool search_has_dim(const int *dims, int n, int dim) {
    for (int k = 0; k < n; k++)
        if (dims[k] == dim)
            return true;
    return false;
}

#endif
