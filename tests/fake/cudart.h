/* cudart.h - a fake of the CUDA runtime on the host's memory, for tests on machines without a GPU.
 *
 * It defines the functions of the runtime that weft calls, so that lib/cuda is tested as it is. What a
 * stream is given it does not do at once: streams advance by turns, in an order that is drawn among
 * those that events allow, whenever a function looks at how far they are. What is between ranks
 * (nccl.c) and kernels (kernels.c) is given to streams by the functions below.
 *
 *     fake_cuda.gpus = 2;
 *     cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
 *     fake_cuda_launch(s, run, &args, sizeof args);
 *     cudaStreamSynchronize(s);
 */
#ifndef WEFT_FAKE_CUDART_H
#define WEFT_FAKE_CUDART_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stdint.h>

/* A GPU as its data sheet and CUDA's documentation have it. */
struct fake_gpu {
    const char *name;
    int arch; /* compute capability: 90 is 9.0 */
    int processors;
    int shared_bytes; /* at most in a block, where a kernel asks for more than 48 KB */
    int64_t bytes;    /* of memory */
};

enum fake_order { FAKE_DRAWN, FAKE_OLDEST_FIRST, FAKE_NEWEST_FIRST };

/* What the fake is to be like, and what it has seen; set before it is used. */
extern struct fake_cuda {
    int gpus;         /* that the process sees; 0 = 1 */
    cudaError_t none; /* not 0: why it sees none */
    int driver;       /* the CUDA of the driver: 12040 is 12.4, 0 that there is none */
    int first_gpu;    /* the number of the first, which its uuid has; else the rank's */
    const struct fake_gpu *gpu; /* what each is; NULL: a small H100 */
    bool
        idle; /* it computes nothing: its memory is addresses alone; what is read of it is zero */
    enum fake_order order; /* which stream goes on; of those that can */
    uint64_t seed;
    double patience_s;      /* a call that waits longer ends the program; 0 = 60 */
    int64_t bytes;          /* of the device that are in use */
    int64_t launches, done; /* kernels and copies: given to streams, and done */
    int64_t kernels;        /* of kernels.c that are done */
    int64_t graphs, waits_polled;
    int64_t
        lost; /* graphs, behind which the GPU is gone: calls that wait for it fail; 0 = it stays */
    int64_t first_streams; /* that were made with the highest priority */
    int64_t
        waits_for_works; /* that the process made, at a time when works between ranks were under way */
    int queues; /* that CUDA was asked for before its first call; 8 where it was not */
} fake_cuda;

/* Given to the stream: run(args), with a copy of the args. While the stream is captured it is kept in
 * the graph instead. */
void fake_cuda_launch(cudaStream_t s, void (*run)(void *args), const void *args,
                      size_t bytes);
/* The same, also where the GPU computes nothing. */
void fake_cuda_give(cudaStream_t s, void (*run)(void *args), const void *args,
                    size_t bytes);
/* A kernel is wanted; what tells it from others. The first time it is loaded, for which CUDA may wait until
 * all that the GPU was given is done. */
void fake_cuda_load(const void *kernel);
/* Given to the stream: step(arg) again and again until it is true; it never waits. Not in graphs. */
void fake_cuda_work(cudaStream_t s, bool (*step)(void *arg), void *arg);
/* Besides streams, something goes on at each turn. */
void fake_cuda_beside(bool (*step)(void *arg), void *arg);
/* One step of something; false if nothing could move. */
bool fake_cuda_turn(void);
/* Until all is done that was given to the GPU. */
void fake_cuda_finish(void);
const struct fake_gpu *fake_cuda_gpu(void);
/* A call ends with this error, which is CUDA's last one from here on. */
cudaError_t fake_cuda_error(cudaError_t rc);
/* Which GPU a process sees first: how "own", one for each rank; "pairs", one for two; "one", the same for all. */
int fake_cuda_gpu_of(const char *how, int rank);
/* Is it a stream that there is? */
bool fake_cuda_is_stream(cudaStream_t s);
/* Is it memory that cudaMalloc gave? */
bool fake_cuda_is_device(const void *p, int64_t bytes);
/* May a kernel use it: memory of the device, or pinned memory of the host? */
bool fake_cuda_reaches(const void *p);

#endif
