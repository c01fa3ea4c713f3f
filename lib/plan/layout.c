#include "plan/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- meshes ------------------------------------------------------------------------ */

int mesh_devices(const struct mesh *mesh) {
    return mesh_group_size(mesh, (1u << mesh->n_axes) - 1);
}

void mesh_coords(const struct mesh *mesh, int r, int coord[MESH_MAX_AXES]) {
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        coord[a] = r % mesh->size[a];
        r /= mesh->size[a];
    }
}

int mesh_rank(const struct mesh *mesh, const int coord[MESH_MAX_AXES]) {
    int r = 0;
    for (int a = 0; a < mesh->n_axes; a++)
        r = r * mesh->size[a] + coord[a];
    return r;
}

int mesh_axis_find(const struct mesh *mesh, const char *name) {
    for (int a = 0; a < mesh->n_axes; a++)
        if (!strcmp(mesh->name[a], name))
            return a;
    return -1;
}

int mesh_group_size(const struct mesh *mesh, unsigned axes) {
    int n = 1;
    for (int a = 0; a < mesh->n_axes; a++)
        if (axes >> a & 1)
            n *= mesh->size[a];
    return n;
}

int mesh_group(const struct mesh *mesh, unsigned axes, int r, int *ranks) {
    int n = mesh_group_size(mesh, axes), coord[MESH_MAX_AXES];
    for (int i = 0; i < n; i++) {
        mesh_coords(mesh, r, coord);
        for (int a = mesh->n_axes - 1, rest = i; a >= 0; a--) {
            if (axes >> a & 1) {
                coord[a] = rest % mesh->size[a];
                rest /= mesh->size[a];
            }
        }
        ranks[i] = mesh_rank(mesh, coord);
    }
    return n;
}

int mesh_group_stride(const struct mesh *mesh, unsigned axes) {
    int stride = 1;
    for (int a = mesh->n_axes - 1; a >= 0 && !(axes >> a & 1); a--)
        stride *= mesh->size[a];
    return stride;
}

int mesh_parse(const char *text, int64_t max_devices, struct mesh *mesh, struct err *err) {
    *mesh = (struct mesh){0};
    int64_t devices = 1;
    for (const char *p = text; *p;) {
        while (*p == ' ')
            p++;
        size_t n = strcspn(p, ": ");
        if (!*p)
            break;
        char *end;
        long size = p[n] == ':' ? strtol(p + n + 1, &end, 10) : 0;
        if (!n || n >= MESH_MAX_NAME || p[n] != ':' || (*end && *end != ' '))
            return err_input(err, "mesh: \"%.64s\": expected axes such as \"dp:2 tp:4\"",
                             text);
        if (mesh->n_axes == MESH_MAX_AXES)
            return err_input(err, "mesh: more than %d axes", MESH_MAX_AXES);
        if (size < 1 || size > max_devices || (devices *= size) > max_devices)
            return err_input(err,
                             "mesh: \"%.64s\": sizes must be positive and at most %lld "
                             "devices",
                             text, (long long)max_devices);
        memcpy(mesh->name[mesh->n_axes], p, n);
        mesh->name[mesh->n_axes][n] = '\0';
        if (mesh_axis_find(mesh, mesh->name[mesh->n_axes]) >= 0)
            return err_input(err, "mesh: axis \"%s\" appears twice",
                             mesh->name[mesh->n_axes]);
        mesh->size[mesh->n_axes++] = (int)size;
        p = end;
    }
    return 0;
}

void mesh_format(const struct mesh *mesh, char *buf, size_t n) {
    buf[0] = '\0';
    for (int a = 0; a < mesh->n_axes; a++) {
        size_t used = strlen(buf);
        snprintf(buf + used, n - used, "%s%s:%d", a ? " " : "", mesh->name[a],
                 mesh->size[a]);
    }
}

/* ---- placements ---------------------------------------------------------------------- */

struct placement placement_replicate(void) {
    struct placement p;
    memset(p.at, PLACE_REPLICATE, sizeof p.at);
    return p;
}

bool placement_equal(struct placement a, struct placement b) {
    return !memcmp(a.at, b.at, sizeof a.at);
}

