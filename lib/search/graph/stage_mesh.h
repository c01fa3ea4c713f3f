/* stage_mesh.h - the mesh of a stage that was given none.
 *
 *     struct mesh mesh;
 *     stage_mesh(12, NULL, &mesh);        // 3 x 2 x 2
 */
#ifndef WEFT_STAGE_MESH_H
#define WEFT_STAGE_MESH_H

#include "plan/mesh.h"

/* Returns the stage's own mesh, or the usual one for this number of devices: one axis
 * per prime factor, so that any split of the devices among dims is a layout; where
 * there are more factors than axes, the first axis takes several. The usual mesh has
 * the largest factor outermost, so that what is split into few parts is split among
 * near devices. With the smallest factor outermost, neighbours come in other numbers:
 * 3, 6 or 12 of twelve devices, instead of 2, 4 or 12. */
void stage_mesh(int devices, const struct mesh *own, struct mesh *mesh);
void stage_mesh_descending(int devices, struct mesh *mesh);
void stage_mesh_ascending(int devices, struct mesh *mesh);

#endif
