/* Uniform layouts of a stage: what all of its ops do on each axis of its mesh.
 *
 * The order is Megatron-LM's, from the innermost axis outwards: axes that split inner
 * dims (tensor parallelism), then the sequence (context), experts, the batch; if the
 * links between nodes are the fast ones, the reverse. An op that lacks the dim of an
 * axis takes the next best one. */
#include "search/space/space.h"

#include <stdlib.h>
#include <string.h>

/* ---- meshes ---------------------------------------------------------------------------- */

/* A pinned mesh with another number of devices is not the stage's; such a candidate is
 * illegal. */
static const struct mesh *pinned_mesh(const struct space *sp,
                                      const struct search_stage *st) {
    const struct mesh *pinned = space_pinned_mesh(sp, st->first, st->end);
    return pinned && mesh_devices(pinned) == st->devices ? pinned : NULL;
}

int space_mesh_axes(const struct space *sp, const struct search_stage *st) {
    struct mesh mesh;
    stage_mesh(st->devices, pinned_mesh(sp, st), &mesh);
    return mesh.n_axes;
}

static void preset_mesh(int devices, struct preset preset, struct mesh *mesh) {
    (preset.ascending ? stage_mesh_ascending : stage_mesh_descending)(devices, mesh);
}

bool search_mesh_has_orders(int devices) {
    struct mesh a, b;
    stage_mesh_descending(devices, &a);
    stage_mesh_ascending(devices, &b);
    return memcmp(&a, &b, sizeof a) != 0;
}

/* Returns the mesh of the stage if it is not the usual one; it is interned. */
static const struct mesh *mesh_of(const struct space *sp, const struct search_stage *st,
                                  struct preset preset) {
    const struct mesh *pinned = pinned_mesh(sp, st);
    if (pinned || !preset.ascending || !search_mesh_has_orders(st->devices))
        return pinned;
    void **slot = memo_slot(&sp->store->meshes, memo_mix(1, (uint64_t)st->devices));
    if (!*slot) {
        *slot = mem_alloc(sizeof(struct mesh));
        stage_mesh_ascending(st->devices, *slot);
    }
    return *slot;
}

const struct mesh *space_mesh_from(const struct space *sp, const struct space *other,
                                   const struct search_stage *st) {
    const void *theirs =
        *memo_slot(&other->store->meshes, memo_mix(1, (uint64_t)st->devices));
    return st->mesh && st->mesh == theirs
               ? mesh_of(sp, st, (struct preset){.ascending = true})
               : st->mesh;
}

/* ---- layouts --------------------------------------------------------------------------- */

const struct layout *space_layouts(const struct space *sp, const struct layout *layouts) {
    size_t n = (size_t)sp->blocks.x.n_nodes;
    void **slot =
        memo_slot(&sp->store->layouts, hash_bytes(layouts, n * sizeof *layouts, 1));
    if (!*slot) {
        *slot = mem_array(n, sizeof *layouts);
        memcpy(*slot, layouts, n * sizeof *layouts);
    }
    return *slot;
}

/* What an axis is used for. */
enum use { USE_INNER, USE_CONTEXT, USE_EXPERTS, USE_BATCH };

static enum use use_of(const struct mesh *mesh, int axis, struct preset preset) {
    int near = preset.outer ? axis : mesh->n_axes - 1 - axis;
    if (near < preset.model_axes)
        return USE_INNER;
    if (near < preset.model_axes + preset.context_axes)
        return USE_CONTEXT;
    return near < preset.model_axes + preset.context_axes + preset.expert_axes ? USE_EXPERTS
                                                                               : USE_BATCH;
}

bool search_splits_batch(int devices, int64_t micro_batch, struct preset preset) {
    struct mesh mesh;
    preset_mesh(devices, preset, &mesh);
    for (int a = 0; a < mesh.n_axes; a++) {
        if (use_of(&mesh, a, preset) < USE_EXPERTS)
            continue;
        if (micro_batch % mesh.size[a])
            return false;
        micro_batch /= mesh.size[a];
    }
    return true;
}

