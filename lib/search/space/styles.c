/* Uniform layouts of a stage: what all of its ops do on each axis of its mesh.
 *
 * From the innermost axis outwards, as Megatron-LM has it: axes that split inner dims (tensor
 * parallelism), then the sequence (context), experts, the batch; where the fast links are those
 * between nodes, the other way round. An op that lacks what an axis is for takes the next best. */
#include "search/search_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- meshes ---------------------------------------------------------------------------- */

/* A pinned mesh of another number of devices is not the stage's: that candidate is not legal. */
static const struct mesh *pinned_mesh(const struct search *s,
                                      const struct search_stage *st) {
    const struct mesh *pinned = search_pinned_mesh(s, st->first, st->end);
    return pinned && mesh_devices(pinned) == st->devices ? pinned : NULL;
}

int search_mesh_axes(const struct search *s, const struct search_stage *st) {
    struct mesh mesh;
    graph_mesh(st->devices, pinned_mesh(s, st), &mesh);
    return mesh.n_axes;
}

static void style_mesh(int devices, struct style style, struct mesh *mesh) {
    (style.ascending ? graph_mesh_ascending : graph_mesh_descending)(devices, mesh);
}

bool search_mesh_has_orders(int devices) {
    struct mesh a, b;
    graph_mesh_descending(devices, &a);
    graph_mesh_ascending(devices, &b);
    return memcmp(&a, &b, sizeof a) != 0;
}

/* The mesh that the stage is to have if it is not the usual one; kept by the search. */
static const struct mesh *mesh_of(struct search *s, const struct search_stage *st,
                                  struct style style) {
    const struct mesh *pinned = pinned_mesh(s, st);
    if (pinned || !style.ascending || !search_mesh_has_orders(st->devices))
        return pinned;
    void **slot = memo_slot(&s->meshes, memo_mix(1, (uint64_t)st->devices));
    if (!*slot) {
        *slot = mem_alloc(sizeof(struct mesh));
        graph_mesh_ascending(st->devices, *slot);
    }
    return *slot;
}

const struct mesh *search_mesh_from(struct search *s, struct search *other,
                                    const struct search_stage *st) {
    const void *theirs = *memo_slot(&other->meshes, memo_mix(1, (uint64_t)st->devices));
    return st->mesh && st->mesh == theirs
               ? mesh_of(s, st, (struct style){.ascending = true})
               : st->mesh;
}

/* ---- layouts --------------------------------------------------------------------------- */

const struct layout *search_layouts(struct search *s, const struct layout *layouts) {
    size_t n = (size_t)s->graph.x.n_nodes;
    void **slot = memo_slot(&s->layouts, hash_bytes(layouts, n * sizeof *layouts, 1));
    if (!*slot) {
        *slot = mem_array(n, sizeof *layouts);
        memcpy(*slot, layouts, n * sizeof *layouts);
    }
    return *slot;
}

/* What an axis is for. */
enum use { USE_INNER, USE_CONTEXT, USE_EXPERTS, USE_BATCH };

static enum use use_of(const struct mesh *mesh, int axis, struct style style) {
    int near = style.outer ? axis : mesh->n_axes - 1 - axis;
    if (near < style.model_axes)
        return USE_INNER;
    if (near < style.model_axes + style.context_axes)
        return USE_CONTEXT;
    return near < style.model_axes + style.context_axes + style.expert_axes ? USE_EXPERTS
                                                                            : USE_BATCH;
}

bool search_splits_batch(int devices, int64_t micro_batch, struct style style) {
    struct mesh mesh;
    style_mesh(devices, style, &mesh);
    for (int a = 0; a < mesh.n_axes; a++) {
        if (use_of(&mesh, a, style) < USE_EXPERTS)
            continue;
        if (micro_batch % mesh.size[a])
            return false;
        micro_batch /= mesh.size[a];
    }
    return true;
}

bool search_wants_context(const struct search *s, const struct search_stage *st,
                          int64_t micro_batch, struct style style) {
    return s->n_sequences > 0 ||
           (s->n_images > 0 && (style.context_axes > 0 || micro_batch == s->p.micro[0] ||
                                !search_splits_batch(st->devices, micro_batch, style)));
}

/* An op about to be laid out, axis by axis. */
struct placing {
    const struct search *s;
    const struct model_op *op;
    const struct mesh *mesh;
    const struct layout *l; /* of the axes before */
    int64_t micro_batch;
    struct style style;
};

static bool splittable(const struct model_op *op, int dim) {
    int k = op_space_find(&op->space, dim);
    return k >= 0 && role_splits(op->space.role[k]);
}

/* Index of a dim in the op's space if the axis can split it there evenly, and cuts no sample group
 * that must stay together, else PLACE_NONE. */
