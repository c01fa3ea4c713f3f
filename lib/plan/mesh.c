#include "plan/mesh.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mesh_coords(const struct mesh *mesh, int r, int coord[MESH_MAX_AXES]) {
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        coord[a] = r % mesh->size[a];
        r /= mesh->size[a];
    }
}

int mesh_rank(const struct mesh *mesh, const int coord[MESH_MAX_AXES]) {
    return mesh_group_index(mesh, (1u << mesh->n_axes) - 1, coord);
}

int mesh_axis_find(const struct mesh *mesh, const char *name) {
    for (int a = 0; a < mesh->n_axes; a++)
        if (!strcmp(mesh->name[a], name))
            return a;
    return -1;
}

int mesh_group_index(const struct mesh *mesh, unsigned axes,
                     const int coord[MESH_MAX_AXES]) {
    int index = 0;
    for (int a = 0; a < mesh->n_axes; a++)
        if (axes >> a & 1)
            index = index * mesh->size[a] + coord[a];
    return index;
}

int mesh_group(const struct mesh *mesh, unsigned axes, int r, int *ranks) {
    int n = mesh_group_size(mesh, axes), coord[MESH_MAX_AXES];
    mesh_coords(mesh, r, coord);
    for (int i = 0; i < n; i++) {
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

/* One axis, "dp:2"; returns what follows it, or NULL. */
static const char *parse_axis(const char *p, char name[MESH_MAX_NAME], long *size) {
    size_t n = strcspn(p, ": ");
    if (!n || n >= MESH_MAX_NAME || p[n] != ':' || !isdigit((unsigned char)p[n + 1]))
        return NULL;
    memcpy(name, p, n);
    name[n] = '\0';
    char *end;
    *size = strtol(p + n + 1, &end, 10);
    return *end && *end != ' ' ? NULL : end;
}

/* "dp:2 tp:4". The product is bounded as it grows, so that it cannot overflow. */
int mesh_parse(const char *text, int64_t max_devices, struct mesh *mesh, struct err *err) {
    *mesh = (struct mesh){0};
    int64_t devices = 1;
    for (const char *p = text + strspn(text, " "); *p; p += strspn(p, " ")) {
        char name[MESH_MAX_NAME] = ""; /* to its end: meshes are compared bytewise */
        long size;
        if (!(p = parse_axis(p, name, &size)))
            return err_input(err, "mesh: \"%.64s\": expected axes such as \"dp:2 tp:4\"",
                             text);
        if (mesh->n_axes == MESH_MAX_AXES)
            return err_input(err, "mesh: more than %d axes", MESH_MAX_AXES);
        if (size < 1 || size > max_devices || (devices *= size) > max_devices)
            return err_input(err,
                             "mesh: \"%.64s\": sizes must be positive and at most %lld "
                             "devices",
                             text, (long long)max_devices);
        if (mesh_axis_find(mesh, name) >= 0)
            return err_input(err, "mesh: axis \"%s\" appears twice", name);
        memcpy(mesh->name[mesh->n_axes], name, sizeof name);
        mesh->size[mesh->n_axes++] = (int)size;
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
