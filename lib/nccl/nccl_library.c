#include "nccl/nccl_library.h"

int nccl_library_open(struct nccl_library *out, struct err *err) {
    static const char *const names[] = {CUDA_LIBRARY_NAMES(NCCL_FUNCTIONS) NULL};
    return cuda_library_open("libnccl.so.2", names, out, err);
}

int nccl_check(const struct nccl_library *lib, ncclResult_t rc, const char *what,
               struct err *err) {
    if (rc == ncclSuccess || rc == ncclInProgress)
        return 0;
    const char *last = lib->ncclGetLastError(NULL);
    return err_system(err, "NCCL: %s: %s%s%s", what, lib->ncclGetErrorString(rc),
                      last && *last ? ": " : "", last ? last : "");
}
