/* gpu-run.c - weft-run on the fakes of CUDA, NCCL and cuBLASLt (tests/fake, tests/products): with the objects
 * of the tool this is the tool. At the end it says on stderr how products were computed, and how many of them
 * did with an epilogue what weft can do by itself. The library is of the version that FAKE_VERSION says. */
#include "device/kernel.h"
#include "products/cublaslt.h"

#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void begin(void) {
    const char *version = getenv("FAKE_VERSION");
    fake_cublaslt.version = version ? strtoul(version, NULL, 10) : 0;
    if (kernel_init(1, NULL) < 0) /* the other instructions are done by the CPU's kernels */
        abort();
}

__attribute__((destructor)) static void end(void) {
    const int *n = fake_cublaslt.runs;
    fprintf(stderr, "# heuristics %d, algorithms %d %d %d%s%s\n", fake_cublaslt.heuristics,
            n[0], n[1], n[2], fake_cublaslt.wrong ? ", wrong: " : "",
            fake_cublaslt.wrong ? fake_cublaslt.wrong : "");
    fprintf(stderr, "# epilogues %d\n", fake_cublaslt.epilogues);
}
