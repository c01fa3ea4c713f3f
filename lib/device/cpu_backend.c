/* The CPU as a device: the synchronous case. Its streams are the order of the calls, so events
 * have nothing to say; its memory is the host's; it records nothing. */
#define _DEFAULT_SOURCE /* madvise */
#include "device/cpu.h"
#include "device/device_backend.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 2 << 20 };

static int cpu_create(struct device *dev, struct err *err) {
    return kernel_init(dev->threads, err);
}

static void cpu_destroy(struct device *dev) {
    (void)dev;
    kernel_release();
}

static void *cpu_alloc(struct device *dev, int64_t bytes, struct err *err) {
    (void)dev;
    void *p;
    if (posix_memalign(&p, PAGE, (size_t)bytes)) {
        err_system(err, "cannot allocate %lld bytes", (long long)bytes);
        return NULL;
    }
#ifdef MADV_HUGEPAGE
    madvise(p, (size_t)bytes, MADV_HUGEPAGE);
#endif
    return memset(p, 0, (size_t)bytes);
}

static void cpu_free(struct device *dev, void *p) {
    (void)dev;
    free(p);
}

static int stream_create(struct device_stream *s, struct err *err) {
    (void)s, (void)err;
    return 0;
}

static void stream_destroy(struct device_stream *s) {
    (void)s;
}

static int synchronize(struct device_stream *s, struct err *err) {
    (void)s, (void)err;
    return 0;
}

static int event_create(struct device_event *e, struct err *err) {
    (void)e, (void)err;
    return 0;
}

static void event_destroy(struct device_event *e) {
    (void)e;
}

static int event_nothing(struct device_event *e, struct device_stream *s, struct err *err) {
    (void)e, (void)s, (void)err;
    return 0;
}

static int event_reached(struct device_event *e, struct err *err) {
    (void)e, (void)err;
    return 1;
}

static int copy(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                struct err *err) {
    (void)s, (void)err;
    memcpy(dst, src, (size_t)bytes);
    return 0;
}

static int unpack(struct device_stream *s, void *dst, enum dtype to, const void *src,
                  enum dtype from, int64_t n, struct err *err) {
    (void)s, (void)err;
    kernel_unpack(n, from, src, to, dst);
    return 0;
}

void cpu_exec(enum opcode code, const union instr_n *n, const union instr_src *in,
              const union instr_dst *out, const struct device_args *a) {
    switch (a->dtype) {
    case DTYPE_bf16: cpu_exec_bf16(code, n, in, out, a); break;
    case DTYPE_f16: cpu_exec_f16(code, n, in, out, a); break;
    default: cpu_exec_f32(code, n, in, out, a);
    }
}

static int launch(struct device_stream *s, enum opcode code, const union instr_n *n,
                  const union instr_src *in, const union instr_dst *out,
                  const struct device_args *args, struct err *err) {
    (void)s, (void)err;
    cpu_exec(code, n, in, out, args);
    return 0;
}

const struct device_backend device_backend_cpu = {.name = "cpu",
                                                  .host = true,
                                                  .create = cpu_create,
                                                  .destroy = cpu_destroy,
                                                  .alloc = cpu_alloc,
                                                  .free = cpu_free,
                                                  .alloc_host = cpu_alloc,
                                                  .free_host = cpu_free,
                                                  .stream_create = stream_create,
                                                  .stream_destroy = stream_destroy,
                                                  .synchronize = synchronize,
                                                  .event_create = event_create,
                                                  .event_destroy = event_destroy,
                                                  .event_record = event_nothing,
                                                  .event_wait = event_nothing,
                                                  .event_reached = event_reached,
                                                  .upload = copy,
                                                  .download = copy,
                                                  .unpack = unpack,
                                                  .launch = launch};
