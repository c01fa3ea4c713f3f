/* gpuwatch.h - errors of this host's GPUs, as the driver tells them.
 *
 * NVIDIA's library of management (nvml) is opened where it is installed, and without a toolkit: it queues what
 * drivers log as "Xid" and errors of memory that ECC could not correct. Elsewhere nothing is watched.
 *
 *     struct gpu_watch *w = gpu_watch_create(NULL);
 *     char text[200];
 *     if (gpu_watch_poll(w, text, sizeof text) > 0) puts(text);      // "GPU 3: Xid 79"
 *     gpu_watch_destroy(w);
 */
#ifndef WEFT_GPUWATCH_H
#define WEFT_GPUWATCH_H

#include <stddef.h>

/* As nvml.h has it. */
struct nvml_event {
    void *device;
    unsigned long long type, data; /* data: the number of the Xid */
    unsigned gpu_instance, compute_instance;
};

/* Of nvml what is called here; 0 is success. */
struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *n);
    int (*handle)(unsigned i, void **device);
    int (*index)(void *device, unsigned *i);
    int (*set_create)(void **set);
    int (*set_free)(void *set);
    int (*enroll)(void *device, unsigned long long types, void *set);
    int (*wait)(void *set, struct nvml_event *e, unsigned milliseconds);
};

struct gpu_watch;

/* Watches all GPUs of this host through these functions; NULL = those of the driver's library. NULL where there is
 * none, or no GPU. */
struct gpu_watch *gpu_watch_create(const struct nvml *n);
void gpu_watch_destroy(struct gpu_watch *w); /* NULL is fine */

/* Takes what came since: writes "GPU 3: Xid 79, GPU 3: uncorrectable error of memory" to text, as far as it has room.
 * Returns how many there were; does not wait. */
int gpu_watch_poll(struct gpu_watch *w, char *text, size_t n);

#endif