static int try_dim(const struct placing *p, int axis, int dim) {
    const struct model *m = p->s->p.model;
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

/* The first inner dim that the op has decides. */
static int try_inner(const struct placing *p, int axis, unsigned inner, bool *has) {
    const struct search *s = p->s;
    for (int i = 0; i < s->n_inner; i++)
        if ((inner >> (i & 31) & 1) && splittable(p->op, s->inner[i])) {
            *has = true;
            return try_dim(p, axis, s->inner[i]);
        }
    return PLACE_NONE;
}

/* What cannot be split by position, as attention, is split by an inner dim under USE_CONTEXT. */
static int style_dim(const struct placing *p, int axis) {
    const struct search *s = p->s;
    bool has = false;
    int k = PLACE_NONE;
    switch (use_of(p->mesh, axis, p->style)) {
    case USE_INNER:
        k = try_inner(p, axis, p->style.inner, &has);
        return has || !p->style.sequence ? k
                                         : try_dims(p, axis, s->sequences, s->n_sequences);
    case USE_CONTEXT:
        k = try_dims(p, axis, s->sequences, s->n_sequences);
        if (k == PLACE_NONE)
            k = try_dims(p, axis, s->images, s->n_images);
        if (k == PLACE_NONE && s->n_images)
            k = try_dim(p, axis, s->p.model->batch);
        return k == PLACE_NONE ? try_inner(p, axis, ~0u, &has) : k;
    case USE_EXPERTS: k = try_dims(p, axis, s->experts, s->n_experts); break;
    case USE_BATCH: break;
    }
    return k == PLACE_NONE ? try_dim(p, axis, s->p.model->batch) : k;
}

static const struct layout *lay_out(struct search *s, const struct mesh *pinned,
                                    const struct mesh *mesh, int64_t micro_batch,
                                    struct style style) {
    const struct graph *g = &s->graph;
    size_t bytes = sizeof(struct layout) * (size_t)g->x.n_nodes;
    struct layout *layouts = mem_alloc(bytes);
    for (int i = 0; i < g->x.model->n_ops; i++) {
        struct layout *l = &layouts[g->x.node_of[i]];
        struct placing p = {s, &g->x.model->ops[i], mesh, l, micro_batch, style};
        memset(l, PLACE_NONE, sizeof *l);
        for (int a = 0; a < mesh->n_axes; a++)
            l->dim[a] = (int8_t)style_dim(&p, a);
        search_obey(s, i, pinned, mesh, micro_batch, l);
    }
    const struct layout *kept = search_layouts(s, layouts);
    free(layouts);
    return kept;
}

/* ---- styles ---------------------------------------------------------------------------- */

/* What layouts do not tell: the style that they were made in, by layouts and mesh. */
static void **made_in(struct search *s, const struct search_stage *st) {
    uint64_t key = memo_mix(memo_mix(5, (uint64_t)(uintptr_t)st->layouts),
                            (uint64_t)(uintptr_t)st->mesh);
    return memo_slot(&s->made_in, key);
}

static void note_style(struct search *s, const struct search_stage *st,
                       struct style style) {
    void **slot = made_in(s, st);
    if (!*slot) {
        *slot = mem_alloc(sizeof style);
        memcpy(*slot, &style, sizeof style);
    }
}

void search_apply_style(struct search *s, struct search_stage *st, int64_t micro_batch,
                        struct style style) {
    struct mesh mesh;
    st->mesh = mesh_of(s, st, style);
    graph_mesh(st->devices, st->mesh, &mesh);
    if (style.model_axes > mesh.n_axes)
        style.model_axes = mesh.n_axes;
    uint64_t key = memo_mix(memo_mix(3, (uint64_t)st->devices), (uint64_t)micro_batch);
    key = memo_mix(key, (uint64_t)style.model_axes << 33 | (uint64_t)style.sequence << 32 |
                            style.inner);
    key = memo_mix(key, (uint64_t)style.context_axes << 8 |
                            (uint64_t)style.expert_axes << 1 | style.outer);
    if (st->mesh)
        key = memo_mix(key, (uint64_t)(uintptr_t)st->mesh);
    void **slot = memo_slot(&s->styles, key);
    if (!*slot)
        *slot = (void *)lay_out(s, st->mesh, &mesh, micro_batch, style);
    st->layouts = *slot;
    if (style.context_axes || style.expert_axes || style.outer)
        note_style(s, st, style);
}

bool search_style(const struct search *s, const struct search_stage *st, int i,
                  struct style *out) {
    int seq = s->n_sequences ? 2 : 1;
    *out = (struct style){.model_axes = i / seq, .inner = ~0u, .sequence = i % seq == 1};
    return i / seq <= search_mesh_axes(s, st);
}

static struct style infer_style(const struct search *s, const struct search_stage *st) {
    const struct graph *g = &s->graph;
    struct mesh mesh;
    graph_mesh(st->devices, st->mesh, &mesh);
    struct style style = {.ascending = st->mesh && st->mesh != pinned_mesh(s, st)};
    for (int i = st->first; i < st->end; i = search_next_distinct(s, st->first, i)) {
        const struct layout *l = &st->layouts[g->x.node_of[g->x.of[i]]];
        const struct op_space *space = &s->p.model->ops[i].space;
        int axes = 0;
        for (int a = 0; a < mesh.n_axes; a++) {
            int dim = l->dim[a] < 0 ? -1 : space->dim[l->dim[a]];
            for (int k = 0; k < s->n_inner; k++)
                if (dim == s->inner[k]) {
                    style.inner |= 1u << (k & 31);
                    axes++;
                }
            for (int k = 0; k < s->n_sequences; k++)
                style.sequence |= dim == s->sequences[k];
        }
        style.model_axes = axes > style.model_axes ? axes : style.model_axes;
    }
    if (!style.inner)
        style.inner = ~0u;
    return style;
}

struct style search_style_of(struct search *s, const struct search_stage *st) {
    const struct style *known = *made_in(s, st);
    return known ? *known : infer_style(s, st);
}
