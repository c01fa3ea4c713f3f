/* Which GPU is described, and what is said at the end. */
#include "described.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Data sheets; shared memory of a block as the Programming Guide has it for 9.0, 8.0 and 8.6. */
static const struct described {
    const char *name;
    struct fake_gpu gpu;
} described[] = {
    {"h100", {"NVIDIA H100 80GB HBM3", 90, 132, 227 << 10, (int64_t)80 << 30}},
    {"a100", {"NVIDIA A100-SXM4-80GB", 80, 108, 163 << 10, (int64_t)80 << 30}},
    {"a40", {"NVIDIA A40", 86, 84, 99 << 10, (int64_t)48 << 30}},
};

static const struct described *wanted(void) {
    const char *name = getenv("DESCRIBED_GPU");
    for (size_t i = 0; i < sizeof described / sizeof *described; i++)
        if (!name || !strcmp(name, described[i].name))
            return &described[i];
    fprintf(stderr, "DESCRIBED_GPU=%s: h100, a100 or a40\n", name);
    exit(2);
}

__attribute__((constructor)) static void begin(void) {
    fake_cuda.gpu = &wanted()->gpu;
    fake_cuda.idle = true;
}

__attribute__((destructor)) static void end(void) {
    const struct launches n = described_launches();
    const char *list = getenv("DESCRIBED_LIST");
    if (list && !described_list(list))
        perror(list);
    fprintf(stderr, "# %s: %lld launches of %lld kernels, %lld refused\n", wanted()->name,
            (long long)n.all, (long long)n.kernels, (long long)n.refused);
}
