#include "exec/exec_impl.h"

#include "common/mem.h"
#include "common/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_LOSS_SCALE = 1 << 16 };

struct exec_options exec_defaults(void) {
    return (struct exec_options){.seed = 1,
                                 .lr = 6e-4,
                                 .min_lr = 6e-5,
                                 .warmup = 100,
                                 .clip = 1,
                                 .weight_decay = 0.1,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .momentum = 0.9,
                                 .threads = 1};
}

/* The device and its arena. Where its memory is the host's, peers on the node may read it. */
static int open_device(struct exec *x, struct err *err) {
    const struct exec_options *o = &x->opt;
    int64_t bytes = x->chunks->sp->arena_bytes;
    x->device = device_create(o->device ? o->device : &device_backend_cpu,
                              comm_node_rank(x->comm), o->threads, err);
    /* Beside a GPU the host's kernels draw the parameters, with all threads of this rank. */
    if (!x->device || (!device_is_host(x->device) && kernel_init(o->threads, err) < 0))
        return -1;
    if (o->arena && o->arena_bytes < bytes)
        return err_system(err, "the arena given is too small");
    if (!device_is_host(x->device))
        x->arena = x->own_arena = device_alloc(x->device, bytes, err);
    else
        x->arena = o->arena ? (char *)o->arena : (char *)comm_alloc(x->comm, bytes, err);
    if (x->arena && o->arena)
        memset(x->arena, 0, (size_t)bytes);
    int64_t host_bytes = x->chunks->sp->host_bytes;
    if (x->arena && host_bytes)
        x->host_arena = device_alloc_host(x->device, host_bytes, err);
    return x->arena && (x->host_arena || !host_bytes) ? 0 : -1;
}

static void list_chunks(struct exec *x) {
    const struct plan *p = x->g->plan;
    int group = program_group_of_rank(x->g, x->rank);
    x->schedule = schedule_of_group(p, group, plan_micro_batches(p));
    x->n_chunks = x->schedule.n_chunks;
    x->chunks = mem_array((size_t)x->n_chunks, sizeof *x->chunks);
    for (int i = 0; i < x->n_chunks; i++) {
        struct exec_chunk *c = &x->chunks[i];
        c->rp = program_for_rank(x->g, x->schedule.chunks[i], x->rank);
        c->sp = c->rp.sp;
    }
}

struct exec_chunk *exec_chunk_of(const struct exec *x, int stage) {
    for (int i = 0; i < x->n_chunks; i++)
        if (x->chunks[i].rp.stage == stage)
            return &x->chunks[i];
    return NULL;
}

struct exec *exec_create(const struct program *g, struct comm *comm,
                         const struct data *data, const struct exec_options *opt,
                         struct err *err) {
    if (comm_size(comm) != g->plan->devices) {
        err_input(err, "the plan is for %d rank%s, the job has %d", g->plan->devices,
                  g->plan->devices == 1 ? "" : "s", comm_size(comm));
        err_hint(err, "mpirun -n %d", g->plan->devices);
        return NULL;
    }
    struct exec *x = mem_alloc(sizeof *x);
    x->g = g;
    x->rank = comm_rank(comm);
    x->comm = comm;
    list_chunks(x);
    x->data = data;
    x->opt = *opt;
    x->loss_scale = g->plan->dtype == DTYPE_f16 ? FIRST_LOSS_SCALE : 0;
    if (open_device(x, err) < 0 || exec_prepare(x, err) < 0) {
        exec_destroy(x);
        return NULL;
    }
    return x;
}

void exec_destroy(struct exec *x) {
    if (!x)
        return;
    exec_release(x);
    if (x->device) {
        device_free(x->device, x->own_arena);
        device_free_host(x->device, x->host_arena);
        if (!device_is_host(x->device))
            kernel_release();
    }
    device_destroy(x->device);
    free(x->chunks);
    free(x);
}

/* One maximum tells everybody the lowest rank that failed; it then broadcasts its error. */
int exec_agree(struct comm *comm, int rc, struct err *err) {
    int size = comm_size(comm);
    double first = rc < 0 ? size - comm_rank(comm) : 0; /* the largest is the lowest rank */
    if (comm_max_double(comm_world(comm), &first, 1, err) < 0)
        return -1;
    if (first == 0)
        return 0;
    int rank = size - (int)first;
    comm_broadcast(comm_world(comm), err, sizeof *err, rank, NULL);
    if (rank)
        err_prefix(err, "rank %d", rank);
    err->shared = true;
    return -1;
}

static const char *const decays[] = {
#define X(name) #name,
    EXEC_DECAYS(X)
#undef X
};

const char *exec_decay_name(enum exec_decay d) {
    return decays[d];
}

int exec_decay_find(const char *name) {
    for (int i = 0; i < EXEC_DECAY_COUNT; i++)
        if (!strcmp(decays[i], name))
            return i;
    return -1;
}

/* Of a step counted from 0: linear warm-up, then down to min_lr. */
static double learning_rate(const struct exec_options *o, int64_t step) {
    const bool late = o->decay == EXEC_DECAY_wsd && o->decay_from > o->warmup;
    const int64_t from = late ? o->decay_from : o->warmup;
    if (step < o->warmup)
        return o->lr * (double)(step + 1) / (double)o->warmup;
    if (o->decay == EXEC_DECAY_constant || !o->decay_steps || o->decay_steps <= from ||
        step < from)
        return o->lr;
    double t = (double)(step - from) / (double)(o->decay_steps - from);
    if (t > 1)
        t = 1;
    const double left =
        o->decay == EXEC_DECAY_cosine ? 0.5 * (1 + cos(3.14159265358979323846 * t)) : 1 - t;
    return o->min_lr + (o->lr - o->min_lr) * left;
}

