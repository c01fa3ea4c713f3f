/* mesh.h - the devices of a stage as an n-dimensional grid of named axes.
 *
 * Axes stand outermost (slowest link) first; device r has the row-major coordinates of r. Sets
 * of axes are bits: bit a = axis a. The devices that differ only in the coordinates of some
 * axes are a group along these axes; its members stand in the order of their ranks.
 *
 *     struct mesh mesh;
 *     if (mesh_parse("dp:2 tp:4", 1 << 20, &mesh, &err) < 0) ...
 *     int ranks[4], n = mesh_group(&mesh, 1u << 1, 5, ranks);        // 4 5 6 7
 */
#ifndef WEFT_MESH_H
#define WEFT_MESH_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

enum { MESH_MAX_AXES = 6, MESH_MAX_NAME = 16 };

struct mesh {
    int n_axes; /* 0 = one device */
    int size[MESH_MAX_AXES];
    char name[MESH_MAX_AXES][MESH_MAX_NAME];
};

/* Coordinates of device r, and back. */
void mesh_coords(const struct mesh *mesh, int r, int coord[MESH_MAX_AXES]);
int mesh_rank(const struct mesh *mesh, const int coord[MESH_MAX_AXES]);
int mesh_axis_find(const struct mesh *mesh, const char *name);

/* Devices of a group along `axes`. */
static inline int mesh_group_size(const struct mesh *mesh, unsigned axes) {
    int n = 1;
    for (int a = 0; a < mesh->n_axes; a++)
        if (axes >> a & 1)
            n *= mesh->size[a];
    return n;
}
static inline int mesh_devices(const struct mesh *mesh) {
    return mesh_group_size(mesh, (1u << mesh->n_axes) - 1);
}
/* Which member of its group along `axes` the device with these coordinates is, from 0. */
int mesh_group_index(const struct mesh *mesh, unsigned axes,
                     const int coord[MESH_MAX_AXES]);
/* The members of r's group along `axes`; returns their number. ranks has room for
 * mesh_group_size(mesh, axes). */
int mesh_group(const struct mesh *mesh, unsigned axes, int r, int *ranks);
/* Step between neighbouring devices of a group along `axes` (of its innermost axis). */
static inline int mesh_group_stride(const struct mesh *mesh, unsigned axes) {
    int stride = 1;
    for (int a = mesh->n_axes - 1; a >= 0 && !(axes >> a & 1); a--)
        stride *= mesh->size[a];
    return stride;
}

/* Reads "dp:2 tp:4"; at most max_devices devices. */
int mesh_parse(const char *text, int64_t max_devices, struct mesh *mesh, struct err *err);
void mesh_format(const struct mesh *mesh, char *buf, size_t n);

#endif
