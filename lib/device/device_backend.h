/* device_backend.h - what a backend of device implements.
 *
 * A backend is a `const struct device_backend` that whoever creates a device names
 * (exec_options.device). Each function does what its namesake in device.h promises; it finds what
 * it keeps of a device, stream, event or captured region in `state`. cpu.c is the shortest example.
 */
#ifndef WEFT_DEVICE_BACKEND_H
#define WEFT_DEVICE_BACKEND_H

#include "device/device.h"

struct device {
    const struct device_backend *backend;
    int index, threads;
    void *state;
    int (*watch)(void *arg, struct err *err); /* device_watch's, or NULL */
    void *watch_arg;
};
struct device_stream {
    struct device *device;
    void *state;
};
struct device_event {
    struct device *device;
    void *state;
};
struct device_region {
    struct device *device;
    void *state;
};

struct device_backend {
    const char *name;
    bool host; /* its memory is the host's */
    /* Those that make something set its state, which those that end it free; also after a failure
     * to make it. */
    int (*create)(struct device *dev, struct err *err);
    void (*destroy)(struct device *dev);
    void *(*alloc)(struct device *dev, int64_t bytes, struct err *err);
    void (*free)(struct device *dev, void *p);
    void *(*alloc_host)(struct device *dev, int64_t bytes, struct err *err);
    void (*free_host)(struct device *dev, void *p);

    int (*stream_create)(struct device_stream *s, struct err *err);
    void (*stream_destroy)(struct device_stream *s);
    int (*synchronize)(struct device_stream *s, struct err *err);
    int (*event_create)(struct device_event *e, struct err *err);
    void (*event_destroy)(struct device_event *e);
    int (*event_record)(struct device_event *e, struct device_stream *s, struct err *err);
    int (*event_wait)(struct device_event *e, struct device_stream *s, struct err *err);
    int (*event_reached)(struct device_event *e, struct err *err);

    /* All three, or none where what is asked for is done at once. */
    int (*mark_create)(struct device_event *e, struct err *err);
    int (*mark)(struct device_event *e, struct device_stream *s, bool rest,
                struct err *err);
    int (*mark_between)(struct device_event *from, struct device_event *to, double *us,
                        struct err *err);

    int (*upload)(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                  struct err *err);
    int (*download)(struct device_stream *s, void *dst, const void *src, int64_t bytes,
                    struct err *err);
    int (*unpack)(struct device_stream *s, void *dst, enum dtype to, const void *src,
                  enum dtype from, int64_t n, struct err *err);
    int (*launch)(struct device_stream *s, enum opcode code, const union instr_n *n,
                  const union instr_src *in, const union instr_dst *out,
                  const struct device_args *args, struct err *err);

    /* All four, or none where the backend cannot record. */
    int (*capture_begin)(struct device_stream *s, struct err *err);
    int (*capture_end)(struct device_stream *s, struct device_region *r, struct err *err);
    int (*replay)(struct device_region *r, struct device_stream *s, struct err *err);
    void (*region_destroy)(struct device_region *r);
};

#endif
