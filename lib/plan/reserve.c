/* The one table of what GPUs reserve. */
#include "plan/reserve.h"

#include "common/text.h"
#include "plan/cluster.h"

#include <stdio.h>
#include <string.h>

/* NCCL keeps buffers for each channel of each connection: 10 MiB and 2 MiB on the receiving side, 2
 * MiB on the sending one (allocations listed in NVIDIA/nccl#1685, NCCL 2.26 on H100s). */
enum { MIB = 1 << 20, CHANNEL = 14 * MIB };

/* The most channels that NCCL opens for a collective through NVLink, and those that nccl_message.c
 * lets a message have. A ring has one connection each way, and it alone is opened before
 * something else is asked for (NCCL 2.22 and later). */
enum { COLLECTIVE_CHANNELS = 32, MESSAGE_CHANNELS = 8 };

/* An H100 has 85.02e9 bytes, of which CUDA and weft's kernels take 0.563e9 before anything is
 * allocated (driver 580.159, CUDA 13.0). The libraries' part and the headroom are assumed. */
static const struct reserve gpu = {
    {[RESERVE_context] = 570000000,
     [RESERVE_libraries] = 300000000,
     [RESERVE_headroom] = 256 * MIB,
     [RESERVE_collectives] = (int64_t)COLLECTIVE_CHANNELS * CHANNEL,
     [RESERVE_messages] = (int64_t)MESSAGE_CHANNELS * CHANNEL}};

const char *reserve_name(enum reserve_part part) {
    static const char *const names[] = {
#define X(name, about, fixed) #name,
        RESERVES(X)
#undef X
    };
    return names[part];
}

struct reserve reserve_of_kind(const char *kind) {
    return cluster_kind_is_gpu(kind) ? gpu : (struct reserve){{0}};
}

/* Is it there whatever the plan is? */
static const bool fixed[] = {
#define X(name, about, is_fixed) is_fixed,
    RESERVES(X)
#undef X
};

int64_t reserve_fixed(const struct reserve *r) {
    int64_t bytes = 0;
    for (int i = 0; i < RESERVE_COUNT; i++)
        bytes += fixed[i] ? r->bytes[i] : 0;
    return bytes;
}

void reserve_format(const struct reserve *r, char *buf, size_t size) {
    buf[0] = '\0';
    for (int i = 0; i < RESERVE_COUNT; i++) {
        const size_t at = strlen(buf);
        if (fixed[i] && r->bytes[i])
            snprintf(buf + at, size - at, "%s%s %s", at ? ", " : "",
                     reserve_name((enum reserve_part)i), text_bytes((double)r->bytes[i]).s);
    }
}
