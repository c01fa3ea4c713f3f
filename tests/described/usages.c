/* What weft's kernels take: make writes usage.h from what ptxas said when they were compiled. */
#include "described.h"

const struct described_usage described_usages[] = {
#include "usage.h"
    {NULL, NULL, 0, 0},
};
