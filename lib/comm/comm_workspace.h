/* comm_workspace.h - what collectives between hosts take beside the arena (program/workspace.h): their
 * meeting places in shared memory, and the staging of rings.
 *
 *     int64_t bytes = comm_workspace(&(struct workspace_site){program, stage, &cluster, 4});
 */
#ifndef WEFT_COMM_WORKSPACE_H
#define WEFT_COMM_WORKSPACE_H

#include "program/workspace.h"

enum {
    COMM_WORKSPACE_DESK = 2200 << 10, /* bytes that a rank shows its node peers (lanes) */
    COMM_WORKSPACE_SEGMENT =
        65536, /* floats in a segment of a ring, where members are few */
    COMM_WORKSPACE_LEAST_SEGMENT = 4096 /* and where they are many */
};

workspace_query comm_workspace;

/* Floats in a segment of a ring of n ranks; each stages 2 n of them. */
static inline int64_t comm_workspace_segment(int n) {
    int64_t seg = COMM_WORKSPACE_SEGMENT / (n > 16 ? n / 16 : 1);
    return seg > COMM_WORKSPACE_LEAST_SEGMENT ? seg : (int64_t)COMM_WORKSPACE_LEAST_SEGMENT;
}

#endif
