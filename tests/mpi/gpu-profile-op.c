/* gpu-profile-op.c - weft-profile-op on the fakes of CUDA and cuBLASLt (tests/fake, tests/products): with the
 * objects of the tool this is the tool. */
#include "device/kernel.h"

#include <stdlib.h>

/* All instructions but products are done by the CPU's kernels. */
__attribute__((constructor)) static void begin(void) {
    if (kernel_init(1, NULL) < 0)
        abort();
}
