/* nccl.h - a backend of comm for GPUs: NCCL, and MPI where NCCL cannot.
 *
 * Collectives of a group go by NCCL where all its members have GPUs of their own; messages where the
 * two ranks have. What is between ranks that share a GPU, which NCCL refuses, goes by way of the hosts
 * (comm/comm_stage.h). Which GPU a rank has is cuda_index of its place on the node.
 *
 *     struct nccl_report report;
 *     nccl_use(comm, &report, &err);        // all ranks
 *
 * Each group has a communicator, split from one that is made job-wide, and each pair of ranks with a tag
 * one of its own, made when its first message comes: messages match by their order alone. Each has a
 * stream, so that nothing waits behind what is between others. No call of NCCL blocks; a rank that
 * waits for anything looks at errors and at how long works have been waiting for their peers, and when
 * one is too late it aborts all communicators and fails with a message.
 *
 * Sums are in NCCL's order: the same for the same ranks and sizes, but not that of comm.h.
 */
#ifndef WEFT_NCCL_H
#define WEFT_NCCL_H

#include "comm/comm_backend.h"

/* How the job stands when the backend is open. */
struct nccl_report {
    int gpus;    /* that the job's ranks have */
    int sharing; /* ranks that share theirs with others */
    int here;    /* ranks that have this rank's GPU: itself, and those */
    bool
        none; /* weft was built without NCCL: all goes by way of the hosts, and nothing else is known */
    /* That this rank has made so far, those for messages with their first message. Each takes memory of the GPU,
     * of which NCCL does not say how much. */
    int communicators;
};

struct nccl_options {
    /* NULL, or filled on open, where communicators are counted until the last group is closed */
    struct nccl_report *report;
};

extern const struct comm_backend comm_backend_gpu;

/* From here on groups are between GPUs: collective. Where weft was built without NCCL they go by way of the
 * hosts. report: NULL, or as nccl_options has it. Returns 0 or -1. */
int nccl_use(struct comm *comm, struct nccl_report *report, struct err *err);

#endif
