/* device.h - a device: its memory, its streams, and instructions that run on them.
 *
 * Work goes to a *stream* and happens there in the order in which it was given, some time after
 * the call returned. What two streams do is ordered by *events*: recorded on one, waited for on
 * the other. A backend (device_backend.h) does the work; the CPU's is the synchronous case, where
 * all is done when the call returns. The executor and the profiler launch instructions by the same
 * call, so what is timed is what runs.
 *
 *     struct device *dev = device_create(&device_backend_cpu, 0, threads, &err);
 *     struct device_stream *s = device_stream_create(dev, &err);
 *     union instr_n n = {.linear = {.m = 128, .n = 512, .k = 256, .bias = 1}};
 *     device_launch(s, I_linear, &n, &src, &dst, &(struct device_args){0}, &err);
 *     device_download(s, host, dst.linear.y, bytes, &err);
 *
 * Functions that return int give 0 or -1. What a device could not do it may say late: at the next
 * synchronize or download of the stream.
 */
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H

#include "device/kernel.h"
#include "program/program.h"
#include "program/scalars.h"

struct device;
struct device_stream;
struct device_event;
struct device_region;
struct device_backend; /* device_backend.h */

extern const struct device_backend device_backend_cpu;

/* The backend's device number `index` of this machine, for at most `threads` threads of the host. A
 * process has one CPU at a time. NULL on failure. */
struct device *device_create(const struct device_backend *backend, int index, int threads,
                             struct err *err);
void device_destroy(
    struct device *dev); /* after its streams, events, captured regions and memory */

/* Is its memory the host's? Then its operands may also lie in memory of the caller's. */
bool device_is_host(const struct device *dev);

/* Aligned to 4096 bytes, zeroed; NULL on failure. */
void *device_alloc(struct device *dev, int64_t bytes, struct err *err);
void device_free(struct device *dev, void *p);
/* Memory of the host that the device reads and writes by itself (I_offload, I_reload), zeroed. */
void *device_alloc_host(struct device *dev, int64_t bytes, struct err *err);
void device_free_host(struct device *dev, void *p);

struct device_stream *device_stream_create(struct device *dev, struct err *err);
void device_stream_destroy(struct device_stream *s);
/* Until all that was given to the stream is done. */
int device_synchronize(struct device_stream *s, struct err *err);

struct device_event *device_event_create(struct device *dev, struct err *err);
void device_event_destroy(struct device_event *e);
/* Marks the place that the stream has come to; the event forgets the one before. */
int device_event_record(struct device_event *e, struct device_stream *s, struct err *err);
/* What is given to the stream from here on waits until the place is reached that the event marks
 * now; one that marks none holds nothing up. */
int device_event_wait(struct device_event *e, struct device_stream *s, struct err *err);
/* Has the place been reached that the event marks now? 1, 0, or -1 on failure; never waits. */
int device_event_reached(struct device_event *e, struct err *err);

/* Marks: events that know when they were reached. Backends have them that do things later than they are
 * asked to; in a captured region a mark is reached anew each time it is replayed. */
bool device_can_mark(const struct device *dev);
struct device_event *device_mark_create(struct device *dev, struct err *err);
/* 1: marks the place that the stream, or its captured region, has come to. 0: instructions are held back there to
 * be launched with the next ones; `rest` has them launched before. -1 on failure. */
int device_mark(struct device_event *e, struct device_stream *s, bool rest,
                struct err *err);
/* From one mark to another, both reached. Returns 0 or -1. */
int device_mark_between(struct device_event *from, struct device_event *to, double *us,
                        struct err *err);

/* From here on whoever waits on the host for this device asks `watch` now and then whether to go on
 * (0) or to fail with its error (-1): what the device does may itself wait for other ranks. It may
 * give the device work, and never waits. NULL: nobody is asked. */
void device_watch(struct device *dev, int (*watch)(void *arg, struct err *err), void *arg);

/* From the host to the device: src may be reused on return. */
int device_upload(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                  struct err *err);
/* From the device to the host: waits for what the stream has to do before, and for the copy. */
int device_download(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                    struct err *err);

