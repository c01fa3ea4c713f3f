#include "device_kind.h"

#include "cuda/cuda.h"
#include "plan/cluster.h"

#include <stdio.h>
#include <string.h>

bool device_kind_is_gpu(const char *device) {
    return device && (!strcmp(device, "cuda") || !strncmp(device, "cuda:", 5));
}

int device_kind_check(const char *device, struct err *err) {
    if (!device || device_kind_is_gpu(device) || !cluster_kind_is_gpu(device))
        return 0;
    err_usage(err, "--device %.64s: the name of a GPU, and this would time the CPU",
              device);
    return err_hint(err, "--device cuda times the GPU, cuda:%.64s under this name", device);
}

int device_kind_of_gpu(const char *device, int number, bool tf32, char *buf, size_t size,
                       struct err *err) {
    static const char suffix[] = "-tf32";
    char name[64];
    int index;
    if (device[4])
        snprintf(name, sizeof name, "%s", device + 5);
    else if ((index = cuda_index(number, err)) < 0 ||
             cuda_kind(index, name, sizeof name, err) < 0)
        return -1;
    const size_t n = strlen(name), most = sizeof suffix - 1;
    const bool says = n >= most && !strcmp(name + n - most, suffix);
    snprintf(buf, size, "%s%s", name, tf32 && !says ? suffix : "");
    return 0;
}
