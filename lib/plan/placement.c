#include "plan/placement.h"

#include <stdio.h>
#include <string.h>

int layout_cut(const struct layout *l, const struct axis_map *map, int axis) {
    int k = l->dim[axis], ring = l->ring;
    if (k == PLACE_NONE || map->axis[k] >= 0)
        return k;
    return ring != PLACE_NONE && map->axis[ring] >= 0 ? ring : PLACE_NONE;
}

int layout_ring(const struct op_space *space) {
    int k = 0;
    while (k < space->n && space->role[k] != ROLE_gathered)
        k++;
    return k < space->n ? k : PLACE_NONE;
}

/* `otherwise`: what a tensor is on an axis that splits a dim which it lacks, or of which it has too
 * few groups. Axes inside such an axis cannot cut them either: a rank's part would not be that of
 * its share of the dim. */
static struct placement place(const struct mesh *mesh, const struct layout *l,
                              const struct axis_map *map, int8_t otherwise) {
    struct placement p = placement_replicate();
    int64_t groups = map->groups;
    for (int a = 0; a < mesh->n_axes; a++) {
        int k = layout_cut(l, map, a);
        if (l->dim[a] == PLACE_NONE || mesh->size[a] == 1)
            continue;
        bool cut = k != PLACE_NONE;
        if (cut && k == map->grouped) {
            cut = groups && groups % mesh->size[a] == 0;
            groups = cut ? groups / mesh->size[a] : 0;
        }
        p.at[a] = cut ? map->axis[k] : otherwise;
    }
    return p;
}

struct placement placement_operand(const struct mesh *mesh, const struct layout *l,
                                   const struct axis_map *map) {
    return place(mesh, l, map, PLACE_REPLICATE);
}

struct placement placement_result(const struct mesh *mesh, const struct layout *l,
                                  const struct axis_map *map) {
    return place(mesh, l, map, PLACE_PARTIAL);
}

struct box placement_box(const struct mesh *mesh, const struct extents *x,
                         struct placement p, const int coord[MESH_MAX_AXES]) {
    struct box b = {{0}, {0}};
    memcpy(b.size, x->size, sizeof b.size);
    for (int a = 0; a < mesh->n_axes; a++) {
        int i = p.at[a];
        if (i < 0)
            continue;
        b.size[i] /= mesh->size[a];
        b.first[i] += b.size[i] * coord[a];
    }
    return b;
}

int64_t placement_size(const struct mesh *mesh, const struct extents *x, struct placement p,
                       int axis) {
    return x->size[axis] / mesh_group_size(mesh, placement_axes(mesh, p, axis));
}

int64_t placement_elements(const struct mesh *mesh, const struct extents *x,
                           struct placement p) {
    int64_t n = 1;
    for (int i = 0; i < x->rank; i++)
        n *= x->size[i];
    return n / mesh_group_size(mesh, placement_sharded_axes(mesh, p));
}

int layout_choose(const struct op_space *space, const int *dims, int n) {
    for (int i = 0; i < n; i++) {
        int k = op_space_find(space, dims[i]);
        if (k >= 0 && role_splits(space->role[k]))
            return k;
    }
    return PLACE_NONE;
}

int64_t layout_size(const struct mesh *mesh, const struct layout *l, int k, int64_t n) {
    for (int a = 0; a < mesh->n_axes; a++)
        if (l->dim[a] == k)
            n /= mesh->size[a];
    return n;
}

/* ---- checks ------------------------------------------------------------------------ */

/* Do the axes that cut a tensor along dim k of the space, called `dim` there, divide its size n? */
static int check_even(const struct model_op *op, const struct mesh *mesh,
                      const struct layout *l, const struct axis_map *map, int k,
                      const char *dim, int64_t n, struct err *err) {
    int64_t left = n;
    for (int a = 0; a < mesh->n_axes; a++) {
        if (layout_cut(l, map, a) != k)
            continue;
        if (left % mesh->size[a] && left == n)
            return err_input(err, "layout: axis %s (%d) does not divide %s (%lld) of %s",
                             mesh->name[a], mesh->size[a], dim, (long long)n, op->name);
        if (left % mesh->size[a])
            return err_input(err,
                             "layout: axis %s (%d) does not divide what the axes before it "
                             "leave of %s (%lld of %lld) of %s",
                             mesh->name[a], mesh->size[a], dim, (long long)left,
                             (long long)n, op->name);
        left /= mesh->size[a];
    }
    return 0;
}

static int check_tensor(const struct model *m, const struct model_op *op,
                        const struct mesh *mesh, const struct layout *l,
                        const struct shape *s, const struct axis_map *map, int64_t batch,
                        struct err *err) {
    unsigned cut = 0;
    for (int a = 0; a < mesh->n_axes; a++) {
        int k = layout_cut(l, map, a);
        cut |= k < 0 ? 0 : 1u << k;
    }
    for (int k = 0; k < op->space.n && cut >> k; k++) {
        if (!(cut >> k & 1) || map->axis[k] < 0 || k == map->grouped)
            continue;
        int dim = s->dim[map->axis[k]];
        if (check_even(op, mesh, l, map, k, m->dims[dim].name,
                       model_dim_size(m, dim, batch), err) < 0)
            return -1;
    }
    return 0;
}

