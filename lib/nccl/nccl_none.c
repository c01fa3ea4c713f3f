/* Where weft is built without CUDA the backend is there, and says so when it is opened. */
#include "nccl/nccl.h"

static void *open_none(struct comm *comm, void *arg, struct err *err) {
    (void)comm, (void)arg;
    err_system(err, "this weft was built without CUDA");
    err_hint(err, "`make config` says what make found");
    return NULL;
}

const struct comm_backend comm_backend_gpu = {
    .name = "nccl", .streams = true, .open = open_none};