/* From memory of device_alloc_host to the device, which makes wider numbers of narrow ones: i32 of u8, u16
 * and i32; any float type of f32, and of u8, of which 255 becomes 1. src may be reused when the stream has
 * come past it. */
int device_unpack(struct device_stream *s, void *dst, enum dtype to, const void *src,
                  enum dtype from, int64_t n, struct err *err);

/* A strided copy of a block of floats; the numbers are borrowed. */
struct device_copy {
    int rank;
    const int64_t *size, *src, *dst; /* [rank] of the block; strides in floats */
};

/* What an instruction needs besides operands and shape, the same whenever it runs; zero where it
 * does not concern it. What changes from step to step stands in the scalars. */
struct device_args {
    enum dtype dtype; /* of operands that are neither F32 nor whole numbers (instr.def) */
    /* on the device: of dropout, losses, sum_squares, adamw, sgd */
    struct scalars *scalars;
    /* number of the first local row or column, expert, query or position; batch
     * norm: of the first local sample, in the first group */
    int64_t first;
    int64_t first_key; /* attention: number of the first key that is here */
    /* attention, join: the first head of queries or of x, counted from the first one of the
     * local heads of keys or of z */
    int64_t first_head;
    int distance;             /* attention: beyond it positions are alike */
    float cap;                /* attention that is capped: what no score reaches */
    struct alibi slope;       /* attention that is sloped */
    bool fresh;               /* results that are FRESH are written, not added to */
    bool skip_bias;           /* linear: another rank of the group adds the bias */
    bool counts;              /* losses, sum_squares: the value enters the sum */
    const double *per_target; /* losses: on the device, their place in the scalars */
    int32_t ignore;           /* cross_entropy: targets of this value do not count */
    double weight;            /* losses of routers, dropped: of the value in the metric */
    float scale;  /* losses of routers: of a row's gradient; avgpool: 1 / places;
                    batchnorm_running: 1 / groups of a step; attention: of the scores; scale:
                    the factor; softcap: the cap; route: of the gates */
    float eps;    /* layer norm, rms norm, batch norm */
    float offset; /* rms norm: added to its weight */
    struct rotary_angles angles; /* rotary */
    /* dropout: the block in the whole tensor, of the first micro-batch */
    struct kernel_box box;
    /* dropout: dims of the box that go on with the micro-batches, as bits */
    unsigned batch_dims;
    float rate;                      /* dropout */
    int op;                          /* dropout: of the model; each draws its own numbers */
    struct device_copy copy;         /* copy */
    const struct matrices *matrices; /* matmul, matmul_dw; borrowed */
    int64_t src_offset;              /* copy: floats, from the rank's coordinate */
    struct kernel_halo halo;         /* halo_*: its numbers and pieces; pieces borrowed */
    float beta1, beta2, opt_eps, decay, momentum; /* adamw, sgd, running */
    /* of what reads gradients: replicas of which each has one of its own, and this many times it
     * is a gradient of the mean; 0: it is a sum over all of them */
    int replicas;
    int faulty;        /* median, trimmed, fair: rows that may be anything */
    int64_t *suspects; /* of these: on the device, what they add to; or NULL */
};

/* By what such a gradient is to be multiplied. */
static inline float device_grad_factor(const struct device_args *a) {
    return a->replicas > 1 ? (float)a->replicas : 1;
}

/* Runs the instruction on the stream; addresses of absent operands are NULL. Only what is keyed by
 * what it computes (KEY_SHAPE, KEY_CURVE) is for the device: the rest is the executor's. What
 * `args` points to must stay as it is until the instruction has run. */
int device_launch(struct device_stream *s, enum opcode code, const union instr_n *n,
                  const union instr_src *in, const union instr_dst *out,
                  const struct device_args *args, struct err *err);

/* Captured regions: what is given to the stream between begin and end (launches) is kept
 * instead of done, and can be replayed as a whole, as often as wanted, on the same addresses. */
bool device_can_capture(const struct device *dev);
int device_capture_begin(struct device_stream *s, struct err *err);
struct device_region *device_capture_end(struct device_stream *s, struct err *err);
int device_replay(struct device_region *r, struct device_stream *s, struct err *err);
void device_region_destroy(struct device_region *r);

#endif
