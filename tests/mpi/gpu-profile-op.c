/* gpu-profile-op.c - weft-profile-op on the fakes of CUDA, cuBLASLt and cuDNN (tests/fake, tests/products):
 * with the objects of the tool this is the tool. */
#include "device/kernel.h"

#include <stdlib.h>

/* All instructions but products and convolutions are done by the CPU's kernels. */
__attribute__((constructor)) static void begin(void) {
    if (kernel_init(1, NULL) < 0)
        abort();
}
