/* nccl.h - a fake of NCCL over MPI, for tests of lib/nccl on machines without a GPU.
 *
 * It defines the functions of NCCL that weft calls (as fake_NAME; library.c hands them out), on
 * communicators that are not blocking: each call says ncclInProgress, and is done some turns of
 * fake_cuda later; a communicator's first call with a peer only when the peer has come to its own, for
 * then NCCL connects. What it puts on a stream is done only together with what the other members put
 * on theirs, and only behind what the same communicator was given before.
 *
 * Rules that are broken are counted and told on stderr: a call on a communicator that is busy or was
 * aborted, groups that do not end, members that call different things, a communicator that is
 * destroyed while it works, ranks that share a GPU. */
#ifndef WEFT_FAKE_NCCL_H
#define WEFT_FAKE_NCCL_H

#include "nccl/nccl_library.h"

#include <stdint.h>

#define FAKE_DECLARE(name) __typeof__(name) fake_##name;
NCCL_FUNCTIONS(FAKE_DECLARE)
ncclResult_t fake_ncclGroupStart(void);
ncclResult_t fake_ncclGroupEnd(void);

extern struct fake_nccl {
    int busy_turns; /* a call is in progress for so many turns; -1: it is done at once */
    /* the communicator of launch number fail_at has an asynchronous error; 0: none */
    int64_t fail_at;
    int64_t broken; /* rules */
    int64_t launches, collectives, messages, inits, splits, aborts, destroys;
    int64_t overlapped; /* launches beside which the GPU did something else */
    int64_t open;       /* communicators */
} fake_nccl;

#endif