/* Dynamic loss scaling (Micikevicius et al. 2018): half as much behind gradients that were not
 * finite, twice as much when they were for long. A power of two, so that it rounds nothing. */
static void adapt_loss_scale(struct exec *x) {
    enum { LONG = 2000 };
    if (x->loss_scale == 0)
        return;
    x->good_steps = x->skipping ? 0 : x->good_steps + 1;
    if (x->skipping && x->loss_scale > 1)
        x->loss_scale /= 2;
    if (x->good_steps == LONG && x->loss_scale < 0x1p60) {
        x->loss_scale *= 2;
        x->good_steps = 0;
    }
}

/* The losses, means over all targets of the step that count, are summed over micro-batches and, by
 * the norm, over ranks. */
int exec_step(struct exec *x, struct exec_metrics *out, struct err *err) {
    const struct plan *p = x->g->plan;
    int64_t n = schedule_actions(&x->schedule);
    double lr = learning_rate(&x->opt, x->step);
    x->skipping = false;
    x->now = (struct scalars){.lr = (float)lr,
                              .step = x->step,
                              .loss_scale = x->loss_scale > 0 ? (float)x->loss_scale : 1,
                              .updates = x->step - x->skipped + 1,
                              .seed = x->opt.seed};
    int rc = exec_capture_all(x, err);
    if (rc == 0)
        rc = exec_watch_begin(x, err);
    if (rc == 0)
        rc = exec_set_scalars(x, err);
    if (rc == 0)
        rc = exec_suspects_begin(x, err);
    if (rc == 0)
        rc = exec_prefetch_begin(x->prefetch, DATA_TRAIN, x->sample, 1, err);
    if (rc == 0)
        rc = exec_count(x, 1, err);
    for (int64_t i = 0; i < n && rc == 0; i++) {
        const struct action a = schedule_action(&x->schedule, i);
        rc = exec_is_taken(x, a) ? exec_run(x, a, err) : 0;
    }
    if (rc == 0)
        rc = exec_watch_end(x, err);
    if (rc < 0)
        return err_prefix(err, "step %lld", (long long)x->step + 1);
    *out = (struct exec_metrics){.loss = x->now.loss_sum,
                                 .grad_norm = sqrt(x->now.norm_squared),
                                 .lr = lr,
                                 .loss_scale = x->loss_scale,
                                 .targets = (int64_t)x->counts[0],
                                 .suspicion = x->suspicion,
                                 .missing = (int64_t)x->counts[x->n_losses],
                                 .all_missing = x->missing,
                                 .skipped = x->skipping};
    memcpy(out->more, x->now.metrics, sizeof out->more);
    exec_note_apart(x);
    x->step++;
    x->skipped += x->skipping;
    adapt_loss_scale(x);
    x->skipping = false;
    x->sample += p->batch;
    return 0;
}

int64_t exec_targets(const struct exec *x) {
    return (int64_t)x->counts[0];
}

/* Forward passes alone, over samples of the validation data; training goes on afterwards as if nothing had
 * been. */
int exec_validate(struct exec *x, int64_t first, int64_t batches,
                  int (*between)(void *ctx, struct err *err), void *ctx, double *loss,
                  struct err *err) {
    const struct plan *p = x->g->plan;
    int64_t n = schedule_actions(&x->schedule), sample = x->sample;
    x->now = (struct scalars){.seed = x->opt.seed, .evaluating = 1};
    int rc = exec_capture_all(x, err);
    if (rc == 0)
        rc = exec_set_scalars(x, err);
    if (rc == 0)
        rc = exec_prefetch_begin(x->prefetch, DATA_VALID, first * p->batch, batches, err);
    if (rc == 0)
        rc = exec_count(x, batches, err);
    for (int64_t b = first; b < first + batches && rc == 0; b++) {
        x->sample = b * p->batch;
        for (int64_t i = 0; i < n && rc == 0; i++) {
            struct action a = schedule_action(&x->schedule, i);
            rc = a.segment == SEG_FORWARD ? exec_run(x, a, err) : 0;
        }
        if (rc == 0)
            rc = between(ctx, err);
    }
    x->sample = sample;
    if (rc)
        return rc;
    if (device_download(x->streams[STREAM_compute], loss, &x->scalars->loss_sum,
                        sizeof *loss, err) < 0)
        return -1;
    return comm_sum_double(comm_world(x->comm), loss, 1, err);
}

atomic_llong *exec_progress(const struct exec *x, int64_t bytes) {
    struct exec_progress *p = x->opt.progress;
    if (!p)
        return NULL;
    atomic_store(&p->done, 0);
    atomic_store(&p->total, bytes);
    return &p->done;
}

int64_t exec_sample(const struct exec *x) {
    return x->sample;
}

int64_t exec_steps(const struct exec *x) {
    return x->step;
}

int64_t exec_arena_bytes(const struct exec *x) {
    return x->chunks->sp->arena_bytes;
}

const double *exec_seconds(const struct exec *x) {
    return x->seconds;
}

void exec_forget_seconds(struct exec *x) {
    exec_watch_forget(x);
    memset(x->seconds, 0, sizeof x->seconds);
}