/* Sample groups stay together, but for ops that couple the batch: what a device has of it is a number
 * of them. */
static int check_groups(const struct model *m, const struct model_op *op,
                        const struct mesh *mesh, const struct layout *l, int64_t batch,
                        struct err *err) {
    int64_t group = (int64_t)op->attr[ATTR_group];
    int k = op_space_find(&op->space, m->batch);
    if (group > 1 && batch % group)
        return err_input(err,
                         "layout: a micro-batch (%lld) cuts a sample group (%lld) of %s",
                         (long long)batch, (long long)group, op->name);
    for (int a = 0; a < mesh->n_axes && group > 1; a++) {
        if (l->dim[a] != k || op->space.role[k] == ROLE_coupled)
            continue;
        if (batch / mesh->size[a] % group)
            return err_input(
                err,
                "layout: axis %s (%d) cuts a sample group (%lld) of batch (%lld) of %s",
                mesh->name[a], mesh->size[a], (long long)group, (long long)batch, op->name);
        batch /= mesh->size[a];
    }
    return 0;
}

/* Only dims that may be are split, every tensor of the op must be divisible, and no sample group
 * cut. */
int layout_check(const struct model *m, const struct model_op *op, const struct mesh *mesh,
                 const struct layout *l, int64_t batch, struct err *err) {
    for (int a = 0; a < mesh->n_axes; a++) {
        int k = l->dim[a];
        if (k != PLACE_NONE && !role_splits(op->space.role[k]))
            return err_input(err, "layout: %s cannot be split on dim %s (axis %s)",
                             op->name, m->dims[op->space.dim[k]].name, mesh->name[a]);
    }
    for (int i = 0; i < op->n_in; i++)
        if (check_tensor(m, op, mesh, l, &m->tensors[op->in[i]].shape, &op->in_map[i],
                         batch, err) < 0)
            return -1;
    for (int i = 0; i < op->n_param; i++)
        if (op->param[i] >= 0 &&
            check_tensor(m, op, mesh, l, &m->params[op->param[i]].shape, &op->param_map[i],
                         batch, err) < 0)
            return -1;
    for (int i = 0; i < op->n_out; i++)
        if (check_tensor(m, op, mesh, l, &m->tensors[op->out[i]].shape, &op->out_map[i],
                         batch, err) < 0)
            return -1;
    return check_groups(m, op, mesh, l, batch, err);
}

/* ---- placements made from others --------------------------------------------------- */

/* The first axis of the tensor that mesh axis a may split in p, or PLACE_REPLICATE. It takes the
 * finest cut, so no inner axis may split there already. */
static int8_t scatter_axis(const struct mesh *mesh, const struct extents *x,
                           struct placement p, int a) {
    for (int i = 0; i < x->rank; i++)
        if (placement_axes(mesh, p, i) >> a == 0 &&
            placement_size(mesh, x, p, i) % mesh->size[a] == 0)
            return (int8_t)i;
    return PLACE_REPLICATE;
}

struct placement placement_resolve(const struct mesh *mesh, const struct extents *x,
                                   struct placement p) {
    for (int a = 0; a < mesh->n_axes; a++)
        if (p.at[a] == PLACE_PARTIAL)
            p.at[a] = scatter_axis(mesh, x, p, a);
    return p;
}

/* The first axis of the tensor that all of these mesh axes may split together, behind the mesh axes that
 * split it already; PLACE_REPLICATE where there is none. */
static int8_t scatter_all(const struct mesh *mesh, const struct extents *x,
                          struct placement p, unsigned axes) {
    for (int i = 0; i < x->rank; i++)
        if (placement_axes(mesh, p, i) < (axes & (~axes + 1)) &&
            placement_size(mesh, x, p, i) % mesh_group_size(mesh, axes) == 0)
            return (int8_t)i;
    return PLACE_REPLICATE;
}

/* On one axis of the tensor where that can be: then one collective gathers it again, not a chain. */
struct placement placement_scatter(const struct mesh *mesh, const struct extents *x,
                                   struct placement p) {
    unsigned axes = 0;
    for (int a = 0; a < mesh->n_axes; a++)
        axes |= p.at[a] < 0 && mesh->size[a] > 1 ? 1u << a : 0;
    int8_t all = axes ? scatter_all(mesh, x, p, axes) : PLACE_REPLICATE;
    for (int a = 0; a < mesh->n_axes && all >= 0; a++)
        p.at[a] = axes >> a & 1 ? all : p.at[a];
    for (int a = 0; a < mesh->n_axes; a++)
        if (p.at[a] < 0 && mesh->size[a] > 1)
            p.at[a] = scatter_axis(mesh, x, p, a);
    return p;
}

struct placement placement_matrices(const struct model_param *param, struct placement p) {
    const struct model_matrices *x = &param->matrices;
    for (int a = 0; a < MESH_MAX_AXES; a++)
        if ((p.at[a] >= x->rows && p.at[a] < x->between) || p.at[a] >= x->columns)
            p.at[a] = PLACE_REPLICATE;
    return p;
}
