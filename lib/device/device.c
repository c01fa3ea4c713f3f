/* The calls of device.h, passed on to the backend. */
#include "device/device.h"

#include "common/mem.h"
#include "device/device_backend.h"

#include <stdlib.h>

struct device *device_create(const struct device_backend *backend, int index, int threads,
                             struct err *err) {
    struct device *dev = mem_alloc(sizeof *dev);
    *dev = (struct device){.backend = backend, .index = index, .threads = threads};
    if (backend->create(dev, err) == 0)
        return dev;
    device_destroy(dev);
    return NULL;
}

void device_destroy(struct device *dev) {
    if (dev)
        dev->backend->destroy(dev);
    free(dev);
}

bool device_is_host(const struct device *dev) {
    return dev->backend->host;
}

void *device_alloc(struct device *dev, int64_t bytes, struct err *err) {
    return dev->backend->alloc(dev, bytes, err);
}

void device_free(struct device *dev, void *p) {
    if (p)
        dev->backend->free(dev, p);
}

void *device_alloc_host(struct device *dev, int64_t bytes, struct err *err) {
    return dev->backend->alloc_host(dev, bytes, err);
}

void device_free_host(struct device *dev, void *p) {
    if (p)
        dev->backend->free_host(dev, p);
}

/* ---- streams and events ------------------------------------------------------------------- */

struct device_stream *device_stream_create(struct device *dev, struct err *err) {
    struct device_stream *s = mem_alloc(sizeof *s);
    s->device = dev;
    if (dev->backend->stream_create(s, err) == 0)
        return s;
    device_stream_destroy(s);
    return NULL;
}

void device_stream_destroy(struct device_stream *s) {
    if (s)
        s->device->backend->stream_destroy(s);
    free(s);
}

int device_synchronize(struct device_stream *s, struct err *err) {
    return s->device->backend->synchronize(s, err);
}

struct device_event *device_event_create(struct device *dev, struct err *err) {
    struct device_event *e = mem_alloc(sizeof *e);
    e->device = dev;
    if (dev->backend->event_create(e, err) == 0)
        return e;
    device_event_destroy(e);
    return NULL;
}

void device_event_destroy(struct device_event *e) {
    if (e)
        e->device->backend->event_destroy(e);
    free(e);
}

int device_event_record(struct device_event *e, struct device_stream *s, struct err *err) {
    return s->device->backend->event_record(e, s, err);
}

int device_event_wait(struct device_event *e, struct device_stream *s, struct err *err) {
    return s->device->backend->event_wait(e, s, err);
}

int device_event_reached(struct device_event *e, struct err *err) {
    return e->device->backend->event_reached(e, err);
}

bool device_can_mark(const struct device *dev) {
    return dev->backend->mark != NULL;
}

struct device_event *device_mark_create(struct device *dev, struct err *err) {
    struct device_event *e = mem_alloc(sizeof *e);
    e->device = dev;
    if (dev->backend->mark_create(e, err) == 0)
        return e;
    device_event_destroy(e);
    return NULL;
}

int device_mark(struct device_event *e, struct device_stream *s, bool rest,
                struct err *err) {
    return s->device->backend->mark(e, s, rest, err);
}

int device_mark_between(struct device_event *from, struct device_event *to, double *us,
                        struct err *err) {
    return from->device->backend->mark_between(from, to, us, err);
}

void device_watch(struct device *dev, int (*watch)(void *arg, struct err *err), void *arg) {
    dev->watch = watch;
    dev->watch_arg = arg;
}

/* ---- work --------------------------------------------------------------------------------- */

int device_upload(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                  struct err *err) {
    return s->device->backend->upload(s, dst, src, bytes, err);
}

int device_unpack(struct device_stream *s, void *dst, enum dtype to, const void *src,
                  enum dtype from, int64_t n, struct err *err) {
    return s->device->backend->unpack(s, dst, to, src, from, n, err);
}

int device_download(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                    struct err *err) {
    return s->device->backend->download(s, dst, src, bytes, err);
}

int device_launch(struct device_stream *s, enum opcode code, const union instr_n *n,
                  const union instr_src *in, const union instr_dst *out,
                  const struct device_args *args, struct err *err) {
    return s->device->backend->launch(s, code, n, in, out, args, err);
}

/* ---- captured regions --------------------------------------------------------------------------- */

bool device_can_capture(const struct device *dev) {
    return dev->backend->capture_begin != NULL;
}

int device_capture_begin(struct device_stream *s, struct err *err) {
    return s->device->backend->capture_begin(s, err);
}

struct device_region *device_capture_end(struct device_stream *s, struct err *err) {
    struct device_region *r = mem_alloc(sizeof *r);
    r->device = s->device;
    if (s->device->backend->capture_end(s, r, err) == 0)
        return r;
    device_region_destroy(r);
    return NULL;
}

int device_replay(struct device_region *r, struct device_stream *s, struct err *err) {
    return s->device->backend->replay(r, s, err);
}

void device_region_destroy(struct device_region *r) {
    if (r)
        r->device->backend->region_destroy(r);
    free(r);
}
