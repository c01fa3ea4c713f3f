/* Layouts of an op: see layouts.h. */
#include "search/space/layouts.h"

#include <string.h>

static bool allowed(const struct search *s, const struct mesh *pinned,
                    const struct mesh *mesh, int64_t micro_batch, int op,
                    const struct layout *l) {
    const struct model *m = s->graph.x.model;
    return layout_check(m, &m->ops[op], mesh, l, micro_batch, NULL) == 0 &&
           search_pins_allow(s, op, pinned, mesh, l);
}

static void list_axis(const struct search *s, const struct mesh *pinned,
                      const struct mesh *mesh, int64_t micro_batch, int op,
                      struct layout *l, int axis, struct layout_list *out) {
    if (axis == mesh->n_axes) {
        if (allowed(s, pinned, mesh, micro_batch, op, l))
            arr_push(out, *l);
        return;
    }
    const struct op_space *space = &s->graph.x.model->ops[op].space;
    for (int d = PLACE_NONE; d < space->n; d++) {
        l->dim[axis] = (int8_t)d;
        if (d < 0 || role_splits(space->role[d]))
            list_axis(s, pinned, mesh, micro_batch, op, l, axis + 1, out);
    }
    l->dim[axis] = PLACE_NONE;
}

void layouts_all(const struct search *s, const struct search_stage *st, int64_t micro_batch,
                 int op, struct layout_list *out) {
    struct layout l;
    struct mesh mesh;
    graph_mesh(st->devices, st->mesh, &mesh);
    memset(&l, PLACE_NONE, sizeof l);
    list_axis(s, st->mesh, &mesh, micro_batch, op, &l, 0, out);
}

/* ---- near those that a stage has -------------------------------------------------------- */

struct near {
    struct search *s;
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
    if (n->n < n->most && allowed(n->s, n->st->mesh, &n->mesh, n->micro_batch, n->op, l))
        n->out[n->n++] = *l;
}

static void add_styles(struct near *n, struct style now) {
    struct search_stage st = *n->st;
    int axes = search_mesh_axes(n->s, &st), node = n->s->graph.x.node_of[n->op];
    for (int away = 0; away <= axes; away++) {
        for (int side = away ? -1 : 1; side <= 1; side += 2) {
            int j = now.model_axes + side * away;
            for (int seq = 0; j >= 0 && j <= axes && seq <= search_has_sequence(n->s);
                 seq++) {
                struct style style = {.model_axes = j,
                                      .inner = ~0u,
                                      .sequence = seq,
                                      .outer = now.outer,
                                      .ascending = now.ascending};
                search_apply_style(n->s, &st, n->micro_batch, style);
                add(n, &st.layouts[node]);
            }
        }
    }
}

static void add_single_changes(struct near *n) {
    const struct op_space *space = &n->s->graph.x.model->ops[n->op].space;
    for (int a = 0; a < search_mesh_axes(n->s, n->st); a++) {
        for (int d = PLACE_NONE; d < space->n; d++) {
            struct layout l = n->out[0];
            l.dim[a] = (int8_t)d;
            if (d < 0 || role_splits(space->role[d]))
                add(n, &l);
        }
    }
}

int layouts_near(struct search *s, const struct search_stage *st, int64_t micro_batch,
                 int op, struct style style, struct layout *out, int most) {
    struct near n = {s, st, {0}, micro_batch, op, 1, most, out};
    graph_mesh(st->devices, st->mesh, &n.mesh);
    add_styles(&n, style);
    add_single_changes(&n);
    return n.n;
}
