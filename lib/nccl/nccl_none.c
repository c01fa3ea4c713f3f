/* Where weft is built without NCCL what is between GPUs goes by way of the hosts. */
#include "cuda/cuda.h"
#include "nccl/nccl.h"

#include "comm/comm_stage.h"

int nccl_use(struct comm *comm, struct nccl_report *report, struct err *err) {
    if (cuda_count(err) < 0) /* without CUDA there is nothing to be between */
        return -1;
    if (report)
        *report = (struct nccl_report){.none = true};
    return comm_use(comm, &comm_backend_stage, NULL, err);
}