bool space_wants_context(const struct space *sp, const struct search_stage *st,
                         int64_t micro_batch, struct preset preset) {
    return sp->n_sequences > 0 ||
           (sp->n_images > 0 && (preset.context_axes > 0 || micro_batch == sp->p.micro[0] ||
                                 !search_splits_batch(st->devices, micro_batch, preset)));
}

/* An op that is being laid out, axis by axis. */
struct placing {
    const struct space *sp;
    const struct model_op *op;
    const struct mesh *mesh;
    const struct layout *l; /* the axes so far */
    int64_t micro_batch;
    struct preset preset;
};

static bool splittable(const struct model_op *op, int dim) {
    int k = op_space_find(&op->space, dim);
    return k >= 0 && role_splits(op->space.role[k]);
}

/* Returns the index of a dim in the op's space if the axis can split it evenly without
 * cutting a sample group that must stay together; otherwise PLACE_NONE. */
static int try_dim(const struct placing *p, int axis, int dim) {
    const struct model *m = p->sp->p.model;
    if (!splittable(p->op, dim))
        return PLACE_NONE;
    int k = op_space_find(&p->op->space, dim);
    int64_t n = model_dim_size(m, dim, p->micro_batch);
    if (dim == m->batch && p->op->attr[ATTR_group] > 1 &&
        p->op->space.role[k] != ROLE_coupled)
        n /= (int64_t)p->op->attr[ATTR_group];
    for (int a = 0; a < axis; a++)
        if (p->l->dim[a] == k)
            n = n % p->mesh->size[a] ? 1 : n / p->mesh->size[a];
    return n % p->mesh->size[axis] ? PLACE_NONE : k;
}

static int try_dims(const struct placing *p, int axis, const int *dims, int n) {
    int k = PLACE_NONE;
    for (int i = 0; i < n && k == PLACE_NONE; i++)
        k = try_dim(p, axis, dims[i]);
    return k;
}

/* The first inner dim on which the op can be split decides, even if it does not divide. */
static int try_inner(const struct placing *p, int axis, unsigned inner, bool *has) {
    const struct space *sp = p->sp;
    for (int i = 0; i < sp->n_inner; i++)
        if ((inner >> (i & 31) & 1) && splittable(p->op, sp->inner[i])) {
            *has = true;
            return try_dim(p, axis, sp->inner[i]);
        }
    return PLACE_NONE;
}

/* Ops that cannot be split by position, such as attention, are split by an inner dim
 * under USE_CONTEXT. */
static int preset_dim(const struct placing *p, int axis) {
    const struct space *sp = p->sp;
    bool has = false;
    int k = PLACE_NONE;
    switch (use_of(p->mesh, axis, p->preset)) {
    case USE_INNER:
        k = try_inner(p, axis, p->preset.inner, &has);
        return has || !p->preset.sequence
                   ? k
                   : try_dims(p, axis, sp->sequences, sp->n_sequences);
    case USE_CONTEXT:
        k = try_dims(p, axis, sp->sequences, sp->n_sequences);
        if (k == PLACE_NONE)
            k = try_dims(p, axis, sp->images, sp->n_images);
        if (k == PLACE_NONE && sp->n_images)
            k = try_dim(p, axis, sp->p.model->batch);
        return k == PLACE_NONE ? try_inner(p, axis, ~0u, &has) : k;
    case USE_EXPERTS: k = try_dims(p, axis, sp->experts, sp->n_experts); break;
    case USE_BATCH: break;
    }
    return k == PLACE_NONE ? try_dim(p, axis, sp->p.model->batch) : k;
}

/* Lays out one op of each node, then makes each layout legal and obey the pins. */
static const struct layout *lay_out(const struct space *sp, const struct mesh *pinned,
                                    const struct mesh *mesh, int64_t micro_batch,
                                    struct preset preset) {
    const struct blocks *g = &sp->blocks;
    size_t bytes = sizeof(struct layout) * (size_t)g->x.n_nodes;
    struct layout *layouts = mem_alloc(bytes);
    for (int i = 0; i < g->x.model->n_ops; i++) {
        struct layout *l = &layouts[g->x.node_of[i]];
        struct placing p = {sp, &g->x.model->ops[i], mesh, l, micro_batch, preset};
        memset(l, PLACE_NONE, sizeof *l);
        for (int a = 0; a < mesh->n_axes; a++)
            l->dim[a] = (int8_t)preset_dim(&p, a);
        space_obey(sp, i, pinned, mesh, micro_batch, l);
    }
    const struct layout *kept = space_layouts(sp, layouts);
    free(layouts);
    return kept;
}

