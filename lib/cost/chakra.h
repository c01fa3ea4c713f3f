/* chakra.h - every rank's program as a Chakra execution trace, for simulators that replay
 * such.
 *
 * One file for each rank, DIR/weft.RANK.et: a stream of length-delimited protobuf messages, first
 * GlobalMetadata, then a Node for each instruction of one step in the order of the rank's schedule
 * (mlcommons/chakra, schema/protobuf/et_def.proto). DIR/comm_groups.json says which ranks a
 * collective's group ("pg_name") has.
 *
 *     struct chakra_counts n;
 *     if (chakra_write("traces", program, &cost, &n, &err) < 0) ...
 *     printf("%lld nodes\n", (long long)n.nodes);
 */
#ifndef WEFT_CHAKRA_H
#define WEFT_CHAKRA_H

#include "cost/cost.h"

struct chakra_counts {
    int64_t nodes, collectives,
        messages; /* of all ranks; a message is counted where it is sent */
    int64_t message_bytes;
};

/* Makes the folder if there is none and replaces files in it one by one. A send and its
 * receive have the same tag. Times are the cost's, in whole microseconds, rounded so that
 * sums are right. */
int chakra_write(const char *dir, const struct program *g, struct cost *c,
                 struct chakra_counts *out, struct err *err);

#endif
