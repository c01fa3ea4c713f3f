/* gpu-profile-op.c - weft-profile-op on the fakes of CUDA, cuBLASLt and cuDNN (tests/fake, tests/products):
 * with the objects of the tool this is the tool. At the end it says on stderr how many products did with an
 * epilogue what weft can do by itself. With FAKE_CLOCK in the environment each launch takes a millisecond, whatever
 * it does, and all else no time: so it is seen what is one launch. */
#include "common/progress.h"
#include "device/kernel.h"
#include "fake/cudart.h"
#include "products/cublaslt.h"

#include <stdio.h>
#include <stdlib.h>

/* All instructions but products and convolutions are done by the CPU's kernels. */
__attribute__((constructor)) static void begin(void) {
    if (kernel_init(1, NULL) < 0)
        abort();
}

/* The linker gives these names to now_s() (--wrap). */
double __real_now_s(void);
double __wrap_now_s(void);

double __wrap_now_s(void) {
    return getenv("FAKE_CLOCK") ? 1e-3 * (double)fake_cuda.done : __real_now_s();
}

__attribute__((destructor)) static void end(void) {
    fprintf(stderr, "# epilogues %d%s%s\n", fake_cublaslt.epilogues,
            fake_cublaslt.wrong ? ", wrong: " : "",
            fake_cublaslt.wrong ? fake_cublaslt.wrong : "");
}
