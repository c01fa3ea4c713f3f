/* Metrics as TensorBoard reads them: a file of events, each a message of protocol buffers between checksums
 * (tensorflow/core/util/event.proto, tensorflow/core/lib/io/record_writer.h). */
#include "run.h"

#include "checkpoint/ckptdir.h"
#include "common/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct run_events {
    int fd;
    char *path;
};

/* CRC-32C (Castagnoli), its bits reversed. */
static uint32_t crc32c(const uint8_t *p, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* A checksum of data that holds checksums is masked, so that it is none of those. */
static uint32_t masked(const uint8_t *p, size_t n) {
    const uint32_t crc = crc32c(p, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint64_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Event: what it says is in a field of this number; in one write, so that a kill leaves whole ones. */
static int put_event(struct run_events *e, int64_t step, int field,
                     const struct wire_out *what, struct err *err) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct wire_out event = {0}, record = {0};
    wire_put_fixed64(&event, 1, bits_of((double)now.tv_sec + 1e-9 * (double)now.tv_nsec));
    wire_put_uint(&event, 2, (uint64_t)step);
    wire_put_bytes(&event, field, what->p, (size_t)what->n);
    wire_put_little(&record, (uint64_t)event.n, 8);
    wire_put_little(&record, masked(record.p, 8), 4);
    for (int64_t i = 0; i < event.n; i++)
        arr_push(&record, event.p[i]);
    wire_put_little(&record, masked(event.p, (size_t)event.n), 4);
    const ssize_t wrote = write(e->fd, record.p, (size_t)record.n);
    const int why = errno;
    const bool whole = wrote == (ssize_t)record.n;
    arr_release(&event);
    arr_release(&record);
    return whole ? 0
                 : err_system(err, "--tensorboard: %s: %s", e->path,
                              wrote < 0 ? strerror(why) : "an event was cut short");
}

/* The version of the file, and that the run starts behind a step: what older files of the folder have of later
 * ones was lost, and TensorBoard drops it. */
static int begin(struct run_events *e, int64_t step, struct err *err) {
    static const char version[] = "brain.Event:2";
    const struct wire_out file_version = {(uint8_t *)version, sizeof version - 1, 0};
    struct wire_out start = {0};
    wire_put_uint(&start, 1, 1); /* SessionLog.status = START */
    int rc = put_event(e, 0, 3, &file_version, err);
    if (rc == 0)
        rc = put_event(e, step + 1, 7, &start, err);
    arr_release(&start);
    return rc;
}

struct run_events *run_events_open(const char *dir, int64_t step, struct err *err) {
    if (ckpt_make_dirs(dir, err) < 0) {
        err_prefix(err, "--tensorboard");
        return NULL;
    }
    struct run_events *e = mem_alloc(sizeof *e);
    char host[128] = "", name[256];
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%lld",
             (long long)time(NULL), host, (long long)getpid());
    e->path = ckpt_join(dir, name);
    e->fd = open(e->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (e->fd < 0)
        err_system(err, "--tensorboard: %s: %s", e->path, strerror(errno));
    if (e->fd >= 0 && begin(e, step, err) == 0)
        return e;
    run_events_close(e);
    return NULL;
}

void run_events_close(struct run_events *e) {
    if (e && e->fd >= 0)
        close(e->fd);
    if (e)
        free(e->path);
    free(e);
}

int run_events_add(struct run_events *e, const json_t *line, struct err *err) {
    struct wire_out summary = {0};
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)line, key, v) {
        if (!strcmp(key, "step") || (!json_is_number(v) && !json_is_null(v)))
            continue;
        struct wire_out value = {0};
        wire_put_text(&value, 1, key);
        wire_put_fixed32(
            &value, 2, bits_of_float(json_is_null(v) ? NAN : (float)json_number_value(v)));
        wire_put_bytes(&summary, 1, value.p, (size_t)value.n);
        arr_release(&value);
    }
    int rc =
        put_event(e, json_integer_value(json_object_get(line, "step")), 5, &summary, err);
    arr_release(&summary);
    return rc;
}