static struct placement place(const struct mesh *mesh, const struct layout *l, dimset dims,
                              int8_t otherwise) {
    struct placement p = placement_replicate();
    for (int a = 0; a < mesh->n_axes; a++)
        if (l->dim[a] >= 0)
            p.at[a] = dims >> l->dim[a] & 1 ? l->dim[a] : otherwise;
    return p;
}

struct placement placement_operand(const struct mesh *mesh, const struct layout *l,
                                   dimset dims) {
    return place(mesh, l, dims, PLACE_REPLICATE);
}

struct placement placement_result(const struct mesh *mesh, const struct layout *l,
                                  dimset dims) {
    return place(mesh, l, dims, PLACE_PARTIAL);
}

unsigned placement_axes(const struct mesh *mesh, struct placement p, int what) {
    unsigned set = 0;
    for (int a = 0; a < mesh->n_axes; a++)
        if (p.at[a] == what)
            set |= 1u << a;
    return set;
}

unsigned placement_sharded_axes(const struct mesh *mesh, struct placement p) {
    unsigned set = 0;
    for (int a = 0; a < mesh->n_axes; a++)
        if (p.at[a] >= 0)
            set |= 1u << a;
    return set;
}

void placement_format(const struct model *m, const struct mesh *mesh, struct placement p,
                      char *buf, size_t n) {
    size_t used = (size_t)snprintf(buf, n, "[");
    for (int a = 0; a < mesh->n_axes && used < n; a++)
        used +=
            (size_t)snprintf(buf + used, n - used, "%s%s:%s", a ? " " : "", mesh->name[a],
                             p.at[a] >= 0               ? m->dims[p.at[a]].name
                             : p.at[a] == PLACE_PARTIAL ? "+"
                                                        : "=");
    if (used < n)
        snprintf(buf + used, n - used, "]");
}

struct dim_sizes dim_sizes_of(const struct model *m, int64_t batch) {
    struct dim_sizes s = {{0}};
    for (int d = 0; d < m->n_dims; d++)
        s.size[d] = d == m->batch ? batch : m->dims[d].size;
    return s;
}

int64_t placement_dim_size(const struct mesh *mesh, const struct dim_sizes *sizes,
                           struct placement p, int dim) {
    int64_t n = sizes->size[dim];
    for (int a = 0; a < mesh->n_axes; a++)
        if (p.at[a] == dim)
            n /= mesh->size[a];
    return n;
}

struct block placement_block(const struct mesh *mesh, const struct shape *s,
                             const struct dim_sizes *sizes, struct placement p,
                             const int *coord) {
    struct block b = {{0}, {0}};
    for (int i = 0; i < s->rank; i++) {
        b.size[i] = sizes->size[s->dim[i]];
        for (int a = 0; a < mesh->n_axes; a++) {
            if (p.at[a] == s->dim[i]) {
                b.size[i] /= mesh->size[a];
                b.first[i] += b.size[i] * coord[a];
            }
        }
    }
    return b;
}

int64_t placement_elements(const struct mesh *mesh, const struct shape *s,
                           const struct dim_sizes *sizes, struct placement p) {
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        n *= placement_dim_size(mesh, sizes, p, s->dim[i]);
    return n;
}

int layout_check(const struct model *m, const struct model_op *op, const struct mesh *mesh,
                 const struct layout *l, const struct dim_sizes *sizes, struct err *err) {
    struct dim_sizes left = *sizes;
    for (int a = 0; a < mesh->n_axes; a++) {
        int d = l->dim[a];
        if (d == PLACE_NONE)
            continue;
        if (!(op->domain >> d & 1))
            return err_input(err, "layout: %s has no dim %s (axis %s)", op->name,
                             m->dims[d].name, mesh->name[a]);
        if (!(op->splittable >> d & 1))
            return err_input(err, "layout: %s cannot be split on dim %s (axis %s)",
                             op->name, m->dims[d].name, mesh->name[a]);
        if (left.size[d] % mesh->size[a])
            return err_input(err, "layout: axis %s (%d) does not divide %s (%lld) of %s",
                             mesh->name[a], mesh->size[a], m->dims[d].name,
                             (long long)left.size[d], op->name);
        left.size[d] /= mesh->size[a];
    }
    return 0;
}
