#include "keep/gpuwatch.h"

#include "common/mem.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOUBLE_BIT = 2, XID = 8, MOST = 16 }; /* types of events; read at a time */

struct gpu_watch {
    struct nvml nvml;
    void *library; /* NULL = the functions were given */
    void *set;
    bool up;
};

/* POSIX says that an object pointer from dlsym holds a function's address. */
static bool find(void *library, const char *name, void *function) {
    void *p = dlsym(library, name);
    memcpy(function, &p, sizeof p);
    return p != NULL;
}

static bool find_all(void *library, struct nvml *n) {
    return find(library, "nvmlInit_v2", &n->init) &&
           find(library, "nvmlShutdown", &n->shutdown) &&
           find(library, "nvmlDeviceGetCount_v2", &n->count) &&
           find(library, "nvmlDeviceGetHandleByIndex_v2", &n->handle) &&
           find(library, "nvmlDeviceGetIndex", &n->index) &&
           find(library, "nvmlEventSetCreate", &n->set_create) &&
           find(library, "nvmlEventSetFree", &n->set_free) &&
           find(library, "nvmlDeviceRegisterEvents", &n->enroll) &&
           find(library, "nvmlEventSetWait_v2", &n->wait);
}

/* A GPU that cannot tell of its memory may still tell of Xids. */
static int enroll_all(struct gpu_watch *w) {
    unsigned n = 0;
    int watched = 0;
    w->nvml.count(&n);
    for (unsigned i = 0; i < n; i++) {
        void *device;
        if (w->nvml.handle(i, &device) == 0)
            watched += w->nvml.enroll(device, XID | DOUBLE_BIT, w->set) == 0 ||
                       w->nvml.enroll(device, XID, w->set) == 0;
    }
    return watched;
}

struct gpu_watch *gpu_watch_create(const struct nvml *n) {
    struct gpu_watch *w = mem_alloc(sizeof *w);
    *w = (struct gpu_watch){0};
    bool found = n != NULL;
    if (n)
        w->nvml = *n;
    else if ((w->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)))
        found = find_all(w->library, &w->nvml);
    w->up = found && w->nvml.init() == 0;
    if (w->up && w->nvml.set_create(&w->set) == 0 && enroll_all(w) > 0)
        return w;
    gpu_watch_destroy(w);
    return NULL;
}

void gpu_watch_destroy(struct gpu_watch *w) {
    if (!w)
        return;
    if (w->set)
        w->nvml.set_free(w->set);
    if (w->up)
        w->nvml.shutdown();
    if (w->library)
        dlclose(w->library);
    free(w);
}

int gpu_watch_poll(struct gpu_watch *w, char *text, size_t n) {
    struct nvml_event e = {0};
    size_t used = 0;
    int came = 0;
    if (n)
        *text = '\0';
    while (w && came < MOST && w->nvml.wait(w->set, &e, 0) == 0) {
        unsigned gpu = 0;
        char what[64];
        w->nvml.index(e.device, &gpu);
        if (e.type == XID)
            snprintf(what, sizeof what, "Xid %llu", e.data);
        else
            snprintf(what, sizeof what, "uncorrectable error of memory");
        if (used < n)
            used += (size_t)snprintf(text + used, n - used, "%sGPU %u: %s",
                                     came ? ", " : "", gpu, what);
        came++;
    }
    return came;
}
