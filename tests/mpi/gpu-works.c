/* gpu-works.c - works of lib/nccl on fakes of CUDA and of NCCL (tests/fake).
 *
 * usage: mpirun -n N gpu-works SEED own|pairs|one    each rank has a GPU, or two share one, or all do
 *        mpirun -n N gpu-works late       the last rank never comes; how the others end is run.sh's to see
 *        mpirun -n N gpu-works broken     NCCL has an error behind the second collective of rank 0
 */
#include "cuda/cuda.h"
#include "cuda/cuda_state.h"
#include "fake/cudart.h"
#include "fake/nccl.h"
#include "nccl/nccl.h"

#include "device-works.h"

#include <time.h>

static struct cuda_backend cuda;

static struct device *make_device(struct err *err) {
    fake_cuda.seed = (uint64_t)comm_rank(comm);
    cuda = cuda_backend(&(struct cuda_options){.deterministic = true});
    return device_create(&cuda.backend, 0, 1, err);
}

struct called {
    void (*call)(void *arg);
    void *arg;
};

static void run_call(void *args) {
    const struct called *c = args;
    c->call(c->arg);
}

static void give_call(struct device_stream *s, void (*call)(void *arg), void *arg) {
    fake_cuda_launch(cuda_queue_of(s)->stream, run_call, &(struct called){call, arg},
                     sizeof(struct called));
}

static void *real(const void *p) {
    return (void *)p;
}

/* The inputs and outputs of the round are the device's own memory: the test frees them. */
static bool nothing_left(struct device *dev, int streams) {
    struct cuda_state *s = cuda_state_of(dev);
    (void)streams;
    while (s->blocks.n)
        cuda_free(dev, s->blocks.p[0].p);
    return fake_cuda.bytes == 0;
}

/* In their order, or the other way round: NCCL has a communicator for each. */
static struct comm_group *everyone(bool turned) {
    struct err err = {0};
    static int all[RANKS];
    struct comm_group *g;
    int n = comm_size(comm);
    for (int i = 0; i < n; i++)
        all[i] = turned ? n - 1 - i : i;
    must(comm_groups_create(comm, &(struct comm_ranks){all, n}, 1, &g, &err), &err);
    return g;
}

static void reduce(struct comm_group *g, struct device_stream *s, float *x) {
    struct err err = {0};
    struct comm_work w = {.stream = s};
    must(comm_start_all_reduce(g, x, 5000, DTYPE_f32, &w, &err), &err);
    must(comm_wait(&w, &err), &err);
    must(device_synchronize(s, &err), &err);
    must(device_synchronize(w.stream ? w.stream : s, &err), &err);
}

/* Sums until the last rank does not come, or NCCL fails: all ranks end. Those that wait for the last one do
 * so in two communicators. */
static void go_wrong(bool late) {
    struct err err = {0};
    struct comm_group *g = everyone(false), *turned = everyone(true);
    device = make_device(&err);
    must(device ? 0 : -1, &err);
    struct device_stream *s = device_stream_create(device, &err);
    float *x = device_alloc(device, 4 * 5000, &err);
    float *y = device_alloc(device, 4 * 5000, &err);
    struct comm_work beside = {.stream = s};
    if (comm_rank(comm) == 0 && !late)
        fake_nccl.fail_at = 2;
    reduce(g, s, x);
    if (late && comm_rank(comm) == comm_size(comm) - 1)
        nanosleep(&(struct timespec){.tv_sec = 60}, NULL);
    if (late)
        must(comm_start_all_reduce(turned, y, 5000, DTYPE_f32, &beside, &err), &err);
    reduce(g, s, x);
}

static void check_orders(uint64_t seed) {
    static const struct {
        enum fake_order order;
        int turns;
        const char *what;
    } ways[] = {{FAKE_OLDEST_FIRST, -1, "old streams first"},
                {FAKE_NEWEST_FIRST, 5, "new streams first, NCCL slow"},
                {FAKE_DRAWN, 50, "in any order, NCCL slower"}};
    for (int k = 0; k < 3; k++) {
        char line[100];
        fake_cuda.order = ways[k].order;
        fake_nccl.busy_turns = ways[k].turns;
        snprintf(line, sizeof line, "%d works at a time in %d groups, %s", WORKS, GROUPS,
                 ways[k].what);
        run_rounds(seed + 100 * (uint64_t)k, line);
    }
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct comm_options options = COMM_OPTIONS_DEFAULT;
    bool late = argc == 2 && !strcmp(argv[1], "late"), wrong = argc == 2;
    options.timeout_s = late ? 2 : 60;
    int status = begin_job("gpu-works", &argc, &argv, &options);
    if (status)
        return status;
    fake_cuda.first_gpu = fake_cuda_gpu_of(wrong ? "own" : argv[2], job_rank);
    must(comm_use(comm, &comm_backend_gpu, NULL, &err), &err);
    if (wrong)
        go_wrong(late);
    check_orders(strtoull(argv[1], NULL, 10));
    ok_all(fake_nccl.broken == 0, "no rule of NCCL is broken");
    ok_all(fake_cuda.queues == 32, "CUDA gives streams queues of their own");
    comm_destroy(comm);
    comm = NULL;
    ok_here(fake_nccl.open == 0, "every communicator is ended");
    return end_job();
}
