/* reserve.h - what of a device's memory no plan may have: a GPU's driver, libraries and NCCL take it.
 *
 * A cluster says how much memory a device has (of a GPU, what CUDA gives, which is less than its
 * name says), and what of that is reserved; what is left is for arenas and workspaces. Whoever asks
 * whether a plan fits asks here, so that searches, predictions and runs agree.
 *
 *     struct reserve r = reserve_of_kind("h100-80gb");     // a CPU's is zero
 *     int64_t bytes = reserve_fixed(&r);                   // whatever the plan is
 *
 * What NCCL takes follows from the plan's program: program_communicators (program/beside.h).
 */
#ifndef WEFT_RESERVE_H
#define WEFT_RESERVE_H

#include <stddef.h>
#include <stdint.h>

/* X(name, of what it is, is it there whatever the plan is?) In files these are names of members. */
#define RESERVES(X)                                                                        \
    X(context, "CUDA's context and weft's kernels", true)                                  \
    X(libraries, "kernels and handles of cuBLASLt and cuDNN, and CUDA graphs", true)       \
    X(headroom, "what is left free", true)                                                 \
    X(collectives, "NCCL, for each communicator of a group", false)                        \
    X(messages, "NCCL, for each communicator of messages", false)

enum reserve_part {
#define X(name, about, fixed) RESERVE_##name,
    RESERVES(X)
#undef X
        RESERVE_COUNT
};

struct reserve {
    int64_t bytes[RESERVE_COUNT];
};

const char *reserve_name(enum reserve_part part);

/* What is reserved of a kind of device where its cluster does not say; of a CPU nothing. */
struct reserve reserve_of_kind(const char *kind);

/* Bytes whatever the plan is: those of a job on one device. */
int64_t reserve_fixed(const struct reserve *r);
/* Those in words, "context 543.6 MiB, libraries 286.1 MiB"; "" where nothing is reserved. */
void reserve_format(const struct reserve *r, char *buf, size_t size);

#endif
