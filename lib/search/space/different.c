/* Decides which plans are different: those that a person would call different, and not
 * those in which a cut is one op further on, one more block is recomputed, or one of many
 * stages is laid out in another way. */
#include "search/space/space.h"

/* How many devices vote for each level of ZeRO and of recompute, and for each split. */
struct votes {
    int zero[ZERO_PARAMETERS + 1], recompute[RECOMPUTE_LEVELS], axes[MESH_MAX_AXES + 1],
        sequence[2];
};

static uint64_t most_votes(const int *votes, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        best = votes[i] > votes[best] ? i : best;
    return (uint64_t)best;
}

/* How most of the work inside a stage is split: by how many axes (ops with an inner
 * dim), and whether other ops split the sequence. */
struct split {
    double axes[MESH_MAX_AXES + 1], sequence[2]; /* flops, ops */
};

/* The number of instances of the op in the stage; `op` is the first of them. */
static int instances(const struct structure *g, const struct search_stage *st, int op) {
    if (g->repeat_of[op] < 0)
        return 1;
    const struct repeat *r = &g->repeats[g->repeat_of[op]];
    int run_end = r->first + r->period * r->count;
    int end = st->end < run_end ? st->end : run_end;
    return (end - 1 - op) / r->period + 1;
}

/* Adds an op's vote for all its instances: by flops for axes, by number for the
 * sequence. */
static void count_op(const struct space *sp, const struct search_stage *st, int op,
                     int n_axes, struct split *out) {
    const struct blocks *g = &sp->blocks;
    const struct layout *l = &st->layouts[g->x.node_of[g->x.of[op]]];
    const struct op_space *space = &sp->p.model->ops[op].space;
    int times = instances(&g->s, st, op), axes = 0;
    bool inner = false, sequence = false;
    for (int k = 0; k < space->n; k++)
        inner |= search_has_dim(sp->inner, sp->n_inner, space->dim[k]);
    for (int a = 0; a < n_axes; a++) {
        int dim = l->dim[a] < 0 ? -1 : space->dim[l->dim[a]];
        axes += search_has_dim(sp->inner, sp->n_inner, dim);
        sequence |= search_has_dim(sp->sequences, sp->n_sequences, dim);
    }
    if (inner)
        out->axes[axes] += times * (sp->flops[op + 1] - sp->flops[op]);
    else
        out->sequence[sequence] += times;
}

/* A single op that is split in another way, such as an embedding, does not make a plan
 * another one. */
static void vote_split(const struct space *sp, const struct search_stage *st,
                       struct votes *v) {
    struct split split = {.axes = {0}};
    struct mesh mesh;
    int axes = 0;
    stage_mesh(st->devices, st->mesh, &mesh);
    for (int i = st->first; i < st->end;
         i = structure_next_distinct(&sp->blocks.s, st->first, i))
        count_op(sp, st, i, mesh.n_axes, &split);
    for (int a = 1; a <= mesh.n_axes; a++)
        axes = split.axes[a] > split.axes[axes] ? a : axes;
    v->axes[axes] += st->devices;
    v->sequence[split.sequence[1] > split.sequence[0]] += st->devices;
}

/* A stage counts as recomputed if more than half of its blocks are. */
static void vote(const struct space *sp, const struct search_stage *st, struct votes *v) {
    bool recompute = 2 * st->recompute_blocks > space_stage_blocks(sp, st);
    v->zero[search_zero_of(st)] += st->devices;
    v->recompute[recompute ? st->recompute_level : 0] += st->devices;
    if (st->devices > 1)
        vote_split(sp, st, v);
}

uint64_t space_class(const struct space *sp, const struct candidate *c) {
    struct votes v = {0};
    uint64_t h = memo_mix(memo_mix(1, (uint64_t)c->n_stages), (uint64_t)c->n_groups);
    h = memo_mix(h, (uint64_t)c->micro_batch);
    if (c->n_stages > 1)
        h = memo_mix(h, (uint64_t)c->schedule);
    for (int k = 0; k < c->n_stages; k++) {
        h = memo_mix(h, (uint64_t)c->stages[k].devices);
        vote(sp, &c->stages[k], &v);
    }
    h = memo_mix(memo_mix(h, most_votes(v.zero, ZERO_PARAMETERS + 1)),
                 most_votes(v.recompute, RECOMPUTE_LEVELS));
    return memo_mix(memo_mix(h, most_votes(v.axes, MESH_MAX_AXES + 1)),
                    most_votes(v.sequence, 2));
}
