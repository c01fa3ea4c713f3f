/* Meshes as people write them: "dp:4 tp:2" instead of "a:2 b:2 c:2".
 *
 * The search has an axis for every prime factor. Neighbouring axes on which all ops of
 * a stage do the same are merged into one. An axis is named after what the products
 * with parameters do on it, weighted by their work. */
#include "search/evaluate/evaluate.h"

#include <stdio.h>
#include <string.h>

/* ---- merging --------------------------------------------------------------------------- */

static bool alike(const struct stage *st, int a) {
    for (int i = 0; i < st->n_ops; i++)
        if (st->layouts[i].dim[a] != st->layouts[i].dim[a + 1])
            return false;
    return true;
}

/* Merges axis a + 1 into axis a. */
static void merge_axes(struct stage *st, int a) {
    struct mesh *mesh = &st->mesh;
    int behind = MESH_MAX_AXES - 2 - a;
    mesh->size[a] *= mesh->size[a + 1];
    memmove(&mesh->size[a + 1], &mesh->size[a + 2], sizeof *mesh->size * (size_t)behind);
    mesh->size[MESH_MAX_AXES - 1] = 0;
    mesh->n_axes--;
    for (int i = 0; i < st->n_ops; i++) {
        int8_t *dim = st->layouts[i].dim;
        memmove(&dim[a + 1], &dim[a + 2], (size_t)behind);
        dim[MESH_MAX_AXES - 1] = PLACE_NONE;
    }
}

/* ---- names ----------------------------------------------------------------------------- */

/* What an axis is used for. The first use wins a tie. */
#define AXIS_USES(X) X(tp) X(dp) X(cp) X(sp) X(ep) X(same)
enum axis_use {
#define X(name) AXIS_##name,
    AXIS_USES(X)
#undef X
        AXIS_USE_COUNT
};
static const char *const axis_names[] = {
#define X(name) #name,
    AXIS_USES(X)
#undef X
};

static enum axis_use use_of(const struct space *sp, const struct model_op *op, int k) {
    int dim = k < 0 ? -1 : op->space.dim[k];
    if (k < 0)
        return AXIS_same;
    if (dim == sp->p.model->batch)
        return AXIS_dp;
    if (search_has_dim(sp->experts, sp->n_experts, dim))
        return AXIS_ep;
    if (search_has_dim(sp->sequences, sp->n_sequences, dim))
        return AXIS_cp;
    return op->space.role[k] == ROLE_halo ? AXIS_sp : AXIS_tp;
}

/* An axis that splits experts is named after them, whatever else it splits. */
static enum axis_use use_of_axis(const struct space *sp, const struct plan *plan,
                                 const struct stage *st, int a) {
    double work[AXIS_USE_COUNT] = {0};
    int most = AXIS_same;
    for (int i = 0; i < st->n_ops; i++) {
        const struct model_op *op = &plan->model->ops[st->ops[i]];
        bool product = op->n_param && op->param[0] >= 0;
        double flops = model_op_flops(plan->model, op, 1);
        work[use_of(sp, op, st->layouts[i].dim[a])] += product ? flops : 1e-6 * flops;
    }
    for (int u = 0; u < AXIS_same; u++)
        most = work[u] > work[most] || (most == AXIS_same && work[u] > 0) ? u : most;
    return work[AXIS_ep] > 0 ? AXIS_ep : (enum axis_use)most;
}

static void name_axes(const struct space *sp, const struct plan *plan, struct stage *st) {
    int n[AXIS_USE_COUNT] = {0};
    for (int a = 0; a < st->mesh.n_axes; a++) {
        enum axis_use u = use_of_axis(sp, plan, st, a);
        char *name = st->mesh.name[a];
        memset(name, 0, MESH_MAX_NAME); /* names are compared bytewise */
        if (n[u]++)
            snprintf(name, MESH_MAX_NAME, "%s%d", axis_names[u], n[u]);
        else
            snprintf(name, MESH_MAX_NAME, "%s", axis_names[u]);
    }
    for (int a = st->mesh.n_axes; a < MESH_MAX_AXES; a++)
        memset(st->mesh.name[a], 0, MESH_MAX_NAME);
}

static bool is_pinned(const struct plan *plan, const struct stage *st) {
    for (int i = 0; i < st->n_ops && plan->pins && plan->pins->meshes.n; i++)
        if (pins_mesh(plan->pins, st->ops[i]))
            return true;
    return false;
}

bool search_merge_meshes(struct plan *plan) {
    bool changed = false;
    for (int k = 0; k < plan->n_stages; k++) {
        struct stage *st = &plan->stages[k];
        for (int a = 0; a + 1 < st->mesh.n_axes && !is_pinned(plan, st);) {
            if (alike(st, a)) {
                merge_axes(st, a);
                changed = true;
            } else {
                a++;
            }
        }
    }
    return changed;
}

void space_name_axes(const struct space *sp, struct plan *plan) {
    for (int k = 0; k < plan->n_stages; k++)
        if (!is_pinned(plan, &plan->stages[k]))
            name_axes(sp, plan, &plan->stages[k]);
}
