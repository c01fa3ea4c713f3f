/* How fast a GPU runs at the moment, asked of NVML, the library of nvidia-smi, which comes with the
 * driver. The toolkit need not have its header: what is called is declared here as NVML documents it. */
#include "cuda/cuda_check.h"
#include "cuda/cuda_library.h"

#include "cuda/cuda.h"

#include <stdio.h>

enum { CLOCK_SM = 1, TEMPERATURE_GPU = 0 };

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);
int nvmlDeviceGetMaxClockInfo(void *device, int type, unsigned *mhz);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);

#define FUNCTIONS(X)                                                                       \
    X(nvmlInit_v2)                                                                         \
    X(nvmlDeviceGetHandleByPciBusId_v2)                                                    \
    X(nvmlDeviceGetClockInfo)                                                              \
    X(nvmlDeviceGetMaxClockInfo)                                                           \
    X(nvmlDeviceGetTemperature)                                                            \
    X(nvmlDeviceGetCurrentClocksThrottleReasons)

struct nvml {
    CUDA_LIBRARY_TABLE(FUNCTIONS)
};

static int open_device(struct nvml *n, int index, void **device, struct err *err) {
    static const char *const names[] = {CUDA_LIBRARY_NAMES(FUNCTIONS) NULL};
    char bus[32];
    if (cuda_library_open("libnvidia-ml.so.1", names, n, err) < 0 ||
        cuda_check(cudaDeviceGetPCIBusId(bus, sizeof bus, index), "the place of a GPU",
                   err) < 0)
        return -1;
    if (n->nvmlInit_v2() || n->nvmlDeviceGetHandleByPciBusId_v2(bus, device))
        return err_system(err, "NVML does not know GPU %d", index);
    return 0;
}

int cuda_clocks(int index, struct cuda_clocks *out, struct err *err) {
    struct nvml n;
    void *device;
    unsigned mhz, most, celsius;
    unsigned long long reasons;
    if (open_device(&n, index, &device, err) < 0)
        return -1;
    if (n.nvmlDeviceGetClockInfo(device, CLOCK_SM, &mhz) ||
        n.nvmlDeviceGetMaxClockInfo(device, CLOCK_SM, &most) ||
        n.nvmlDeviceGetTemperature(device, TEMPERATURE_GPU, &celsius) ||
        n.nvmlDeviceGetCurrentClocksThrottleReasons(device, &reasons))
        return err_system(err, "NVML says nothing of the clocks of GPU %d", index);
    *out = (struct cuda_clocks){.mhz = (int)mhz,
                                .most_mhz = (int)most,
                                .celsius = (int)celsius,
                                .reasons = reasons};
    return 0;
}
