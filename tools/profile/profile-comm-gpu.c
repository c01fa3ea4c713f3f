/* The same measurements between GPUs.
 *
 * Works go the executor's way: each behind what its stream was given, which then goes on behind the
 * work. Time is taken by events on that stream, so that a burst has no gaps but those that works have
 * in training. What computes beside is a matrix product on a stream of its own: how much of a work
 * hides behind it includes what the two take from each other.
 */
#include "profile-comm.h"

#include "common/progress.h"
#include "cuda/cuda.h"
#include "cuda/cuda_workspace.h"
#include "nccl/nccl.h"

#include <stdlib.h>
#include <string.h>

/* Of the matrices that are multiplied, in bf16: rows, bytes. */
enum { SIDE = 2048, MATRIX = 2 * SIDE * SIDE };

struct bench_gpu {
    struct nccl_report nccl;
    struct cuda_backend cuda;
    struct device *device;
    struct device_stream *stream, *compute; /* of works, of products */
    struct device_event *place, *done;
    struct cuda_timer *timer;
    char *works;    /* of the buffers */
    char *operands; /* of the product: x, w, y */
};

static const union instr_n product = {.linear = {.m = SIDE, .n = SIDE, .k = SIDE}};

static int open_streams(struct bench_gpu *g, struct err *err) {
    g->stream = device_stream_create(g->device, err);
    g->compute = g->stream ? device_stream_create(g->device, err) : NULL;
    g->place = g->compute ? device_event_create(g->device, err) : NULL;
    g->done = g->place ? device_event_create(g->device, err) : NULL;
    g->timer = g->done ? cuda_timer_create(err) : NULL;
    return g->timer ? 0 : -1;
}

int bench_open_gpu(struct bench *b, int64_t room, struct err *err) {
    struct bench_gpu *g = b->gpu = mem_alloc(sizeof *g);
    if (nccl_use(b->comm, &g->nccl, err) < 0)
        return -1;
    if (g->nccl.none && comm_rank(b->comm) == 0)
        note("this weft was built without NCCL: all is timed by way of the hosts");
    if (g->nccl.sharing && comm_rank(b->comm) == 0)
        note(
            "%d ranks share a GPU with others: what is between those is timed by way of the "
            "hosts",
            g->nccl.sharing);
    g->cuda = cuda_backend(&(struct cuda_options){
        .workspace_bytes = cuda_workspace_instr(I_linear, &product, DTYPE_bf16)});
    g->device = device_create(&g->cuda.backend, comm_node_rank(b->comm), 1, err);
    if (!g->device || open_streams(g, err) < 0)
        return -1;
    g->works = device_alloc(g->device, 2 * room, err); /* zeroed: sums of sums stay zero */
    g->operands = g->works ? device_alloc(g->device, 3 * MATRIX, err) : NULL;
    b->in = (float *)(void *)g->works;
    b->out = (float *)(void *)(g->works + room);
    return g->operands ? 0 : -1;
}

void bench_close_gpu(struct bench *b) {
    struct bench_gpu *g = b->gpu;
    if (!g)
        return;
    cuda_timer_destroy(g->timer);
    device_event_destroy(g->place);
    device_event_destroy(g->done);
    device_stream_destroy(g->stream);
    device_stream_destroy(g->compute);
    if (g->device) {
        device_free(g->device, g->works);
        device_free(g->device, g->operands);
    }
    device_destroy(g->device);
    free(g);
    b->gpu = NULL;
}

/* The start puts the work's own stream into it; what is given to the first stream from here on goes
 * behind the work. */
int bench_gpu_work(struct bench *b, const struct row *row, struct comm_work *work,
                   struct err *err) {
    struct bench_gpu *g = b->gpu;
    work->stream = g->stream;
    if (bench_start(b, row, work, err) < 0)
        return -1;
    return device_event_record(g->done, work->stream, err);
}

int bench_gpu_join(struct bench *b, struct comm_work *work, struct err *err) {
    if (comm_wait(work, err) < 0)
        return -1;
    return device_event_wait(b->gpu->done, b->gpu->stream, err);
}

int bench_gpu_products(struct bench *b, int64_t n, struct err *err) {
    struct bench_gpu *g = b->gpu;
    union instr_src in = {.linear = {.x = g->operands, .w = g->operands + MATRIX}};
    union instr_dst out = {.linear = {.y = g->operands + 2 * MATRIX}};
    struct device_args args = {.dtype = DTYPE_bf16};
    if (device_event_record(g->place, g->stream, err) < 0 ||
        device_event_wait(g->place, g->compute, err) < 0)
        return -1;
    for (int64_t i = 0; i < n; i++)
        if (device_launch(g->compute, I_linear, &product, &in, &out, &args, err) < 0)
            return -1;
    return 0;
}

int bench_gpu_join_products(struct bench *b, struct err *err) {
    struct bench_gpu *g = b->gpu;
    if (device_event_record(g->place, g->compute, err) < 0)
        return -1;
    return device_event_wait(g->place, g->stream, err);
}

int bench_gpu_begin(struct bench *b, struct err *err) {
    return cuda_timer_begin(b->gpu->timer, b->gpu->stream, err);
}

int bench_gpu_end(struct bench *b, double *took_s, struct err *err) {
    double us = 0;
    if (cuda_timer_end(b->gpu->timer, b->gpu->stream, &us, err) < 0)
        return -1;
    *took_s = 1e-6 * us;
    return 0;
}
