/* stage_mesh.h - the mesh of a stage that was given none.
 *
 *     struct mesh mesh;
 *     stage_mesh(12, NULL, &mesh);        // 3 x 2 x 2
 */
#ifndef WEFT_STAGE_MESH_H
#define WEFT_STAGE_MESH_H

#include "plan/mesh.h"

/* The mesh of so many devices, unless a stage has its own: one axis per prime factor, so that
 * any split of the devices among dims is a layout; where there are more factors than axes, the
 * first one takes several. The usual one has the largest factor outermost, so that what is
 * split finely is split among near devices. With the smallest there, other numbers of devices
 * are neighbours: of twelve 3, 6 or 12, instead of 2, 4 or 12. */
void stage_mesh(int devices, const struct mesh *own, struct mesh *mesh);
void stage_mesh_descending(int devices, struct mesh *mesh);
void stage_mesh_ascending(int devices, struct mesh *mesh);

#endif
