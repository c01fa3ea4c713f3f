/* cluster_kind.h - clusters by a kind of device and their size: "h100:16x8", "h100:2x8 net:200G".
 *
 * A shipped device model (weft-device(5)) says what its usual node looks like: memory, links inside
 * and between nodes. That, its datasheet, and so many nodes make a cluster.
 *
 *     struct cluster c;
 *     if (cluster_names_kind("h100:16x8") && cluster_read_kind(&c, "h100:16x8", &err) < 0) ...
 */
#ifndef WEFT_CLUSTER_KIND_H
#define WEFT_CLUSTER_KIND_H

#include "plan/cluster.h"

/* Is this of that form? "node:4 gpu:8" is not. */
bool cluster_names_kind(const char *ref);
/* 0, or -1 with exit status 3. */
int cluster_read_kind(struct cluster *c, const char *ref, struct err *err);

#endif