/* ---- presets ---------------------------------------------------------------------------- */

/* Returns the slot that remembers, by layouts and mesh, the preset they were made in, for
 * presets that infer_preset cannot tell from them. */
static void **made_in(const struct space *sp, const struct search_stage *st) {
    uint64_t key = memo_mix(memo_mix(5, (uint64_t)(uintptr_t)st->layouts),
                            (uint64_t)(uintptr_t)st->mesh);
    return memo_slot(&sp->store->made_in, key);
}

static void note_preset(const struct space *sp, const struct search_stage *st,
                        struct preset preset) {
    void **slot = made_in(sp, st);
    if (!*slot) {
        *slot = mem_alloc(sizeof preset);
        memcpy(*slot, &preset, sizeof preset);
    }
}

/* Layouts of a preset depend on the devices, the mesh and the micro-batch only, so
 * each is made once. */
void space_apply_preset(const struct space *sp, struct search_stage *st,
                        int64_t micro_batch, struct preset preset) {
    struct mesh mesh;
    st->mesh = mesh_of(sp, st, preset);
    stage_mesh(st->devices, st->mesh, &mesh);
    if (preset.model_axes > mesh.n_axes)
        preset.model_axes = mesh.n_axes;
    uint64_t key = memo_mix(memo_mix(3, (uint64_t)st->devices), (uint64_t)micro_batch);
    key = memo_mix(key, (uint64_t)preset.model_axes << 33 |
                            (uint64_t)preset.sequence << 32 | preset.inner);
    key = memo_mix(key, (uint64_t)preset.context_axes << 8 |
                            (uint64_t)preset.expert_axes << 1 | preset.outer);
    if (st->mesh)
        key = memo_mix(key, (uint64_t)(uintptr_t)st->mesh);
    void **slot = memo_slot(&sp->store->presets, key);
    if (!*slot)
        *slot = (void *)lay_out(sp, st->mesh, &mesh, micro_batch, preset);
    st->layouts = *slot;
    if (preset.context_axes || preset.expert_axes || preset.outer)
        note_preset(sp, st, preset);
}

bool space_preset(const struct space *sp, const struct search_stage *st, int i,
                  struct preset *out) {
    int seq = sp->n_sequences ? 2 : 1;
    *out = (struct preset){.model_axes = i / seq, .inner = ~0u, .sequence = i % seq == 1};
    return i / seq <= space_mesh_axes(sp, st);
}

/* Guesses the preset from the layouts: the largest number of axes that split inner
 * dims in any op. */
static struct preset infer_preset(const struct space *sp, const struct search_stage *st) {
    const struct blocks *g = &sp->blocks;
    struct mesh mesh;
    stage_mesh(st->devices, st->mesh, &mesh);
    struct preset preset = {.ascending = st->mesh && st->mesh != pinned_mesh(sp, st)};
    for (int i = st->first; i < st->end;
         i = structure_next_distinct(&sp->blocks.s, st->first, i)) {
        const struct layout *l = &st->layouts[g->x.node_of[g->x.of[i]]];
        const struct op_space *space = &sp->p.model->ops[i].space;
        int axes = 0;
        for (int a = 0; a < mesh.n_axes; a++) {
            int dim = l->dim[a] < 0 ? -1 : space->dim[l->dim[a]];
            for (int k = 0; k < sp->n_inner; k++)
                if (dim == sp->inner[k]) {
                    preset.inner |= 1u << (k & 31);
                    axes++;
                }
            for (int k = 0; k < sp->n_sequences; k++)
                preset.sequence |= dim == sp->sequences[k];
        }
        preset.model_axes = axes > preset.model_axes ? axes : preset.model_axes;
    }
    if (!preset.inner)
        preset.inner = ~0u;
    return preset;
}

struct preset space_preset_of(const struct space *sp, const struct search_stage *st) {
    const struct preset *known = *made_in(sp, st);
    return known ? *known : infer_preset(sp, st);
}
