/* nccl_library.h - NCCL's functions, opened when they are first needed, and their errors as values. */
#ifndef WEFT_NCCL_LIBRARY_H
#define WEFT_NCCL_LIBRARY_H

#include "cuda/cuda_library.h"

#include <nccl.h>

/* X(name): what weft calls. */
#define NCCL_FUNCTIONS(X)                                                                  \
    X(ncclGetUniqueId)                                                                     \
    X(ncclCommInitRankConfig)                                                              \
    X(ncclCommSplit)                                                                       \
    X(ncclCommFinalize)                                                                    \
    X(ncclCommDestroy)                                                                     \
    X(ncclCommAbort)                                                                       \
    X(ncclCommGetAsyncError)                                                               \
    X(ncclGetErrorString)                                                                  \
    X(ncclGetLastError)                                                                    \
    X(ncclGroupStart)                                                                      \
    X(ncclGroupEnd)                                                                        \
    X(ncclAllReduce)                                                                       \
    X(ncclAllGather)                                                                       \
    X(ncclReduceScatter)                                                                   \
    X(ncclSend)                                                                            \
    X(ncclRecv)

struct nccl_library {
    CUDA_LIBRARY_TABLE(NCCL_FUNCTIONS)
};

/* 0, or -1 where NCCL cannot be opened. */
int nccl_library_open(struct nccl_library *out, struct err *err);

/* 0 where rc is success or "in progress", else -1 with what NCCL says about it; `what`: in the message. */
int nccl_check(const struct nccl_library *lib, ncclResult_t rc, const char *what,
               struct err *err);

#endif
