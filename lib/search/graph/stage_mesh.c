/* Meshes of stages (see stage_mesh.h). */
#include "search/graph/stage_mesh.h"

/* Makes one axis per prime factor; the first axis takes several where there are more
 * factors than axes. */
static void make_mesh(int devices, bool ascending, struct mesh *mesh) {
    int factors[32], n = 0;
    for (int f = 2; devices > 1; f++)
        for (; devices % f == 0; devices /= f)
            factors[n++] = f;
    *mesh = (struct mesh){.n_axes = n < MESH_MAX_AXES ? n : MESH_MAX_AXES};
    for (int i = 0, a; i < n; i++) {
        a = i < n - mesh->n_axes ? 0 : i - (n - mesh->n_axes);
        mesh->size[a] =
            (mesh->size[a] ? mesh->size[a] : 1) * factors[ascending ? i : n - 1 - i];
        mesh->name[a][0] = (char)('a' + a);
    }
}

void stage_mesh_descending(int devices, struct mesh *mesh) {
    make_mesh(devices, false, mesh);
}

void stage_mesh_ascending(int devices, struct mesh *mesh) {
    make_mesh(devices, true, mesh);
}

void stage_mesh(int devices, const struct mesh *own, struct mesh *mesh) {
    if (own)
        *mesh = *own;
    else
        stage_mesh_descending(devices, mesh);
}
