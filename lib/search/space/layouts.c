/* Layouts of an op (see layouts.h). */
#include "search/space/layouts.h"

#include <string.h>

static bool allowed(const struct space *sp, const struct mesh *pinned,
                    const struct mesh *mesh, int64_t micro_batch, int op,
                    const struct layout *l) {
    const struct model *m = sp->blocks.x.model;
    return layout_check(m, &m->ops[op], mesh, l, micro_batch, NULL) == 0 &&
           space_pins_allow(sp, op, pinned, mesh, l);
}

/* Tries all dims on this axis and those behind it; returns how many layouts were
 * tried. */
static int64_t list_axis(const struct space *sp, const struct mesh *pinned,
                         const struct mesh *mesh, int64_t micro_batch, int op,
                         struct layout *l, int axis, struct layout_list *out) {
    if (axis == mesh->n_axes) {
        if (allowed(sp, pinned, mesh, micro_batch, op, l))
            arr_push(out, *l);
        return 1;
    }
    int64_t tried = 0;
    const struct op_space *space = &sp->blocks.x.model->ops[op].space;
    for (int d = PLACE_NONE; d < space->n; d++) {
        l->dim[axis] = (int8_t)d;
        if (d < 0 || role_splits(space->role[d]))
            tried += list_axis(sp, pinned, mesh, micro_batch, op, l, axis + 1, out);
    }
    l->dim[axis] = PLACE_NONE;
    return tried;
}

int64_t layouts_all(const struct space *sp, const struct search_stage *st,
                    int64_t micro_batch, int op, struct layout_list *out) {
    struct layout l;
    struct mesh mesh;
    stage_mesh(st->devices, st->mesh, &mesh);
    memset(&l, PLACE_NONE, sizeof l);
    return list_axis(sp, st->mesh, &mesh, micro_batch, op, &l, 0, out);
}

/* ---- near those that a stage has -------------------------------------------------------- */

struct near {
    const struct space *sp;
    const struct search_stage *st;
    struct mesh mesh;
    int64_t micro_batch;
    int op, n, most;
    struct layout *out;
};

static void add(struct near *n, const struct layout *l) {
    for (int i = 0; i < n->n; i++)
        if (!memcmp(&n->out[i], l, sizeof *l))
            return;
    if (n->n < n->most && allowed(n->sp, n->st->mesh, &n->mesh, n->micro_batch, n->op, l))
        n->out[n->n++] = *l;
}

/* Presets whose number of model axes is nearest to the present one come first. */
static void add_presets(struct near *n, struct preset now) {
    struct search_stage st = *n->st;
    int axes = space_mesh_axes(n->sp, &st), node = n->sp->blocks.x.node_of[n->op];
    for (int away = 0; away <= axes; away++) {
        for (int side = away ? -1 : 1; side <= 1; side += 2) {
            int j = now.model_axes + side * away;
            for (int seq = 0; j >= 0 && j <= axes && seq <= space_has_sequence(n->sp);
                 seq++) {
                struct preset preset = {.model_axes = j,
                                        .inner = ~0u,
                                        .sequence = seq,
                                        .outer = now.outer,
                                        .ascending = now.ascending};
                space_apply_preset(n->sp, &st, n->micro_batch, preset);
                add(n, &st.layouts[node]);
            }
        }
    }
}

static void add_single_changes(struct near *n) {
    const struct op_space *space = &n->sp->blocks.x.model->ops[n->op].space;
    for (int a = 0; a < space_mesh_axes(n->sp, n->st); a++) {
        for (int d = PLACE_NONE; d < space->n; d++) {
            struct layout l = n->out[0];
            l.dim[a] = (int8_t)d;
            if (d < 0 || role_splits(space->role[d]))
                add(n, &l);
        }
    }
}

int layouts_neighbours(const struct space *sp, const struct search_stage *st,
                       int64_t micro_batch, int op, struct preset preset,
                       struct layout *out, int most) {
    struct near n = {sp, st, {0}, micro_batch, op, 1, most, out};
    stage_mesh(st->devices, st->mesh, &n.mesh);
    add_presets(&n, preset);
    add_single_changes(&n);
    return n.n;
}
